//! An existing object in the graph, with its fields and edges.

use super::deleted_objects::PastOwner;
use super::edges::{OwnerEdge, SelectorEdge, UseEdge};
use super::node_id::NodeId;
use super::steps::StepCounter;
use super::store::Graph;
use super::stored::{MAX_OWNER_LEVELS, ObjectPhase, OwnerRef, StoredNode, StoredObject};
use crate::objects::{HoldAge, KindId, KindInfo, Kinds, ObjectRef, PackedList, PackedMap, Uid};

/// An existing object in the graph.
#[derive(Clone, Copy)]
pub struct Node<'g> {
    pub(super) id: NodeId,
    pub(super) stored_node: &'g StoredNode,
    pub(super) object: &'g StoredObject,
    pub(super) graph: &'g Graph,
}

#[allow(missing_docs)] // The names are Kubernetes' own.
impl<'g> Node<'g> {
    pub fn kind(self) -> KindId {
        self.stored_node.kind
    }

    pub fn name(self) -> &'g str {
        &self.stored_node.name
    }

    pub fn uid(self) -> Uid {
        self.object.uid
    }

    pub fn labels(self) -> &'g PackedMap {
        &self.object.labels
    }
}

impl<'g> Node<'g> {
    /// Its ID, valid only in this graph.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The properties of its kind.
    pub fn info(self) -> &'g KindInfo {
        self.graph.kinds.info(self.stored_node.kind)
    }

    /// The topmost owner, such as the Deployment of a Pod. An object without a managing
    /// owner is its own topmost owner. This follows the managing owner of each object
    /// ([`Self::managing_owner`]). Only use it for display, because editors write owner
    /// references.
    pub fn topmost_owner(self) -> Self {
        self.topmost_owner_limited(StepCounter::default())
    }

    /// The topmost owner. This follows managing owners while `accepts` returns true.
    pub fn topmost_owner_among(self, accepts: impl Fn(&Self) -> bool) -> Self {
        self.topmost(|node| node.managing_owner(StepCounter::default()).filter(&accepts))
    }

    /// The topmost owner, as far as the budget allows.
    pub fn topmost_owner_limited(self, work: StepCounter<'_>) -> Self {
        self.topmost(|node| node.managing_owner(work))
    }

    fn topmost(self, owner: impl Fn(Self) -> Option<Self>) -> Self {
        let mut current = self;
        for _ in 0..MAX_OWNER_LEVELS {
            match owner(current) {
                Some(owner) if owner.id() != self.id => current = owner,
                _ => break,
            }
        }
        current
    }

    /// The existing owner in the owner reference with `controller: true`. An editor can write any
    /// object there.
    pub fn controller(self) -> Option<Self> {
        self.existing_owner(self.owner_edges().iter().find(|owner| owner.controller)?)
    }

    /// The existing owner that manages it. `None` if there is none or the budget is used up. It is
    /// the first of these owners:
    /// - the owner with `controller: true`, if Kubernetes creates objects of this kind for it, or
    ///   if it is a custom resource of the same namespace
    /// - another owner for which Kubernetes creates objects of this kind
    ///
    /// Other owners don't count, because an editor can write any owner of the same namespace and
    /// any cluster-scoped owner (H142). The controllers of Kubernetes remove references that don't
    /// fit their selectors, so a wrong reference to an owner of their kind does not stay.
    pub fn managing_owner(self, work: StepCounter<'_>) -> Option<Self> {
        if self.has_too_many_owners() || !work.charge(1 + 2 * self.owner_edges().len()) {
            return None;
        }
        let is_custom = |owner: &Self| {
            owner.namespace() == self.namespace() && !Kinds::is_built_in_group(&owner.info().group)
        };
        let controller = self.owner_edges().iter().filter(|owner| owner.controller);
        let mut controllers = controller.filter_map(|owner| self.existing_owner(owner));
        let creates_it = |owner: &Self| owner.info().creates(self.info());
        controllers
            .find(|owner| creates_it(owner) || is_custom(owner))
            .or_else(|| self.existing_owners().find(creates_it))
    }

    /// A reference to the object.
    pub fn object_ref(self) -> ObjectRef {
        ObjectRef::of_kind(self.info(), self.namespace(), self.name())
    }

    /// Its namespace; empty for a cluster-scoped object.
    pub fn namespace(self) -> &'g str {
        self.graph.coordinates(self.id).1
    }

    /// The node of its Namespace.
    pub fn namespace_node(self) -> Option<NodeId> {
        let namespace = self.stored_node.namespace;
        (namespace != NodeId::NONE).then_some(namespace)
    }

    /// Its annotations that the graph keeps ([`Graph::keep_annotations`]).
    pub fn annotations(self) -> &'g PackedMap {
        &self.object.annotations
    }

    /// Its finalizers, in their order.
    pub fn finalizers(self) -> &'g PackedList {
        &self.object.finalizers
    }

    /// Its creation time, in seconds since 1970.
    pub fn creation_time(self) -> i64 {
        self.object.created
    }

    /// Its deletionTimestamp, in seconds since 1970.
    pub fn deletion_time(self) -> Option<i64> {
        self.object.deletion_time
    }

    /// Whether it is Terminating.
    pub fn is_terminating(self) -> bool {
        self.object.deletion_time.is_some()
    }

    /// Whether it is Terminating and waits for its dependents (R3).
    pub fn waits_in_foreground(self) -> bool {
        self.is_terminating() && self.has_foreground_finalizer()
    }

    /// Whether it has the finalizer of a foreground deletion.
    pub fn has_foreground_finalizer(self) -> bool {
        self.object.foreground
    }

    /// Whether it has the finalizer of an orphaning deletion.
    pub fn has_orphan_finalizer(self) -> bool {
        self.object.orphans
    }

    /// Whether it has more than [`MAX_LIST_ENTRIES`](super::MAX_LIST_ENTRIES) owner
    /// references. belay does not evaluate them and assumes every state.
    pub fn has_too_many_owners(self) -> bool {
        self.object.many_owners.is_some()
    }

    /// Whether it has a hold, and since when.
    pub fn hold(self) -> HoldAge {
        self.object.hold
    }

    /// Whether it has a hold.
    pub fn is_held(self) -> bool {
        self.hold() != HoldAge::NotHeld
    }

    /// Its phase.
    pub fn phase(self) -> ObjectPhase {
        self.object.phase
    }

    /// Its owner references, also to absent owners; empty if it has too many of them.
    pub fn owner_edges(self) -> &'g [OwnerEdge] {
        &self.object.owners
    }

    /// The latest resourceVersion at which it may have gained an owner reference. 0 if it
    /// was created with its references, or if the graph does not track their versions.
    pub fn owners_version(self) -> u64 {
        self.object.owners_version
    }

    /// The owners that it has lost since [`Self::owners_version`], while it kept others.
    pub fn past_owners(self) -> &'g [PastOwner] {
        self.graph.past_owners(self.id)
    }

    /// The uids in its owner references, in their order.
    pub fn owner_uids(self) -> impl Iterator<Item = Uid> {
        self.object.owner_uids()
    }

    /// The kinds in its owner references.
    pub fn owner_kinds(self) -> impl Iterator<Item = KindId> {
        let many = self.object.many_owners.iter().flat_map(|many| &many.kinds).copied();
        self.owner_refs().filter_map(|owner_ref| owner_ref.kind).chain(many)
    }

    /// The owners that its owner references name; empty if it has too many of them.
    /// Unlike [`NodeId`], these values are valid in every graph.
    pub fn owner_refs(self) -> impl Iterator<Item = OwnerRef<'g>> {
        let graph = self.graph;
        self.owner_edges().iter().map(move |owner| graph.owner_ref(owner))
    }

    /// Whether the object is a Pod that is assigned to a Kubernetes Node.
    pub fn is_scheduled_pod(self) -> bool {
        let is_node = |kind| self.graph.kinds.info(kind).group_resource() == ("", "nodes");
        self.info().group_resource() == ("", "pods") && self.used_kinds().any(is_node)
    }

    /// The kinds of the objects that it uses by name.
    pub fn used_kinds(self) -> impl Iterator<Item = KindId> {
        let graph = self.graph;
        self.uses().iter().map(move |edge| graph.coordinates(edge.to).0)
    }

    /// Its edges to the objects that it uses by name.
    pub fn uses(self) -> &'g [UseEdge] {
        &self.object.uses
    }

    /// Its edges to the objects that it uses by a selector.
    pub fn selector_edges(self) -> &'g [SelectorEdge] {
        self.object.selector_edges.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl Graph {
    /// The object of a node; `None` if it does not exist.
    pub fn get(&self, id: NodeId) -> Option<Node<'_>> {
        let stored_node = self.nodes.get(id)?;
        let object = stored_node.object.as_deref()?;
        Some(Node { id, stored_node, object, graph: self })
    }

    /// The existing object with this kind, namespace and name.
    pub fn object(&self, kind: KindId, namespace: &str, name: &str) -> Option<Node<'_>> {
        self.get(self.find(kind, namespace, name)?)
    }

    /// The CustomResourceDefinition of a kind, if it exists.
    pub fn crd_of(&self, kind: KindId) -> Option<Node<'_>> {
        let crds = self.kinds.crd()?;
        self.object(crds, "", &self.kinds.info(kind).full_name())
    }

    /// The existing object that a reference names.
    pub fn object_by_ref(&self, reference: &ObjectRef) -> Option<Node<'_>> {
        let kind = self.kinds.find_resource(&reference.group, &reference.resource)?;
        self.object(kind, &reference.namespace, &reference.name)
    }

    /// The object of this graph with the name and uid of `node`, which may be in another graph.
    pub fn find_counterpart(&self, node: Node<'_>) -> Option<Node<'_>> {
        if std::ptr::eq(node.graph, self) {
            return self.get(node.id());
        }
        let counterpart = self.object(node.kind(), node.namespace(), node.name())?;
        (counterpart.uid() == node.uid()).then_some(counterpart)
    }

    /// The objects with a use edge to a node.
    pub(super) fn users_by_name(&self, id: NodeId) -> impl Iterator<Item = Node<'_>> {
        let node = self.nodes.get(id);
        node.into_iter().flat_map(|node| node.users.iter()).filter_map(|id| self.get(id))
    }

    /// The objects with an owner reference to the uid of this object. As in the garbage
    /// collector, the kind and name in the reference don't matter.
    pub fn dependents(&self, owner: Node<'_>) -> impl Iterator<Item = Node<'_>> + use<'_> {
        self.dependents_of(owner.uid())
    }

    /// The objects with an owner reference to this uid. The owner need not be in the graph.
    pub(super) fn dependents_of(&self, owner: Uid) -> impl Iterator<Item = Node<'_>> + use<'_> {
        self.dependents.of_owner(owner).filter_map(|id| self.get(id))
    }

    /// The dependents of an owner with this uid and namespace. Objects in other namespaces
    /// can't depend on a namespaced owner (R1).
    pub fn possible_dependents<'g>(
        &'g self,
        owner: Uid,
        namespace: &'g str,
    ) -> impl Iterator<Item = Node<'g>> + use<'g> {
        self.dependents_of(owner)
            .filter(move |node| namespace.is_empty() || node.namespace() == namespace)
    }

    /// The dependents in the namespace of the owner; for a cluster-scoped owner, its
    /// cluster-scoped dependents.
    pub fn dependents_in_same_scope<'g>(
        &'g self,
        owner: Uid,
        namespace: &'g str,
    ) -> impl Iterator<Item = Node<'g>> + use<'g> {
        self.dependents_of(owner).filter(move |node| node.namespace() == namespace)
    }
}
