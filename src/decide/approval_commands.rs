//! The commands that approve what a verdict denies.

use std::fmt::{self, Write as _};

use super::remedy::MAX_DESCRIBED;
use super::{Blocker, Verdict};
use crate::objects::ObjectRef;

/// The text before the commands that approve, in the message of a denial.
pub(crate) const TO_OVERRIDE: &str = "To override: ";

/// [`TO_OVERRIDE`] for an UPDATE.
const TO_OVERRIDE_CHANGE: &str = "To make this change anyway: ";

/// The beginning of a command that approves.
pub(crate) const APPROVE: &str = "kubectl belay approve ";

/// A command that approves, and how many different people must run it.
#[derive(PartialEq)]
pub(super) struct ApprovalCommand<'v> {
    object: &'v ObjectRef,
    /// Whether the approval covers the content of the object.
    content: bool,
    pub(super) command: String,
    pub(super) required_people: usize,
}

impl<'v> ApprovalCommand<'v> {
    pub(super) fn new(object: &'v ObjectRef, content: bool, required_people: usize) -> Self {
        Self { object, content, command: approve_command(object, content), required_people }
    }

    /// What the approval allows to delete.
    fn deletion(&self) -> String {
        let content =
            if self.content { " and of all objects that are deleted with it" } else { "" };
        self.object.quoted() + content
    }
}

impl fmt::Display for ApprovalCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command)?;
        if self.required_people > 1 {
            write!(f, " ({} people must approve)", self.required_people)
        } else {
            Ok(())
        }
    }
}

/// The commands that approve the request: for the target, with its content if something
/// protected is certainly deleted with it, and for the objects that this approval does not
/// cover.
pub(super) fn approval_commands<'v>(
    verdict: &'v Verdict,
    deciding: &[&'v Blocker],
) -> Vec<ApprovalCommand<'v>> {
    let is_for_target =
        |blocker: &&&Blocker| *blocker.object_to_approve(&verdict.target) == verdict.target;
    let mut commands = Vec::new();
    let mut add = |object: &'v ObjectRef, content: bool, blockers: &[&&Blocker]| {
        let required_people =
            blockers.iter().map(|blocker| blocker.required_approvals).fold(1, usize::max);
        let command = ApprovalCommand::new(object, content, required_people);
        if !commands.contains(&command) {
            commands.push(command);
        }
    };
    let for_target: Vec<_> = deciding.iter().filter(is_for_target).collect();
    if !for_target.is_empty() {
        add(
            &verdict.target,
            for_target.iter().any(|blocker| blocker.covered_by_content_approval),
            &for_target,
        );
    }
    let others = deciding.iter().filter(|blocker| !is_for_target(blocker));
    others.take(MAX_DESCRIBED).for_each(|blocker| add(&blocker.object, false, &[blocker]));
    commands
}

/// Adds how to override a denial with these commands. The text names the approved deletions if a
/// reader would expect the deletion of the target, or, for an UPDATE, no deletion.
pub(super) fn add_override(
    verdict: &Verdict,
    approvals: &[ApprovalCommand<'_>],
    text: &mut String,
) {
    let is_change = verdict.change.is_some();
    text.push_str(if is_change { TO_OVERRIDE_CHANGE } else { TO_OVERRIDE });
    let commands: Vec<String> = approvals.iter().map(ToString::to_string).collect();
    text.push_str(&commands.join(" and "));
    let is_only_for_others = approvals.iter().all(|approval| *approval.object != verdict.target);
    if is_change || is_only_for_others {
        let also = if is_change { "also " } else { "" };
        let deletions: Vec<String> = approvals.iter().map(ApprovalCommand::deletion).collect();
        let deletions = deletions.join(" and ");
        // The last command may end with the number of people.
        let separator = if text.ends_with(')') {
            text.pop();
            "; "
        } else {
            " ("
        };
        let _ = write!(text, "{separator}this {also}approves the deletion of {deletions})");
    }
}

/// The command that approves the deletion of an object, or of its content as well.
pub(crate) fn approve_command(object: &ObjectRef, content: bool) -> String {
    let scope = if content { " --scope content" } else { "" };
    approve_command_with(&(object.arguments() + scope))
}

/// The command that approves, with these arguments.
pub(crate) fn approve_command_with(arguments: &str) -> String {
    format!("{APPROVE}{arguments} --reason \"…\"")
}
