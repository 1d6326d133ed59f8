//! The resources outside the cluster that a deletion destroys: volumes and addresses. The affected
//! objects are in `affected`.

use schemars::JsonSchema;
use serde::Serialize;

use super::outcome::ImpactOutcomes;
use crate::command::document::Object;
use crate::command::inspect::backing::{NamespacedName, SNAPSHOTS, VolumeSnapshot};
use crate::command::inspect::inspection::Inspection;
use crate::graph::{Certainty, DeletionOutcome, NodeId};
use crate::objects::CLAIMS;

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
    /// The newest snapshot of the volume that is ready to use. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The number of VolumeSnapshots of the volume's claim that are not ready to use or are
    /// Terminating.
    pub snapshots_not_ready: usize,
    /// The objects that have to be deleted before the object in `by`.
    pub after: Vec<Object>,
    /// Whether the object in `by` stays Terminating after this deletion. The resource is
    /// destroyed when it is released, a volume when its claim is deleted.
    #[serde(rename = "held")]
    pub stays_terminating: bool,
    /// Whether the destruction is certain, and does not depend on timing.
    pub certain: bool,
    /// Why the reclaimPolicy of the volume is unknown. With Retain, the volume is not destroyed.
    /// Absent if it is Delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_policy_not_read: Option<String>,
    #[serde(skip)]
    pub id: Option<NodeId>,
}

impl Destroyed {
    /// The note on the object whose deletion destroys the resource.
    pub fn text(&self) -> String {
        let Self { what, name, size, stays_terminating, .. } = self;
        let then = if *stays_terminating { " then" } else { "" };
        if *what == "Address" {
            return format!("address {name} released{then}");
        }
        let size = if size.is_empty() { String::new() } else { format!(" {size}") };
        let snapshot = self.newest_snapshot();
        match &self.reclaim_policy_not_read {
            Some(why) => format!(
                "volume {name}{size} perhaps destroyed{then}: its reclaimPolicy is unknown ({why}); \
                 newest snapshot: {snapshot}"
            ),
            None => format!("volume {name}{size} destroyed{then}; newest snapshot: {snapshot}"),
        }
    }

    /// The newest snapshot of the volume as text.
    pub fn newest_snapshot(&self) -> String {
        match (&self.snapshot, self.snapshots_not_ready) {
            (Some(snapshot), _) => snapshot.clone(),
            (None, 0) => "none".to_owned(),
            (None, count) => format!("none ready ({count} not ready)"),
        }
    }
}

/// The text about a snapshot of a claim, and whether the snapshot is deleted as well.
fn snapshot_text(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    claim: &NamespacedName,
    snapshot: &VolumeSnapshot,
) -> String {
    let graph = &inspection.graph;
    let kind = graph.kinds.find_resource(SNAPSHOTS, "volumesnapshots");
    let node = kind.and_then(|kind| graph.object(kind, &claim.0, &snapshot.name));
    let is_deleted = node.is_some_and(|node| outcomes.get(node.id()).is_some());
    let note = if is_deleted { ", deleted as well" } else { "" };
    format!("{} of {}{note}", snapshot.name, snapshot.time)
}

/// The claim of a volume, if the claim stays. If the claim is deleted or stays Terminating, the
/// report lists the volume at the claim.
fn claim_that_stays<'i>(
    inspection: &'i Inspection,
    outcomes: &ImpactOutcomes<'_>,
    volume: &str,
) -> Option<&'i NamespacedName> {
    let Inspection { graph, backing, .. } = inspection;
    let claim = backing.volumes.get(volume)?.claim.as_ref()?;
    backing.volume_of(claim).filter(|(name, _)| *name == volume)?;
    let kind = graph.kinds.find_resource(CLAIMS.0, CLAIMS.1)?;
    let node = graph.object(kind, &claim.0, &claim.1)?;
    let outcome = outcomes.get(node.id()).map(|fate| fate.outcome);
    outcome.is_none_or(|outcome| outcome == DeletionOutcome::Orphaned).then_some(claim)
}

/// The destroyed resources. They include the resources of objects that stay Terminating, because
/// these are deleted in the end.
pub fn destroyed(inspection: &Inspection, outcomes: &ImpactOutcomes<'_>) -> Vec<Destroyed> {
    let Inspection { graph, backing, .. } = inspection;
    let mut destroyed = Vec::new();
    let unread_volumes =
        inspection.not_read.iter().find(|read| read.resource == "persistentvolumes");
    for (id, fate) in outcomes.all() {
        let Some(node) = graph.get(id).filter(|_| fate.outcome != DeletionOutcome::Orphaned) else {
            continue;
        };
        let info = node.info();
        let key: NamespacedName = match info.group_resource() {
            // A bound volume stays Terminating until its claim is deleted, and is destroyed then.
            // Without a claim, no controller destroys it.
            ("", "persistentvolumes") => {
                match claim_that_stays(inspection, outcomes, node.name()) {
                    Some(claim) if fate.outcome == DeletionOutcome::Terminating => claim.clone(),
                    _ => continue,
                }
            }
            _ => (node.namespace().to_owned(), node.name().to_owned()),
        };
        let volume = match info.group_resource() {
            ("", "persistentvolumeclaims" | "persistentvolumes") => backing.volume_of(&key),
            _ => None,
        };
        let addresses = match info.group_resource() {
            ("", "services") => backing.addresses.get(&key),
            _ => None,
        };
        let new = |what, name: &str| Destroyed {
            what,
            name: name.to_owned(),
            by: Object::at(graph, id),
            size: String::new(),
            snapshot: None,
            snapshots_not_ready: 0,
            after: outcomes
                .blocking_objects(id)
                .into_iter()
                .map(|id| Object::at(graph, id))
                .collect(),
            stays_terminating: fate.outcome == DeletionOutcome::Terminating,
            certain: fate.certainty == Certainty::Certain,
            reclaim_policy_not_read: None,
            id: Some(id),
        };
        destroyed.extend(addresses.into_iter().flatten().map(|address| new("Address", address)));
        let snapshots = backing.snapshots(&key);
        let newest = snapshots.and_then(|snapshots| snapshots.newest.as_ref());
        let claimed = match info.group_resource() {
            ("", "persistentvolumeclaims") => backing.claims.get(&key),
            _ => None,
        };
        let found = match (volume, claimed, unread_volumes) {
            (Some((name, volume)), ..) if volume.is_deleted => Some((name, &volume.size, None)),
            (None, Some(claimed), Some(unread)) if !backing.volumes.contains_key(&claimed.name) => {
                Some((claimed.name.as_str(), &claimed.size, Some(unread.why.clone())))
            }
            _ => None,
        };
        if let Some((name, size, unread)) = found {
            let new = new("Volume", name);
            destroyed.push(Destroyed {
                size: size.clone(),
                certain: new.certain && unread.is_none(),
                reclaim_policy_not_read: unread,
                snapshot: newest.map(|newest| snapshot_text(inspection, outcomes, &key, newest)),
                snapshots_not_ready: snapshots.map_or(0, |snapshots| snapshots.not_ready),
                ..new
            });
        }
    }
    destroyed.sort_by(|a, b| {
        (b.what, &a.by.namespace, &a.by.name).cmp(&(a.what, &b.by.namespace, &b.by.name))
    });
    destroyed
}
