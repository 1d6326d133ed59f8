//! The report of a deletion.

use schemars::JsonSchema;
use serde::Serialize;

use super::preflight::DeleteRefusal;
use crate::command::document::Object;
use crate::command::inspect::{DeletionPlan, PlanChange};
use crate::command::picture::Picture;
use crate::command::place::ClusterArguments;
use crate::command::report::{Report, View};
use crate::command::stuck::StuckObject;
use crate::command::wait::explain;
use crate::objects::and_more;

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteReport {
    /// The result.
    pub(super) result: DeleteResult,
    /// The result in a sentence.
    #[serde(rename = "says")]
    pub(super) message: String,
    /// The targets.
    pub(super) targets: Vec<Object>,
    /// The objects that were deleted by this run, also by controllers.
    pub(super) deleted: Vec<Object>,
    /// The objects whose DELETE was accepted, if the command stopped before it waited for them.
    pub(super) accepted: Vec<Object>,
    /// The objects that still exist, if the command waited for them or expects them to stay.
    pub(super) remaining: Vec<Object>,
    /// Why the remaining objects that are Terminating stay.
    pub(super) stays: Vec<StuckObject>,
    /// The dependents and the Terminating users in namespaces in which the command deletes nothing.
    /// A controller of Kubernetes deletes the dependents, unless belay or a finalizer keeps them.
    /// The command does not wait for these objects.
    pub(super) not_awaited: Vec<Object>,
    /// The changes of the cluster since the plan.
    pub(super) changes: Vec<PlanChange>,
    /// The changes in namespaces in which the command deletes nothing, if they don't stop the
    /// deletion.
    pub(super) other_changes: Vec<PlanChange>,
    /// The DELETEs that would be refused.
    pub(super) refusals: Vec<DeleteRefusal>,
    /// The commands that approve the deletion, if it is denied.
    pub(super) approve: Vec<String>,
    /// The graph of the impact, if it is the output.
    #[serde(skip)]
    pub(super) picture: Option<Picture>,
    /// The options of the next command.
    #[serde(skip)]
    pub(super) options: String,
}

/// The result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum DeleteResult {
    /// All objects are deleted.
    Deleted,
    /// A dry run: the API server accepts all DELETEs.
    WouldDelete,
    /// A dry run: the answer to some DELETEs is unknown.
    Unknown,
    /// All other objects are deleted, and these stay Terminating, as the impact predicted.
    Stays,
    /// A DELETE is refused. Without an entry in `deleted` and `accepted`, nothing was deleted.
    Refused,
    /// A DELETE failed. The object may be deleted.
    Failed,
    /// The cluster has changed since the plan.
    Changed,
    /// Objects still existed at the end of `--timeout`.
    TimedOut,
}

impl DeleteReport {
    pub fn new(
        result: DeleteResult,
        message: String,
        plan: &DeletionPlan,
        cluster: &ClusterArguments,
    ) -> Self {
        Self {
            result,
            message,
            targets: plan.targets.clone(),
            deleted: Vec::new(),
            accepted: Vec::new(),
            remaining: Vec::new(),
            stays: Vec::new(),
            not_awaited: Vec::new(),
            changes: Vec::new(),
            other_changes: Vec::new(),
            refusals: Vec::new(),
            approve: Vec::new(),
            picture: None,
            options: cluster.options(),
        }
    }

    /// Adds objects that still exist, and why they stay.
    pub async fn with_remaining(self, remaining: Vec<Object>, cluster: &ClusterArguments) -> Self {
        let stays = explain(cluster.clone(), &remaining).await;
        let names: Vec<&str> = remaining.iter().map(|object| object.arguments.as_str()).collect();
        Self {
            message: format!("{}: {}", self.message, names.join(", ")),
            remaining,
            stays,
            ..self
        }
    }
}

/// Names the first of some objects.
fn named(objects: &[Object]) -> String {
    first(objects, |object| &object.arguments, ", ", "object")
}

/// The texts of the first of some entries.
fn first<T>(all: &[T], text: impl Fn(&T) -> &str, separator: &str, noun: &str) -> String {
    const MAX_NAMED: usize = 3;
    let texts: Vec<&str> = all.iter().take(MAX_NAMED).map(text).collect();
    let others = and_more(all.len().saturating_sub(MAX_NAMED), noun);
    format!("{}{others}", texts.join(separator))
}

impl Report for DeleteReport {
    const KIND: &'static str = "Deleted";

    fn picture(&self) -> Option<Picture> {
        self.picture.clone()
    }

    fn text(&self, view: View) -> String {
        let mut text = view.screen.paragraph(0, &self.message);
        let changes = self.changes.iter().map(|change| change.message.clone());
        let refusal =
            |refusal: &DeleteRefusal| format!("{}: {}", refusal.object.arguments, refusal.message);
        let refusals = self.refusals.iter().map(refusal);
        let stays = self.stays.iter().map(StuckObject::line);
        for line in changes.chain(refusals).chain(stays) {
            text.push_str(&view.screen.behind("- ", 2, &line));
        }
        if !self.accepted.is_empty() {
            text.push_str(&view.screen.behind("accepted before: ", 17, &named(&self.accepted)));
        }
        if !self.not_awaited.is_empty() {
            let objects = format!("{} in other namespaces", named(&self.not_awaited));
            text.push_str(&view.screen.behind("not awaited: ", 13, &objects));
        }
        if !self.other_changes.is_empty() {
            let changes = first(&self.other_changes, |change| &change.message, "; ", "change");
            text.push_str(&view.screen.behind("changed in other namespaces: ", 29, &changes));
        }
        let next = match self.result {
            // The printed impact has the approvals of a denied deletion.
            DeleteResult::Refused if !self.refusals.is_empty() && !self.approve.is_empty() => {
                &self.approve.join("; ")
            }
            DeleteResult::Changed => {
                &format!("make a new plan with kubectl belay impact …{} --out FILE", self.options)
            }
            DeleteResult::TimedOut | DeleteResult::Failed => {
                "run the same command again to continue"
            }
            _ => return text,
        };
        text + &view.screen.behind("next: ", 6, next)
    }

    fn exit_code(&self) -> u8 {
        match self.result {
            DeleteResult::Deleted | DeleteResult::WouldDelete => 0,
            DeleteResult::Unknown | DeleteResult::Failed => 3,
            _ => 1,
        }
    }
}
