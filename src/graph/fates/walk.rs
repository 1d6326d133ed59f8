//! Follows one deletion through the graph.

use super::mode::{DeletionMode, OwnerReferenceState};
use super::{DeletionRequest, Propagation};
use crate::graph::{Graph, Node, NodeId, ObjectPhase};
use crate::objects::{
    DefaultPropagation, FOREGROUND, KindId, NumberMap, NumberSet, ORPHAN, is_hold, split_full_name,
};

type Map<V> = NumberMap<NodeId, V>;
type Set = NumberSet<NodeId>;

/// The finalizer by which the API server deletes the instances of a CRD.
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The state of one walk. It starts from the targets and adds objects to `deleting` and
/// `removed` until nothing changes. So the result is a least fixpoint, and a cycle of owners
/// never deletes itself (R10).
pub(super) struct DeletionWalk<'g> {
    pub(super) graph: &'g Graph,
    pub(super) request: &'g DeletionRequest<'g>,
    /// In the walk of certain deletions: the walk of possible deletions. An object outside
    /// its `deleting` certainly stays.
    pub(super) possible: Option<&'g DeletionWalk<'g>>,
    pub(super) deleting: Map<DeletionMode>,
    pub(super) removed: Set,
    orphaned: Set,
    /// The number of objects that are not removed, for each Namespace and CRD.
    pub(super) remaining_content: Map<usize>,
    /// Owners in a foreground deletion, with the number of remaining blocking dependents.
    remaining_blocking_dependents: Map<usize>,
    /// The containers of each object. A custom resource may be in a Namespace and a CRD that
    /// are deleted together.
    pub(super) containers_of: Map<Vec<NodeId>>,
    /// The objects that certainly wait after their DELETE.
    pub(super) stuck: Set,
    /// Whether any DELETE was denied.
    pub(super) any_denied: bool,
    /// Instances of a deleted CRD. After its removal their kind is unknown, so references to
    /// them can't be resolved (R14).
    pub(super) unresolvable: Set,
    /// The objects of the request from which belay's own hold is removed.
    released: Set,
    queue: Vec<NodeId>,
    complete: bool,
    /// The kinds of Namespaces and CRDs. Stored because the walk compares the kind of every
    /// deleted object with them.
    namespace_kind: Option<KindId>,
    crd_kind: Option<KindId>,
}

impl<'g> DeletionWalk<'g> {
    /// The walk of possible deletions, which assumes the worst for every object.
    pub(super) fn possible(graph: &'g Graph, request: &'g DeletionRequest<'g>) -> Self {
        let mut walk = Self::new(graph, request, None);
        walk.run();
        walk.keep_blocked_forever();
        walk
    }

    /// The walk of certain deletions, which keeps every object that something could keep.
    pub(super) fn certain(
        graph: &'g Graph,
        request: &'g DeletionRequest<'g>,
        possible: &'g DeletionWalk<'g>,
    ) -> Self {
        let mut walk = Self::new(graph, request, Some(possible));
        walk.run();
        walk
    }

    fn new(
        graph: &'g Graph,
        request: &'g DeletionRequest<'g>,
        possible: Option<&'g DeletionWalk<'g>>,
    ) -> Self {
        Self {
            graph,
            request,
            possible,
            deleting: Map::default(),
            removed: Set::default(),
            orphaned: Set::default(),
            remaining_content: Map::default(),
            remaining_blocking_dependents: Map::default(),
            containers_of: Map::default(),
            stuck: Set::default(),
            any_denied: false,
            unresolvable: Set::default(),
            released: request.released.iter().copied().collect(),
            queue: Vec::new(),
            complete: true,
            namespace_kind: graph.kinds.namespace(),
            crd_kind: graph.kinds.crd(),
        }
    }

    /// Charges steps. Returns whether the budget allows more work.
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
        if self.namespace_kind == Some(node.kind()) {
            let graph = self.graph;
            let content = self.take_within_limit(graph.objects_in_namespace(id));
            self.add_container(id, &content);
            for member in content {
                // The namespace controller deletes each object with Background.
                self.delete(member, DeletionMode::Background);
            }
        } else if self.crd_kind == Some(node.kind()) {
            let instances = self.instances(node);
            let content = self.take_within_limit(instances.into_iter());
            self.add_container(id, &content);
            for instance in content {
                let Some(object) = self.graph.get(instance) else { continue };
                let mode = Propagation::of_node_delete(object, None);
                self.unresolvable.insert(instance);
                self.delete(instance, mode.into());
            }
        }
    }

    /// The instances that are deleted with a CRD; none if it is not served.
    fn instances(&self, crd: Node<'_>) -> Vec<NodeId> {
        let (resource, group) = split_full_name(crd.name());
        match self.graph.kinds.find_resource(group, resource) {
            Some(kind) if crd.phase() != ObjectPhase::CrdNotServed => {
                self.graph.objects_of_kind(kind).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Records that the container waits for the removal of its content.
    fn add_container(&mut self, container: NodeId, content: &[NodeId]) {
        let remaining = content.iter().filter(|member| !self.removed.contains(member));
        self.remaining_content.insert(container, remaining.clone().count());
        for member in remaining {
            self.containers_of.entry(*member).or_default().push(container);
        }
    }

    /// The content of a container, up to the limit.
    fn take_within_limit(&mut self, content: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let remaining = self.request.limit.saturating_sub(self.deleting.len());
        let mut content = content;
        let limited: Vec<_> = content.by_ref().take(remaining).collect();
        self.complete &= content.next().is_none();
        limited
    }

    /// Handles a DELETE of an object.
    fn delete(&mut self, id: NodeId, mode: DeletionMode) {
        let Some(node) = self.graph.get(id) else { return };
        if (self.request.refuses)(node) {
            // R13: its DELETE is denied, and it stays as it is.
            self.any_denied = true;
            return;
        }
        if let Some(earlier) = self.mode(id) {
            // If two deletions of one object have different modes, the first one decides.
            // The order is unknown, so both are possible.
            let either = earlier.or(mode);
            if either != earlier && !self.is_certain() {
                self.deleting.insert(id, either);
                self.queue.push(id);
            }
            return;
        }
        // An object that may be deleted in several ways is not certain to be deleted in
        // this way.
        let possible_mode = self.possible.and_then(|possible| possible.mode(id));
        let mode = possible_mode.map_or(mode, |possible| mode.or(possible));
        if self.deleting.len() >= self.request.limit {
            self.complete = false;
            return;
        }
        self.deleting.insert(id, mode);
        self.queue.push(id);
        // This also applies to a dependent, because operators own Namespaces and CRDs.
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
        let dependents: Vec<_> =
            match self.request.only_dependents_in_same_scope && mode != DeletionMode::Orphan {
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
        for container in self.containers_of.get(&id).into_iter().flatten() {
            if let Some(remaining) = self.remaining_content.get_mut(container) {
                *remaining -= 1;
                if *remaining == 0 {
                    self.queue.push(*container);
                }
            }
        }
        let Some(node) = self.graph.get(id) else { return };
        if !self.charge(node.owner_edges().len()) {
            return;
        }
        let mut owners: Vec<_> =
            node.owner_edges().iter().filter(|o| o.blocking).map(|owner| owner.to).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in &owners {
            if let Some(remaining) = self.remaining_blocking_dependents.get_mut(owner) {
                *remaining = remaining.saturating_sub(1);
                if *remaining == 0 {
                    self.queue.push(*owner);
                }
            }
        }
        if self.is_certain() {
            return;
        }
        // An owner in an earlier foreground deletion may have waited only for this
        // object.
        let waiting: Vec<_> = owners
            .into_iter()
            .filter_map(|o| self.graph.get(o))
            .filter(|o| o.waits_in_foreground())
            .map(Node::id)
            .collect();
        for owner in waiting {
            self.delete(owner, DeletionMode::Foreground);
        }
    }

    /// Whether the API server removes an object that is being deleted (R9, R13).
    fn can_be_removed(&mut self, id: NodeId, mode: DeletionMode) -> bool {
        // A finalizer keeps the object. The walk of possible deletions assumes that its
        // controller removes the finalizer.
        if self.is_certain() && self.has_finalizer(id) {
            return false;
        }
        if let Some(remaining) = self.remaining_content.get(&id) {
            return *remaining == 0;
        }
        match mode {
            DeletionMode::Background | DeletionMode::Orphan => true,
            DeletionMode::Foreground
            | DeletionMode::ForegroundOrBackground
            | DeletionMode::OrphanOrNot => {
                // The walk of possible deletions corrects this at the end, in
                // `keep_blocked_forever`.
                if !self.is_certain() {
                    return true;
                }
                if !self.remaining_blocking_dependents.contains_key(&id) {
                    let blocking = self.count_blocking_dependents(id);
                    self.remaining_blocking_dependents.insert(id, blocking);
                }
                self.remaining_blocking_dependents.get(&id) == Some(&0)
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
            // Its owners may have any state, so every mode is possible and no deletion is
            // certain.
            if !self.is_certain() {
                self.delete(dependent, DeletionMode::OrphanOrNot);
            }
            return;
        }
        if !self.charge(2 * node.owner_edges().len()) {
            return;
        }
        let (mut is_deleted, mut owner_waits, mut owner_waits_for_node) = (false, false, false);
        let first = node.owner_edges().first().map(|owner| owner.to);
        let has_one_owner = node.owner_edges().iter().all(|owner| Some(owner.to) == first);
        for reference in node.owner_edges() {
            let state = self.resolve(node, reference);
            match state {
                // R5: the dependent stays.
                OwnerReferenceState::Solid => return,
                // R2: one error keeps the dependent, unless the garbage collector remembers
                // that the owner was absent once.
                OwnerReferenceState::Unresolved if self.is_certain() => return,
                OwnerReferenceState::Unresolved
                | OwnerReferenceState::Absent
                | OwnerReferenceState::Waiting => {
                    is_deleted = true;
                    // An owner that is removed may have been waiting when the garbage
                    // collector checked this dependent.
                    let owner = self.mode(reference.to);
                    let is_waiting = state == OwnerReferenceState::Waiting
                        || matches!(
                            owner,
                            Some(
                                DeletionMode::Foreground
                                    | DeletionMode::ForegroundOrBackground
                                    | DeletionMode::OrphanOrNot
                            )
                        );
                    owner_waits |= is_waiting;
                    // If there were another owner, it would be solid for a while, and the
                    // garbage collector would remove this reference (R5).
                    owner_waits_for_node |= reference.blocking
                        && has_one_owner
                        && owner == Some(DeletionMode::Foreground);
                }
                // The dependent is deleted or not, depending on which comes first: the
                // orphaning by this owner or the deletion of another owner.
                OwnerReferenceState::Orphaning if self.is_certain() => return,
                OwnerReferenceState::Orphaning => {}
            }
        }
        if !is_deleted {
            return;
        }
        let owner_waits_for_node = owner_waits_for_node && !self.references_may_stop_blocking(node);
        self.delete(
            dependent,
            self.garbage_collection_mode(node, owner_waits, owner_waits_for_node),
        );
    }

    /// Whether the object has a finalizer that this deletion does not remove. Also true if the
    /// budget is used up.
    pub(super) fn has_finalizer(&self, id: NodeId) -> bool {
        let container = self.remaining_content.contains_key(&id);
        let released = self.released.contains(&id);
        self.graph.get(id).is_some_and(|node| {
            if !self.charge(node.finalizers().search_steps()) {
                return true;
            }
            let mut finalizers = node.finalizers().iter();
            finalizers.any(|f| {
                let is_removed = container && f == CRD_CLEANUP
                    || released && is_hold(f)
                    || self.request.short_lived_finalizers.contains(&f);
                f != FOREGROUND && f != ORPHAN && !is_removed
            })
        })
    }

    pub(super) fn mode(&self, id: NodeId) -> Option<DeletionMode> {
        self.deleting.get(&id).copied()
    }

    /// The objects that receive a DELETE.
    pub(super) fn deleting(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.deleting.keys().copied()
    }

    /// The number of objects that receive a DELETE.
    pub(super) fn size(&self) -> usize {
        self.deleting.len()
    }

    /// Whether the object receives a DELETE.
    pub(super) fn is_deleting(&self, id: NodeId) -> bool {
        self.deleting.contains_key(&id)
    }

    /// Whether the API server removes the object.
    pub(super) fn is_removed(&self, id: NodeId) -> bool {
        self.removed.contains(&id)
    }

    /// Whether the object loses an owner by orphaning.
    pub(super) fn is_orphaned(&self, id: NodeId) -> bool {
        self.orphaned.contains(&id)
    }

    /// The objects that lose an owner by orphaning.
    pub(super) fn orphaned(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.orphaned.iter().copied()
    }

    /// Whether the walk stayed within its limit of objects.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the object certainly waits after its DELETE.
    pub(super) fn is_stuck(&self, id: NodeId) -> bool {
        self.stuck.contains(&id)
    }
}
