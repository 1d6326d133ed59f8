//! The part of a deletion that takes place although another part is denied. kubectl sends a DELETE
//! for each target, and the API server decides about each DELETE alone.

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
    /// The further targets that the API server deletes in another order. A client may have its own
    /// order: `helm uninstall` deletes workloads before the objects that they use.
    pub in_another_order: Vec<Object>,
    /// Resources outside the cluster that only the other order destroys.
    pub destroyed_in_another_order: Vec<Destroyed>,
    /// Whether a tool that prunes sends the DELETEs, in its own order.
    #[serde(skip)]
    pub is_prune: bool,
}

impl AcceptedPart {
    /// `targets`: the targets that are deleted in the given order; `others`: the further targets
    /// that are deleted in another order.
    pub fn new(
        inspection: &Inspection,
        targets: &[NodeId],
        others: &[NodeId],
        cascade: Propagation,
    ) -> Self {
        let destroyed_with = |targets: &[NodeId]| {
            let outcomes = ImpactOutcomes::new(inspection, targets, cascade, &Admission::default());
            destroyed(inspection, &outcomes)
        };
        let objects = |ids: &[NodeId]| -> Vec<Object> {
            ids.iter().map(|id| Object::at(&inspection.graph, *id)).collect()
        };
        let destroyed = destroyed_with(targets);
        let mut only_in_another_order = match others.is_empty() {
            true => Vec::new(),
            false => destroyed_with(&[targets, others].concat()),
        };
        let is_same = |a: &Destroyed, b: &Destroyed| (a.what, &a.name) == (b.what, &b.name);
        only_in_another_order.retain(|resource| !destroyed.iter().any(|d| is_same(resource, d)));
        Self {
            targets: objects(targets),
            destroyed,
            in_another_order: objects(others),
            destroyed_in_another_order: only_in_another_order,
            is_prune: false,
        }
    }

    /// `count`: the number of all targets; `namespace`: left out of names.
    pub fn text(&self, count: usize, namespace: &str) -> String {
        let least = if count > MAX_ASKED { "at least " } else { "" };
        let (client, verb) = if self.is_prune { ("a prune", "can") } else { ("kubectl", "would") };
        let mut text = format!(
            "{client} sends a DELETE for each object, so it {verb} still delete {least}{} of these \
             {count} objects: {}{}",
            self.targets.len(),
            names(&self.targets, namespace),
            destruction(&self.destroyed)
        );
        if !self.in_another_order.is_empty() {
            text.push_str(&format!(
                ". A client that deletes in another order, such as helm uninstall, would also \
                 delete {}{}",
                names(&self.in_another_order, namespace),
                destruction(&self.destroyed_in_another_order)
            ));
        }
        text
    }
}

fn names(objects: &[Object], namespace: &str) -> String {
    let named: Vec<String> =
        objects.iter().take(MAX_NAMED).map(|object| object.label(namespace)).collect();
    format!("{}{}", named.join(", "), and_more(objects.len() - named.len(), "object"))
}

/// What a deletion destroys, as the end of a sentence.
fn destruction(destroyed: &[Destroyed]) -> String {
    let is_known = |resource: &&Destroyed| resource.reclaim_policy_not_read.is_none();
    let (known, unknown): (Vec<_>, Vec<_>) = destroyed.iter().partition(is_known);
    let destroys = [("destroys", known), ("perhaps destroys", unknown)].map(|(verb, all)| {
        let resources: Vec<&str> = all.iter().map(|resource| resource.name.as_str()).collect();
        let count = counted(all.len(), "resource");
        match all.is_empty() {
            true => String::new(),
            false => format!("; this {verb} {count} for good: {}", resources.join(", ")),
        }
    });
    destroys.concat()
}
