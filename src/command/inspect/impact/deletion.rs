//! One deletion, during which belay releases a set of holds.

use std::collections::{BTreeSet, HashMap};

use crate::command::inspect::inspection::Inspection;
use crate::decide::WAITING_FINALIZERS;
use crate::graph::{
    Certainty, DeletionOutcome, DeletionRequest, Fate, Fates, Node, NodeId, Propagation, fates,
};
use crate::objects::CLAIM_PROTECTION;

/// The finalizer of a Service with a load balancer. The cloud controller removes it after
/// it has deleted the load balancer.
pub const BALANCER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The finalizers that keep a volume while a claim is bound to it.
const VOLUME_PROTECTIONS: [&str; 2] = ["kubernetes.io/pv-protection", VOLUME_CONTROLLER];

/// The finalizer that the PV controller removes after it has deleted the storage of a volume.
const VOLUME_CONTROLLER: &str = "kubernetes.io/pv-controller";

/// A deletion and all its effects.
pub struct Deletion<'s> {
    inspection: &'s Inspection,
    pub fates: Fates,
    /// The objects that a finalizer of Kubernetes keeps, each with the objects that it waits for.
    pub waits: HashMap<NodeId, Vec<NodeId>>,
}

/// For each object that belay may keep, the users for which belay keeps it: by a hold, or by the
/// denial of a DELETE by a controller.
pub type BlockingUsers = HashMap<NodeId, Vec<NodeId>>;

impl<'s> Deletion<'s> {
    /// The deletion of these targets. `released`: the objects whose holds belay removes, or whose
    /// DELETEs it allows. belay denies the DELETEs of the other objects in `denied`.
    pub fn new(
        inspection: &'s Inspection,
        targets: &[(NodeId, Propagation)],
        denied: &BTreeSet<NodeId>,
        released: &BTreeSet<NodeId>,
    ) -> Self {
        let refuses =
            |node: Node<'_>| denied.contains(&node.id()) && !released.contains(&node.id());
        let cleaning = [BALANCER, VOLUME_CONTROLLER];
        let short_lived: Vec<&str> = WAITING_FINALIZERS.iter().copied().chain(cleaning).collect();
        let released_ids: Vec<NodeId> = released.iter().copied().collect();
        let request = DeletionRequest {
            refuses: &refuses,
            short_lived_finalizers: &short_lived,
            released: &released_ids,
            ..DeletionRequest::new(targets)
        };
        let fates = fates(&inspection.graph, &request);
        let mut deletion = Self { inspection, fates, waits: HashMap::new() };
        // A claim that waits for a Pod makes its volume wait, so claims come first.
        deletion.find_waiting(Self::mounting_pods);
        deletion.find_waiting(Self::bound_claim);
        deletion
    }

    /// The deletion if belay removes the holds and allows the DELETEs of `released`, except of
    /// objects with remaining users. `certain`: whether only certain deletions count.
    ///
    /// This first assumes that belay releases all of these objects, and then keeps the objects with
    /// remaining users. So objects that use each other are released together.
    pub fn with_releases(
        inspection: &'s Inspection,
        (targets, denied): (&[(NodeId, Propagation)], &BTreeSet<NodeId>),
        users: &BlockingUsers,
        mut released: BTreeSet<NodeId>,
        certain: bool,
    ) -> Self {
        loop {
            let deletion = Self::new(inspection, targets, denied, &released);
            let mut remaining: BTreeSet<NodeId> = BTreeSet::new();
            loop {
                let stays =
                    |user: &NodeId| remaining.contains(user) || !deletion.deletes(*user, certain);
                let is_used =
                    |id: &NodeId| users.get(id).is_some_and(|users| users.iter().any(stays));
                let more: Vec<NodeId> = released
                    .iter()
                    .copied()
                    .filter(|id| !remaining.contains(id) && is_used(id))
                    .collect();
                if more.is_empty() {
                    break;
                }
                remaining.extend(more);
            }
            if remaining.is_empty() {
                return deletion;
            }
            released.retain(|id| !remaining.contains(id));
        }
    }

    /// The fate of an object; `None` if it does not change.
    pub fn get(&self, id: NodeId) -> Option<Fate> {
        let fate = self.fates.get(id)?;
        let is_blocked = |node| !self.inspection.groups_blocking(node).is_empty();
        let waits = self.waits.contains_key(&id)
            || fate.outcome == DeletionOutcome::Deleted
                && self.inspection.graph.get(id).is_some_and(is_blocked);
        let outcome = if waits { DeletionOutcome::Terminating } else { fate.outcome };
        Some(Fate { outcome, ..fate })
    }

    /// Whether an object is deleted, and does not stay Terminating. `certain`: whether that must
    /// be certain.
    pub fn deletes(&self, id: NodeId, certain: bool) -> bool {
        self.get(id).is_some_and(|fate| {
            fate.outcome == DeletionOutcome::Deleted
                && (!certain || fate.certainty == Certainty::Certain)
        })
    }

    fn find_waiting(&mut self, waits_for: impl Fn(&Self, Node<'_>) -> Vec<NodeId>) {
        let lost = self.fates.iter().filter(|(_, fate)| fate.outcome == DeletionOutcome::Deleted);
        let nodes = lost.filter_map(|(id, _)| self.inspection.graph.get(id));
        let waits = nodes.map(|node| (node.id(), waits_for(self, node)));
        let waits: Vec<_> = waits.filter(|(_, others)| !others.is_empty()).collect();
        self.waits.extend(waits);
    }

    /// The Pods that a claim waits for, which stay or stay Terminating.
    fn mounting_pods(&self, claim: Node<'_>) -> Vec<NodeId> {
        if !claim.finalizers().contains(CLAIM_PROTECTION) {
            return Vec::new();
        }
        let graph = &self.inspection.graph;
        let pods = graph.pods_keeping(claim.id()).map(Node::id);
        let mut pods: Vec<NodeId> = pods.filter(|pod| !self.deletes(*pod, false)).collect();
        pods.sort_by_cached_key(|pod| graph.name_key(*pod));
        // A Pod may have the claim in several volumes.
        pods.dedup();
        pods
    }

    /// The claim that a volume waits for: the claim is bound to the volume, and stays or stays
    /// Terminating.
    fn bound_claim(&self, volume: Node<'_>) -> Vec<NodeId> {
        if !VOLUME_PROTECTIONS.iter().any(|name| volume.finalizers().contains(name)) {
            return Vec::new();
        }
        let Inspection { graph, backing, .. } = self.inspection;
        let staying_claim = || {
            let claim = backing.volumes.get(volume.name())?.claim.as_ref()?;
            let bound =
                backing.claims.get(claim).is_some_and(|claimed| claimed.name == volume.name());
            let node =
                graph.object(graph.kinds.find("", "PersistentVolumeClaim")?, &claim.0, &claim.1)?;
            (bound && !self.deletes(node.id(), false)).then(|| node.id())
        };
        staying_claim().into_iter().collect()
    }
}
