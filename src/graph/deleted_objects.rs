//! Remembers deleted objects that other objects still name as an owner, and owners that
//! existing objects have lost.
//!
//! A background deletion removes the owner first, and then its dependents level by level.
//! So the DELETE of the last dependents arrives long after the removal of the approved
//! object and of the owners in between.

use std::collections::VecDeque;

use super::node_id::NodeId;
use super::stored::OwnerRef;
use crate::objects::{KeyedMap, KindId, NumberMap, Uid};

/// A deleted object with remaining dependents.
#[derive(Debug)]
pub struct DeletedObject {
    /// Its owners, up to a limit.
    pub owners: Box<[RememberedOwner]>,
    /// See [`Node::owners_version`](super::Node::owners_version).
    pub owners_version: u64,
    /// The owners that it lost after that version.
    pub past_owners: Vec<PastOwner>,
    /// Whether it had more owners than are stored.
    pub had_more_owners: bool,
    /// Its deletion time; `None` if the graph never saw it Terminating.
    pub deletion_time: Option<i64>,
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
#[allow(missing_docs)] // The names are Kubernetes' own.
pub struct RememberedOwner {
    pub kind: KindId,
    /// Empty for a cluster-scoped object.
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
}

/// The deleted objects that the graph remembers.
#[derive(Debug, Default)]
pub(super) struct DeletedObjects {
    by_uid: KeyedMap<Uid, DeletedObject>,
    /// The owners that existing objects have lost.
    past_owners: NumberMap<NodeId, Vec<PastOwner>>,
    /// The number of past owners, in total and by namespace.
    past_count: usize,
    past_count_by_namespace: NumberMap<NodeId, usize>,
    /// The number of references to each uid, from remembered objects and from past owners.
    reference_counts: KeyedMap<Uid, u32>,
    /// The number of owners of all remembered objects.
    owner_count: usize,
    /// The uids in the order of deletion.
    order: VecDeque<Uid>,
}

/// The limit of remembered objects and owners. Without it, owners in a cycle would be
/// remembered forever, and any user can create such cycles.
const MAX_REMEMBERED: usize = 131_072;

/// The limit of remembered owners of one object, and the longest name of an owner.
const MAX_REMEMBERED_OWNERS: usize = 8;
const MAX_NAME_BYTES: usize = 253;

/// The limits of past owners, in total and in one namespace. Editors of a namespace can
/// make objects lose any number of owners.
const MAX_PAST_OWNERS: usize = MAX_REMEMBERED / 2;
const MAX_PAST_OWNERS_IN_NAMESPACE: usize = MAX_REMEMBERED / 32;

impl RememberedOwner {
    /// Returns `None` if the name is too long or the kind is unknown.
    pub(super) fn new(owner_ref: OwnerRef<'_>) -> Option<Self> {
        let OwnerRef { kind, namespace, name, uid, .. } = owner_ref;
        let (namespace, name) = (namespace.into(), name.into());
        (owner_ref.name.len() <= MAX_NAME_BYTES).then_some(Self {
            kind: kind?,
            namespace,
            name,
            uid,
        })
    }

    /// An owner reference without an API version.
    pub fn owner_ref(&self) -> OwnerRef<'_> {
        let Self { kind, namespace, name, uid } = self;
        OwnerRef { kind: Some(*kind), version: None, namespace, name, uid: *uid }
    }
}

impl DeletedObject {
    /// An object with these owners. If they exceed the limits, `had_more_owners` is set.
    pub(super) fn new<'a>(
        owners: impl ExactSizeIterator<Item = OwnerRef<'a>>,
        deletion_time: Option<i64>,
    ) -> Self {
        let count = owners.len();
        let owners: Box<[_]> =
            owners.filter_map(RememberedOwner::new).take(MAX_REMEMBERED_OWNERS).collect();
        let had_more_owners = owners.len() < count;
        Self { had_more_owners, owners, owners_version: 0, past_owners: Vec::new(), deletion_time }
    }

    /// The current and the past owners.
    fn owner_uids(&self) -> impl Iterator<Item = Uid> {
        let past = self.past_owners.iter().map(|past| &past.owner);
        self.owners.iter().chain(past).map(|owner| owner.uid)
    }
}

impl DeletedObjects {
    pub(super) fn get(&self, uid: Uid) -> Option<&DeletedObject> {
        self.by_uid.get(&uid)
    }

    /// Whether this is the uid of an owner of a remembered object, or of a past owner of an
    /// existing object.
    pub(super) fn is_named_as_owner(&self, uid: Uid) -> bool {
        self.reference_counts.contains_key(&uid)
    }

    pub(super) fn remember(&mut self, uid: Uid, deleted: DeletedObject) {
        for owner in deleted.owner_uids() {
            *self.reference_counts.entry(owner).or_default() += 1;
            self.owner_count += 1;
        }
        match self.by_uid.insert(uid, deleted) {
            Some(before) => self.uncount_owners(&before),
            None => self.order.push_back(uid),
        }
        if self.size() > MAX_REMEMBERED || self.order.len() > MAX_REMEMBERED {
            // `order` may contain objects that are forgotten already.
            self.order.retain(|uid| self.by_uid.contains_key(uid));
            while self.size() > MAX_REMEMBERED / 2
                && let Some(oldest) = self.order.pop_front()
            {
                if let Some(deleted) = self.by_uid.remove(&oldest) {
                    self.uncount_owners(&deleted);
                }
            }
        }
    }

    /// Forgets an object unless it is an owner of an existing or a remembered object, or a past
    /// owner of an existing object. Then does the same for its own owners.
    pub(super) fn forget(&mut self, uid: Uid, is_named_by_existing: impl Fn(Uid) -> bool) {
        let mut next = vec![uid];
        while let Some(uid) = next.pop() {
            if self.reference_counts.contains_key(&uid) || is_named_by_existing(uid) {
                continue;
            }
            if let Some(deleted) = self.by_uid.remove(&uid) {
                self.uncount_owners(&deleted);
                next.extend(deleted.owner_uids());
            }
        }
    }

    fn size(&self) -> usize {
        self.by_uid.len() + self.owner_count
    }

    /// Removes the references of a forgotten object to its owners from the counts.
    fn uncount_owners(&mut self, deleted: &DeletedObject) {
        for owner in deleted.owner_uids() {
            self.owner_count -= 1;
            self.uncount_reference(owner);
        }
    }

    fn uncount_reference(&mut self, owner: Uid) {
        if let Some(count) = self.reference_counts.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.reference_counts.remove(&owner);
            }
        }
    }

    /// The owners that an existing object has lost.
    pub(super) fn past_owners(&self, id: NodeId) -> &[PastOwner] {
        self.past_owners.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Remembers owners that an object in this namespace has lost. Returns whether the
    /// limits allow it.
    pub(super) fn remember_past_owners(
        &mut self,
        id: NodeId,
        namespace: NodeId,
        past: Vec<PastOwner>,
    ) -> bool {
        if past.is_empty() {
            return true;
        }
        let object_count = self.past_owners(id).len();
        let namespace_count =
            self.past_count_by_namespace.get(&namespace).copied().unwrap_or_default();
        if object_count + past.len() > MAX_REMEMBERED_OWNERS
            || namespace_count + past.len() > MAX_PAST_OWNERS_IN_NAMESPACE
            || self.past_count + past.len() > MAX_PAST_OWNERS
        {
            return false;
        }
        self.past_count += past.len();
        *self.past_count_by_namespace.entry(namespace).or_default() += past.len();
        for PastOwner { owner, .. } in &past {
            *self.reference_counts.entry(owner.uid).or_default() += 1;
        }
        self.past_owners.entry(id).or_default().extend(past);
        true
    }

    /// Removes and returns the past owners of an object. A deleted object that is remembered only
    /// as one of these past owners stays until [`Self::forget`].
    pub(super) fn take_past_owners(&mut self, id: NodeId, namespace: NodeId) -> Vec<PastOwner> {
        let past = self.past_owners.remove(&id).unwrap_or_default();
        self.past_count -= past.len();
        if let Some(in_namespace) = self.past_count_by_namespace.get_mut(&namespace) {
            *in_namespace -= past.len();
            if *in_namespace == 0 {
                self.past_count_by_namespace.remove(&namespace);
            }
        }
        past.iter().for_each(|past| self.uncount_reference(past.owner.uid));
        past
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let no_past_owners = self.past_owners.is_empty()
            && self.past_count_by_namespace.is_empty()
            && self.past_count == 0;
        self.by_uid.is_empty() && self.reference_counts.is_empty() && no_past_owners
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
        for number in 0..2 * MAX_REMEMBERED {
            let uid = uid(number);
            deleted_objects
                .remember(uid, DeletedObject::new([owner(kind, "itself", uid)].into_iter(), None));
            deleted_objects.forget(uid, |_| false);
        }
        assert!(
            deleted_objects.size() <= MAX_REMEMBERED
                && deleted_objects.reference_counts.len() <= MAX_REMEMBERED
        );
        assert!(deleted_objects.order.len() <= MAX_REMEMBERED);
    }

    fn uid(number: usize) -> Uid {
        Uid::new(&format!("d308a385-886a-4f24-8000-{number:012x}"))
    }

    fn owner(kind: Option<KindId>, name: &str, uid: Uid) -> OwnerRef<'_> {
        OwnerRef { kind, version: Some("v1"), namespace: "shop", name, uid }
    }

    #[test]
    fn remembers_a_limited_number_of_owners_and_whether_there_were_more() {
        let kind = Kinds::default().find("", "ConfigMap");
        let remembered = |names: &[String]| {
            let owners = names.iter().map(|name| owner(kind, name, uid(0)));
            let deleted = DeletedObject::new(owners, None);
            (deleted.owners.len(), deleted.had_more_owners)
        };
        let names = |count| vec!["a".to_owned(); count];
        assert_eq!(remembered(&names(MAX_REMEMBERED_OWNERS)), (MAX_REMEMBERED_OWNERS, false));
        assert_eq!(remembered(&names(1_000)), (MAX_REMEMBERED_OWNERS, true));
        assert_eq!(remembered(&["a".repeat(1 << 20)]), (0, true));

        let mut deleted_objects = DeletedObjects::default();
        let max_objects = MAX_REMEMBERED / (1 + MAX_REMEMBERED_OWNERS);
        for number in 0..2 * max_objects {
            let owners = [owner(kind, "a", uid(0)); MAX_REMEMBERED_OWNERS];
            deleted_objects.remember(uid(number), DeletedObject::new(owners.into_iter(), None));
        }
        assert!(
            deleted_objects.size() <= MAX_REMEMBERED && deleted_objects.by_uid.len() <= max_objects
        );
        assert!(
            deleted_objects.get(uid(0)).is_none()
                && deleted_objects.get(uid(2 * max_objects - 1)).is_some()
        );
    }

    #[test]
    fn h90_one_namespace_leaves_capacity_for_past_owners_in_others() {
        let kind = Kinds::default().find("", "ConfigMap");
        let mut deleted_objects = DeletedObjects::default();
        let past = |number| {
            let owner = RememberedOwner::new(owner(kind, "a", uid(number))).unwrap();
            vec![PastOwner { owner, version: 1 }]
        };
        let id = NodeId::from_index;
        for number in 0..2 * MAX_PAST_OWNERS_IN_NAMESPACE {
            let is_remembered =
                deleted_objects.remember_past_owners(id(number), id(1), past(number));
            assert_eq!(is_remembered, number < MAX_PAST_OWNERS_IN_NAMESPACE);
        }
        let other = 2 * MAX_PAST_OWNERS_IN_NAMESPACE;
        assert!(deleted_objects.remember_past_owners(id(other), id(2), past(other)));
        for number in 0..=other {
            let namespace = if number == other { id(2) } else { id(1) };
            deleted_objects.take_past_owners(id(number), namespace);
        }
        assert!(deleted_objects.is_empty());
    }
}
