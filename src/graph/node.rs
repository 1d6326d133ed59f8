//! A node, and what it knows while its object exists.

use super::dependents::ManyOwners;
use super::edges::{OpenEdge, OwnerEdge, UseEdge};
use super::gone::PastOwner;
use super::id_set::IdSet;
use super::store::Graph;
use super::work::Work;
use crate::objects::{HoldAge, KindId, KindInfo, PackedList, PackedMap, Uid};

/// A node: an object, or a place where one is referred to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// No node: the namespace of a cluster-scoped object.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// The least of all.
    pub(super) const FIRST: Self = Self(0);

    pub(super) fn from_index(index: usize) -> Self {
        // Four billion nodes would need a terabyte.
        Self(u32::try_from(index).unwrap_or(u32::MAX - 1))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How far an object has come, where that changes what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// It is what it is.
    #[default]
    Ordinary,
    /// It has ended and uses nothing: a Pod or Job that succeeded or failed.
    Finished,
    /// A CustomResourceDefinition that is not served (R14: its instances are
    /// not deleted with it).
    NotEstablished,
}

/// What a node knows while its object exists.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) uid: Uid,
    pub(super) labels: PackedMap,
    pub(super) annotations: PackedMap,
    pub(super) finalizers: PackedList,
    /// Whether these have the collector's own, which is asked all the time.
    pub(super) orphans: bool,
    pub(super) foreground: bool,
    pub(super) created: i64,
    pub(super) deleted: Option<i64>,
    pub(super) hold: HoldAge,
    pub(super) progress: Progress,
    /// None, if there are more than [`MANY`].
    pub(super) owners: Box<[OwnerEdge]>,
    pub(super) owners_version: u64,
    pub(super) many_owners: Option<Box<ManyOwners>>,
    pub(super) uses: Box<[UseEdge]>,
    /// Most objects have none, so they stand behind one pointer.
    #[allow(clippy::box_collection)]
    pub(super) open: Option<Box<Vec<OpenEdge>>>,
}

impl Live {
    /// The uids that its owner references name, in their order.
    pub(super) fn owner_uids(&self) -> impl Iterator<Item = Uid> {
        let many = self.many_owners.iter().flat_map(|many| &many.uids).copied();
        self.owners.iter().map(|owner| owner.uid).chain(many)
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: Box<str>,
    pub(super) kind: KindId,
    /// The node of the Namespace; a node of this namespace keeps it alive.
    pub(super) namespace: NodeId,
    pub(super) live: Option<Box<Live>>,
    /// Who has a use edge to this node.
    pub(super) users: IdSet,
    /// How many owner references lead here.
    pub(super) references: u32,
    /// For a Namespace: how many nodes live in it, absent ones included, and
    /// how many kinds are looked for in it by selectors.
    pub(super) residents: u32,
}

/// More owner references, or finalizers, than this are more than any
/// controller writes.
pub const MANY: usize = 1_000;

/// Nothing real is owned this deep; cycles are.
pub const DEEPEST: usize = 32;

/// What an owner reference names (R1: by its coordinates).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The owner's kind; none while nobody knows it.
    pub kind: Option<KindId>,
    /// The version that the reference names; none if that was not remembered.
    pub version: Option<&'a str>,
    /// The owner's namespace; empty for a cluster-scoped one.
    pub namespace: &'a str,
    /// The owner's name.
    pub name: &'a str,
    /// The owner's uid.
    pub uid: Uid,
}

/// A live object in the graph.
#[derive(Clone, Copy)]
pub struct Node<'g> {
    pub(super) id: NodeId,
    pub(super) slot: &'g Slot,
    pub(super) live: &'g Live,
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

    /// What is known of its kind, by the graph that it stands in.
    pub fn info(self) -> &'g KindInfo {
        self.graph.kinds.info(self.slot.kind)
    }

    /// The owner at the top: of a Pod its Deployment. A node without a living
    /// owner is its own root. With several owners the first is followed, so this
    /// is for display: an editor can add owners in front.
    pub fn root_owner(self) -> Self {
        self.root_owner_within(Work::default())
    }

    /// The same, within a budget: when it is used up, the way ends.
    pub fn root_owner_within(self, work: Work<'_>) -> Self {
        let mut at = self;
        for _ in 0..DEEPEST {
            match at.first_owner_within(work) {
                Some(owner) if owner.id() != self.id => at = owner,
                _ => break,
            }
        }
        at
    }

    /// Its first living owner, within a budget.
    pub fn first_owner_within(self, work: Work<'_>) -> Option<Self> {
        if self.has_too_many_owners() || !work.charge(1 + self.owners().len()) {
            return None;
        }
        self.owners().iter().find_map(|owner| self.graph.owner(self, owner))
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
        self.live.uid
    }

    /// Its labels.
    pub fn labels(self) -> &'g PackedMap {
        &self.live.labels
    }

    /// Those of its annotations that are kept.
    pub fn annotations(self) -> &'g PackedMap {
        &self.live.annotations
    }

    /// Its finalizers, in their order.
    pub fn finalizers(self) -> &'g PackedList {
        &self.live.finalizers
    }

    /// When it was created, in seconds since 1970.
    pub fn created(self) -> i64 {
        self.live.created
    }

    /// Since when it is Terminating, in seconds since 1970.
    pub fn deleted(self) -> Option<i64> {
        self.live.deleted
    }

    /// Whether it is Terminating.
    pub fn is_terminating(self) -> bool {
        self.live.deleted.is_some()
    }

    /// Whether it is Terminating and waits for its dependents (R3).
    pub fn waits_in_foreground(self) -> bool {
        self.is_terminating() && self.deletes_in_foreground()
    }

    /// Whether it has the finalizer of a foreground deletion.
    pub fn deletes_in_foreground(self) -> bool {
        self.live.foreground
    }

    /// Whether it has the finalizer by which its dependents are orphaned.
    pub fn orphans_dependents(self) -> bool {
        self.live.orphans
    }

    /// Whether it has more owner references than any controller writes. What
    /// they amount to is not looked at: it may be anything.
    pub fn has_too_many_owners(self) -> bool {
        self.live.many_owners.is_some()
    }

    /// Since when it is held.
    pub fn hold(self) -> HoldAge {
        self.live.hold
    }

    /// How far it has come.
    pub fn progress(self) -> Progress {
        self.live.progress
    }

    /// Its owner references; none, if it has too many of them.
    pub fn owners(self) -> &'g [OwnerEdge] {
        &self.live.owners
    }

    /// The resourceVersion at which it may last have gained an owner reference;
    /// 0 if it was created with those that it has, or if its graph does not
    /// date them.
    pub fn owners_version(self) -> u64 {
        self.live.owners_version
    }

    /// The owners that it has lost since then, while it kept others.
    pub fn past_owners(self) -> &'g [PastOwner] {
        self.graph.past_owners(self.id)
    }

    /// The uids that its owner references name, in their order.
    pub fn owner_uids(self) -> impl Iterator<Item = Uid> {
        self.live.owner_uids()
    }

    /// The kinds that its owner references name.
    pub fn owner_kinds(self) -> impl Iterator<Item = KindId> {
        let many = self.live.many_owners.iter().flat_map(|many| &many.kinds).copied();
        self.claims().filter_map(|claim| claim.kind).chain(many)
    }

    /// What its owner references name; nothing, if it has too many of them. The
    /// numbers of nodes differ between graphs; names do not.
    pub fn claims(self) -> impl Iterator<Item = Claim<'g>> {
        let graph = self.graph;
        self.owners().iter().map(move |owner| graph.claim(owner))
    }

    /// The kinds of what it uses, by name.
    pub fn used_kinds(self) -> impl Iterator<Item = KindId> {
        let graph = self.graph;
        self.uses().iter().map(move |edge| graph.coordinates(edge.to).0)
    }

    /// What it uses, by name.
    pub fn uses(self) -> &'g [UseEdge] {
        &self.live.uses
    }

    /// What it uses, by what matches.
    pub fn open(self) -> &'g [OpenEdge] {
        self.live.open.as_deref().map_or(&[], Vec::as_slice)
    }
}
