//! A live object in the graph, and what it knows.

use super::deleted_objects::PastOwner;
use super::edges::{OwnerEdge, SelectorEdge, UseEdge};
use super::node_id::NodeId;
use super::slot::{MAX_OWNER_LEVELS, ObjectPhase, OwnerRef, StoredNode, StoredObject};
use super::steps::StepLimit;
use super::store::Graph;
use crate::objects::{HoldAge, KindId, KindInfo, ObjectRef, PackedList, PackedMap, Uid};

/// A live object in the graph.
#[derive(Clone, Copy)]
pub struct Node<'g> {
    pub(super) id: NodeId,
    pub(super) slot: &'g StoredNode,
    pub(super) object: &'g StoredObject,
    pub(super) graph: &'g Graph,
}

impl<'g> Node<'g> {
    /// Its number.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Its kind.
    pub fn kind(self) -> KindId {
        self.slot.kind
    }

    /// What the graph of the object knows about its kind.
    pub fn info(self) -> &'g KindInfo {
        self.graph.kinds.info(self.slot.kind)
    }

    /// The owner at the top: of a Pod its Deployment. A node without a living
    /// owner is its own root. With several owners the first is followed, so this
    /// is for display: an editor can add owners in front.
    pub fn root_owner(self) -> Self {
        self.root_owner_limited(StepLimit::default())
    }

    /// The same, within a budget: when it is used up, the way ends.
    pub fn root_owner_limited(self, work: StepLimit<'_>) -> Self {
        let mut at = self;
        for _ in 0..MAX_OWNER_LEVELS {
            match at.first_owner(work) {
                Some(owner) if owner.id() != self.id => at = owner,
                _ => break,
            }
        }
        at
    }

    /// The living owner that manages it, or else its first living owner, within a budget. An
    /// editor can add owners in front of the controller. Namespaces and Nodes manage no
    /// objects: an owner reference to them comes from the kubelet or from an editor.
    pub fn first_owner(self, work: StepLimit<'_>) -> Option<Self> {
        if self.has_too_many_owners() || !work.charge(1 + 2 * self.owners().len()) {
            return None;
        }
        let manages = |owner: &Self| {
            let KindInfo { group, resource, .. } = owner.info();
            !(group.is_empty() && ["namespaces", "nodes"].contains(&resource.as_str()))
        };
        let controller = self.owners().iter().filter(|owner| owner.controller);
        let owners = controller.chain(self.owners());
        owners.filter_map(|owner| self.graph.owner(self, owner)).find(manages)
    }

    /// Its name.
    pub fn name(self) -> &'g str {
        &self.slot.name
    }

    /// Its namespace; empty for a cluster-scoped object.
    pub fn namespace(self) -> &'g str {
        self.graph.coordinates(self.id).1
    }

    /// The node of its Namespace.
    pub fn namespace_node(self) -> Option<NodeId> {
        (self.slot.namespace != NodeId::NONE).then_some(self.slot.namespace)
    }

    /// Its uid.
    pub fn uid(self) -> Uid {
        self.object.uid
    }

    /// Its labels.
    pub fn labels(self) -> &'g PackedMap {
        &self.object.labels
    }

    /// Those of its annotations that are kept.
    pub fn annotations(self) -> &'g PackedMap {
        &self.object.annotations
    }

    /// Its finalizers, in their order.
    pub fn finalizers(self) -> &'g PackedList {
        &self.object.finalizers
    }

    /// When it was created, in seconds since 1970.
    pub fn creation_time(self) -> i64 {
        self.object.created
    }

    /// Since when it is Terminating, in seconds since 1970.
    pub fn deletion_time(self) -> Option<i64> {
        self.object.deleted
    }

    /// Whether it is Terminating.
    pub fn is_terminating(self) -> bool {
        self.object.deleted.is_some()
    }

    /// Whether it is Terminating and waits for its dependents (R3).
    pub fn waits_in_foreground(self) -> bool {
        self.is_terminating() && self.has_foreground_finalizer()
    }

    /// Whether it has the finalizer of a foreground deletion.
    pub fn has_foreground_finalizer(self) -> bool {
        self.object.foreground
    }

    /// Whether it has the finalizer by which its dependents are orphaned.
    pub fn has_orphan_finalizer(self) -> bool {
        self.object.orphans
    }

    /// Whether it has more owner references than any controller writes. What
    /// they amount to is not looked at: it may be anything.
    pub fn has_too_many_owners(self) -> bool {
        self.object.many_owners.is_some()
    }

    /// Since when it is held.
    pub fn hold(self) -> HoldAge {
        self.object.hold
    }

    /// How far it has come.
    pub fn phase(self) -> ObjectPhase {
        self.object.phase
    }

    /// Its owner references; none, if it has too many of them.
    pub fn owners(self) -> &'g [OwnerEdge] {
        &self.object.owners
    }

    /// The resourceVersion at which it may last have gained an owner reference;
    /// 0 if it was created with those that it has, or if its graph does not
    /// date them.
    pub fn owners_version(self) -> u64 {
        self.object.owners_version
    }

    /// The owners that it has lost since then, while it kept others.
    pub fn past_owners(self) -> &'g [PastOwner] {
        self.graph.past_owners(self.id)
    }

    /// The uids that its owner references name, in their order.
    pub fn owner_uids(self) -> impl Iterator<Item = Uid> {
        self.object.owner_uids()
    }

    /// The kinds that its owner references name.
    pub fn owner_kinds(self) -> impl Iterator<Item = KindId> {
        let many = self.object.many_owners.iter().flat_map(|many| &many.kinds).copied();
        self.owner_refs().filter_map(|claim| claim.kind).chain(many)
    }

    /// What its owner references name; nothing, if it has too many of them. The
    /// numbers of nodes differ between graphs; names do not.
    pub fn owner_refs(self) -> impl Iterator<Item = OwnerRef<'g>> {
        let graph = self.graph;
        self.owners().iter().map(move |owner| graph.owner_ref(owner))
    }

    /// The kinds of what it uses, by name.
    pub fn used_kinds(self) -> impl Iterator<Item = KindId> {
        let graph = self.graph;
        self.uses().iter().map(move |edge| graph.coordinates(edge.to).0)
    }

    /// What it uses, by name.
    pub fn uses(self) -> &'g [UseEdge] {
        &self.object.uses
    }

    /// What it uses, by what matches.
    pub fn selector_edges(self) -> &'g [SelectorEdge] {
        self.object.selector_edges.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl Graph {
    /// The live object of a node.
    pub fn get(&self, id: NodeId) -> Option<Node<'_>> {
        let slot = self.nodes.get(id)?;
        Some(Node { id, slot, object: slot.object.as_deref()?, graph: self })
    }

    /// The live object at these coordinates.
    pub fn object(&self, kind: KindId, namespace: &str, name: &str) -> Option<Node<'_>> {
        self.get(self.find(kind, namespace, name)?)
    }

    /// The live object that a reference names.
    pub fn object_by_ref(&self, reference: &ObjectRef) -> Option<Node<'_>> {
        let kind = self.kinds.find_resource(&reference.group, &reference.resource)?;
        self.object(kind, &reference.namespace, &reference.name)
    }

    /// The live object that a node of this or another graph is.
    pub fn find_counterpart(&self, node: Node<'_>) -> Option<Node<'_>> {
        if std::ptr::eq(node.graph, self) {
            return self.get(node.id());
        }
        let found = self.object(node.kind(), node.namespace(), node.name())?;
        (found.uid() == node.uid()).then_some(found)
    }

    /// Who has a use edge to a node.
    pub(super) fn users_by_name(&self, id: NodeId) -> impl Iterator<Item = Node<'_>> {
        let slot = self.nodes.get(id);
        slot.into_iter().flat_map(|slot| slot.users.iter()).filter_map(|id| self.get(id))
    }

    /// Who has an owner reference with the uid of this object, whatever
    /// coordinates it gives: that is how the collector knows dependents.
    pub fn dependents(&self, owner: Node<'_>) -> impl Iterator<Item = Node<'_>> + use<'_> {
        self.dependents_of(owner.uid())
    }

    /// Who has an owner reference with this uid, though the owner itself may
    /// not be here.
    pub(super) fn dependents_of(&self, owner: Uid) -> impl Iterator<Item = Node<'_>> + use<'_> {
        self.dependents.of_owner(owner).filter_map(|id| self.get(id))
    }

    /// The same without those in other namespaces than the owner's, if it has one: no
    /// reference names an owner elsewhere (R1), so these don't depend on this owner.
    pub fn possible_dependents<'g>(
        &'g self,
        owner: Uid,
        namespace: &'g str,
    ) -> impl Iterator<Item = Node<'g>> + use<'g> {
        self.dependents_of(owner)
            .filter(move |node| namespace.is_empty() || node.namespace() == namespace)
    }

    /// The same without those of a cluster-scoped owner that are in namespaces.
    pub fn dependents_in_same_scope<'g>(
        &'g self,
        owner: Uid,
        namespace: &'g str,
    ) -> impl Iterator<Item = Node<'g>> + use<'g> {
        self.dependents_of(owner).filter(move |node| node.namespace() == namespace)
    }
}
