//! The report of `belay why` as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Approval, ExplainedBlocker, ProtectingPolicy, WhyReport};
use crate::command::diagnosis::HoldState;
use crate::command::document::{BlockerReport, FailedRead, ReportedVerdict};
use crate::command::place::OF_FILES;
use crate::command::screen::{cut, without_controls};
use crate::command::status::LeaderState;
use crate::decide::{Reason, approve_command_with};
use crate::objects::{counted, more};

/// The maximum number of denials in the text.
const MAX_DENIALS: usize = 3;

/// The complete text. `all`: lists are not cut; `verbose`: the text lists each unread kind.
pub fn text(report: &WhyReport, all: bool, verbose: bool) -> String {
    let WhyReport { named, subject, .. } = report;
    let (can_delete, cannot_delete) = match subject.as_str() {
        "" => (format!("{named} can be deleted"), format!("{named} can't be deleted")),
        user => (
            format!("user \"{user}\" can delete {named}"),
            format!("user \"{user}\" can't delete {named}"),
        ),
    };
    // Writing into a String cannot fail.
    let mut text = String::new();
    let _ = match (&report.terminating, report.verdict) {
        (Some(terminating), _) => write!(text, "{}", terminating.text(named)),
        (None, _) if report.refused_otherwise.is_some() => {
            writeln!(text, "{cannot_delete} now:")
        }
        (None, ReportedVerdict::Deny) => writeln!(text, "{cannot_delete} now:"),
        (None, ReportedVerdict::Unknown) => {
            writeln!(text, "it is unknown whether {can_delete}:")
        }
        (None, ReportedVerdict::Hold) => {
            writeln!(text, "{can_delete}; it then stays Terminating while:")
        }
        (None, _) if !report.deletable => {
            writeln!(text, "{can_delete}; it then stays Terminating:")
        }
        (None, ReportedVerdict::Allow)
            if report.warnings.is_empty() && report.orphaning.is_empty() =>
        {
            writeln!(text, "{can_delete} now")
        }
        (None, _) if report.orphaning.is_empty() => {
            writeln!(text, "{can_delete} now; notes:")
        }
        (None, _) => {
            writeln!(text, "{can_delete} now, without --cascade=orphan; notes:")
        }
    };
    // Missing webhooks are no reason for which an object stays Terminating.
    let is_about_webhooks =
        |warning: &str| report.why_webhooks_inactive.as_deref() == Some(warning);
    let is_held = report.verdict == ReportedVerdict::Hold;
    let warnings =
        report.warnings.iter().filter(|warning| !(is_held && is_about_webhooks(warning)));
    for says in report.refused_otherwise.iter().chain(warnings) {
        let _ = writeln!(text, "- {says}");
    }
    // The approval of a held object lets Kubernetes delete it at once.
    let hold = report.terminating.as_ref().and_then(|terminating| terminating.hold.as_ref());
    let heading = hold.map_or("to override", HoldState::override_heading);
    // Several blockers can require the same approval.
    let mut shown_approvals = BTreeSet::new();
    let mut add_approvals =
        |text: &mut String, blockers: &mut dyn Iterator<Item = &ExplainedBlocker>| {
            for approve in blockers.map(|explained| explained.approval.text(heading)) {
                if !report.is_belay_silent && shown_approvals.insert(approve.clone()) {
                    text.push_str(&approve);
                }
            }
        };
    // A hold blocks no DELETE.
    let only_holds = report.refused_otherwise.is_some() && report.verdict == ReportedVerdict::Hold;
    if only_holds {
        text.push_str("after an accepted DELETE, it stays Terminating while:\n");
    }
    let mut shown: Vec<&BlockerReport> = Vec::new();
    for ExplainedBlocker { blocker, more, .. } in
        report.blockers.iter().filter(|explained| !explained.is_listed)
    {
        if shown.iter().any(|known| is_same_reason(known, blocker)) {
            continue;
        }
        shown.push(blocker);
        let BlockerReport { message, reason, verdict, object, is_hold, .. } = blocker;
        let mut same =
            report.blockers.iter().filter(|other| is_same_reason(&other.blocker, blocker));
        let _ = writeln!(text, "- {message}; {}", sources_text(same.clone()));
        // A verdict contains only the first users.
        if *more > 0 && *reason == Reason::InUse.as_str() {
            let _ = writeln!(
                text,
                "  all objects that use it: kubectl belay used-by {}",
                object.arguments
            );
        }
        match verdict {
            ReportedVerdict::Audit | ReportedVerdict::Warn if *is_hold => {
                text.push_str("  belay refuses nothing now, but its hold keeps the object\n");
            }
            ReportedVerdict::Audit => text.push_str("  belay only records this\n"),
            ReportedVerdict::Warn => text.push_str("  belay only warns about this\n"),
            _ if only_holds => {}
            _ => add_approvals(&mut text, &mut same),
        }
    }
    let mut listed = report.blockers.iter().filter(|explained| explained.is_listed);
    add_approvals(&mut text, &mut listed);
    for explained in &report.orphaning {
        let BlockerReport { message, by, reason, .. } = &explained.blocker;
        let _ = writeln!(text, "- denied with --cascade=orphan: {message}; {by} ({reason})");
        add_approvals(&mut text, &mut std::iter::once(explained));
    }
    if let Some(next_step) = &report.orphaning_next_step {
        let _ = writeln!(text, "  next step: {next_step}");
    }
    // An approver needs no right to delete the object.
    if report.refused_otherwise.is_some() && report.verdict == ReportedVerdict::Unknown {
        let _ = writeln!(
            text,
            "the verdict of the policies is unknown; to approve the deletion for another user: {}",
            approve_command_with(&report.object.arguments)
        );
    }
    if report.more > 0 {
        let _ = writeln!(text, "- and {}", more(report.more, "reason"));
    }
    if let Some(next_step) = &report.next_step {
        let _ = writeln!(text, "next step: {next_step}");
    }
    text.extend(report.approval.as_ref().map(|approval| approval.text(heading)));
    for change in &report.automatic {
        let _ = writeln!(text, "{}", without_controls(change));
    }
    text.extend(report.approvers.as_ref().map(|approvers| approvers.text(all)));
    if !report.approvals.is_empty() {
        let _ = writeln!(text, "approved by {}", report.approvals.join(", "));
    }
    for says in &report.uncounted {
        let _ = writeln!(text, "{}", without_controls(says));
    }
    if !report.exempted.is_empty() {
        let _ = writeln!(text, "{subject} is exempt by {}", report.exempted.join(", "));
    }
    if report.policies.is_empty() && report.knows_policies {
        // A policy of an object that is deleted as well can block it.
        text.push_str(match report.blockers.is_empty() && report.orphaning.is_empty() {
            true => "no policy protects it\n",
            false => "no policy selects this object itself\n",
        });
    } else if !report.policies.is_empty() {
        let policies: Vec<String> = report.policies.iter().map(ProtectingPolicy::text).collect();
        let _ = writeln!(text, "protected by: {}", policies.join("; "));
    }
    if let Some(warning) = &report.label_warning {
        let _ = writeln!(text, "warning: {warning}");
    }
    for finalizer in &report.finalizers {
        let _ = writeln!(text, "{}", without_controls(finalizer));
    }
    if let Some(why) = &report.collected {
        let _ = writeln!(text, "{}", collected_text(report, why));
    }
    let managed = match (report.managed_by.as_slice(), &report.written_by) {
        ([], writer) => writer.as_ref().map(|writer| format!("last written by: {writer}")),
        (all, _) => Some(format!("managed by: {}", all.join("; "))),
    };
    if let Some(managed) = managed {
        let _ = writeln!(text, "{}", without_controls(&managed));
    }
    let (shown, more) = cut(&report.refused, MAX_DENIALS, all, "denials");
    // The command itself shows the details.
    let details = format!(" Details: kubectl belay why {}", report.object.arguments);
    for denial in shown {
        let line = denial.line();
        let line = line.strip_suffix(&details).unwrap_or(&line);
        let _ = writeln!(text, "refused {}", without_controls(line));
    }
    text.extend(more.map(|more| format!("refused before that: {more}\n")));
    for unread in FailedRead::grouped(&report.not_read, verbose) {
        let _ = writeln!(text, "{}", unread.line());
    }
    let evidence = report.evidence_not_read.iter().map(|unread| unread.resource.as_str());
    if let Some(line) = FailedRead::evidence_line(&evidence.collect::<Vec<_>>(), verbose) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(missing) = &report.why_webhooks_inactive {
        // A warning may report it already.
        if is_held || !report.warnings.iter().any(|warning| is_about_webhooks(warning)) {
            let _ = writeln!(text, "{missing}");
        }
    } else if report.leader.state == LeaderState::NoLeader {
        let _ = writeln!(text, "{}", report.no_leader_text);
    }
    if report.of_files {
        let _ = writeln!(text, "{OF_FILES}");
    }
    text
}

/// What the garbage collector does with the object for this reason.
fn collected_text(report: &WhyReport, why: &str) -> String {
    // Policies may exempt the user and not the garbage collector.
    if !report.deletable || !report.exempted.is_empty() {
        return format!("{why}, so the garbage collector tries to delete it");
    }
    let typed = &report.object.arguments;
    format!(
        "{why}, so the garbage collector deletes it; after a refusal, it waits longer before each \
         retry; to delete it now: kubectl delete {typed}"
    )
}

impl ProtectingPolicy {
    fn text(&self) -> String {
        format!("{} ({}, action {})", self.named, self.protects.join(", "), self.effects)
    }
}

impl Approval {
    fn text(&self, heading: &str) -> String {
        let Self { required, given, right, command, known } = self;
        let given = match (known, given.len()) {
            (false, _) => "; the approvals so far are unknown".to_owned(),
            (true, 0) => String::new(),
            (true, _) => format!(", so far by {}", given.join(", ")),
        };
        let each = match (required, given.is_empty()) {
            (Some(1), true) => ", from a person with",
            (Some(1), false) => "; from a person with",
            _ => "; each from a person with",
        };
        let approvals = match required {
            Some(required) => counted(*required, "approval"),
            None => "at least 1 approval".to_owned(),
        };
        format!("  {heading}: {command} (needs {approvals}{given}{each} {right})\n")
    }
}

/// Whether two blockers are shown as one reason.
fn is_same_reason(one: &BlockerReport, other: &BlockerReport) -> bool {
    (&one.message, one.verdict, one.is_hold) == (&other.message, other.verdict, other.is_hold)
}

/// The policies and labels of these blockers, each with its reason.
fn sources_text<'b>(blockers: impl Iterator<Item = &'b ExplainedBlocker>) -> String {
    let mut sources: Vec<String> = Vec::new();
    for ExplainedBlocker { blocker, .. } in blockers {
        let source = format!("{} ({})", blocker.by, blocker.reason);
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources.join(", ")
}
