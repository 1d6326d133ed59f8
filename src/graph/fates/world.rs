//! One walk of a deletion, in one of two worlds.

use std::collections::{HashMap, HashSet};

use rustc_hash::FxBuildHasher;

use super::{Propagation, Request};
use crate::graph::OwnerEdge;
use crate::graph::store::{Graph, Node, NodeId, Progress};
use crate::objects::{DefaultPropagation, FOREGROUND, ORPHAN};

type Map<V> = HashMap<NodeId, V, FxBuildHasher>;
type Set = HashSet<NodeId, FxBuildHasher>;

/// The finalizer by which the API server deletes the instances of a CRD.
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How an object is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Background,
    Foreground,
    Orphan,
    /// Foreground or background: which, depends on timing (R6 or R7).
    Either,
    /// Orphan or not: which, depends on timing.
    Unclear,
}

impl From<Propagation> for Mode {
    fn from(propagation: Propagation) -> Self {
        match propagation {
            Propagation::Background => Self::Background,
            Propagation::Foreground => Self::Foreground,
            Propagation::Orphan => Self::Orphan,
        }
    }
}

/// What an owner reference amounts to (R1 to R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reference {
    /// It cannot be resolved.
    Error,
    /// The owner is gone, or was never there.
    Dangling,
    /// The owner waits for its dependents.
    Waiting,
    /// The owner is there.
    Solid,
    /// The owner is taking the reference off.
    Orphaning,
}

/// The state of one walk. It only ever grows: objects are added to those that
/// are being deleted, and to those that are gone, until nothing follows any
/// more. That makes it a least fixpoint from the targets, so that ownership
/// cycles never collect themselves (R10).
pub(super) struct World<'g> {
    graph: &'g Graph,
    request: &'g Request<'g>,
    /// The other world, for what must be: what certainly stays is what may
    /// not go.
    may: Option<&'g World<'g>>,
    deleting: Map<Mode>,
    gone: Set,
    orphaned: Set,
    /// Namespaces and CRDs, and how much of their content is not gone.
    containers: Map<usize>,
    /// Which container an object is in. One in both a Namespace and a CRD that
    /// are deleted together counts for each.
    contained: Map<Vec<NodeId>>,
    /// What certainly waits, once it is being deleted.
    stuck: Set,
    /// Whether anything refused its DELETE.
    refused: bool,
    /// Instances of a deleted CRD: once it is gone their kind is unknown, and
    /// references to them cannot be resolved (R14).
    unresolvable: Set,
    /// Deleted by name or as content: the collector is not the only one.
    roots: Set,
    queue: Vec<NodeId>,
    whole: bool,
}

impl<'g> World<'g> {
    /// The world in which whatever can go wrong for an object does.
    pub(super) fn of_what_may_be(graph: &'g Graph, request: &'g Request<'g>) -> Self {
        let mut world = Self::new(graph, request, None);
        world.run();
        world.remove_what_waits_for_ever();
        world
    }

    /// The world in which nothing goes that something could save.
    pub(super) fn of_what_must_be(
        graph: &'g Graph,
        request: &'g Request<'g>,
        may: &'g World<'g>,
    ) -> Self {
        let mut world = Self::new(graph, request, Some(may));
        world.run();
        world
    }

    fn new(graph: &'g Graph, request: &'g Request<'g>, may: Option<&'g World<'g>>) -> Self {
        Self {
            graph,
            request,
            may,
            deleting: Map::default(),
            gone: Set::default(),
            orphaned: Set::default(),
            containers: Map::default(),
            contained: Map::default(),
            stuck: Set::default(),
            refused: false,
            unresolvable: Set::default(),
            roots: Set::default(),
            queue: Vec::new(),
            whole: true,
        }
    }

    fn is_certain(&self) -> bool {
        self.may.is_some()
    }

    fn run(&mut self) {
        for &(id, propagation) in self.request.targets {
            self.delete_root(id, propagation.into());
        }
        for &(id, _) in self.request.targets {
            self.delete_content(id);
        }
        while let Some(id) = self.queue.pop() {
            self.follow(id);
        }
        self.find_what_waits();
    }

    fn delete_root(&mut self, id: NodeId, mode: Mode) {
        // Where the collector may come first, and with another propagation,
        // it is not certain which one counts.
        let contested = self.may.is_some_and(|may| may.mode(id) == Some(Mode::Unclear));
        self.roots.insert(id);
        self.delete(id, if contested { Mode::Unclear } else { mode });
    }

    /// R14: what goes with a Namespace or a CRD.
    fn delete_content(&mut self, id: NodeId) {
        if !self.deleting.contains_key(&id) {
            return;
        }
        let Some(node) = self.graph.get(id) else { return };
        let kinds = &self.graph.kinds;
        if kinds.find("", "Namespace") == Some(node.kind()) {
            let content: Vec<_> = self.graph.members(id).collect();
            self.contain(id, &content);
            for member in content {
                // Explicitly in the background, each of them.
                self.delete_root(member, Mode::Background);
            }
        } else if kinds.find("apiextensions.k8s.io", "CustomResourceDefinition")
            == Some(node.kind())
        {
            let content = self.instances(node);
            self.contain(id, &content);
            for instance in content {
                let Some(object) = self.graph.get(instance) else { continue };
                let mode = Propagation::effective(self.graph, object, None, None);
                self.unresolvable.insert(instance);
                self.delete_root(instance, mode.into());
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
        self.containers.insert(container, content.len());
        for member in content {
            self.contained.entry(*member).or_default().push(container);
        }
    }

    /// The object receives a DELETE.
    fn delete(&mut self, id: NodeId, mode: Mode) {
        let Some(node) = self.graph.get(id) else { return };
        if (self.request.cut)(node) {
            // R13: it refuses, and stays as it is.
            self.refused = true;
            return;
        }
        if let Some(already) = self.deleting.get(&id).copied() {
            // Two deletions of one object: the second can change how it ends.
            let contested = self.roots.contains(&id) && already != mode && !self.is_certain();
            if contested && already != Mode::Unclear {
                self.deleting.insert(id, Mode::Unclear);
                self.queue.push(id);
            }
            return;
        }
        if self.deleting.len() >= self.request.limit {
            self.whole = false;
            return;
        }
        self.deleting.insert(id, mode);
        self.queue.push(id);
    }

    /// Something about this object has changed: is it gone, and what follows
    /// for its dependents and for those that wait for it?
    fn follow(&mut self, id: NodeId) {
        let Some(mode) = self.mode(id) else { return };
        if !self.gone.contains(&id) && self.goes(id, mode) {
            self.gone.insert(id);
            self.wake_those_that_wait(id);
        }
        // R9: in the background nothing happens to dependents of an object
        // that is still there.
        if mode == Mode::Background && !self.gone.contains(&id) {
            return;
        }
        let Some(owner) = self.graph.get(id) else { return };
        let dependents: Vec<_> = self.graph.dependents_by_uid(owner).collect();
        for dependent in dependents {
            self.consider(mode, dependent);
        }
    }

    /// Owners in the foreground and containers look again when one of theirs
    /// has gone.
    fn wake_those_that_wait(&mut self, id: NodeId) {
        for container in self.contained.get(&id).into_iter().flatten() {
            if let Some(left) = self.containers.get_mut(container) {
                *left -= 1;
                if *left == 0 {
                    self.queue.push(*container);
                }
            }
        }
        let Some(node) = self.graph.get(id) else { return };
        let owners = node.owners().iter().map(|owner| owner.to);
        let waiting = owners.filter(|o| self.deleting.contains_key(o) && !self.gone.contains(o));
        self.queue.extend(waiting);
    }

    /// Whether an object that is being deleted goes from storage (R9, R13).
    fn goes(&self, id: NodeId, mode: Mode) -> bool {
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
                !self.is_certain() || !self.has_blocker(id)
            }
        }
    }

    /// R9: whether a dependent that blocks the foreground deletion of `id` is
    /// not certain to go or to be detached.
    fn has_blocker(&self, id: NodeId) -> bool {
        self.blockers(id).any(|d| !self.gone.contains(&d.id()) && !self.is_detached(d, id))
    }

    fn blockers(&self, id: NodeId) -> impl Iterator<Item = Node<'g>> + use<'g> {
        let graph = self.graph;
        let owner = graph.get(id).into_iter();
        owner.flat_map(move |owner| {
            let blocks =
                move |d: &Node<'g>| d.owners().iter().any(|o| o.blocking && o.uid == owner.uid());
            graph.dependents_by_uid(owner).filter(blocks)
        })
    }

    /// R5: another owner is certainly there, so the collector takes the
    /// reference to `from` off.
    fn is_detached(&self, dependent: Node<'_>, from: NodeId) -> bool {
        // R2 and R4: it leaves these alone altogether; nor does it look at the
        // references of what is being deleted itself.
        let left_alone = dependent.deleted().is_some()
            || self.may.unwrap_or(self).is_deleting(dependent.id())
            || dependent.owners().iter().any(|o| self.resolve(o) == Reference::Error);
        let stays = |o: &OwnerEdge| {
            let free = self.may.unwrap_or(self).mode(o.to).is_none();
            let terminating = self.graph.get(o.to).is_some_and(|n| n.deleted().is_some());
            o.to != from && free && !terminating && self.resolve(o) == Reference::Solid
        };
        !left_alone && dependent.owners().iter().any(stays)
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
        if node.deleted().is_some() {
            return;
        }
        let (mut goes, mut waits, mut waits_for_it) = (false, false, false);
        for reference in node.owners() {
            match self.resolve(reference) {
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
                    let waiting = self.resolve(reference) == Reference::Waiting
                        || matches!(owner, Some(Mode::Foreground | Mode::Either | Mode::Unclear));
                    waits |= waiting;
                    // Another owner would be solid for a while at least, and
                    // this reference taken off meanwhile (R5).
                    let only = node.owners().iter().all(|o| o.to == reference.to);
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
        self.delete(dependent, self.collectors_mode(node, waits, waits_for_it));
    }

    /// R6 and R7: how the collector deletes.
    fn collectors_mode(&self, node: Node<'_>, waits: bool, waits_for_it: bool) -> Mode {
        // R7: a kind's own default does not count inside a cascade.
        let plain = if node.finalizers().contains(ORPHAN) {
            Mode::Orphan
        } else if node.finalizers().contains(FOREGROUND) {
            Mode::Foreground
        } else {
            Mode::Background
        };
        let has_dependents = self.graph.dependents_by_uid(node).next().is_some();
        if !waits || !has_dependents {
            return plain;
        }
        // R6, if the owner still waits when this object's turn comes; it does
        // where it waits for this very object.
        match plain {
            _ if waits_for_it => Mode::Foreground,
            Mode::Orphan => Mode::Unclear,
            _ => Mode::Either,
        }
    }

    /// R1 to R3: what a reference amounts to in this world.
    fn resolve(&self, reference: &OwnerEdge) -> Reference {
        let (kind, _, _) = self.graph.coordinates(reference.to);
        if reference.error || !self.graph.kinds.is_served(kind) {
            return Reference::Error;
        }
        let owner = match self.graph.get(reference.to) {
            Some(owner) if owner.uid() == reference.uid => owner,
            // Another object of that name is there.
            Some(_) => return Reference::Dangling,
            None if self.graph.is_complete(kind) => return Reference::Dangling,
            // It is not in the graph; that says nothing of the cluster.
            None => return Reference::Error,
        };
        if self.is_certain() && self.unresolvable.contains(&reference.to) {
            return Reference::Error;
        }
        match self.mode(reference.to) {
            // Gone or not, it takes the reference off first.
            Some(Mode::Orphan) => return Reference::Orphaning,
            Some(Mode::Unclear) if self.is_certain() => return Reference::Orphaning,
            _ if self.gone.contains(&reference.to) => return Reference::Dangling,
            _ => {}
        }
        // An owner with another finalizer is solid again once it has stopped
        // waiting (R9), so only who keeps it waiting is sure of that.
        let again_solid = self.is_certain() && self.has_finalizer(reference.to);
        match self.mode(reference.to) {
            Some(Mode::Background) => Reference::Solid,
            Some(Mode::Foreground) if again_solid && !reference.blocking => Reference::Solid,
            Some(Mode::Foreground) => Reference::Waiting,
            Some(Mode::Either) if again_solid => Reference::Solid,
            Some(Mode::Either) => Reference::Waiting,
            Some(Mode::Orphan | Mode::Unclear) => Reference::Waiting,
            // R3: who is Terminating already, by somebody else's deletion.
            None if owner.deleted().is_none() => Reference::Solid,
            None if owner.finalizers().contains(FOREGROUND) => {
                if again_solid {
                    Reference::Solid
                } else {
                    Reference::Waiting
                }
            }
            None if self.is_certain() => Reference::Solid,
            None if owner.finalizers().contains(ORPHAN) => Reference::Orphaning,
            None => Reference::Dangling,
        }
    }

    /// Whether a finalizer keeps the object that is not the collector's own
    /// way of deleting it.
    fn has_finalizer(&self, id: NodeId) -> bool {
        let container = self.containers.contains_key(&id);
        self.graph.get(id).is_some_and(|node| {
            let mut finalizers = node.finalizers().iter();
            finalizers.any(|f| f != FOREGROUND && f != ORPHAN && !(container && f == CRD_CLEANUP))
        })
    }

    /// R13, for what may be: an owner in the foreground waits for ever for a
    /// dependent that refuses, and so do those that wait for the owner.
    fn remove_what_waits_for_ever(&mut self) {
        if !self.refused {
            return;
        }
        loop {
            let keeps = |d: Node<'_>, id: NodeId| {
                let refuses = (self.request.cut)(d);
                let stays = self.is_deleting(d.id()) && !self.gone.contains(&d.id());
                (refuses || stays) && self.has_no_way_out(d) && !self.is_detached(d, id)
            };
            let waits = |id: NodeId| {
                self.mode(id) == Some(Mode::Foreground) && self.blockers(id).any(|d| keeps(d, id))
            };
            let waiting: Vec<_> = self.gone.iter().copied().filter(|id| waits(*id)).collect();
            if waiting.is_empty() {
                return;
            }
            for id in waiting {
                self.gone.remove(&id);
                for container in self.contained.get(&id).into_iter().flatten() {
                    self.gone.remove(container);
                }
            }
        }
    }

    /// What certainly waits: for a finalizer of its own or of a dependent that
    /// blocks it, or for one that refuses. Found from below, in a list and not
    /// by recursion: a chain of owners may be as long as somebody likes.
    fn find_what_waits(&mut self) {
        let (request, graph) = (self.request, self.graph);
        let mut next: Vec<_> =
            self.deleting.keys().copied().filter(|id| self.has_finalizer(*id)).collect();
        // What is not being deleted and keeps somebody all the same.
        for id in self.deleting.keys() {
            if self.mode(*id) != Some(Mode::Foreground) {
                continue;
            }
            let kept = self.blockers(*id).any(|d| {
                let refuses = (request.cut)(d);
                let ends_by_itself = !is_left_alone(d) || !self.has_finalizer(d.id());
                (refuses && self.has_no_way_out(d)) || !ends_by_itself
            });
            if kept {
                next.push(*id);
            }
        }
        if self.refused {
            next.extend(self.containers.keys().copied().filter(|c| {
                let mut content = self.contained.iter().filter(|(_, all)| all.contains(c));
                content.any(|(member, _)| graph.get(*member).is_some_and(|m| (request.cut)(m)))
            }));
        }
        while let Some(id) = next.pop() {
            if !self.stuck.insert(id) {
                continue;
            }
            next.extend(self.contained.get(&id).into_iter().flatten().copied());
            let Some(node) = graph.get(id) else { continue };
            if self.has_no_way_out(node) {
                let keeps = |o: &&OwnerEdge| {
                    o.blocking
                        && graph.owner(o).is_some()
                        && self.mode(o.to) == Some(Mode::Foreground)
                };
                next.extend(node.owners().iter().filter(keeps).map(|o| o.to));
            }
        }
    }

    /// Whether the collector cannot free an owner of this dependent: it leaves
    /// the dependent alone (R4), or there is no other owner, which would be
    /// solid for a while at least, for which it would detach it (R5), nor a dependent of its own in the foreground, for which
    /// it would make the references non-blocking (R6, the cycle guard).
    fn has_no_way_out(&self, dependent: Node<'_>) -> bool {
        let may = self.may.unwrap_or(self);
        let in_foreground = |d: Node<'_>| match may.mode(d.id()) {
            None => d.deleted().is_some() && d.finalizers().contains(FOREGROUND),
            Some(mode) => !matches!(mode, Mode::Background | Mode::Orphan),
        };
        let mut owners = dependent.owners().iter().map(|o| o.to);
        let first = owners.next();
        is_left_alone(dependent)
            || owners.all(|o| Some(o) == first)
                && !self.graph.dependents_by_uid(dependent).any(in_foreground)
    }

    fn mode(&self, id: NodeId) -> Option<Mode> {
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
    pub(super) fn is_gone(&self, id: NodeId) -> bool {
        self.gone.contains(&id)
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

/// R4: Terminating, and not in the foreground: the collector leaves it alone.
fn is_left_alone(node: Node<'_>) -> bool {
    node.deleted().is_some() && !node.finalizers().contains(FOREGROUND)
}
