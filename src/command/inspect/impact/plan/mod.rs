//! The plan of a deletion: `impact --out` writes it, and `delete` follows it.
//!
//! ```text
//!  Impact ─► waves (graph) ─► DeletionPlan ─► file ─► DeletionPlan ─┐
//!                                  └──────────────────────────────► drift ─► changes
//! ```

mod approvals;
mod denial;
mod drift;
mod file;

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::approvals::{PlannedApproval, missing_approvals};
pub use self::denial::PlannedOrder;
pub use self::drift::{Drift, PlanChange};
use super::affected::AffectedObject;
use super::cascade::Cascade;
use super::report::Impact;
use crate::cluster::Caller;
use crate::command::document::{FailedRead, Object, ReportedVerdict};
use crate::command::inspect::inspection::Inspection;
use crate::command::report::{Report, View};
use crate::decide::Verdict;
use crate::graph::{Deleter, DeletionToOrder, NodeId, waves};
use crate::objects::{Kinds, NumberMap, NumberSet};

/// The plan of a deletion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPlan {
    /// The cluster.
    pub cluster: ClusterIdentity,
    /// The propagation policy of the DELETE of a target: `background`, `foreground` or `orphan`.
    pub cascade: Cascade,
    /// The targets.
    pub targets: Vec<Object>,
    /// The verdict on the deletion.
    pub verdict: ReportedVerdict,
    /// The missing approvals.
    pub approvals: Vec<PlannedApproval>,
    /// The objects in the order of their deletion. `delete` waits for each wave.
    pub waves: Vec<PlannedWave>,
    /// The objects that use each other. They are in one wave, and `delete` deletes them one by one.
    pub cycles: Vec<PlannedCycle>,
    /// The resources outside the cluster that are destroyed for good.
    pub destroyed: Vec<PlannedLoss>,
    /// The objects that stay and lose an object that they need.
    pub broken: Vec<PlannedBreak>,
    /// Failed reads. If there are any, the plan may be incomplete.
    pub not_read: Vec<FailedRead>,
}

/// The identity of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// The uid of the Namespace kube-system. Absent if you may not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The address of the API server.
    pub server: String,
}

/// The objects that are deleted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWave {
    /// The objects.
    pub objects: Vec<PlannedObject>,
}

/// A deleted object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedObject {
    /// The object, with its uid.
    pub object: Object,
    /// Its resourceVersion. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Who deletes it.
    pub deleted_by: DeletedBy,
    /// Whether it stays Terminating, because an object that stays keeps it, or an approval is missing.
    pub stays: bool,
    /// The object whose use keeps it Terminating, without a hold of belay.
    #[serde(skip)]
    pub kept_by: Option<Object>,
    #[serde(skip)]
    pub id: Option<NodeId>,
}

/// Who deletes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletedBy {
    /// `delete` sends a DELETE.
    Command,
    /// The garbage collector, after its owners.
    GarbageCollector,
    /// The namespace controller, after the DELETE of its Namespace.
    NamespaceController,
    /// The pod garbage collector, after its Node.
    PodGarbageCollector,
    /// An earlier deletion: it is Terminating, or its owners no longer exist, and it stays only
    /// until its users are deleted.
    EarlierDelete,
}

impl From<Deleter> for DeletedBy {
    fn from(deleter: Deleter) -> Self {
        match deleter {
            Deleter::Client => Self::Command,
            Deleter::GarbageCollector => Self::GarbageCollector,
            Deleter::NamespaceController => Self::NamespaceController,
            Deleter::PodGarbageCollector => Self::PodGarbageCollector,
        }
    }
}

/// Objects that use each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCycle {
    /// The objects.
    pub objects: Vec<Object>,
}

/// A resource outside the cluster that is destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLoss {
    /// `Volume` or `Address`.
    pub what: String,
    /// The volume or the address.
    pub name: String,
    /// The object whose deletion destroys it.
    pub by: Object,
    /// The size of a volume. Absent for an address, and if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
}

/// An object that stays and loses an object that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedBreak {
    /// The object, or its topmost owner that stays.
    pub object: Object,
    /// The object that it loses.
    pub loses: Object,
    /// The field that names the lost object.
    pub field_path: String,
}

impl DeletionPlan {
    /// The plan of the deletion with this impact.
    pub async fn new(
        inspection: &Inspection,
        impact: &Impact,
        verdict: Option<&Verdict>,
        order: PlannedOrder,
        cascade: Cascade,
    ) -> Option<Self> {
        let PlannedOrder { waves, cycles, .. } = order;
        let destroyed = impact.destroyed.iter().map(|lost| PlannedLoss {
            what: lost.what.to_owned(),
            name: lost.name.clone(),
            by: lost.by.clone(),
            size: lost.size.clone(),
        });
        let broken = impact.objects.iter().filter(|object| object.outcome == "Broken");
        let broken = broken.filter_map(|broken| {
            let via = broken.via.as_ref()?;
            let (object, loses) = (broken.object.clone(), via.of.clone());
            Some(PlannedBreak { object, loses, field_path: via.field_path.clone() })
        });
        Some(Self {
            cluster: ClusterIdentity::read(inspection).await?,
            cascade,
            targets: impact.targets.iter().map(|target| with_uid(inspection, target)).collect(),
            verdict: impact.verdict,
            approvals: missing_approvals(inspection, verdict).await,
            waves,
            cycles,
            destroyed: destroyed.collect(),
            broken: broken.collect(),
            not_read: impact.not_read.clone(),
        })
    }

    /// All objects, in the order of their deletion.
    pub fn objects(&self) -> impl Iterator<Item = &PlannedObject> {
        self.waves.iter().flat_map(|wave| &wave.objects)
    }

    /// A filter for the objects that are cluster-scoped, or in a namespace in which `delete`
    /// deletes objects. `delete` does not wait for other objects, because their tenants may keep
    /// them (H160, H202).
    pub fn own_filter(&self) -> impl Fn(&Object) -> bool {
        let sources = self
            .objects()
            .filter(|one| one.deleted_by == DeletedBy::Command || one.object.is_namespace());
        let sources = self.targets.iter().chain(sources.map(|one| &one.object));
        let namespaces: HashSet<&str> = sources.map(Object::own_namespace).collect();
        move |object| object.namespace.is_empty() || namespaces.contains(object.namespace.as_str())
    }
}

impl ClusterIdentity {
    /// The identity of the cluster of an inspection; `None` for files.
    pub async fn read(inspection: &Inspection) -> Option<Self> {
        let (caller, _) = inspection.caller.as_ref()?;
        let (graph, kinds) = (&inspection.graph, &inspection.graph.kinds);
        let kind = kinds.namespace()?;
        Some(match graph.object(kind, "", "kube-system") {
            Some(node) => Self { uid: Some(node.uid().to_string()), server: caller.address() },
            None => Self::of(caller, kinds).await,
        })
    }

    /// The identity of the cluster that the caller uses.
    pub async fn of(caller: &Caller, kinds: &Kinds) -> Self {
        let kind = kinds.namespace().map(|kind| kinds.info(kind));
        let read = match kind {
            Some(info) => caller.object(info, "", "kube-system").await.ok().flatten(),
            None => None,
        };
        let uid = read.and_then(|object| Some(object["metadata"]["uid"].as_str()?.to_owned()));
        Self { uid, server: caller.address() }
    }

    /// Whether both are the same cluster. One cluster may have several addresses.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.uid, &other.uid) {
            (Some(uid), Some(other)) => uid == other,
            _ => self.server == other.server,
        }
    }
}

/// Whether an object is deleted, or stays Terminating.
fn is_deleted_or_terminating(object: &AffectedObject) -> bool {
    matches!(object.outcome, "Deleted" | "Held")
}

fn planned_waves(
    inspection: &Inspection,
    impact: &Impact,
) -> (Vec<PlannedWave>, Vec<PlannedCycle>) {
    let graph = &inspection.graph;
    let deleted: NumberMap<NodeId, &AffectedObject> = impact
        .objects
        .iter()
        .filter(|object| is_deleted_or_terminating(object))
        .filter_map(|object| Some((object.id?, object)))
        .collect();
    let targets: NumberSet<NodeId> = inspection.targets.iter().copied().collect();
    let orphans = impact.cascade == "orphan";
    // Among deleted objects, only Pods on deleted Nodes have this edge.
    let is_on_node =
        |object: &AffectedObject| object.via.as_ref().is_some_and(|via| via.edge == "use");
    let kube_node_of_pod = deleted.values().filter(|object| is_on_node(object));
    let kube_node_of_pod =
        kube_node_of_pod.filter_map(|object| Some((object.id?, object.parent?))).collect();
    let ids: Vec<NodeId> = deleted.keys().copied().collect();
    let deletion = DeletionToOrder {
        deleted: &ids,
        targets: &targets,
        orphans,
        kube_node_of_pod: &kube_node_of_pod,
    };
    let planned = waves(graph, &deletion);
    let staying = staying(inspection, impact, &deleted);
    let object = |one: &crate::graph::WaveObject| {
        let node = graph.get(one.id)?;
        let affected = deleted.get(&one.id);
        let is_freed = affected.is_some_and(|object| object.is_freed);
        let kept = affected.filter(|object| object.outcome == "Held" && !object.held_by_belay);
        Some(PlannedObject {
            object: Object::at(graph, one.id).with_uid(&node.uid().to_string()),
            resource_version: inspection.versions.get(&node.uid()).cloned(),
            deleted_by: if is_freed { DeletedBy::EarlierDelete } else { one.deleter.into() },
            stays: staying.contains(&one.id),
            kept_by: kept.and_then(|object| object.after.first().cloned()),
            id: Some(one.id),
        })
    };
    let wave = |wave: &Vec<_>| PlannedWave { objects: wave.iter().filter_map(object).collect() };
    let named = |id: &NodeId| with_uid(inspection, &Object::at(graph, *id));
    let cycle = |cycle: &Vec<NodeId>| PlannedCycle { objects: cycle.iter().map(named).collect() };
    (planned.waves.iter().map(wave).collect(), planned.cycles.iter().map(cycle).collect())
}

/// The objects that stay Terminating for a known cause, and their Namespaces and CRDs. Other
/// Terminating objects wait for a controller, which may remove its finalizer.
fn staying(
    inspection: &Inspection,
    impact: &Impact,
    deleted: &NumberMap<NodeId, &AffectedObject>,
) -> NumberSet<NodeId> {
    let graph = &inspection.graph;
    let is_blocked = |object: &AffectedObject| {
        let node = object.id.and_then(|id| graph.get(id));
        node.is_some_and(|node| !inspection.groups_blocking(node).is_empty())
    };
    let held = deleted.iter().filter(|(_, object)| object.outcome == "Held");
    let (kept, mut rest): (Vec<_>, Vec<_>) =
        held.partition(|(_, object)| object.held_by_belay || is_blocked(object));
    let mut staying: NumberSet<NodeId> = kept.into_iter().map(|(id, _)| *id).collect();
    // A volume may wait for a claim that waits for a Pod.
    loop {
        let stays = |other: &Object| {
            let other = other.find(graph).map(|node| node.id());
            other.is_none_or(|other| staying.contains(&other) || !deleted.contains_key(&other))
        };
        let (kept, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, object)| object.after.iter().any(stays));
        if kept.is_empty() {
            break;
        }
        staying.extend(kept.into_iter().map(|(id, _)| *id));
        rest = others;
    }
    let denied = impact.objects.iter().filter(|object| object.outcome == "Denied");
    let denied = denied.filter_map(|object| object.object.find(graph));
    let kept = staying.iter().filter_map(|id| graph.get(*id));
    let containers = kept.chain(denied).flat_map(|node| {
        let crd = graph.crd_of(node.kind()).map(|crd| crd.id());
        [node.namespace_node(), crd].into_iter().flatten().collect::<Vec<_>>()
    });
    let containers: Vec<NodeId> = containers.filter(|id| deleted.contains_key(id)).collect();
    staying.extend(containers);
    staying
}

fn with_uid(inspection: &Inspection, object: &Object) -> Object {
    let node = object.find(&inspection.graph);
    let uid = node.map(|node| node.uid().to_string()).unwrap_or_default();
    object.clone().with_uid(&uid)
}

/// The document. Only `impact --out` writes it.
impl Report for DeletionPlan {
    const KIND: &'static str = "DeletionPlan";

    fn text(&self, _: View) -> String {
        String::new()
    }
}
