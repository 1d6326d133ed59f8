//! The fate of every affected object: from the graph, from the controllers of Kubernetes,
//! and from the holds that belay releases in the course of the deletion.

use std::collections::{BTreeSet, HashMap};

use super::deletion::{BALANCER, Deletion, HoldUsers};
use super::nodes::pods_on_nodes;
use crate::command::document::Object;
use crate::command::inspect::inspection::{Inspection, Rules};
use crate::decide::{ObjectSource, Situation, WAITING_FINALIZERS};
use crate::graph::{Certainty, DeletionOutcome, Fate, Graph, Node, NodeId, Propagation};
use crate::hold::{HoldForecast, forecast};
use crate::objects::{NumberMap, and_more, is_hold};

/// The maximum number of objects that a note names.
const MAX_NAMED: usize = 2;

/// The fates of all objects.
pub struct ImpactOutcomes<'s> {
    inspection: &'s Inspection,
    /// The deletion if belay releases every hold that it may release.
    possible: Deletion<'s>,
    /// The deletion if belay releases only the holds that it certainly releases.
    certain: Deletion<'s>,
    /// What the release of each hold waits for.
    holds: HashMap<NodeId, HoldForecast>,
    /// The Pods on deleted Nodes, each with its Node.
    on_nodes: NumberMap<NodeId, NodeId>,
}

/// An object that loses something it needs.
pub struct BrokenUser {
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

impl<'s> ImpactOutcomes<'s> {
    /// The outcome of deleting the targets of a scene with this propagation policy.
    pub fn new(inspection: &'s Inspection, cascade: Propagation) -> Self {
        let graph = &inspection.graph;
        let deletable = inspection.deletable_targets().into_iter();
        let targets = deletable.filter_map(|id| graph.get(id));
        let targets = targets
            .map(|node| (node.id(), Propagation::effective(graph, node, Some(cascade), None)));
        let mut targets: Vec<(NodeId, Propagation)> = targets.collect();
        let on_nodes = pods_on_nodes(inspection);
        targets.extend(on_nodes.keys().map(|pod| (*pod, Propagation::Background)));
        // All finalizers may be removed, so this reaches every object.
        let reached = Deletion::new(inspection, &targets, &BTreeSet::new());
        let holds = forecasts(inspection, &reached);
        let mut users = HoldUsers::new();
        let (mut possible, mut certain) = (BTreeSet::new(), BTreeSet::new());
        for (id, forecast) in &holds {
            match forecast {
                HoldForecast::Unprotected => {
                    possible.insert(*id);
                    certain.insert(*id);
                }
                HoldForecast::Users(all) => {
                    users.insert(*id, all.clone());
                    possible.insert(*id);
                    if graph.get(*id).is_some_and(|node| knows_users(inspection, node)) {
                        certain.insert(*id);
                    }
                }
                // Without belay, no client releases the hold.
                HoldForecast::Unknown(_) if inspection.rules != Rules::None => {
                    possible.insert(*id);
                }
                HoldForecast::Approval | HoldForecast::Unknown(_) => {}
            }
        }
        let follow = |released, certain| {
            Deletion::with_releases(inspection, &targets, &users, released, certain)
        };
        let (possible, certain) = (follow(possible, false), follow(certain, true));
        Self { inspection, possible, certain, holds, on_nodes }
    }

    /// The fate of an object; `None` if it does not change.
    pub fn get(&self, id: NodeId) -> Option<Fate> {
        let fate = self.possible.get(id)?;
        let same = self.certain.get(id) == Some(fate);
        let certainty = if same { fate.certainty } else { Certainty::Possible };
        Some(Fate { certainty, ..fate })
    }

    /// The deleted Node of a Pod.
    pub fn node_of(&self, pod: NodeId) -> Option<NodeId> {
        self.on_nodes.get(&pod).copied()
    }

    /// All objects with a fate, in a stable order.
    pub fn all(&self) -> Vec<(NodeId, Fate)> {
        let fates = self.possible.fates.iter();
        let mut all: Vec<_> = fates.filter_map(|(id, _)| Some((id, self.get(id)?))).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// The objects that have to be deleted before an object: those for which belay keeps
    /// its hold, or for which Kubernetes keeps its own finalizer. For an object that stays
    /// they are only the objects that keep it.
    pub fn after(&self, id: NodeId) -> Vec<NodeId> {
        if let Some(other) = self.possible.waits.get(&id) {
            return vec![*other];
        }
        let Some(HoldForecast::Users(users)) = self.holds.get(&id) else { return Vec::new() };
        let stays = self.get(id).is_some_and(|fate| fate.outcome == DeletionOutcome::Held);
        let counts = |user: &&NodeId| !stays || !self.possible.deletes(**user, false);
        users.iter().filter(counts).copied().collect()
    }

    /// When an object with a hold is deleted: `after pod/a, pod/b and 3 more users`. Empty if
    /// nothing has to be deleted first.
    pub fn after_text(&self, id: NodeId) -> String {
        if let Some(HoldForecast::Unknown(why)) = self.holds.get(&id) {
            return format!("if belay releases it ({why})");
        }
        match self.after(id).as_slice() {
            [] => String::new(),
            users => format!("after {}", self.users_text(id, users)),
        }
    }

    /// Whether belay's hold keeps an object that stays. Otherwise Kubernetes or another
    /// controller keeps it.
    pub fn is_held_by_belay(&self, id: NodeId) -> bool {
        !self.possible.waits.contains_key(&id)
            && match self.holds.get(&id) {
                Some(HoldForecast::Users(_)) => !self.after(id).is_empty(),
                Some(HoldForecast::Approval | HoldForecast::Unknown(_)) => true,
                Some(HoldForecast::Unprotected) | None => false,
            }
    }

    /// Why an object stays Terminating.
    pub fn why_held(&self, id: NodeId) -> String {
        let Some(node) = self.inspection.graph.get(id) else { return String::new() };
        if let Some(other) = self.possible.waits.get(&id) {
            let object = Object::at(&self.inspection.graph, *other);
            let ends = if object.kind == "Pod" { "has ended" } else { "is deleted" };
            return format!("until {} {ends}", object.label(node.namespace()));
        }
        let others = node
            .finalizers()
            .iter()
            .filter(|f| !WAITING_FINALIZERS.contains(f) && *f != BALANCER && !is_hold(f));
        let others: Vec<&str> = others.collect();
        let mut reasons = Vec::new();
        match self.holds.get(&id) {
            Some(HoldForecast::Users(_)) => {
                let users = self.after(id);
                if !users.is_empty() {
                    reasons.push(format!("in use by {}", self.users_text(id, &users)));
                }
            }
            Some(HoldForecast::Approval) => {
                reasons.push("until its deletion is approved".to_owned());
            }
            Some(HoldForecast::Unknown(why)) => {
                reasons.push(format!("until belay releases it ({why})"));
            }
            Some(HoldForecast::Unprotected) | None => {}
        }
        if !others.is_empty() {
            reasons.push(format!("until {} is removed", others.join(", ")));
        }
        match reasons.is_empty() {
            true => "until its content and dependents are deleted".to_owned(),
            false => reasons.join("; "),
        }
    }

    /// The users of an object, the first of them by name.
    fn users_text(&self, id: NodeId, users: &[NodeId]) -> String {
        let graph = &self.inspection.graph;
        let home = graph.get(id).map_or("", Node::namespace);
        let named = users.iter().take(MAX_NAMED).map(|user| Object::at(graph, *user).label(home));
        let named: Vec<String> = named.collect();
        match users.len().saturating_sub(MAX_NAMED) {
            0 => named.join(" and "),
            others => named.join(", ") + &and_more(others, "user"),
        }
    }

    /// Finds the objects that lose something they need, by their root owner.
    pub fn broken(&self) -> Vec<BrokenUser> {
        let graph = &self.inspection.graph;
        let mut broken: Vec<BrokenUser> = Vec::new();
        let mut index: HashMap<(NodeId, NodeId), usize> = HashMap::new();
        for (of, fate) in self.all() {
            if fate.outcome != DeletionOutcome::Deleted {
                continue;
            }
            let is_certain = fate.certainty == Certainty::Certain;
            for (user, certainty) in self.possible.fates.broken_by(graph, of) {
                if self.possible.fates.may_be_lost(user.node.id()) {
                    continue;
                }
                let root = root(graph, user.node);
                let new = BrokenUser {
                    root,
                    user: user.node.id(),
                    path: user.path().to_owned(),
                    of,
                    certain: is_certain && certainty == Certainty::Certain,
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
        self.possible.fates.is_complete() && self.certain.fates.is_complete()
    }
}

/// The topmost owner that stays.
fn root(graph: &Graph, node: Node<'_>) -> NodeId {
    graph.get(node.root_owner().id()).map_or(node.id(), |root| root.id())
}

/// What the release of the hold of every object that this deletion reaches waits for.
fn forecasts(inspection: &Inspection, reached: &Deletion<'_>) -> HashMap<NodeId, HoldForecast> {
    let Inspection { graph, policies, .. } = inspection;
    let situation = Situation::new(graph, policies, ObjectSource::Files, inspection.now());
    let known = inspection.rules == Rules::Known;
    let lost = reached.fates.iter().map(|(id, _)| id).filter(|id| reached.fates.may_be_lost(*id));
    let nodes = lost.filter_map(|id| graph.get(id));
    let held = nodes.filter(|node| node.finalizers().iter().any(is_hold));
    held.map(|node| (node.id(), forecast(&situation, known, node))).collect()
}

/// Whether all objects that could use an object are known.
fn knows_users(inspection: &Inspection, node: Node<'_>) -> bool {
    let Inspection { graph, policies, in_namespace, .. } = inspection;
    // Objects that are not in the files don't exist.
    inspection.person.is_none()
        || policies.user_kinds(&graph.kinds, node.kind()).all(|(needer, crosses)| {
            let here = || in_namespace.contains(&(needer, node.namespace().to_owned()));
            !graph.kinds.is_served(needer) || graph.is_complete(needer) || !crosses && here()
        })
}
