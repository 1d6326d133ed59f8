//! What the graph keeps of an object, and of a place where one is referred to.

use super::dependents::ManyOwners;
use super::edges::{OwnerEdge, SelectorEdge, UseEdge};
use super::id_set::IdSet;
use super::node_id::NodeId;
use crate::objects::{HoldAge, KindId, PackedList, PackedMap, Uid};

/// The phase of an object, where it changes what the object needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectPhase {
    /// No phase below.
    #[default]
    Active,
    /// It has ended and uses nothing: a Pod or Job that succeeded or failed.
    Finished,
    /// A CustomResourceDefinition that is not served (R14: its instances are
    /// not deleted with it).
    CrdNotServed,
}

/// What a node knows while its object exists.
#[derive(Debug)]
pub(super) struct StoredObject {
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
    pub(super) phase: ObjectPhase,
    /// None, if there are more than [`MAX_LIST_ENTRIES`].
    pub(super) owners: Box<[OwnerEdge]>,
    pub(super) owners_version: u64,
    pub(super) many_owners: Option<Box<ManyOwners>>,
    pub(super) uses: Box<[UseEdge]>,
    /// Most objects have none, so they are behind one pointer.
    #[allow(clippy::box_collection)]
    pub(super) selector_edges: Option<Box<Vec<SelectorEdge>>>,
}

impl StoredObject {
    /// The uids that its owner references name, in their order.
    pub(super) fn owner_uids(&self) -> impl Iterator<Item = Uid> {
        let many = self.many_owners.iter().flat_map(|many| &many.uids).copied();
        self.owners.iter().map(|owner| owner.uid).chain(many)
    }
}

#[derive(Debug)]
pub(super) struct StoredNode {
    pub(super) name: Box<str>,
    pub(super) kind: KindId,
    /// The node of the Namespace; a node of this namespace keeps it alive.
    pub(super) namespace: NodeId,
    pub(super) object: Option<Box<StoredObject>>,
    /// Who has a use edge to this node.
    pub(super) users: IdSet,
    /// How many owner references lead here.
    pub(super) references: u32,
    /// For a Namespace: how many nodes live in it, absent ones included, and
    /// how many kinds are looked for in it by selectors.
    pub(super) contained_nodes: u32,
}

/// More owner references, or finalizers, than this are more than any
/// controller writes.
pub const MAX_LIST_ENTRIES: usize = 1_000;

/// Nothing real is owned this deep; cycles are.
pub const MAX_OWNER_LEVELS: usize = 32;

/// What an owner reference names (R1: by its coordinates).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerRef<'a> {
    /// The owner's kind; `None` while it is unknown.
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
