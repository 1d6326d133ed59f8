//! The data that the graph stores for an object and for its node.

use super::dependents::ManyOwners;
use super::edges::{OwnerEdge, SelectorEdge, UseEdge};
use super::id_set::IdSet;
use super::node_id::NodeId;
use crate::objects::{HoldAge, KindId, PackedList, PackedMap, Uid};

/// The phase of an object. It decides whether the object still uses other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectPhase {
    /// None of the phases below.
    #[default]
    Active,
    /// A Pod or Job that succeeded or failed. It no longer uses other objects.
    Finished,
    /// A CustomResourceDefinition that is not served (R14: its instances are
    /// not deleted with it).
    CrdNotServed,
}

/// The data of an existing object.
#[derive(Debug)]
pub(super) struct StoredObject {
    pub(super) uid: Uid,
    pub(super) labels: PackedMap,
    pub(super) annotations: PackedMap,
    pub(super) finalizers: PackedList,
    /// Whether the finalizers include `orphan` and `foregroundDeletion`. Stored separately
    /// because the walks of a deletion read these two often.
    pub(super) orphans: bool,
    pub(super) foreground: bool,
    pub(super) created: i64,
    pub(super) deletion_time: Option<i64>,
    pub(super) hold: HoldAge,
    pub(super) phase: ObjectPhase,
    /// Empty if there are more than [`MAX_LIST_ENTRIES`]; see `many_owners`.
    pub(super) owners: Box<[OwnerEdge]>,
    pub(super) owners_version: u64,
    pub(super) many_owners: Option<Box<ManyOwners>>,
    pub(super) uses: Box<[UseEdge]>,
    /// Most objects have none, so one pointer saves memory.
    #[allow(clippy::box_collection)]
    pub(super) selector_edges: Option<Box<Vec<SelectorEdge>>>,
}

impl StoredObject {
    /// The uids in the owner references, in their order.
    pub(super) fn owner_uids(&self) -> impl Iterator<Item = Uid> {
        let many = self.many_owners.iter().flat_map(|many| &many.uids).copied();
        self.owners.iter().map(|owner| owner.uid).chain(many)
    }
}

#[derive(Debug)]
pub(super) struct StoredNode {
    pub(super) name: Box<str>,
    pub(super) kind: KindId,
    /// The node of the Namespace. It stays as long as this node does.
    pub(super) namespace: NodeId,
    pub(super) object: Option<Box<StoredObject>>,
    /// The objects with a use edge to this node.
    pub(super) users: IdSet,
    /// The number of owner references that name this node.
    pub(super) references: u32,
    /// For a Namespace: the number of nodes in it, including absent objects, plus the
    /// number of kinds that selectors select in it.
    pub(super) contained_nodes: u32,
}

/// The limit of owner references and of finalizers of one object. No controller writes
/// this many.
pub const MAX_LIST_ENTRIES: usize = 1_000;

/// The limit of levels when code follows owners upwards. Only cycles of owners reach it.
pub const MAX_OWNER_LEVELS: usize = 32;

/// The owner that an owner reference names (R1: by kind, namespace and name).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerRef<'a> {
    /// The owner's kind; `None` while it is unknown.
    pub kind: Option<KindId>,
    /// The API version in the reference; `None` if the graph did not store it.
    pub version: Option<&'a str>,
    /// The owner's namespace; empty for a cluster-scoped one.
    pub namespace: &'a str,
    /// The owner's name.
    pub name: &'a str,
    /// The owner's uid.
    pub uid: Uid,
}
