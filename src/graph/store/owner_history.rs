//! Remembers deleted owners, and owners that an object has lost.

use super::Graph;
use crate::graph::deleted_objects::{DeletedObject, PastOwner, RememberedOwner};
use crate::graph::edges::OwnerEdge;
use crate::graph::node_id::NodeId;
use crate::graph::stored::{OwnerRef, StoredObject};
use crate::objects::{KeyedSet, Uid};

impl Graph {
    /// Remembers a deleted object if others name it as an owner.
    pub(super) fn remember(&mut self, id: NodeId, before: &StoredObject) {
        let past_owners = self.deleted_objects.take_past_owners(id, self.nodes[id].namespace);
        let past_uids: Vec<_> = past_owners.iter().map(|past| past.owner.uid).collect();
        if self.dependents.has_owner(before.uid)
            || self.deleted_objects.is_named_as_owner(before.uid)
        {
            let owners = before.owners.iter().map(|owner| self.owner_ref(owner));
            let mut deleted = DeletedObject::new(owners, before.deletion_time);
            deleted.owners_version = before.owners_version;
            deleted.past_owners = past_owners;
            deleted.had_more_owners |= before.many_owners.is_some();
            self.deleted_objects.remember(before.uid, deleted);
        }
        self.forget_owners(past_uids);
    }

    /// The owner that a reference names.
    pub(in crate::graph) fn owner_ref<'g>(&'g self, owner: &'g OwnerEdge) -> OwnerRef<'g> {
        let (kind, namespace, name) = self.coordinates(owner.to);
        OwnerRef {
            kind: Some(kind),
            version: Some(&owner.version),
            namespace,
            name,
            uid: owner.uid,
        }
    }

    /// Forgets each of these deleted objects that no object names as an owner.
    pub(super) fn forget_owners(&mut self, owners: impl IntoIterator<Item = Uid>) {
        let dependents = &self.dependents;
        for uid in owners {
            self.deleted_objects.forget(uid, |uid| dependents.has_owner(uid));
        }
    }

    /// Remembers the owners that an updated object has lost. Returns the latest resourceVersion at
    /// which the object may have gained one of its owner references. If it has lost too many
    /// owners, forgets them and returns the current `version` instead.
    pub(super) fn update_owner_history(
        &mut self,
        id: NodeId,
        before: &StoredObject,
        owners: &[OwnerEdge],
        version: u64,
    ) -> u64 {
        let key = |edge: &OwnerEdge| (edge.to, edge.uid, edge.version.clone());
        // Most objects keep their owners.
        if before.owners.iter().map(key).eq(owners.iter().map(key)) {
            return before.owners_version;
        }
        let namespace = self.nodes[id].namespace;
        let keys_before: KeyedSet<_> = before.owners.iter().map(key).collect();
        if !owners.is_empty() && owners.iter().all(|edge| keys_before.contains(&key(edge))) {
            let kept: KeyedSet<_> = owners.iter().map(|edge| (edge.to, edge.uid)).collect();
            let past = before.owners.iter().filter(|edge| !kept.contains(&(edge.to, edge.uid)));
            let past: Option<Vec<_>> = past
                .map(|edge| {
                    let owner = RememberedOwner::new(self.owner_ref(edge))?;
                    Some(PastOwner { owner, version })
                })
                .collect();
            if past
                .is_some_and(|past| self.deleted_objects.remember_past_owners(id, namespace, past))
            {
                return before.owners_version;
            }
        }
        let past = self.deleted_objects.take_past_owners(id, namespace);
        self.forget_owners(past.iter().map(|past| past.owner.uid));
        version
    }

    /// The owners that an object has lost.
    pub(in crate::graph) fn past_owners(&self, id: NodeId) -> &[PastOwner] {
        self.deleted_objects.past_owners(id)
    }
}
