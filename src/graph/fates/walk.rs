//! One walk of a deletion, in one of two worlds.

use super::mode::{Mode, Reference};
use super::{DeletionRequest, Propagation};
use crate::graph::{Graph, Node, NodeId, Progress};
use crate::objects::{
    DefaultPropagation, FOREGROUND, KindId, NumberMap, NumberSet, ORPHAN, is_hold,
};

type Map<V> = NumberMap<NodeId, V>;
type Set = NumberSet<NodeId>;

/// The finalizer by which the API server deletes the instances of a CRD.
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The state of one walk. It only ever grows: objects are added to those that
/// are being deleted, and to those that are gone, until nothing follows any
/// more. That makes it a least fixpoint from the targets, so that ownership
/// cycles never collect themselves (R10).
pub(super) struct DeletionWalk<'g> {
    pub(super) graph: &'g Graph,
    pub(super) request: &'g DeletionRequest<'g>,
    /// The other world, for what must be: what certainly stays is what may
    /// not go.
    pub(super) may: Option<&'g DeletionWalk<'g>>,
    pub(super) deleting: Map<Mode>,
    pub(super) removed: Set,
    orphaned: Set,
    /// Namespaces and CRDs, and how much of their content is not gone.
    pub(super) containers: Map<usize>,
    /// Owners in the foreground, and how many blocking dependents are left.
    blocked: Map<usize>,
    /// Which container an object is in. One in both a Namespace and a CRD that
    /// are deleted together counts for each.
    pub(super) contained: Map<Vec<NodeId>>,
    /// What certainly waits, once it is being deleted.
    pub(super) stuck: Set,
    /// Whether anything refused its DELETE.
    pub(super) refused: bool,
    /// Instances of a deleted CRD: once it is gone their kind is unknown, and
    /// references to them cannot be resolved (R14).
    pub(super) unresolvable: Set,
    /// The objects of the request from which belay's own hold is removed.
    released: Set,
    queue: Vec<NodeId>,
    whole: bool,
    /// Looked up once: every object that is deleted is compared with them.
    namespaces: Option<KindId>,
    crds: Option<KindId>,
}

impl<'g> DeletionWalk<'g> {
    /// The world in which whatever can go wrong for an object does.
    pub(super) fn possible(graph: &'g Graph, request: &'g DeletionRequest<'g>) -> Self {
        let mut world = Self::new(graph, request, None);
        world.run();
        world.remove_blocked_forever();
        world
    }

    /// The world in which nothing goes that something could save.
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
            may,
            deleting: Map::default(),
            removed: Set::default(),
            orphaned: Set::default(),
            containers: Map::default(),
            blocked: Map::default(),
            contained: Map::default(),
            stuck: Set::default(),
            refused: false,
            unresolvable: Set::default(),
            released: request.released.iter().copied().collect(),
            queue: Vec::new(),
            whole: true,
            namespaces: graph.namespace_kind(),
            crds: graph.kinds.find("apiextensions.k8s.io", "CustomResourceDefinition"),
        }
    }

    /// Charges steps. Says whether the walk may go on.
    pub(super) fn charge(&self, steps: usize) -> bool {
        self.request.work.charge(steps)
    }

    pub(super) fn is_certain(&self) -> bool {
        self.may.is_some()
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

    /// R14: what goes with a Namespace or a CRD.
    fn delete_content(&mut self, id: NodeId) {
        let Some(node) = self.graph.get(id) else { return };
        if self.namespaces == Some(node.kind()) {
            let graph = self.graph;
            let content = self.within_limit(graph.members(id));
            self.contain(id, &content);
            for member in content {
                // Explicitly in the background, each of them.
                self.delete(member, Mode::Background);
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

    /// The instances that are deleted with a CRD: none, if it is not served.
    fn instances(&self, crd: Node<'_>) -> Vec<NodeId> {
        // The name of a CRD is the resource and the group of its kind.
        let (resource, group) = crd.name().split_once('.').unwrap_or((crd.name(), ""));
        match self.graph.kinds.find_resource(group, resource) {
            Some(kind) if crd.progress() != Progress::NotEstablished => {
                self.graph.of_kind(kind).collect()
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

    /// As much of a container's content as the limit lets follow.
    fn within_limit(&mut self, content: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let room = self.request.limit.saturating_sub(self.deleting.len());
        let mut content = content;
        let taken: Vec<_> = content.by_ref().take(room).collect();
        self.whole &= content.next().is_none();
        taken
    }

    /// The object receives a DELETE.
    fn delete(&mut self, id: NodeId, mode: Mode) {
        let Some(node) = self.graph.get(id) else { return };
        if (self.request.refuses)(node) {
            // R13: it refuses, and stays as it is.
            self.refused = true;
            return;
        }
        if let Some(already) = self.mode(id) {
            // Two deletions of one object, by people or by the collector, that
            // do not do the same: which one counts depends on which is first.
            let both = already.or(mode);
            if both != already && !self.is_certain() {
                self.deleting.insert(id, both);
                self.queue.push(id);
            }
            return;
        }
        // What may be deleted in one of several ways is not certain to be
        // deleted in this one.
        let mode = self.may.and_then(|may| may.mode(id)).map_or(mode, |may| mode.or(may));
        if self.deleting.len() >= self.request.limit {
            self.whole = false;
            return;
        }
        self.deleting.insert(id, mode);
        self.queue.push(id);
        // Also when a cascade reaches it: operators own Namespaces, and CRDs.
        self.delete_content(id);
    }

    /// Something about this object has changed: is it gone, and what follows
    /// for its dependents and for those that wait for it?
    fn follow(&mut self, id: NodeId) {
        let Some(mode) = self.mode(id) else { return };
        if !self.removed.contains(&id) && self.goes(id, mode) {
            self.removed.insert(id);
            self.wake_waiting(id);
        }
        // R9: in the background nothing happens to dependents of an object
        // that is still there. (It would be found solid for each of them.)
        if mode == Mode::Background && !self.removed.contains(&id) {
            return;
        }
        let Some(owner) = self.graph.get(id) else { return };
        let (graph, uid, namespace) = (self.graph, owner.uid(), owner.namespace());
        let dependents: Vec<_> = match self.request.same_scope && mode != Mode::Orphan {
            true => graph.dependents_in_scope(uid, namespace).collect(),
            false => graph.dependents_within(uid, namespace).collect(),
        };
        for dependent in dependents {
            if !self.charge(1) {
                return;
            }
            self.consider(mode, dependent);
        }
    }

    /// Owners in the foreground and containers look again when one of theirs
    /// has gone.
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
        // An owner that somebody deleted before, in the foreground, may have
        // waited for just this one.
        let ending: Vec<_> = owners
            .into_iter()
            .filter_map(|o| self.graph.get(o))
            .filter(|o| o.waits_in_foreground())
            .map(Node::id)
            .collect();
        for owner in ending {
            self.delete(owner, Mode::Foreground);
        }
    }

    /// Whether an object that is being deleted goes from storage (R9, R13).
    fn goes(&mut self, id: NodeId, mode: Mode) -> bool {
        // Somebody's finalizer keeps it. In the world of what may be, that
        // somebody takes it off.
        if self.is_certain() && self.has_finalizer(id) {
            return false;
        }
        if let Some(left) = self.containers.get(&id) {
            return *left == 0;
        }
        match mode {
            Mode::Background | Mode::Orphan => true,
            Mode::Foreground | Mode::Either | Mode::Unclear => {
                // What may be is generous, and corrected at the end.
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

    /// What a change of an owner that is deleted in this `mode` means for one
    /// dependent.
    fn consider(&mut self, mode: Mode, node: Node<'g>) {
        let dependent = node.id();
        if mode == Mode::Orphan || mode == Mode::Unclear && !self.is_certain() {
            self.orphaned.insert(dependent);
        }
        // R11: these take no part.
        let info = self.graph.kinds.info(node.kind());
        if info.default_propagation == DefaultPropagation::None {
            return;
        }
        // R4: what is Terminating is on its way by itself.
        if node.is_terminating() {
            return;
        }
        if node.has_too_many_owners() {
            // They may amount to anything, so it may go in any way, and
            // nothing is certain of it.
            if !self.is_certain() {
                self.delete(dependent, Mode::Unclear);
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
                Reference::Solid => return,
                // R2: one error saves it, though the collector remembers
                // owners that were absent once.
                Reference::Error if self.is_certain() => return,
                Reference::Error | Reference::Dangling | Reference::Waiting => {
                    goes = true;
                    // An owner in the foreground that is gone by now may have
                    // waited still when this dependent's turn came.
                    let owner = self.mode(reference.to);
                    let waiting = resolved == Reference::Waiting
                        || matches!(owner, Some(Mode::Foreground | Mode::Either | Mode::Unclear));
                    waits |= waiting;
                    // Another owner would be solid for a while at least, and
                    // this reference taken off meanwhile (R5).
                    waits_for_it |= reference.blocking && only && owner == Some(Mode::Foreground);
                }
                // Which is first, this owner's orphaning or that owner's end,
                // decides.
                Reference::Orphaning if self.is_certain() => return,
                Reference::Orphaning => {}
            }
        }
        if !goes {
            return;
        }
        let waits_for_it = waits_for_it && !self.may_be_unblocked(node);
        self.delete(dependent, self.collectors_mode(node, waits, waits_for_it));
    }

    /// Whether a finalizer keeps the object that is not the collector's own
    /// way of deleting it.
    pub(super) fn has_finalizer(&self, id: NodeId) -> bool {
        let container = self.containers.contains_key(&id);
        let released = self.released.contains(&id);
        self.graph.get(id).is_some_and(|node| {
            // When the budget is used up, one is as good as found.
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

    pub(super) fn mode(&self, id: NodeId) -> Option<Mode> {
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

    /// Whether it goes from storage.
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
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether the object, once it is being deleted, certainly waits.
    pub(super) fn is_stuck(&self, id: NodeId) -> bool {
        self.stuck.contains(&id)
    }
}
