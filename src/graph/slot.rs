//! What the graph keeps of an object, and of a place where one is referred to.

use super::dependents::ManyOwners;
use super::edges::{OpenEdge, OwnerEdge, UseEdge};
use super::id_set::IdSet;
use crate::objects::{HoldAge, KindId, PackedList, PackedMap, Uid};

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
