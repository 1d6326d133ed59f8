//! The objects that the garbage collector deletes, and whose DELETE belay judges alone: dependents
//! of a cluster-scoped owner, and objects whose owners no longer exist.

use std::collections::BTreeSet;

use crate::command::inspect::inspection::{Inspection, PolicyState};
use crate::command::inspect::verdict::delete_review;
use crate::decide::{Decision, decide_together};
use crate::graph::{DeletionRequest, Fates, Graph, Node, NodeId, Propagation, fates};
use crate::policy::garbage_collector_identities;

/// The objects whose DELETE by the garbage collector belay denies now.
#[derive(Default)]
pub struct DeniedCollections {
    /// Dependents of the targets. The verdict on the targets does not cover them.
    pub dependents: BTreeSet<NodeId>,
    /// Objects whose owners no longer exist. The garbage collector sends the DELETE again.
    pub abandoned: BTreeSet<NodeId>,
}

impl DeniedCollections {
    pub fn new(inspection: &Inspection, targets: &[(NodeId, Propagation)]) -> Self {
        let Inspection { graph, policies, caller, .. } = inspection;
        let is_enforced = inspection.policy_state == PolicyState::Known
            && inspection.rules_not_read.is_empty()
            && policies.pause(inspection.now()).is_none();
        if !is_enforced {
            return Self::default();
        }
        let request = DeletionRequest::new(targets);
        let reached = fates(graph, &request);
        let judged =
            fates(graph, &DeletionRequest { only_dependents_in_same_scope: true, ..request });
        let is_judged =
            |id: NodeId| judged.may_be_lost(id) || targets.iter().any(|(target, _)| *target == id);
        let collectors =
            garbage_collector_identities().map(|(name, groups)| Subject::new(name, groups));
        let lost = lost(&reached).filter(|id| !is_judged(*id)).filter_map(|id| graph.get(id));
        let lost: Vec<_> = lost.filter(|node| !node.is_terminating()).collect();
        // An exempt subject that deletes an owner may delete its dependents as well.
        let me = caller.as_ref().map(|(_, me)| Subject::new(&me.name, &me.groups));
        let dependents = lost.into_iter().filter(|node| {
            collectors.iter().chain(&me).all(|subject| subject.is_denied(inspection, *node))
        });
        let dependents = dependents.map(Node::id).collect();
        // Files may lack the owners, so only a cluster has abandoned objects.
        let abandoned = caller.iter().flat_map(|_| abandoned(graph));
        let abandoned = abandoned.filter(|node| !is_judged(node.id())).filter(|node| {
            collectors.iter().all(|collector| collector.is_denied(inspection, *node))
        });
        let abandoned = abandoned.map(Node::id).collect();
        Self { dependents, abandoned }
    }

    pub fn contains(&self, id: NodeId) -> bool {
        self.dependents.contains(&id) || self.abandoned.contains(&id)
    }
}

fn lost(fates: &Fates) -> impl Iterator<Item = NodeId> {
    fates.iter().map(|(id, _)| id).filter(|id| fates.may_be_lost(*id))
}

/// The objects whose owners no longer exist, and that are not Terminating.
fn abandoned(graph: &Graph) -> impl Iterator<Item = Node<'_>> {
    let ids = graph.kinds.iter().flat_map(|(kind, _)| graph.objects_of_kind(kind));
    let nodes = ids.filter_map(|id| graph.get(id));
    nodes.filter(|node| !node.is_terminating() && node.has_only_absent_owners())
}

/// The name and the groups of a user.
struct Subject {
    name: String,
    groups: Vec<String>,
}

impl Subject {
    fn new(name: &str, groups: &[impl ToString]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(ToString::to_string).collect() }
    }

    /// Whether belay denies a DELETE of this object by the subject.
    fn is_denied(&self, inspection: &Inspection, node: Node<'_>) -> bool {
        let review = delete_review(&self.name, &self.groups);
        let verdict = decide_together(&inspection.situation(), &review, &[node]);
        verdict.decision == Decision::Deny && !verdict.is_unknown()
    }
}
