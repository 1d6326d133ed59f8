//! One walk of a deletion through the graph.

use super::mode::{DeletionMode, OwnerReferenceState};
use super::{DeletionRequest, Propagation};
use crate::graph::{Graph, Node, NodeId, ObjectPhase};
use crate::objects::{
    DefaultPropagation, FOREGROUND, KindId, NumberMap, NumberSet, ORPHAN, is_hold,
};

type Map<V> = NumberMap<NodeId, V>;
type Set = NumberSet<NodeId>;

/// The finalizer by which the API server deletes the instances of a CRD.
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The state of one walk. Its sets only grow: objects are added to the deleting and the
/// removed objects until nothing changes. The result is a least fixpoint from the
/// targets, so a cycle of owners never deletes itself (R10).
pub(super) struct DeletionWalk<'g> {
    pub(super) graph: &'g Graph,
    pub(super) request: &'g DeletionRequest<'g>,
    /// The walk of possible deletions, in the walk of certain ones: an object that can't
    /// possibly be deleted certainly stays.
    pub(super) possible: Option<&'g DeletionWalk<'g>>,
    pub(super) deleting: Map<DeletionMode>,
    pub(super) removed: Set,
    orphaned: Set,
    /// Namespaces and CRDs, with the number of their objects that are not removed.
    pub(super) containers: Map<usize>,
    /// Owners in a foreground deletion, with the number of remaining blocking dependents.
    blocked: Map<usize>,
    /// The containers of an object. An object may be in a Namespace and a CRD that are
    /// deleted together.
    pub(super) contained: Map<Vec<NodeId>>,
    /// The objects that certainly wait after their DELETE.
    pub(super) stuck: Set,
    /// Whether any DELETE was denied.
    pub(super) any_denied: bool,
    /// Instances of a deleted CRD: after its removal their kind is unknown, and
    /// references to them can't be resolved (R14).
    pub(super) unresolvable: Set,
    /// The objects of the request from which belay's own hold is removed.
    released: Set,
    queue: Vec<NodeId>,
    complete: bool,
    /// Looked up once, because every deleted object is compared with them.
    namespaces: Option<KindId>,
    crds: Option<KindId>,
}

impl<'g> DeletionWalk<'g> {
    /// The walk of possible deletions, which assumes the worst for every object.
    pub(super) fn possible(graph: &'g Graph, request: &'g DeletionRequest<'g>) -> Self {
        let mut world = Self::new(graph, request, None);
        world.run();
        world.remove_blocked_forever();
        world
    }

    /// The walk of certain deletions, which keeps every object that something could keep.
    pub(super) fn certain(
        graph: &'g Graph,
        request: &'g DeletionRequest<'g>,
        may: &'g DeletionWalk<'g>,
    ) -> Self {
        let mut world = Self::new(graph, request, Some(may));
        world.run();
        world
    }

    fn new(
        graph: &'g Graph,
        request: &'g DeletionRequest<'g>,
        may: Option<&'g DeletionWalk<'g>>,
    ) -> Self {
        Self {
            graph,
            request,
            possible: may,
            deleting: Map::default(),
            removed: Set::default(),
            orphaned: Set::default(),
            containers: Map::default(),
            blocked: Map::default(),
            contained: Map::default(),
            stuck: Set::default(),
            any_denied: false,
            unresolvable: Set::default(),
            released: request.released.iter().copied().collect(),
            queue: Vec::new(),
            complete: true,
            namespaces: graph.namespace_kind(),
            crds: graph.kinds.find("apiextensions.k8s.io", "CustomResourceDefinition"),
        }
    }

    /// Charges steps. Returns whether the walk may go on.
    pub(super) fn charge(&self, steps: usize) -> bool {
        self.request.work.charge(steps)
    }

    pub(super) fn is_certain(&self) -> bool {
        self.possible.is_some()
    }

    fn run(&mut self) {
        for &(id, propagation) in self.request.targets {
            self.delete(id, propagation.into());
        }
        while let Some(id) = self.queue.pop() {
            if !self.charge(1) {
                return;
            }
            self.follow(id);
        }
        self.find_stuck();
    }

    /// R14: deletes the content of a Namespace or a CRD.
    fn delete_content(&mut self, id: NodeId) {
        let Some(node) = self.graph.get(id) else { return };
        if self.namespaces == Some(node.kind()) {
            let graph = self.graph;
            let content = self.within_limit(graph.objects_in_namespace(id));
            self.contain(id, &content);
            for member in content {
                // The namespace controller deletes each object with Background.
                self.delete(member, DeletionMode::Background);
            }
        } else if self.crds == Some(node.kind()) {
            let instances = self.instances(node);
            let content = self.within_limit(instances.into_iter());
            self.contain(id, &content);
            for instance in content {
                let Some(object) = self.graph.get(instance) else { continue };
                let mode = Propagation::effective(self.graph, object, None, None);
                self.unresolvable.insert(instance);
                self.delete(instance, mode.into());
            }
        }
    }

    /// The instances that are deleted with a CRD; none if it is not served.
    fn instances(&self, crd: Node<'_>) -> Vec<NodeId> {
        // The name of a CRD is the resource and the group of its kind.
        let (resource, group) = crd.name().split_once('.').unwrap_or((crd.name(), ""));
        match self.graph.kinds.find_resource(group, resource) {
            Some(kind) if crd.phase() != ObjectPhase::CrdNotServed => {
                self.graph.objects_of_kind(kind).collect()
            }
            _ => Vec::new(),
        }
    }

    fn contain(&mut self, container: NodeId, content: &[NodeId]) {
        let left = content.iter().filter(|member| !self.removed.contains(member));
        self.containers.insert(container, left.clone().count());
        for member in left {
            self.contained.entry(*member).or_default().push(container);
        }
    }

    /// The content of a container, up to the limit.
    fn within_limit(&mut self, content: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let room = self.request.limit.saturating_sub(self.deleting.len());
        let mut content = content;
        let taken: Vec<_> = content.by_ref().take(room).collect();
        self.complete &= content.next().is_none();
        taken
    }

    /// The object receives a DELETE.
    fn delete(&mut self, id: NodeId, mode: DeletionMode) {
        let Some(node) = self.graph.get(id) else { return };
        if (self.request.refuses)(node) {
            // R13: its DELETE is denied, and it stays as it is.
            self.any_denied = true;
            return;
        }
        if let Some(already) = self.mode(id) {
            // Two deletions of one object with different propagation: the first one
            // counts.
            let both = already.or(mode);
            if both != already && !self.is_certain() {
                self.deleting.insert(id, both);
                self.queue.push(id);
            }
            return;
        }
        // An object that may be deleted in several ways is not certain to be deleted in
        // this way.
        let mode = self.possible.and_then(|may| may.mode(id)).map_or(mode, |may| mode.or(may));
        if self.deleting.len() >= self.request.limit {
            self.complete = false;
            return;
        }
        self.deleting.insert(id, mode);
        self.queue.push(id);
        // Also in a cascade, because operators own Namespaces and CRDs.
        self.delete_content(id);
    }

    /// Handles a change of this object: checks whether it is removed, and the effects on
    /// its dependents and on the objects that wait for it.
    fn follow(&mut self, id: NodeId) {
        let Some(mode) = self.mode(id) else { return };
        if !self.removed.contains(&id) && self.can_be_removed(id, mode) {
            self.removed.insert(id);
            self.wake_waiting(id);
        }
        // R9: a background deletion does nothing to dependents while the object still
        // exists, because it is a solid owner.
        if mode == DeletionMode::Background && !self.removed.contains(&id) {
            return;
        }
        let Some(owner) = self.graph.get(id) else { return };
        let (graph, uid, namespace) = (self.graph, owner.uid(), owner.namespace());
        let dependents: Vec<_> = match self.request.same_scope && mode != DeletionMode::Orphan {
            true => graph.dependents_in_same_scope(uid, namespace).collect(),
            false => graph.possible_dependents(uid, namespace).collect(),
        };
        for dependent in dependents {
            if !self.charge(1) {
                return;
            }
            self.follow_dependent(mode, dependent);
        }
    }

    /// Checks owners in a foreground deletion and containers again after the removal of
    /// an object.
    fn wake_waiting(&mut self, id: NodeId) {
        for container in self.contained.get(&id).into_iter().flatten() {
            if let Some(left) = self.containers.get_mut(container) {
                *left -= 1;
                if *left == 0 {
                    self.queue.push(*container);
                }
            }
        }
        let Some(node) = self.graph.get(id) else { return };
        if !self.charge(node.owners().len()) {
            return;
        }
        let mut owners: Vec<_> =
            node.owners().iter().filter(|o| o.blocking).map(|owner| owner.to).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in &owners {
            if let Some(left) = self.blocked.get_mut(owner) {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.queue.push(*owner);
                }
            }
        }
        if self.is_certain() {
            return;
        }
        // An owner in an earlier foreground deletion may have waited only for this
        // object.
        let ending: Vec<_> = owners
            .into_iter()
            .filter_map(|o| self.graph.get(o))
            .filter(|o| o.waits_in_foreground())
            .map(Node::id)
            .collect();
        for owner in ending {
            self.delete(owner, DeletionMode::Foreground);
        }
    }

    /// Whether a deleting object is removed from storage (R9, R13).
    fn can_be_removed(&mut self, id: NodeId, mode: DeletionMode) -> bool {
        // A finalizer keeps it. In the walk of possible deletions its controller removes
        // the finalizer.
        if self.is_certain() && self.has_finalizer(id) {
            return false;
        }
        if let Some(left) = self.containers.get(&id) {
            return *left == 0;
        }
        match mode {
            DeletionMode::Background | DeletionMode::Orphan => true,
            DeletionMode::Foreground
            | DeletionMode::ForegroundOrBackground
            | DeletionMode::OrphanOrNot => {
                // The walk of possible deletions assumes yes, and corrects this at the
                // end.
                if !self.is_certain() {
                    return true;
                }
                if !self.blocked.contains_key(&id) {
                    let blockers = self.count_blockers(id);
                    self.blocked.insert(id, blockers);
                }
                self.blocked.get(&id) == Some(&0)
            }
        }
    }

    /// The effect of an owner that is deleted in this `mode` on one dependent.
    fn follow_dependent(&mut self, mode: DeletionMode, node: Node<'g>) {
        let dependent = node.id();
        if mode == DeletionMode::Orphan || mode == DeletionMode::OrphanOrNot && !self.is_certain() {
            self.orphaned.insert(dependent);
        }
        // R11: Events take no part in garbage collection.
        let info = self.graph.kinds.info(node.kind());
        if info.default_propagation == DefaultPropagation::None {
            return;
        }
        // R4: the garbage collector ignores Terminating objects.
        if node.is_terminating() {
            return;
        }
        if node.has_too_many_owners() {
            // Its owners may have any state, so any deletion is possible and none is
            // certain.
            if !self.is_certain() {
                self.delete(dependent, DeletionMode::OrphanOrNot);
            }
            return;
        }
        if !self.charge(2 * node.owners().len()) {
            return;
        }
        let (mut goes, mut waits, mut waits_for_it) = (false, false, false);
        let first = node.owners().first().map(|owner| owner.to);
        let only = node.owners().iter().all(|owner| Some(owner.to) == first);
        for reference in node.owners() {
            let resolved = self.resolve(node, reference);
            match resolved {
                // R5: it stays.
                OwnerReferenceState::Solid => return,
                // R2: one error keeps it, though the garbage collector remembers owners
                // that were absent once.
                OwnerReferenceState::Unresolved if self.is_certain() => return,
                OwnerReferenceState::Unresolved
                | OwnerReferenceState::Absent
                | OwnerReferenceState::Waiting => {
                    goes = true;
                    // An owner that is removed by now may still have waited when the
                    // garbage collector checked this dependent.
                    let owner = self.mode(reference.to);
                    let waiting = resolved == OwnerReferenceState::Waiting
                        || matches!(
                            owner,
                            Some(
                                DeletionMode::Foreground
                                    | DeletionMode::ForegroundOrBackground
                                    | DeletionMode::OrphanOrNot
                            )
                        );
                    waits |= waiting;
                    // Another owner would be solid for a while, and the garbage collector
                    // would remove this reference meanwhile (R5).
                    waits_for_it |=
                        reference.blocking && only && owner == Some(DeletionMode::Foreground);
                }
                // The order of the orphaning by this owner and the deletion of the other
                // owner decides.
                OwnerReferenceState::Orphaning if self.is_certain() => return,
                OwnerReferenceState::Orphaning => {}
            }
        }
        if !goes {
            return;
        }
        let waits_for_it = waits_for_it && !self.may_be_unblocked(node);
        self.delete(dependent, self.collectors_mode(node, waits, waits_for_it));
    }

    /// Whether a finalizer keeps the object, other than those of the garbage collector.
    pub(super) fn has_finalizer(&self, id: NodeId) -> bool {
        let container = self.containers.contains_key(&id);
        let released = self.released.contains(&id);
        self.graph.get(id).is_some_and(|node| {
            // Without budget, assume a finalizer.
            if !self.charge(node.finalizers().size()) {
                return true;
            }
            let mut finalizers = node.finalizers().iter();
            finalizers.any(|f| {
                let own = container && f == CRD_CLEANUP || released && is_hold(f);
                let goes = own || self.request.short_lived_finalizers.contains(&f);
                f != FOREGROUND && f != ORPHAN && !goes
            })
        })
    }

    pub(super) fn mode(&self, id: NodeId) -> Option<DeletionMode> {
        self.deleting.get(&id).copied()
    }

    /// Everything that receives a DELETE.
    pub(super) fn deleting(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.deleting.keys().copied()
    }

    /// How many objects receive a DELETE.
    pub(super) fn size(&self) -> usize {
        self.deleting.len()
    }

    /// Whether the object receives a DELETE.
    pub(super) fn is_deleting(&self, id: NodeId) -> bool {
        self.deleting.contains_key(&id)
    }

    /// Whether it is removed from storage.
    pub(super) fn is_removed(&self, id: NodeId) -> bool {
        self.removed.contains(&id)
    }

    /// Whether it loses an owner by orphaning.
    pub(super) fn is_orphaned(&self, id: NodeId) -> bool {
        self.orphaned.contains(&id)
    }

    /// Everything that loses an owner by orphaning.
    pub(super) fn orphaned(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.orphaned.iter().copied()
    }

    /// Whether everything was followed.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the object, once it is being deleted, certainly waits.
    pub(super) fn is_stuck(&self, id: NodeId) -> bool {
        self.stuck.contains(&id)
    }
}
