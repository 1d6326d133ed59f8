//! The part of a deletion that takes place although another part is denied. kubectl sends the
//! DELETE of each target, and the API server decides about each alone.

use schemars::JsonSchema;
use serde::Serialize;

use super::answer::MAX_ASKED;
use super::destroyed::{Destroyed, destroyed};
use super::outcome::{Admission, ImpactOutcomes};
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::graph::{NodeId, Propagation};
use crate::objects::{and_more, counted};

/// The maximum number of objects in the text.
const MAX_NAMED: usize = 5;

/// The targets that the API server deletes without an approval, although it denies others.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedPart {
    /// The targets.
    pub targets: Vec<Object>,
    /// Resources outside the cluster that their deletion destroys for good.
    pub destroyed: Vec<Destroyed>,
}

impl AcceptedPart {
    pub fn new(inspection: &Inspection, targets: &[NodeId], cascade: Propagation) -> Self {
        let outcomes = ImpactOutcomes::new(inspection, targets, cascade, &Admission::default());
        Self {
            targets: targets.iter().map(|id| Object::at(&inspection.graph, *id)).collect(),
            destroyed: destroyed(inspection, &outcomes),
        }
    }

    /// `count`: the number of all targets; `namespace`: left out of names.
    pub fn text(&self, count: usize, namespace: &str) -> String {
        let named: Vec<String> =
            self.targets.iter().take(MAX_NAMED).map(|target| target.label(namespace)).collect();
        let more = and_more(self.targets.len() - named.len(), "object");
        let is_known = |one: &&Destroyed| one.reclaim_policy_not_read.is_none();
        let (known, unknown): (Vec<_>, Vec<_>) = self.destroyed.iter().partition(is_known);
        let destroys = [("destroys", known), ("perhaps destroys", unknown)].map(|(verb, all)| {
            let resources: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            let count = counted(all.len(), "resource");
            match all.is_empty() {
                true => String::new(),
                false => format!("; this {verb} {count} for good: {}", resources.join(", ")),
            }
        });
        let least = if count > MAX_ASKED { "at least " } else { "" };
        format!(
            "kubectl deletes {least}{} of these {count} objects without an approval: {}{more}{}",
            self.targets.len(),
            named.join(", "),
            destroys.concat()
        )
    }
}
