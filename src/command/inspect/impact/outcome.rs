//! The fate of every affected object. It depends on the graph, on the controllers of
//! Kubernetes, and on the holds that belay releases during the deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::collected::DeniedCollections;
use super::content::content_behind_pods;
use super::deletion::{BALANCER, BlockingUsers, Deletion};
use super::nodes::pods_on_nodes;
use super::target_effects::deleted_with;
use crate::command::diagnosis::{first_finalizers, more_finalizers};
use crate::command::document::Object;
use crate::command::inspect::inspection::{Inspection, PolicyState};
use crate::command::why::NeededApproval;
use crate::decide::{WAITING_FINALIZERS, is_default_object, is_root_ca};
use crate::graph::{
    Certainty, DeletionOutcome, EdgeQualifier, Fate, Graph, Node, NodeId, ObjectUser, Propagation,
    Strength,
};
use crate::hold::{HoldForecast, forecast};
use crate::objects::{NumberMap, ObjectRef, PROTECT_LABEL, STORAGE_CLASSES, and_more, is_hold};

/// The maximum number of objects that a note names.
const MAX_NAMED: usize = 2;

/// Why an object without users stays held.
const NO_LEADER: &str = "until belay has a leader, which releases it";

/// The fates of all objects.
pub struct ImpactOutcomes<'s> {
    inspection: &'s Inspection,
    /// The deletion if belay removes every hold that it may remove, and allows every DELETE that it
    /// may allow.
    possible: Deletion<'s>,
    /// The deletion if belay removes only the holds that it certainly removes, and allows only the
    /// DELETEs that it certainly allows.
    certain: Deletion<'s>,
    /// What each held object, and each object in `denied`, waits for.
    forecasts: HashMap<NodeId, HoldForecast>,
    /// The objects without a hold whose DELETE by a controller belay may deny.
    denied: BTreeSet<NodeId>,
    /// The Pods on deleted Kubernetes Nodes, each with its Node.
    kube_node_of_pod: NumberMap<NodeId, NodeId>,
    /// The objects that are Terminating, or whose owners no longer exist, and that this deletion
    /// unblocks by deleting their last user.
    freed: BTreeSet<NodeId>,
    /// The objects that are deleted also without this deletion, because they, their owners or
    /// their containers are Terminating.
    deleted_anyway: BTreeSet<NodeId>,
    /// The objects whose owners no longer exist, and whose DELETE by the garbage collector belay
    /// denies now.
    abandoned: BTreeSet<NodeId>,
    /// The content of deleted Namespaces that waits for a Pod, each with this Pod, which stays
    /// Terminating.
    behind_pods: BTreeMap<NodeId, NodeId>,
}

/// What belay's admission does with a deletion.
#[derive(Default)]
pub struct Admission<'a> {
    /// The approvals that the deletion needs, and will get.
    pub approvals: &'a [NeededApproval],
    /// A held target, and what its hold waits for, from belay's warning.
    pub held: Option<(NodeId, &'a str)>,
    /// Whether belay accepts the DELETE of the target, but denies the DELETEs of its content by a
    /// controller: belay does not watch the kinds of this content, or the target is already
    /// Terminating.
    pub denies_content_deletes: bool,
}

/// An object that loses something it needs.
pub struct BrokenUser {
    /// The topmost owner that stays.
    pub owner: NodeId,
    /// The object with the reference: that owner or one of its dependents.
    pub user: NodeId,
    /// The path of the field in the user's manifest.
    pub path: String,
    /// The lost object.
    pub lost: NodeId,
    /// Whether the user certainly loses the object.
    pub certain: bool,
    /// The number of other references from dependents of the owner.
    pub more: usize,
}

impl<'s> ImpactOutcomes<'s> {
    /// The outcomes if the targets are deleted with this propagation policy, with these approvals.
    pub fn new(
        inspection: &'s Inspection,
        targets: &[NodeId],
        cascade: Propagation,
        admission: &Admission<'_>,
    ) -> Self {
        let Admission { approvals, held, denies_content_deletes } = *admission;
        let graph = &inspection.graph;
        let targets = targets.iter().filter_map(|id| graph.get(*id));
        let targets =
            targets.map(|node| (node.id(), Propagation::of_node_delete(node, Some(cascade))));
        let mut targets: Vec<(NodeId, Propagation)> = targets.collect();
        let kube_node_of_pod = pods_on_nodes(inspection);
        targets.extend(kube_node_of_pod.keys().map(|pod| (*pod, Propagation::Background)));
        let collections = DeniedCollections::new(inspection, &targets);
        let abandoned = collections.abandoned.iter().filter_map(|id| graph.get(*id));
        let mut terminating = terminating(graph);
        terminating.extend(abandoned.map(terminating_target));
        terminating.retain(|(id, _)| targets.iter().all(|(target, _)| target != id));
        let all = [&targets[..], &terminating].concat();
        // All finalizers may be removed, so this reaches every object.
        let none = BTreeSet::new();
        let reached = Deletion::new(inspection, &all, &none, &none);
        let mut forecasts = forecast_all(inspection, &reached, |node| node.is_held());
        let is_target = |id: NodeId| targets.iter().any(|(target, _)| *target == id);
        let is_protected = |node: &Node<'_>| {
            // The API server deletes the instances of a CRD without admission.
            let is_instance = || graph.crd_of(node.kind()).is_some_and(|crd| is_target(crd.id()));
            let label = node.labels().get(PROTECT_LABEL);
            !node.is_held()
                && !node.is_terminating()
                && !is_target(node.id())
                && label.is_some()
                && !is_instance()
        };
        let mut denied = match denies_content_deletes {
            true => forecast_all(inspection, &reached, is_protected),
            false => HashMap::new(),
        };
        let is_collected = |node: &Node<'_>| collections.contains(node.id());
        denied.extend(forecast_all(inspection, &reached, is_collected).into_iter().map(
            |(id, forecast)| match forecast {
                HoldForecast::Users(users) if !users.is_empty() => (id, HoldForecast::Users(users)),
                _ => (id, HoldForecast::Approval),
            },
        ));
        forecasts.extend(denied.iter().map(|(id, forecast)| (*id, forecast.clone())));
        let denied: BTreeSet<NodeId> = denied.into_keys().collect();
        for id in approved(inspection, approvals, cascade) {
            forecasts.entry(id).and_modify(|forecast| *forecast = HoldForecast::Unprotected);
        }
        if let Some((id, until)) = held {
            let reported = HoldForecast::Reported(until.to_owned());
            forecasts.entry(id).and_modify(|forecast| *forecast = reported);
        }
        let mut users = BlockingUsers::new();
        let (mut possible, mut certain) = (BTreeSet::new(), BTreeSet::new());
        for (id, forecast) in &forecasts {
            let is_held = graph.get(*id).is_some_and(Node::is_held);
            // Without a leader, belay releases no hold.
            if is_held && inspection.no_leader {
                continue;
            }
            match forecast {
                HoldForecast::Unprotected => {
                    possible.insert(*id);
                    certain.insert(*id);
                }
                HoldForecast::Users(hold_users) => {
                    users.insert(*id, hold_users.clone());
                    possible.insert(*id);
                    if graph.get(*id).is_some_and(|node| knows_users(inspection, node)) {
                        certain.insert(*id);
                    }
                }
                // Without belay, no client releases the hold.
                HoldForecast::Unknown(_) if inspection.policy_state != PolicyState::None => {
                    possible.insert(*id);
                }
                HoldForecast::Approval | HoldForecast::Reported(_) | HoldForecast::Unknown(_) => {}
            }
        }
        let deletion = |targets: &[_], is_certain: bool| {
            let released = if is_certain { &certain } else { &possible };
            let request = (targets, &denied);
            Deletion::with_releases(inspection, request, &users, released.clone(), is_certain)
        };
        let ([possible, certain], separate) = {
            let both = |targets: &[_]| [false, true].map(|certain| deletion(targets, certain));
            let separate =
                (!terminating.is_empty()).then(|| (deletion(&targets, false), both(&terminating)));
            (both(&all), separate)
        };
        let mut outcomes = Self {
            inspection,
            possible,
            certain,
            forecasts,
            denied,
            kube_node_of_pod,
            freed: BTreeSet::new(),
            deleted_anyway: BTreeSet::new(),
            abandoned: collections.abandoned,
            behind_pods: BTreeMap::new(),
        };
        if let Some((own, without_targets)) = separate {
            outcomes.find_freed(&own, &without_targets);
        }
        outcomes.behind_pods = content_behind_pods(inspection, &outcomes.all());
        outcomes
    }

    /// Finds the Terminating objects that this deletion unblocks by deleting their last user, and
    /// the objects that are deleted anyway. `own`: the possible deletion of the targets alone;
    /// `possible_anyway` and `certain_anyway`: the deletions of the Terminating objects without the
    /// targets.
    fn find_freed(
        &mut self,
        own: &Deletion<'_>,
        [possible_anyway, certain_anyway]: &[Deletion<'_>; 2],
    ) {
        let graph = &self.inspection.graph;
        let lost =
            possible_anyway.fates.iter().map(|(id, _)| id).chain(self.abandoned.iter().copied());
        self.deleted_anyway = lost.filter(|id| own.get(*id).is_none()).collect();
        let waits = |id: &NodeId| {
            let is_terminating = graph.get(*id).is_some_and(Node::is_terminating);
            (is_terminating || self.abandoned.contains(id))
                && self.possible.deletes(*id, false)
                && !certain_anyway.deletes(*id, true)
        };
        let mut waiting: Vec<NodeId> = self.deleted_anyway.iter().copied().filter(waits).collect();
        // The users of a freed object may be freed objects as well.
        loop {
            let is_deleted_now =
                |id: NodeId| self.possible.deletes(id, false) && !self.deleted_anyway.contains(&id);
            let is_freed = |id: &NodeId| keepers(graph, *id).any(is_deleted_now);
            let (freed, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_freed);
            if freed.is_empty() {
                return;
            }
            self.deleted_anyway.retain(|id| !freed.contains(id));
            self.freed.extend(freed);
            waiting = rest;
        }
    }

    /// Whether the deletion reaches objects with holds.
    pub fn has_holds(&self) -> bool {
        self.forecasts.keys().any(|id| self.inspection.graph.get(*id).is_some_and(Node::is_held))
    }

    /// Whether the garbage collector deletes the object, because its owners no longer exist.
    pub fn is_abandoned(&self, id: NodeId) -> bool {
        self.abandoned.contains(&id)
    }

    /// Whether the object is already Terminating, or its owners no longer exist, and this deletion
    /// unblocks it by deleting its last user.
    pub fn is_freed(&self, id: NodeId) -> bool {
        self.freed.contains(&id)
    }

    /// The fate of an object; `None` if it does not change.
    pub fn get(&self, id: NodeId) -> Option<Fate> {
        let fate = self.possible.get(id).filter(|_| !self.deleted_anyway.contains(&id))?;
        let same = self.certain.get(id) == Some(fate);
        let certainty = if same { fate.certainty } else { Certainty::Possible };
        let waits = self.behind_pods.contains_key(&id);
        let outcome = if waits { DeletionOutcome::Terminating } else { fate.outcome };
        Some(Fate { outcome, certainty })
    }

    /// The objects that stay because belay denies their DELETE by a controller of Kubernetes, each
    /// with the reason.
    pub fn denied(&self) -> Vec<(NodeId, String)> {
        let reason = |id| match self.blocking_objects(id).as_slice() {
            [] => "belay denies its deletion until it is approved".to_owned(),
            users => format!("belay denies its deletion: in use by {}", self.users_text(id, users)),
        };
        self.denied_ids().into_iter().map(|id| (id, reason(id))).collect()
    }

    fn denied_ids(&self) -> Vec<NodeId> {
        let stays = |id: &NodeId| self.possible.get(*id).is_none();
        let mut denied: Vec<NodeId> = self.denied.iter().copied().filter(stays).collect();
        denied.sort_by_cached_key(|id| self.inspection.graph.name_key(*id));
        denied
    }

    /// The deleted Node of a Pod.
    pub fn node_of(&self, pod: NodeId) -> Option<NodeId> {
        self.kube_node_of_pod.get(&pod).copied()
    }

    /// All objects with a fate, in a stable order.
    pub fn all(&self) -> Vec<(NodeId, Fate)> {
        let fates = self.possible.fates.iter();
        let mut all: Vec<_> = fates.filter_map(|(id, _)| Some((id, self.get(id)?))).collect();
        all.sort_by_cached_key(|(id, _)| self.inspection.graph.name_key(*id));
        all
    }

    /// The objects that must be deleted before an object: belay keeps its hold for them, or
    /// Kubernetes keeps a finalizer for one of them. For an object that stays Terminating, these
    /// are only the objects that this deletion does not delete.
    pub fn blocking_objects(&self, id: NodeId) -> Vec<NodeId> {
        if let Some(others) = self.possible.waits.get(&id) {
            return others.clone();
        }
        let mut users: BTreeSet<NodeId> = match self.forecasts.get(&id) {
            Some(HoldForecast::Users(users)) => users.iter().copied().collect(),
            _ => BTreeSet::new(),
        };
        if self.is_freed(id) {
            let keepers = keepers(&self.inspection.graph, id);
            users.extend(keepers.filter(|user| self.possible.deletes(*user, false)));
        }
        let stays = self.get(id).is_some_and(|fate| fate.outcome == DeletionOutcome::Terminating);
        let blocks = |user: &&NodeId| !stays || !self.possible.deletes(**user, false);
        let mut blocking: Vec<NodeId> = users.iter().filter(blocks).copied().collect();
        blocking.sort_by_cached_key(|id| self.inspection.graph.name_key(*id));
        blocking
    }

    /// For each object in `blocking_objects`, the field that refers to the object `id`. Empty if a
    /// selector matches the object `id`.
    pub fn blocking_paths(&self, id: NodeId) -> Vec<String> {
        let users =
            self.blocking_objects(id).into_iter().map(|user| self.inspection.graph.get(user));
        let path = |user: Node<'_>| {
            user.uses().iter().find(|edge| edge.to == id).map(|edge| edge.path.to_string())
        };
        users.map(|user| user.and_then(path).unwrap_or_default()).collect()
    }

    /// The text about the objects that must be deleted before an object: `after pod/a, pod/b
    /// and 3 more objects`. Empty if there are none.
    pub fn blocking_text(&self, id: NodeId) -> String {
        if let Some(HoldForecast::Unknown(why)) = self.forecasts.get(&id) {
            return format!("if belay releases it ({why})");
        }
        match self.blocking_objects(id).as_slice() {
            [] => String::new(),
            users => format!("after {}", self.users_text(id, users)),
        }
    }

    /// The text about rollbacks that need an object: scaled-down workloads, which their controllers
    /// keep for a rollback, refer to it. Empty if the controllers need it now as well.
    pub fn rollbacks_text(&self, id: NodeId) -> String {
        let graph = &self.inspection.graph;
        let stays = |user: &ObjectUser<'_>| !self.possible.fates.may_be_lost(user.node.id());
        let users: Vec<_> = graph.users(id).filter(stays).collect();
        let needing = users.iter().filter(|user| user.needs());
        let needing: BTreeSet<NodeId> = needing.map(|user| self.staying_owner(user.node)).collect();
        let kept = users.iter().filter(|user| user.strength() == Strength::Needs);
        let kept = kept.filter(|user| user.qualifier() == EdgeQualifier::ScaledDown);
        let kept = kept.map(|user| (user.node.id(), self.staying_owner(user.node)));
        let kept: BTreeMap<NodeId, NodeId> =
            kept.filter(|(_, owner)| !needing.contains(owner)).collect();
        let mut revisions: Vec<(NodeId, NodeId)> = kept.into_iter().collect();
        revisions.sort_by_cached_key(|(revision, _)| graph.name_key(*revision));
        let Some((revision, owner)) = revisions.first().copied() else { return String::new() };
        let namespace = graph.get(id).map_or("", Node::namespace);
        let [revision, owner] = [revision, owner].map(|id| Object::at(graph, id).label(namespace));
        let others = and_more(revisions.len() - 1, "revision");
        format!("a rollback of {owner} to {revision}{others} needs it")
    }

    /// Whether belay's hold keeps an object that stays Terminating. If not, Kubernetes or
    /// another controller keeps it.
    pub fn is_held_by_belay(&self, id: NodeId) -> bool {
        !self.possible.waits.contains_key(&id)
            && match self.forecasts.get(&id) {
                Some(HoldForecast::Users(_)) => {
                    self.lacks_leader(id) || !self.blocking_objects(id).is_empty()
                }
                Some(HoldForecast::Unprotected) => self.lacks_leader(id),
                None => false,
                Some(_) => true,
            }
    }

    /// Whether the object has a hold, and belay has no leader to release it.
    fn lacks_leader(&self, id: NodeId) -> bool {
        let is_held = || self.inspection.graph.get(id).is_some_and(Node::is_held);
        self.inspection.no_leader && is_held()
    }

    /// Why an object stays Terminating.
    pub fn why_terminating(&self, id: NodeId) -> String {
        let Some(node) = self.inspection.graph.get(id) else { return String::new() };
        if let Some(others) = self.possible.waits.get(&id) {
            let are = if others.len() == 1 { "is" } else { "are" };
            return format!("until {} {are} deleted", self.named_text(id, others, "Pod"));
        }
        if let Some(pod) = self.behind_pods.get(&id) {
            let pod = Object::at(&self.inspection.graph, *pod).label(node.namespace());
            return format!("until {pod} is deleted: the namespace controller deletes Pods first");
        }
        let groups = self.inspection.groups_blocking(node);
        if !groups.is_empty() {
            return format!(
                "until the API server of {} answers: the namespace controller can't list its kinds",
                groups.join(", ")
            );
        }
        let others = node
            .finalizers()
            .iter()
            .filter(|f| !WAITING_FINALIZERS.contains(f) && *f != BALANCER && !is_hold(f));
        let (others, more) = first_finalizers(others);
        let mut reasons = Vec::new();
        match self.forecasts.get(&id) {
            Some(HoldForecast::Users(_)) => {
                let users = self.blocking_objects(id);
                if !users.is_empty() {
                    reasons.push(format!("in use by {}", self.users_text(id, &users)));
                } else if self.lacks_leader(id) {
                    reasons.push(NO_LEADER.to_owned());
                }
            }
            Some(HoldForecast::Unprotected) if self.lacks_leader(id) => {
                reasons.push(NO_LEADER.to_owned());
            }
            Some(HoldForecast::Approval) => {
                reasons.push("until its deletion is approved".to_owned());
            }
            Some(HoldForecast::Reported(until)) => reasons.push(format!("until {until}")),
            Some(HoldForecast::Unknown(why)) => {
                reasons.push(format!("until belay releases it ({why})"));
            }
            Some(HoldForecast::Unprotected) | None => {}
        }
        if !others.is_empty() {
            let (its, is) = match others.len() {
                1 => ("its finalizer", "is"),
                _ => ("its finalizers", "are"),
            };
            let names: Vec<&str> = others.into_iter().map(|(_, name)| name).collect();
            let (names, and_more) = (names.join(", "), and_more(more, "finalizer"));
            let command = more_finalizers(more, &node.object_ref());
            let command = command.map_or(String::new(), |(_, command)| format!(" ({command})"));
            reasons.push(format!("until {its} {names}{and_more} {is} removed{command}"));
        }
        let graph = &self.inspection.graph;
        let mut denied = self.denied_ids();
        denied.retain(|content| graph.get(*content).and_then(Node::namespace_node) == Some(id));
        if !denied.is_empty() {
            let names = self.named_text(id, &denied, "object");
            reasons.push(format!("until belay allows the deletion of {names}"));
        }
        match reasons.is_empty() {
            true => "until its content and dependents are deleted".to_owned(),
            false => reasons.join("; "),
        }
    }

    /// The users of an object as text. It names the first users and counts the others.
    fn users_text(&self, id: NodeId, users: &[NodeId]) -> String {
        self.named_text(id, users, "object")
    }

    /// The objects as text. It names the first objects and counts the others. `id`: the object
    /// whose namespace is omitted.
    fn named_text(&self, id: NodeId, objects: &[NodeId], word: &str) -> String {
        let graph = &self.inspection.graph;
        let namespace = graph.get(id).map_or("", Node::namespace);
        let first = objects.iter().take(MAX_NAMED);
        let named: Vec<String> =
            first.map(|object| Object::at(graph, *object).label(namespace)).collect();
        match objects.len().saturating_sub(MAX_NAMED) {
            0 => named.join(" and "),
            others => named.join(", ") + &and_more(others, word),
        }
    }

    /// Finds the objects that lose an object they need, by their topmost owner.
    pub fn broken(&self) -> Vec<BrokenUser> {
        let graph = &self.inspection.graph;
        let mut broken: Vec<BrokenUser> = Vec::new();
        let mut index: HashMap<(NodeId, NodeId), usize> = HashMap::new();
        for (lost, fate) in self.all() {
            if fate.outcome != DeletionOutcome::Deleted && !self.behind_pods.contains_key(&lost) {
                continue;
            }
            // kube-controller-manager re-creates this ConfigMap with the same content.
            let is_root_ca = |lost: Node<'_>| is_root_ca(&lost.object_ref());
            if graph.get(lost).is_some_and(|lost| is_root_ca(lost) && self.is_recreated(lost)) {
                continue;
            }
            let is_certain = fate.certainty == Certainty::Certain;
            let is_class =
                graph.get(lost).is_some_and(|lost| lost.object_ref().is_of(STORAGE_CLASSES));
            for (user, certainty) in self.possible.fates.broken_by(graph, lost) {
                let outlives = is_class && self.inspection.backing.outlives_class(user.node);
                if outlives || self.possible.fates.may_be_lost(user.node.id()) {
                    continue;
                }
                let owner = self.staying_owner(user.node);
                let new = BrokenUser {
                    owner,
                    user: user.node.id(),
                    path: user.path().to_owned(),
                    lost,
                    certain: is_certain && certainty == Certainty::Certain,
                    more: 0,
                };
                let Some(position) = index.get(&(lost, owner)).copied() else {
                    index.insert((lost, owner), broken.len());
                    broken.push(new);
                    continue;
                };
                let reported = &mut broken[position];
                let more = reported.more + 1;
                // The report prefers a reference in the topmost owner, which the user can edit.
                let rank = |one: &BrokenUser| {
                    let BrokenUser { user, path, .. } = one;
                    (*user != owner, graph.name_key(*user), path.clone())
                };
                if rank(&new) < rank(reported) {
                    *reported = new;
                }
                reported.more = more;
            }
        }
        broken.sort_by_cached_key(|one| [one.owner, one.lost].map(|id| graph.name_key(id)));
        broken
    }

    /// Whether kube-controller-manager re-creates this object at once, because its Namespace stays.
    pub fn is_recreated(&self, node: Node<'_>) -> bool {
        let ObjectRef { group, resource, name, .. } = node.object_ref();
        let stays = |id: NodeId| {
            let node = self.inspection.graph.get(id);
            self.get(id).is_none() && !node.is_some_and(Node::is_terminating)
        };
        is_default_object(&group, &resource, &name) && node.namespace_node().is_none_or(stays)
    }

    /// The topmost owner that stays. With `--cascade orphan`, a dependent outlives its owner.
    fn staying_owner(&self, node: Node<'_>) -> NodeId {
        let stays = |owner: &Node<'_>| !self.possible.fates.may_be_lost(owner.id());
        node.topmost_owner_among(stays).id()
    }

    /// Whether the outcomes contain every effect of the deletion.
    pub fn is_complete(&self) -> bool {
        self.possible.fates.is_complete() && self.certain.fates.is_complete()
    }
}

/// The Terminating objects, which are deleted when their finalizers are removed.
fn terminating(graph: &Graph) -> Vec<(NodeId, Propagation)> {
    let kinds = graph.kinds.iter().flat_map(|(kind, _)| graph.objects_of_kind(kind));
    let nodes = kinds.filter_map(|id| graph.get(id)).filter(|node| node.is_terminating());
    nodes.map(terminating_target).collect()
}

fn terminating_target(node: Node<'_>) -> (NodeId, Propagation) {
    (node.id(), Propagation::of_terminating(node.finalizers().iter()))
}

/// The objects that keep a Terminating object: its users, and for a claim also the Pods that have
/// finished.
fn keepers(graph: &Graph, id: NodeId) -> impl Iterator<Item = NodeId> {
    let users = graph.users(id).filter(|user| user.needs()).map(|user| user.node);
    users.chain(graph.pods_keeping(id)).map(Node::id)
}

/// The objects that this deletion reaches and that meet `is_kept`, each with what its own deletion
/// waits for.
fn forecast_all(
    inspection: &Inspection,
    reached: &Deletion<'_>,
    is_kept: impl Fn(&Node<'_>) -> bool,
) -> HashMap<NodeId, HoldForecast> {
    let situation = inspection.situation();
    let policies_known = inspection.policy_state == PolicyState::Known;
    let lost = reached.fates.iter().map(|(id, _)| id).filter(|id| reached.fates.may_be_lost(*id));
    let nodes = lost.filter_map(|id| inspection.graph.get(id));
    let held = nodes.filter(is_kept);
    held.map(|node| (node.id(), forecast(&situation, policies_known, node))).collect()
}

/// The objects that these approvals cover.
fn approved(
    inspection: &Inspection,
    approvals: &[NeededApproval],
    cascade: Propagation,
) -> Vec<NodeId> {
    let mut approved = Vec::new();
    for NeededApproval { object, content } in approvals {
        let Some(node) = inspection.graph.object_by_ref(object) else { continue };
        approved.push(node.id());
        if *content {
            approved.extend(deleted_with(&inspection.graph, node, cascade));
        }
    }
    approved
}

/// Whether all objects that could use an object are known.
fn knows_users(inspection: &Inspection, node: Node<'_>) -> bool {
    let Inspection { graph, policies, complete_in_namespace, .. } = inspection;
    // Without a cluster, an object that no file contains does not exist.
    inspection.caller.is_none()
        || policies.user_kinds(&graph.kinds, node.kind()).all(|(kind, crosses)| {
            let is_read = || complete_in_namespace.contains(&(kind, node.namespace().to_owned()));
            !graph.kinds.is_served(kind) || graph.is_complete(kind) || !crosses && is_read()
        })
}
