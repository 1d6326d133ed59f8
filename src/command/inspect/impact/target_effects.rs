//! What the DELETE of each target deletes. The garbage collector deletes an object with several
//! owners after the last owner.

use std::collections::{BTreeSet, HashSet};

use crate::command::inspect::inspection::Inspection;
use crate::decide::{Decision, Verdict};
use crate::graph::{DeletionRequest, Graph, Node, NodeId, Propagation, fates};

/// What the DELETEs of several targets delete.
pub struct TargetEffects {
    /// Each target with the objects that its deletion alone deletes.
    pub alone: Vec<(NodeId, Vec<NodeId>)>,
    /// The objects that no target deletes alone, each with the targets that own it.
    pub together: Vec<(NodeId, BTreeSet<NodeId>)>,
}

impl TargetEffects {
    pub fn new(inspection: &Inspection, targets: &[NodeId], cascade: Propagation) -> Self {
        let graph = &inspection.graph;
        let nodes = targets.iter().filter_map(|target| graph.get(*target));
        let deletes: Vec<_> = nodes.map(|node| delete(node, cascade)).collect();
        let alone: Vec<_> =
            deletes.iter().map(|delete| (delete.0, lost_objects(graph, &[*delete]))).collect();
        let by_one: HashSet<NodeId> = alone.iter().flat_map(|(_, lost)| lost).copied().collect();
        let together = lost_objects(graph, &deletes).into_iter().filter(|id| !by_one.contains(id));
        let together = together.map(|id| (id, owners(graph, id, targets))).collect();
        Self { alone, together }
    }

    /// Whether this verdict on all targets denies an object that no target deletes alone.
    pub fn are_denied_together(&self, graph: &Graph, verdict: &Verdict) -> bool {
        let denied = verdict.blockers.iter().filter(|blocker| blocker.decision == Decision::Deny);
        let mut objects = denied.filter_map(|blocker| graph.object_by_ref(&blocker.object));
        objects.any(|node| self.together.iter().any(|(id, _)| *id == node.id()))
    }
}

/// The objects that the deletion of this object deletes.
pub fn deleted_with(graph: &Graph, node: Node<'_>, cascade: Propagation) -> Vec<NodeId> {
    lost_objects(graph, &[delete(node, cascade)])
}

fn delete(node: Node<'_>, cascade: Propagation) -> (NodeId, Propagation) {
    (node.id(), Propagation::of_node_delete(node, Some(cascade)))
}

fn lost_objects(graph: &Graph, deletes: &[(NodeId, Propagation)]) -> Vec<NodeId> {
    let fates = fates(graph, &DeletionRequest::new(deletes));
    fates.iter().map(|(id, _)| id).filter(|id| fates.may_be_lost(*id)).collect()
}

/// The targets that own an object, also through other owners.
fn owners(graph: &Graph, id: NodeId, targets: &[NodeId]) -> BTreeSet<NodeId> {
    let (mut seen, mut next) = (vec![id], 0);
    while let Some(node) = seen.get(next).copied() {
        next += 1;
        let owners = graph.get(node).into_iter().flat_map(|node| node.owner_edges());
        let new: Vec<_> = owners.map(|edge| edge.to).filter(|to| !seen.contains(to)).collect();
        seen.extend(new);
    }
    seen.into_iter().filter(|id| targets.contains(id)).collect()
}
