//! Stores the nodes and finds them by name.

use std::hash::BuildHasher;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use super::id_set::IdSet;
use super::node_id::NodeId;
use super::stored::StoredNode;
use crate::objects::{KeyedHasher, KindId};

/// The nodes of all objects, and of all objects that references name.
#[derive(Debug, Default)]
pub(super) struct NodeStore {
    slots: Vec<StoredNode>,
    free: Vec<NodeId>,
    index: HashTable<NodeId>,
    /// Hashes the names for the index.
    keyed: KeyedHasher,
}

impl Index<NodeId> for NodeStore {
    type Output = StoredNode;

    fn index(&self, id: NodeId) -> &StoredNode {
        &self.slots[id.index()]
    }
}

impl IndexMut<NodeId> for NodeStore {
    fn index_mut(&mut self, id: NodeId) -> &mut StoredNode {
        &mut self.slots[id.index()]
    }
}

impl NodeStore {
    /// The node with this ID; `None` if the ID comes from another, larger graph.
    pub(super) fn get(&self, id: NodeId) -> Option<&StoredNode> {
        self.slots.get(id.index())
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.index.capacity()
    }

    fn hash(keyed: &KeyedHasher, kind: KindId, namespace: NodeId, name: &str) -> u64 {
        keyed.hash_one((kind, namespace, name))
    }

    /// The hash of a node that is in the index.
    fn rehash(keyed: &KeyedHasher, slots: &[StoredNode]) -> impl Fn(&NodeId) -> u64 {
        |id| {
            let slot = &slots[id.index()];
            Self::hash(keyed, slot.kind, slot.namespace, &slot.name)
        }
    }

    pub(super) fn find(&self, kind: KindId, namespace: NodeId, name: &str) -> Option<NodeId> {
        let hash = Self::hash(&self.keyed, kind, namespace, name);
        let is_match = |id: &NodeId| {
            let slot = &self[*id];
            slot.kind == kind && slot.namespace == namespace && *slot.name == *name
        };
        self.index.find(hash, is_match).copied()
    }

    /// Finds the node with this name, or adds it.
    pub(super) fn find_or_insert(&mut self, kind: KindId, namespace: NodeId, name: &str) -> NodeId {
        if let Some(known) = self.find(kind, namespace, name) {
            return known;
        }
        if namespace != NodeId::NONE {
            self[namespace].contained_nodes += 1;
        }
        let slot = StoredNode {
            name: name.into(),
            kind,
            namespace,
            object: None,
            users: IdSet::default(),
            references: 0,
            contained_nodes: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self[id] = slot;
                id
            }
            None => {
                // A vector that doubles its capacity would leave a third of the memory
                // unused.
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact((self.slots.len() / 8).max(1024));
                }
                self.slots.push(slot);
                NodeId::from_index(self.slots.len() - 1)
            }
        };
        let hash = Self::hash(&self.keyed, kind, namespace, name);
        self.index.insert_unique(hash, id, Self::rehash(&self.keyed, &self.slots));
        id
    }

    /// Removes a node that nothing refers to any more. Then does the same for the node
    /// of its Namespace.
    pub(super) fn remove_if_unused(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let slot = &self[id];
            let unused = slot.object.is_none()
                && slot.users.is_empty()
                && slot.references == 0
                && slot.contained_nodes == 0;
            if !unused {
                return;
            }
            let hash = Self::hash(&self.keyed, slot.kind, slot.namespace, &slot.name);
            let namespace = slot.namespace;
            // A node that is not in the index was removed before.
            let Ok(entry) = self.index.find_entry(hash, |other| *other == id) else { return };
            entry.remove();
            if self.index.capacity() > 4 * self.index.len().max(1024) {
                let rehash = Self::rehash(&self.keyed, &self.slots);
                self.index.shrink_to(2 * self.index.len(), rehash);
            }
            let slot = &mut self[id];
            slot.name = Box::default();
            slot.users = IdSet::default();
            self.free.push(id);
            if namespace != NodeId::NONE {
                self[namespace].contained_nodes -= 1;
                next = Some(namespace);
            }
        }
    }
}
