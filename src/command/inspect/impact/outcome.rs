//! The fate of every affected object: from the graph, and from the controllers of
//! Kubernetes.

use std::collections::HashMap;

use crate::command::inspect::inspection::Inspection;
use crate::decide::WAITING_FINALIZERS;
use crate::graph::{
    Certainty, DeletionRequest, Fate, Fates, Graph, Node, NodeId, Outcome, Propagation, fates,
};
use crate::objects::is_hold;

/// The finalizer of a Service with a load balancer. The cloud controller removes it after
/// it has deleted the load balancer.
const BALANCER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Protects a claim while a running Pod mounts it.
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Protects a volume while a claim is bound to it.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// The fates of all objects.
pub struct Outcomes<'s> {
    inspection: &'s Inspection,
    fates: Fates,
    /// Finds objects that finalizers of Kubernetes keep, and the reasons.
    waits: HashMap<NodeId, String>,
}

/// An object that loses something it needs.
pub struct Broken {
    /// The owner at the top.
    pub root: NodeId,
    /// The object with the reference: itself or a dependent.
    pub user: NodeId,
    /// The path of the field in the user's manifest.
    pub path: String,
    /// The lost object.
    pub of: NodeId,
    /// Whether that is certain.
    pub certain: bool,
    /// The number of other references from dependents of the root.
    pub more: usize,
}

impl<'s> Outcomes<'s> {
    /// The outcome of deleting the targets of a scene with this propagation policy.
    pub fn new(inspection: &'s Inspection, cascade: Propagation) -> Self {
        let graph = &inspection.graph;
        let targets = inspection.targets.iter().filter_map(|id| graph.get(*id));
        let targets = targets
            .map(|node| (node.id(), Propagation::effective(graph, node, Some(cascade), None)));
        let targets: Vec<(NodeId, Propagation)> = targets.collect();
        let brief: Vec<&str> = WAITING_FINALIZERS.iter().copied().chain([BALANCER]).collect();
        let fates = fates(
            graph,
            &DeletionRequest { short_lived_finalizers: &brief, ..DeletionRequest::new(&targets) },
        );
        let mut outcomes = Self { inspection, fates, waits: HashMap::new() };
        // A volume waits for a claim that waits for a Pod.
        outcomes.find_waiting(|outcomes, node| outcomes.mounted_by(node));
        outcomes.find_waiting(|outcomes, node| outcomes.claimed_by(node));
        outcomes
    }

    fn find_waiting(&mut self, why: impl Fn(&Self, Node<'_>) -> Option<String>) {
        let lost = self.fates.iter().filter(|(_, fate)| fate.outcome == Outcome::Deleted);
        let nodes = lost.filter_map(|(id, _)| self.inspection.graph.get(id));
        let waits: Vec<_> = nodes.filter_map(|node| Some((node.id(), why(self, node)?))).collect();
        self.waits.extend(waits);
    }

    /// The Pod that a claim waits for: it stays and runs on a node.
    fn mounted_by(&self, claim: Node<'_>) -> Option<String> {
        if !claim.finalizers().contains(CLAIM_PROTECTION) {
            return None;
        }
        let graph = &self.inspection.graph;
        let (pods, nodes) = (graph.kinds.find("", "Pod")?, graph.kinds.find("", "Node")?);
        let mut users = graph.users(claim.id()).filter(|user| user.needs()).map(|user| user.node);
        let pod = users.find(|user| {
            let runs = user.kind() == pods && user.used_kinds().any(|kind| kind == nodes);
            runs && !self.fates.may_be_lost(user.id())
        })?;
        Some(format!("until pod/{} has ended", pod.name()))
    }

    /// The claim that a volume waits for.
    fn claimed_by(&self, volume: Node<'_>) -> Option<String> {
        let Inspection { graph, backing, .. } = self.inspection;
        if !volume.finalizers().contains(VOLUME_PROTECTION) {
            return None;
        }
        let claim = backing.volumes.get(volume.name())?.claim.as_ref()?;
        let bound = backing.claims.get(claim).is_some_and(|name| name == volume.name());
        let node =
            graph.object(graph.kinds.find("", "PersistentVolumeClaim")?, &claim.0, &claim.1)?;
        let stays = !self.fates.may_be_lost(node.id()) || self.waits.contains_key(&node.id());
        (bound && stays).then(|| format!("until pvc/{} -n {} is deleted", claim.1, claim.0))
    }

    /// The fate of an object; `None` if it does not change.
    pub fn get(&self, id: NodeId) -> Option<Fate> {
        let fate = self.fates.get(id)?;
        let outcome = if self.waits.contains_key(&id) { Outcome::Held } else { fate.outcome };
        Some(Fate { outcome, ..fate })
    }

    /// Everything that something becomes of, in a steady order.
    pub fn all(&self) -> Vec<(NodeId, Fate)> {
        let mut all: Vec<_> =
            self.fates.iter().filter_map(|(id, _)| Some((id, self.get(id)?))).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Why a held object stays.
    pub fn why_held(&self, id: NodeId) -> String {
        if let Some(why) = self.waits.get(&id) {
            return why.clone();
        }
        let Some(node) = self.inspection.graph.get(id) else { return String::new() };
        let others =
            node.finalizers().iter().filter(|f| !WAITING_FINALIZERS.contains(f) && *f != BALANCER);
        let others: Vec<&str> = others.collect();
        match others.as_slice() {
            [] => "until its content and dependents are deleted".to_owned(),
            [one] if is_hold(one) => "until no object uses it".to_owned(),
            all => format!("until {} is taken off", all.join(", ")),
        }
    }

    /// Finds the objects that lose something they need, by their root owner.
    pub fn broken(&self) -> Vec<Broken> {
        let graph = &self.inspection.graph;
        let mut broken: Vec<Broken> = Vec::new();
        let mut index: HashMap<(NodeId, NodeId), usize> = HashMap::new();
        for (of, fate) in self.all() {
            if fate.outcome != Outcome::Deleted {
                continue;
            }
            for (user, certainty) in self.fates.broken_by(graph, of) {
                if self.fates.may_be_lost(user.node.id()) {
                    continue;
                }
                let root = root(graph, user.node);
                let new = Broken {
                    root,
                    user: user.node.id(),
                    path: user.path().to_owned(),
                    of,
                    certain: certainty == Certainty::Certain,
                    more: 0,
                };
                let Some(at) = index.get(&(of, root)).copied() else {
                    index.insert((of, root), broken.len());
                    broken.push(new);
                    continue;
                };
                let known = &mut broken[at];
                let more = known.more + 1;
                // A reference in the root itself shows where to change it.
                let better = (new.user != new.root, new.user) < (known.user != root, known.user);
                if better {
                    *known = new;
                }
                known.more = more;
            }
        }
        broken
    }

    /// Whether everything was followed.
    pub fn is_whole(&self) -> bool {
        self.fates.is_whole()
    }
}

/// The topmost owner that stays.
fn root(graph: &Graph, node: Node<'_>) -> NodeId {
    graph.get(node.root_owner().id()).map_or(node.id(), |root| root.id())
}
