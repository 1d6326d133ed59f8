//! The reasons of a verdict, each with its causes and the approval that it requires.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::World;
use crate::command::delete_answer::{DeleteAnswer, DeniedBlocker};
use crate::command::diagnosis::{cause_text, given_approvals, right_to_approve};
use crate::command::document::{BlockerReport, Object};
use crate::command::target::situation;
use crate::decide::{Blocker, Cause, Verdict, approve_command, is_listed_as_protected, sentence};

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedBlocker {
    #[serde(flatten)]
    pub blocker: BlockerReport,
    /// The causes.
    pub causes: Vec<CauseReport>,
    /// The number of omitted causes.
    pub more: usize,
    /// The required approval.
    pub approval: Approval,
    /// Whether the message of another blocker lists its object.
    #[serde(skip)]
    pub is_listed: bool,
}

/// A cause of a blocker.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CauseReport {
    /// The message.
    #[serde(rename = "says")]
    pub message: String,
    /// The topmost owner of the user, or the owner that the policy selects; the user itself if it
    /// has no such owner. Absent if the cause is not a use, or if the API server reports it (`says`
    /// names it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Object>,
    /// The dependent of that owner that uses the object. Absent if the owner itself uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<Object>,
    /// The field in the manifest of the object that uses it. Absent if the cause is not a use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
}

/// The approval that a blocker requires.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The number of required approvers. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<usize>,
    /// The approvers so far.
    pub given: Vec<String>,
    /// The permission that an approver needs.
    pub right: String,
    /// The command that approves.
    pub command: String,
    /// Whether the approvals could be read.
    #[serde(skip)]
    pub known: bool,
}

/// The selected blockers of an answer. `known`: the approvals could be read.
pub fn explained_blockers(
    world: &World,
    answer: &DeleteAnswer,
    selects: impl Fn(&Blocker) -> bool,
    known: bool,
) -> Vec<ExplainedBlocker> {
    let DeleteAnswer { verdict, blocker_texts, .. } = answer;
    let all = verdict.blockers.iter().enumerate().filter(|(_, blocker)| selects(blocker));
    let explained = all.map(|(index, blocker)| {
        let explained = ExplainedBlocker::new(world, verdict, blocker, known);
        match blocker_texts.get(index) {
            Some(texts) => explained.with_texts(texts),
            None => explained,
        }
    });
    explained.collect()
}

impl ExplainedBlocker {
    fn new(world: &World, verdict: &Verdict, blocker: &Blocker, known: bool) -> Self {
        let covered = blocker.object_to_approve(&verdict.target);
        // One approval of the target has to cover all of its blockers.
        let deciding = verdict.deciding_blockers();
        let same: Vec<&Blocker> =
            deciding.filter(|one| one.object_to_approve(&verdict.target) == covered).collect();
        let content = same.iter().any(|one| one.covered_by_content_approval)
            || blocker.covered_by_content_approval;
        let required = same.iter().map(|one| one.required_approvals);
        Self {
            blocker: BlockerReport::new(
                verdict,
                blocker,
                sentence(&verdict.target, blocker),
                &world.graph.kinds,
            ),
            causes: blocker.causes.iter().map(CauseReport::new).collect(),
            more: blocker.more,
            is_listed: is_listed_as_protected(blocker, verdict),
            approval: Approval {
                required: Some(required.fold(blocker.required_approvals, usize::max)),
                given: given_approvals(&situation(world), &verdict.target, blocker),
                right: right_to_approve(covered, content),
                command: approve_command(covered, content),
                known,
            },
        }
    }

    /// Replaces the texts of this program by the texts of the API server.
    fn with_texts(mut self, texts: &DeniedBlocker) -> Self {
        self.blocker.message.clone_from(&texts.message);
        let report = |(message, field): &(String, String)| CauseReport {
            message: message.clone(),
            user: None,
            through: None,
            field_path: Some(field.clone()).filter(|field| !field.is_empty()),
        };
        self.causes = texts.causes.iter().map(report).collect();
        self
    }
}

impl CauseReport {
    fn new(cause: &Cause) -> Self {
        let (user, through, field_path) = match cause {
            Cause::User { owner, user, path } => (
                Some(Object::named(owner)),
                user.as_ref().map(Object::named),
                Some(path.clone()).filter(|path| !path.is_empty()),
            ),
            _ => (None, None, None),
        };
        Self { message: cause_text(cause), user, through, field_path }
    }
}
