//! Which objects name which owners.

use std::collections::BTreeSet;

use super::NodeId;
use super::edges::OwnerEdge;
use super::id_set::IdSet;
use crate::objects::{KeyedMap, KindId, Uid, shrink_map};

/// What is kept of more owner references than [`super::MAX_LIST_ENTRIES`]: a reference takes
/// a few bytes, and no node.
#[derive(Debug)]
pub(super) struct ManyOwners {
    /// The uids that they name, in their order.
    pub(super) uids: Box<[Uid]>,
    /// The kinds that they name, each once.
    pub(super) kinds: Box<[KindId]>,
}

/// Objects by the uids that their owner references name: the garbage collector
/// knows dependents by uid alone, whatever coordinates the references give.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    by_uid: KeyedMap<Uid, IdSet>,
    /// Objects with too many owner references. A set of pairs takes less memory
    /// than a map with a set for each uid.
    of_many: BTreeSet<(Uid, NodeId)>,
}

impl Dependents {
    /// The objects with a reference that names this uid.
    pub(super) fn of_owner(&self, uid: Uid) -> impl Iterator<Item = NodeId> + use<'_> {
        let of_many = self.of_many.range((uid, NodeId::FIRST)..=(uid, NodeId::NONE));
        let by_uid = self.by_uid.get(&uid).into_iter().flat_map(IdSet::iter);
        by_uid.chain(of_many.map(|(_, id)| *id))
    }

    /// Whether an object has such a reference.
    pub(super) fn contain(&self, uid: Uid) -> bool {
        self.of_owner(uid).next().is_some()
    }

    pub(super) fn insert(&mut self, id: NodeId, owners: &[OwnerEdge], many: Option<&ManyOwners>) {
        for owner in owners {
            self.by_uid.entry(owner.uid).or_default().insert(id);
        }
        self.of_many.extend(many.into_iter().flat_map(|many| &many.uids).map(|uid| (*uid, id)));
    }

    /// The object no longer names this uid. `many` says whether the object had too many
    /// references.
    pub(super) fn remove(&mut self, id: NodeId, uid: Uid, many: bool) {
        if many {
            self.of_many.remove(&(uid, id));
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
        self.by_uid.len() + self.of_many.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.by_uid.capacity()
    }
}
