//! What is remembered of objects that are gone, for as long as somebody still
//! names them as an owner: whose dependents they were themselves.
//!
//! A background deletion takes the owner first and its dependents one level
//! after the other, so the last ones ask for their DELETE when the object that
//! somebody approved has long been gone, and everything between with it.

use std::collections::VecDeque;

use crate::objects::{KeyedMap, KindId, Uid};

/// An object that is gone, while dependents of it are left.
#[derive(Debug)]
pub struct Gone {
    /// Its owners.
    pub owners: Box<[GoneOwner]>,
    /// The resourceVersion at which it may last have gained one of them.
    pub owners_version: u64,
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
    /// In the order in which they were buried.
    order: VecDeque<Uid>,
}

/// So many are remembered. Owners in a cycle name each other and would never
/// be forgotten, and anybody can make such cycles.
const MOST: usize = 65_536;

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
        match self.by_uid.insert(uid, gone) {
            Some(before) => self.unname(&before),
            None => self.order.push_back(uid),
        }
        if self.order.len() > MOST {
            // Most of these have been forgotten in their turn.
            self.order.retain(|uid| self.by_uid.contains_key(uid));
            while self.order.len() > MOST / 2
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

    fn unname(&mut self, gone: &Gone) {
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

    #[test]
    fn cycles_of_owners_are_not_remembered_for_ever() {
        let mut graves = Graves::default();
        let kind = crate::objects::Kinds::default().mention("", "ConfigMap");
        for number in 0..3 * MOST {
            let uid = Uid::new(&format!("uid-{number}"));
            let owner = GoneOwner { kind, namespace: "shop".into(), name: "itself".into(), uid };
            graves.bury(uid, Gone { owners: [owner].into(), owners_version: 0, deleted: None });
            graves.forget(uid, |_| false);
        }
        assert!(graves.by_uid.len() <= MOST && graves.named.len() <= MOST);
    }
}
