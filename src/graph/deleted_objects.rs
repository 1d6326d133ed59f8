//! Deleted objects that other objects still name as an owner, with their own owners; and
//! owners that an object has lost.
//!
//! A background deletion removes the owner first, and then its dependents level by level.
//! So the DELETE of the last dependents arrives long after the removal of the approved
//! object and of the owners in between.

use std::collections::VecDeque;

use super::node_id::NodeId;
use super::slot::OwnerRef;
use crate::objects::{KeyedMap, KindId, NumberMap, Uid};

/// A deleted object with remaining dependents.
#[derive(Debug)]
pub struct DeletedObject {
    /// Its owners, up to the limit.
    pub owners: Box<[RememberedOwner]>,
    /// The latest resourceVersion at which one of these owners may have been added.
    pub owners_version: u64,
    /// The owners that were removed since then.
    pub past_owners: Vec<PastOwner>,
    /// Whether it had more owners.
    pub had_more_owners: bool,
    /// Its deletion time; `None` if the graph never saw it Terminating.
    pub deleted: Option<i64>,
}

/// An owner that an object has lost while it kept others.
#[derive(Debug)]
pub struct PastOwner {
    /// The owner.
    pub owner: RememberedOwner,
    /// The resourceVersion at which the object was first seen without it.
    pub version: u64,
}

/// An owner of an object, as its reference named it.
#[derive(Debug)]
pub struct RememberedOwner {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Uid,
}

/// The deleted objects that the graph remembers.
#[derive(Debug, Default)]
pub(super) struct DeletedObjects {
    by_uid: KeyedMap<Uid, DeletedObject>,
    /// The owners that existing objects have lost.
    past_owners: NumberMap<NodeId, Vec<PastOwner>>,
    /// The number of lost owners, in total and by namespace.
    past: usize,
    past_in: NumberMap<NodeId, usize>,
    /// How many remembered objects name a uid as their owner.
    named: KeyedMap<Uid, u32>,
    /// How many owners the remembered objects have.
    owners: usize,
    /// In the order of their deletion.
    order: VecDeque<Uid>,
}

/// The limit of remembered objects and owners. Owners in a cycle name each other and
/// would never be forgotten, and any user can create such cycles.
const MOST: usize = 131_072;

/// The limit of remembered owners of one object, and the longest name of an owner.
const MAX_OWNERS: usize = 8;
const LONGEST_NAME: usize = 253;

/// The limit of lost owners, in total and in one namespace: editors of a namespace can
/// make objects lose any number of owners.
const MAX_PAST: usize = MOST / 2;
const MAX_PAST_IN_ONE: usize = MOST / 32;

impl RememberedOwner {
    /// `None` if the name is longer than names of objects, or the kind is unknown.
    pub(super) fn new(claim: OwnerRef<'_>) -> Option<Self> {
        let OwnerRef { kind, namespace, name, uid, .. } = claim;
        let (namespace, name) = (namespace.into(), name.into());
        (claim.name.len() <= LONGEST_NAME).then_some(Self { kind: kind?, namespace, name, uid })
    }

    /// The owner as a reference names it, in any version.
    pub fn claim(&self) -> OwnerRef<'_> {
        let Self { kind, namespace, name, uid } = self;
        OwnerRef { kind: Some(*kind), version: None, namespace, name, uid: *uid }
    }
}

impl DeletedObject {
    /// An object with these owners. Beyond the limits it only has the fact that there
    /// were more.
    pub(super) fn new<'a>(
        owners: impl ExactSizeIterator<Item = OwnerRef<'a>>,
        deleted: Option<i64>,
    ) -> Self {
        let count = owners.len();
        let owners: Box<[_]> = owners.filter_map(RememberedOwner::new).take(MAX_OWNERS).collect();
        let had_more_owners = owners.len() < count;
        Self { had_more_owners, owners, owners_version: 0, past_owners: Vec::new(), deleted }
    }

    /// The current and the lost owners.
    fn owner_uids(&self) -> impl Iterator<Item = Uid> {
        let past = self.past_owners.iter().map(|past| &past.owner);
        self.owners.iter().chain(past).map(|owner| owner.uid)
    }
}

impl DeletedObjects {
    pub(super) fn get(&self, uid: Uid) -> Option<&DeletedObject> {
        self.by_uid.get(&uid)
    }

    /// Whether a remembered object names this uid as an owner.
    pub(super) fn count_owner_name(&self, uid: Uid) -> bool {
        self.named.contains_key(&uid)
    }

    pub(super) fn remember(&mut self, uid: Uid, gone: DeletedObject) {
        for owner in gone.owner_uids() {
            *self.named.entry(owner).or_default() += 1;
            self.owners += 1;
        }
        match self.by_uid.insert(uid, gone) {
            Some(before) => self.unname_owners(&before),
            None => self.order.push_back(uid),
        }
        if self.size() > MOST || self.order.len() > MOST {
            // Many of these objects are forgotten by now.
            self.order.retain(|uid| self.by_uid.contains_key(uid));
            while self.size() > MOST / 2
                && let Some(oldest) = self.order.pop_front()
            {
                if let Some(gone) = self.by_uid.remove(&oldest) {
                    self.unname_owners(&gone);
                }
            }
        }
    }

    /// No existing object names this uid. Forgets it unless a remembered object names it,
    /// and then the objects that only it named.
    pub(super) fn forget(&mut self, uid: Uid, is_named_by_existing: impl Fn(Uid) -> bool) {
        let mut next = vec![uid];
        while let Some(uid) = next.pop() {
            if self.named.contains_key(&uid) || is_named_by_existing(uid) {
                continue;
            }
            if let Some(gone) = self.by_uid.remove(&uid) {
                self.unname_owners(&gone);
                next.extend(gone.owner_uids());
            }
        }
    }

    fn size(&self) -> usize {
        self.by_uid.len() + self.owners
    }

    fn unname_owners(&mut self, gone: &DeletedObject) {
        for owner in gone.owner_uids() {
            self.owners -= 1;
            self.unname(owner);
        }
    }

    fn unname(&mut self, owner: Uid) {
        if let Some(count) = self.named.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.named.remove(&owner);
            }
        }
    }

    /// The owners that an existing object has lost.
    pub(super) fn past_owners(&self, id: NodeId) -> &[PastOwner] {
        self.past_owners.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Remembers owners that an object in this namespace has lost. Returns whether the
    /// limits allow it.
    pub(super) fn remember_lost_owners(
        &mut self,
        id: NodeId,
        namespace: NodeId,
        lost: Vec<PastOwner>,
    ) -> bool {
        if lost.is_empty() {
            return true;
        }
        let known = self.past_owners(id).len();
        let here = self.past_in.get(&namespace).copied().unwrap_or_default();
        if known + lost.len() > MAX_OWNERS
            || here + lost.len() > MAX_PAST_IN_ONE
            || self.past + lost.len() > MAX_PAST
        {
            return false;
        }
        self.past += lost.len();
        *self.past_in.entry(namespace).or_default() += lost.len();
        for PastOwner { owner, .. } in &lost {
            *self.named.entry(owner.uid).or_default() += 1;
        }
        self.past_owners.entry(id).or_default().extend(lost);
        true
    }

    /// Forgets the lost owners of an object. Objects that only they named stay
    /// remembered.
    pub(super) fn take_past_owners(&mut self, id: NodeId, namespace: NodeId) -> Vec<PastOwner> {
        let past = self.past_owners.remove(&id).unwrap_or_default();
        self.past -= past.len();
        if let Some(here) = self.past_in.get_mut(&namespace) {
            *here -= past.len();
            if *here == 0 {
                self.past_in.remove(&namespace);
            }
        }
        past.iter().for_each(|past| self.unname(past.owner.uid));
        past
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let none = self.past_owners.is_empty() && self.past_in.is_empty() && self.past == 0;
        self.by_uid.is_empty() && self.named.is_empty() && none
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kinds;

    #[test]
    fn cycles_of_owners_are_not_remembered_for_ever() {
        let mut deleted_objects = DeletedObjects::default();
        let kind = Kinds::default().find("", "ConfigMap");
        for number in 0..2 * MOST {
            let uid = uid(number);
            deleted_objects
                .remember(uid, DeletedObject::new([owner(kind, "itself", uid)].into_iter(), None));
            deleted_objects.forget(uid, |_| false);
        }
        assert!(deleted_objects.size() <= MOST && deleted_objects.named.len() <= MOST);
        assert!(deleted_objects.order.len() <= MOST);
    }

    fn uid(number: usize) -> Uid {
        Uid::new(&format!("d308a385-886a-4f24-8000-{number:012x}"))
    }

    fn owner(kind: Option<KindId>, name: &str, uid: Uid) -> OwnerRef<'_> {
        OwnerRef { kind, version: Some("v1"), namespace: "shop", name, uid }
    }

    #[test]
    fn of_an_object_with_many_owners_a_part_is_remembered_and_that_there_were_more() {
        let kind = Kinds::default().find("", "ConfigMap");
        let of = |names: &[String]| {
            let gone = DeletedObject::new(names.iter().map(|name| owner(kind, name, uid(0))), None);
            (gone.owners.len(), gone.had_more_owners)
        };
        let names = |count| vec!["a".to_owned(); count];
        assert_eq!(of(&names(MAX_OWNERS)), (MAX_OWNERS, false));
        assert_eq!(of(&names(1_000)), (MAX_OWNERS, true));
        assert_eq!(of(&["a".repeat(1 << 20)]), (0, true));

        let mut deleted_objects = DeletedObjects::default();
        let most = MOST / (1 + MAX_OWNERS);
        for number in 0..2 * most {
            let owners = [owner(kind, "a", uid(0)); MAX_OWNERS];
            deleted_objects.remember(uid(number), DeletedObject::new(owners.into_iter(), None));
        }
        assert!(deleted_objects.size() <= MOST && deleted_objects.by_uid.len() <= most);
        assert!(
            deleted_objects.get(uid(0)).is_none()
                && deleted_objects.get(uid(2 * most - 1)).is_some()
        );
    }

    #[test]
    fn h90_one_namespace_uses_up_no_room_for_owners_that_objects_of_others_lose() {
        let kind = Kinds::default().find("", "ConfigMap");
        let mut deleted_objects = DeletedObjects::default();
        let lost = |number| {
            let owner = RememberedOwner::new(owner(kind, "a", uid(number))).unwrap();
            vec![PastOwner { owner, version: 1 }]
        };
        let id = NodeId::from_index;
        for number in 0..2 * MAX_PAST_IN_ONE {
            let has_room = deleted_objects.remember_lost_owners(id(number), id(1), lost(number));
            assert_eq!(has_room, number < MAX_PAST_IN_ONE);
        }
        let other = 2 * MAX_PAST_IN_ONE;
        assert!(deleted_objects.remember_lost_owners(id(other), id(2), lost(other)));
        for number in 0..=other {
            let namespace = if number == other { id(2) } else { id(1) };
            deleted_objects.take_past_owners(id(number), namespace);
        }
        assert!(deleted_objects.is_empty());
    }
}
