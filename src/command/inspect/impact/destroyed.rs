//! The resources outside the cluster that a deletion destroys.

use schemars::JsonSchema;
use serde::Serialize;

use super::outcome::Outcomes;
use crate::command::document::Object;
use crate::command::inspect::backing::{Key, SNAPSHOTS};
use crate::command::inspect::inspection::Inspection;
use crate::graph::{Certainty, NodeId, Outcome};

/// A destroyed resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Destroyed {
    /// `Volume` or `Address`.
    pub what: &'static str,
    /// The volume or the address.
    pub name: String,
    /// The object whose deletion destroys it.
    pub by: Object,
    /// The size of a volume. Absent for an address, and if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// The newest snapshot of the volume. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The objects that have to be deleted before the object in `by`.
    pub after: Vec<Object>,
    /// Whether the object in `by` stays Terminating after this deletion. The resource is
    /// destroyed when it is released.
    pub held: bool,
    /// Whether that does not depend on timing.
    pub certain: bool,
    #[serde(skip)]
    pub id: Option<NodeId>,
}

impl Destroyed {
    /// The text beside the object that it belongs to.
    pub fn text(&self) -> String {
        let Self { what, name, size, snapshot, held, .. } = self;
        let then = if *held { " then" } else { "" };
        if *what == "Address" {
            return format!("address {name} released{then}");
        }
        let size = if size.is_empty() { String::new() } else { format!(" {size}") };
        let snapshot = snapshot.as_deref().unwrap_or("none");
        format!("volume {name}{size} destroyed{then}; newest snapshot: {snapshot}")
    }
}

/// The newest snapshot of a claim, and whether it is deleted as well.
fn snapshot(inspection: &Inspection, outcomes: &Outcomes<'_>, claim: &Key) -> Option<String> {
    let Inspection { graph, backing, .. } = inspection;
    let taken = backing.snapshot(claim)?;
    let kind = graph.kinds.find_resource(SNAPSHOTS, "volumesnapshots");
    let node = kind.and_then(|kind| graph.object(kind, &claim.0, &taken.name));
    let goes = node.is_some_and(|node| outcomes.get(node.id()).is_some());
    let along = if goes { ", deleted as well" } else { "" };
    Some(format!("{} of {}{along}", taken.name, taken.time))
}

/// The destroyed resources. A held object is Terminating for good, so its resources count
/// as well.
pub fn destroyed(inspection: &Inspection, outcomes: &Outcomes<'_>) -> Vec<Destroyed> {
    let Inspection { graph, backing, .. } = inspection;
    let mut destroyed = Vec::new();
    for (id, fate) in outcomes.all() {
        let Some(node) = graph.get(id).filter(|_| fate.outcome != Outcome::Orphaned) else {
            continue;
        };
        let key: Key = (node.namespace().to_owned(), node.name().to_owned());
        let info = node.info();
        let volume = match (info.group.as_str(), info.resource.as_str()) {
            ("", "persistentvolumeclaims") => backing.volume_of(&key),
            // A volume without a claim. Other volumes appear with their claims.
            ("", "persistentvolumes") => backing
                .volumes
                .get_key_value(node.name())
                .filter(|(_, volume)| volume.claim.is_none())
                .map(|(name, volume)| (name.as_str(), volume)),
            _ => None,
        };
        let addresses = match (info.group.as_str(), info.resource.as_str()) {
            ("", "services") => backing.addresses.get(&key),
            _ => None,
        };
        let new = |what, name: &str| Destroyed {
            what,
            name: name.to_owned(),
            by: Object::at(graph, id),
            size: String::new(),
            snapshot: None,
            after: outcomes.after(id).into_iter().map(|id| Object::at(graph, id)).collect(),
            held: fate.outcome == Outcome::Held,
            certain: fate.certainty == Certainty::Certain,
            id: Some(id),
        };
        destroyed.extend(addresses.into_iter().flatten().map(|address| new("Address", address)));
        if let Some((name, volume)) = volume.filter(|(_, volume)| volume.is_deleted) {
            let (size, snapshot) = (volume.size.clone(), snapshot(inspection, outcomes, &key));
            destroyed.push(Destroyed { size, snapshot, ..new("Volume", name) });
        }
    }
    destroyed.sort_by(|a, b| {
        (b.what, &a.by.namespace, &a.by.name).cmp(&(a.what, &b.by.namespace, &b.by.name))
    });
    destroyed
}
