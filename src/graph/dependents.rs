//! Finds the dependents of an owner.

use std::collections::BTreeSet;

use super::NodeId;
use super::edges::OwnerEdge;
use super::id_set::IdSet;
use crate::objects::{KeyedMap, KindId, Uid, shrink_map};

/// The owner references of an object with more than [`super::MAX_LIST_ENTRIES`] of them.
/// They have no edges and no nodes, which saves memory.
#[derive(Debug)]
pub(super) struct ManyOwners {
    /// The uids in the references, in their order.
    pub(super) uids: Box<[Uid]>,
    /// The kinds in the references, each once.
    pub(super) kinds: Box<[KindId]>,
}

/// Objects by the uids in their owner references. As in the garbage collector, the kind and
/// name in the reference don't matter.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    by_uid: KeyedMap<Uid, IdSet>,
    /// The same for objects with too many owner references. A set of pairs takes less
    /// memory than a map with a set for each uid.
    with_many_owners: BTreeSet<(Uid, NodeId)>,
}

impl Dependents {
    /// The objects with a reference to this uid.
    pub(super) fn of_owner(&self, uid: Uid) -> impl Iterator<Item = NodeId> + use<'_> {
        let with_many = self.with_many_owners.range((uid, NodeId::FIRST)..=(uid, NodeId::NONE));
        let by_uid = self.by_uid.get(&uid).into_iter().flat_map(IdSet::iter);
        by_uid.chain(with_many.map(|(_, id)| *id))
    }

    /// Whether an object has a reference to this uid.
    pub(super) fn has_owner(&self, uid: Uid) -> bool {
        self.of_owner(uid).next().is_some()
    }

    pub(super) fn insert(&mut self, id: NodeId, owners: &[OwnerEdge], many: Option<&ManyOwners>) {
        for owner in owners {
            self.by_uid.entry(owner.uid).or_default().insert(id);
        }
        self.with_many_owners
            .extend(many.into_iter().flat_map(|many| &many.uids).map(|uid| (*uid, id)));
    }

    /// Removes the reference of an object to this uid. `many` is whether the object had too
    /// many references.
    pub(super) fn remove(&mut self, id: NodeId, uid: Uid, many: bool) {
        if many {
            self.with_many_owners.remove(&(uid, id));
        } else if let Some(dependents) = self.by_uid.get_mut(&uid) {
            dependents.remove(id);
            if dependents.is_empty() {
                self.by_uid.remove(&uid);
                shrink_map(&mut self.by_uid);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.by_uid.len() + self.with_many_owners.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.by_uid.capacity()
    }
}
