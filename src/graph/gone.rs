//! What is remembered of objects that are gone, for as long as somebody still
//! names them as an owner: whose dependents they were themselves.
//!
//! A background deletion takes the owner first and its dependents one level
//! after the other, so the last ones ask for their DELETE when the object that
//! somebody approved has long been gone, and everything between with it.

use std::collections::VecDeque;

use super::node::Claim;
use crate::objects::{KeyedMap, KindId, Uid};

/// An object that is gone, while dependents of it are left.
#[derive(Debug)]
pub struct Gone {
    /// Its owners, or the first of them.
    pub owners: Box<[GoneOwner]>,
    /// The resourceVersion at which it may last have gained one of them.
    pub owners_version: u64,
    /// Whether it had others.
    pub had_more_owners: bool,
    /// Since when it had been Terminating when it went, if it was seen so.
    pub deleted: Option<i64>,
}

/// An owner of an object that is gone, as its reference named it.
#[derive(Debug)]
pub struct GoneOwner {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Uid,
}

/// The objects that are gone and not forgotten.
#[derive(Debug, Default)]
pub(super) struct Graves {
    by_uid: KeyedMap<Uid, Gone>,
    /// How many of them name this uid as their owner.
    named: KeyedMap<Uid, u32>,
    /// How many owners they name.
    owners: usize,
    /// In the order in which they were buried.
    order: VecDeque<Uid>,
}

/// So many objects and owners are remembered. Owners in a cycle name each other
/// and would never be forgotten, and anybody can make such cycles.
const MOST: usize = 131_072;

/// So many owners of one object are remembered, each with a name of at most
/// this length.
const MOST_OWNERS: usize = 8;
const LONGEST_NAME: usize = 253;

impl Gone {
    /// An object with these owners. Of many, or of those with names that nothing
    /// has, it is remembered that there were more.
    pub(super) fn new<'a>(
        owners: impl ExactSizeIterator<Item = Claim<'a>>,
        deleted: Option<i64>,
    ) -> Self {
        let count = owners.len();
        let owners = owners.filter(|claim| claim.name.len() <= LONGEST_NAME).filter_map(|claim| {
            let Claim { kind, namespace, name, uid, .. } = claim;
            Some(GoneOwner { kind: kind?, namespace: namespace.into(), name: name.into(), uid })
        });
        let owners: Box<[_]> = owners.take(MOST_OWNERS).collect();
        Self { had_more_owners: owners.len() < count, owners, owners_version: 0, deleted }
    }
}

impl Graves {
    pub(super) fn get(&self, uid: Uid) -> Option<&Gone> {
        self.by_uid.get(&uid)
    }

    /// Whether a grave names this uid as an owner.
    pub(super) fn name(&self, uid: Uid) -> bool {
        self.named.contains_key(&uid)
    }

    pub(super) fn bury(&mut self, uid: Uid, gone: Gone) {
        for owner in &gone.owners {
            *self.named.entry(owner.uid).or_default() += 1;
        }
        self.owners += gone.owners.len();
        match self.by_uid.insert(uid, gone) {
            Some(before) => self.unname(&before),
            None => self.order.push_back(uid),
        }
        if self.size() > MOST || self.order.len() > MOST {
            // Many of these have been forgotten in their turn.
            self.order.retain(|uid| self.by_uid.contains_key(uid));
            while self.size() > MOST / 2
                && let Some(oldest) = self.order.pop_front()
            {
                if let Some(gone) = self.by_uid.remove(&oldest) {
                    self.unname(&gone);
                }
            }
        }
    }

    /// Nobody alive names this uid any more. Unless a grave does, it is
    /// forgotten, and then perhaps those whom only it named.
    pub(super) fn forget(&mut self, uid: Uid, is_named_by_the_living: impl Fn(Uid) -> bool) {
        let mut next = vec![uid];
        while let Some(uid) = next.pop() {
            if self.named.contains_key(&uid) || is_named_by_the_living(uid) {
                continue;
            }
            if let Some(gone) = self.by_uid.remove(&uid) {
                self.unname(&gone);
                next.extend(gone.owners.iter().map(|owner| owner.uid));
            }
        }
    }

    fn size(&self) -> usize {
        self.by_uid.len() + self.owners
    }

    fn unname(&mut self, gone: &Gone) {
        self.owners -= gone.owners.len();
        for owner in &gone.owners {
            if let Some(count) = self.named.get_mut(&owner.uid) {
                *count -= 1;
                if *count == 0 {
                    self.named.remove(&owner.uid);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_uid.is_empty() && self.named.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kinds;

    #[test]
    fn cycles_of_owners_are_not_remembered_for_ever() {
        let mut graves = Graves::default();
        let kind = Kinds::default().find("", "ConfigMap");
        for number in 0..2 * MOST {
            let uid = uid(number);
            graves.bury(uid, Gone::new([owner(kind, "itself", uid)].into_iter(), None));
            graves.forget(uid, |_| false);
        }
        assert!(graves.size() <= MOST && graves.named.len() <= MOST);
        assert!(graves.order.len() <= MOST);
    }

    fn uid(number: usize) -> Uid {
        Uid::new(&format!("d308a385-886a-4f24-8000-{number:012x}"))
    }

    fn owner(kind: Option<KindId>, name: &str, uid: Uid) -> Claim<'_> {
        Claim { kind, version: "v1", namespace: "shop", name, uid }
    }

    #[test]
    fn of_an_object_with_many_owners_a_part_is_remembered_and_that_there_were_more() {
        let kind = Kinds::default().find("", "ConfigMap");
        let of = |names: &[String]| {
            let gone = Gone::new(names.iter().map(|name| owner(kind, name, uid(0))), None);
            (gone.owners.len(), gone.had_more_owners)
        };
        let names = |count| vec!["a".to_owned(); count];
        assert_eq!(of(&names(MOST_OWNERS)), (MOST_OWNERS, false));
        assert_eq!(of(&names(1_000)), (MOST_OWNERS, true));
        assert_eq!(of(&["a".repeat(1 << 20)]), (0, true));

        let mut graves = Graves::default();
        let most = MOST / (1 + MOST_OWNERS);
        for number in 0..2 * most {
            let owners = [owner(kind, "a", uid(0)); MOST_OWNERS];
            graves.bury(uid(number), Gone::new(owners.into_iter(), None));
        }
        assert!(graves.size() <= MOST && graves.by_uid.len() <= most);
        assert!(graves.get(uid(0)).is_none() && graves.get(uid(2 * most - 1)).is_some());
    }
}
