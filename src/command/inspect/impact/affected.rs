//! The objects that a deletion affects: those that it deletes, keeps or orphans, those that lose
//! an object they use, and the volumes of deleted Nodes.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::destroyed::Destroyed;
use super::nodes::{StrandedVolume, stranded_volumes};
use super::outcome::{BrokenUser, ImpactOutcomes};
use super::unread::{CONTENT, UnreadContent};
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::command::inspect::label;
use crate::graph::{Certainty, DeletionOutcome, Node, NodeId};
use crate::objects::{PROTECT_LABEL, and_more, label_warning};

/// The note on an object whose owners no longer exist, and whose DELETE belay denies to the garbage
/// collector until its last user is deleted.
const ABANDONED: &str = "its owner no longer exists, so the garbage collector deletes it";

/// The note on an object whose deletion in the foreground is not certain (R6 of docs/THEORY.md).
const OWNER_CYCLE: &str = "it owns itself through its dependents, so the garbage collector may \
                           keep it";

/// Counts by kind.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Summary {
    /// Deleted objects.
    pub deleted: Count,
    /// Objects that stay without an owner.
    pub orphaned: Count,
    /// Objects that stay Terminating.
    #[serde(rename = "held")]
    pub stays_terminating: Count,
    /// Objects that stay Terminating because of belay's hold.
    #[serde(skip)]
    pub held_by_belay: Count,
    /// Objects that stay Terminating for another reason.
    #[serde(skip)]
    pub waiting: Count,
    /// Objects that stay, because belay denies their deletion by a controller of Kubernetes.
    pub denied: Count,
    /// Objects that lose an object they use, counted by topmost owner.
    pub broken: Count,
    /// Volumes that no remaining Node can use.
    pub stranded: Count,
}

/// A number of objects.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// The total.
    pub total: usize,
    /// The number of uncertain outcomes.
    pub maybe: usize,
    /// The number for each kind.
    pub by_kind: BTreeMap<String, usize>,
}

impl Count {
    fn add(&mut self, kind: String, certain: bool) {
        self.total += 1;
        self.maybe += usize::from(!certain);
        *self.by_kind.entry(kind).or_default() += 1;
    }
}

/// An affected object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AffectedObject {
    /// The object.
    pub object: Object,
    /// `Deleted`, `Held` (stays Terminating, for example because of belay's hold or another
    /// finalizer), `Denied`, `Orphaned`, `Broken` or `Stranded`.
    pub outcome: &'static str,
    /// Whether the outcome does not depend on timing.
    pub certain: bool,
    /// The edge from another affected object. Absent if there is none, as for most targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<EdgeReport>,
    /// The objects that have to be deleted before it, because they use it. For an object that
    /// stays Terminating, the objects that keep it.
    pub after: Vec<Object>,
    /// The fields in `after` that refer to the object.
    #[serde(skip)]
    pub after_paths: Vec<String>,
    /// A remark. Absent if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Whether belay's hold keeps it Terminating.
    #[serde(skip)]
    pub held_by_belay: bool,
    /// Whether it is already Terminating, or its owners no longer exist, and this deletion ends its
    /// last use.
    #[serde(skip)]
    pub is_freed: bool,
    #[serde(skip)]
    pub id: Option<NodeId>,
    /// The parent in the tree.
    #[serde(skip)]
    pub parent: Option<NodeId>,
}

/// An edge.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeReport {
    /// `owner`, `content`, `use`, or `name` for the Endpoints of a Service.
    pub edge: &'static str,
    /// The other object.
    pub of: Object,
    /// The field in the manifest.
    pub field_path: String,
}

impl AffectedObject {
    /// An object to which the plan sends no DELETE and for which it does not wait.
    fn outside_plan(
        object: Object,
        outcome: &'static str,
        certain: bool,
        via: EdgeReport,
        parent: NodeId,
        note: String,
    ) -> Self {
        Self {
            object,
            outcome,
            certain,
            via: Some(via),
            after: Vec::new(),
            after_paths: Vec::new(),
            note,
            held_by_belay: false,
            is_freed: false,
            id: None,
            parent: Some(parent),
        }
    }
}

/// The objects that are deleted, stay Terminating or lose their owner.
pub(super) fn affected_objects(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    (destroyed, unread): (&[Destroyed], &[UnreadContent]),
    summary: &mut Summary,
) -> Vec<AffectedObject> {
    let graph = &inspection.graph;
    let mut objects = Vec::new();
    for (id, fate) in outcomes.all() {
        let Some(node) = graph.get(id) else { continue };
        let unread = unread.iter().find(|unread| unread.id == id);
        // The unread content may stay, and its container with it.
        let is_complete = unread.is_none_or(|unread| unread.what != CONTENT);
        let certain = fate.certainty == Certainty::Certain && is_complete;
        let held_by_belay = outcomes.is_held_by_belay(id);
        let parent = parent(inspection, outcomes, id);
        let is_freed = outcomes.is_freed(id);
        let state_note = match node.is_terminating() {
            true => "already Terminating",
            false if outcomes.is_abandoned(id) => ABANDONED,
            false => "",
        };
        let state_note = state_note.to_owned();
        let is_in_cycle = !certain && is_own_ancestor(node);
        let cycle_note = if is_in_cycle { OWNER_CYCLE } else { "" };
        let (count, outcome, mut notes) = match fate.outcome {
            DeletionOutcome::Deleted => {
                let deleter = match parent {
                    Some((_, "use")) => "the pod garbage collector deletes it",
                    _ => "",
                };
                let after = [outcomes.blocking_text(id), outcomes.rollbacks_text(id)];
                let notes = [deleter, cycle_note, &state_note].map(str::to_owned);
                let notes = [&notes[..], &after].concat();
                (&mut summary.deleted, "Deleted", notes)
            }
            DeletionOutcome::Terminating => {
                let part = match held_by_belay {
                    true => &mut summary.held_by_belay,
                    false => &mut summary.waiting,
                };
                part.add(label::kind_label(node), certain);
                (
                    &mut summary.stays_terminating,
                    "Held",
                    vec![state_note, outcomes.why_terminating(id)],
                )
            }
            DeletionOutcome::Orphaned => {
                let note = "it loses its owner, and stays".to_owned();
                (&mut summary.orphaned, "Orphaned", vec![note])
            }
        };
        count.add(label::kind_label(node), certain);
        notes.extend(label_warning(node.labels().get(PROTECT_LABEL)));
        notes.extend(unread.map(UnreadContent::text));
        notes.extend(destroyed.iter().filter(|d| d.id == Some(id)).map(Destroyed::text));
        notes.retain(|note| !note.is_empty());
        let via = parent.map(|(parent, edge)| edge_report(inspection, parent, edge));
        objects.push(AffectedObject {
            object: Object::at(graph, id),
            outcome,
            certain,
            via,
            after: outcomes
                .blocking_objects(id)
                .into_iter()
                .map(|id| Object::at(graph, id))
                .collect(),
            after_paths: outcomes.blocking_paths(id),
            note: notes.join("; "),
            held_by_belay: held_by_belay && fate.outcome == DeletionOutcome::Terminating,
            is_freed,
            id: Some(id),
            parent: parent.map(|(parent, _)| parent),
        });
    }
    objects
}

/// The Endpoints of deleted Services. The endpoints controller deletes them without an owner
/// reference.
pub(super) fn endpoints(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    summary: &mut Summary,
) -> Vec<AffectedObject> {
    let graph = &inspection.graph;
    let kinds = graph.kinds.find("", "Service").zip(graph.kinds.find("", "Endpoints"));
    let Some((services, endpoints)) = kinds else { return Vec::new() };
    let mut objects = Vec::new();
    for (id, fate) in outcomes.all() {
        let service = graph.get(id).filter(|node| node.kind() == services);
        let deleted = service.filter(|_| fate.outcome == DeletionOutcome::Deleted);
        let found = deleted
            .and_then(|service| graph.object(endpoints, service.namespace(), service.name()));
        let Some(node) = found.filter(|node| outcomes.get(node.id()).is_none()) else { continue };
        let certain = fate.certainty == Certainty::Certain;
        summary.deleted.add(label::kind_label(node), certain);
        let field_path = "metadata.name".to_owned();
        let via = EdgeReport { edge: "name", of: Object::at(graph, id), field_path };
        let note = "the endpoints controller deletes it".to_owned();
        let object = Object::at(graph, node.id());
        objects.push(AffectedObject::outside_plan(object, "Deleted", certain, via, id, note));
    }
    objects
}

/// The objects that stay, because belay denies their deletion by a controller of Kubernetes.
pub(super) fn denied_objects(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    summary: &mut Summary,
) -> Vec<AffectedObject> {
    let graph = &inspection.graph;
    let mut objects = Vec::new();
    for (id, reason) in outcomes.denied() {
        let Some((node, (parent, edge))) = graph.get(id).zip(parent(inspection, outcomes, id))
        else {
            continue;
        };
        summary.denied.add(label::kind_label(node), true);
        let via = edge_report(inspection, parent, edge);
        let object = Object::at(graph, id);
        objects.push(AffectedObject::outside_plan(object, "Denied", true, via, parent, reason));
    }
    objects
}

fn edge_report(inspection: &Inspection, parent: NodeId, edge: &'static str) -> EdgeReport {
    let field_path = match edge {
        "owner" => "metadata.ownerReferences",
        "use" => "spec.nodeName",
        _ => "metadata.namespace",
    };
    let of = Object::at(&inspection.graph, parent);
    EdgeReport { edge, of, field_path: field_path.to_owned() }
}

/// The objects that lose an object they use.
pub(super) fn broken_users(
    inspection: &Inspection,
    broken: Vec<BrokenUser>,
    summary: &mut Summary,
) -> Vec<AffectedObject> {
    let graph = &inspection.graph;
    let mut counted = BTreeSet::new();
    let mut objects = Vec::new();
    for BrokenUser { owner, user, path, lost, certain, more } in broken {
        let Some(node) = graph.get(owner) else { continue };
        if counted.insert(owner) {
            summary.broken.add(label::kind_label(node), certain);
        }
        let dependent = (user != owner)
            .then(|| format!("{}, ", Object::at(graph, user).label(node.namespace())));
        let note =
            format!("{}{path}{}", dependent.unwrap_or_default(), and_more(more, "reference"));
        let via = EdgeReport { edge: "use", of: Object::at(graph, lost), field_path: path };
        let object = Object::at(graph, owner);
        objects.push(AffectedObject::outside_plan(object, "Broken", certain, via, lost, note));
    }
    objects
}

/// The volumes that no remaining Node can use.
pub(super) fn stranded(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    summary: &mut Summary,
) -> Vec<AffectedObject> {
    let graph = &inspection.graph;
    let mut objects = Vec::new();
    for StrandedVolume { volume, node, certain } in stranded_volumes(inspection) {
        let Some(stranded) = graph.get(volume).filter(|_| outcomes.get(volume).is_none()) else {
            continue;
        };
        summary.stranded.add(label::kind_label(stranded), certain);
        let claim = inspection.backing.volumes.get(stranded.name());
        let claim = claim.and_then(|volume| volume.claim.as_ref());
        let bound = claim.map_or_else(String::new, |(namespace, name)| {
            format!("; bound to pvc/{name} -n {namespace}")
        });
        let note = format!("its nodeAffinity allows no other node{bound}");
        let field_path = "spec.nodeAffinity".to_owned();
        let via = EdgeReport { edge: "use", of: Object::at(graph, node), field_path };
        let object = Object::at(graph, volume);
        objects.push(AffectedObject::outside_plan(object, "Stranded", certain, via, node, note));
    }
    objects
}

/// Whether the object owns itself, through other objects.
fn is_own_ancestor(node: Node<'_>) -> bool {
    let (mut seen, mut next) = (vec![node], 0);
    while let Some(owner) = seen.get(next).copied() {
        next += 1;
        for owner in owner.existing_owners() {
            if owner.id() == node.id() {
                return true;
            }
            if !seen.iter().any(|other| other.id() == owner.id()) {
                seen.push(owner);
            }
        }
    }
    false
}

/// The parent of an object in the tree, and the edge between them: a deleted owner, Node,
/// Namespace or CRD. `None` for a target without an affected owner.
fn parent(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    id: NodeId,
) -> Option<(NodeId, &'static str)> {
    let graph = &inspection.graph;
    let node = graph.get(id)?;
    let owners = node.existing_owners();
    let is_affected = |other: NodeId| other != id && outcomes.get(other).is_some();
    let owner = owners.map(|owner| owner.id()).find(|owner| is_affected(*owner));
    // This includes the owner that an orphaned object loses.
    if let Some(owner) = owner {
        return Some((owner, "owner"));
    }
    if inspection.targets.contains(&id) {
        return None;
    }
    if let Some(node) = outcomes.node_of(id) {
        return Some((node, "use"));
    }
    if let Some(namespace) = node.namespace_node().filter(|id| is_affected(*id)) {
        return Some((namespace, "content"));
    }
    let crd = graph.crd_of(node.kind())?;
    is_affected(crd.id()).then_some((crd.id(), "content"))
}
