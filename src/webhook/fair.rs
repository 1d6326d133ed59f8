//! A fair queue for a limited number of slots. Items are grouped by a key, and the groups get
//! slots in turn. So a group with many items delays every other group by at most one slot.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The limits of slots.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// The slots of all groups together.
    pub total: usize,
    /// The slots of each group.
    pub per_group: usize,
}

/// Items that wait for a slot, by group.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    limits: GroupLimits,
    taken: usize,
    groups: HashMap<K, Group<T>>,
    /// The groups with a waiting item that may begin, in turn.
    ready_groups: VecDeque<K>,
}

#[derive(Debug)]
struct Group<T> {
    waiting: VecDeque<T>,
    taken: usize,
}

impl<T> Group<T> {
    fn may_begin(&self, limits: GroupLimits) -> bool {
        !self.waiting.is_empty() && self.taken < limits.per_group
    }
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    /// An empty queue.
    pub fn new(limits: GroupLimits) -> Self {
        Self { limits, taken: 0, groups: HashMap::new(), ready_groups: VecDeque::new() }
    }

    /// Adds an item behind the others of its group.
    pub fn push(&mut self, key: &K, item: T) {
        let group = self
            .groups
            .entry(key.clone())
            .or_insert_with(|| Group { waiting: VecDeque::new(), taken: 0 });
        let was_ready = group.may_begin(self.limits);
        group.waiting.push_back(item);
        if !was_ready && group.may_begin(self.limits) {
            self.ready_groups.push_back(key.clone());
        }
    }

    /// Takes the next item, if there is a slot. The slot is in use until
    /// [`FairQueue::end`].
    pub fn begin(&mut self) -> Option<(K, T)> {
        self.take_next(|_| true)
    }

    /// Takes the next item that still waits. Skipping other items costs their group no turn.
    fn take_next(&mut self, still_waits: impl Fn(&T) -> bool) -> Option<(K, T)> {
        if self.taken >= self.limits.total {
            return None;
        }
        let (key, item) = loop {
            let key = self.ready_groups.pop_front()?;
            let group = self.groups.get_mut(&key)?;
            let next = std::iter::from_fn(|| group.waiting.pop_front()).find(&still_waits);
            match next {
                Some(item) => break (key, item),
                None => self.remove_if_idle(&key),
            }
        };
        let group = self.groups.get_mut(&key)?;
        group.taken += 1;
        self.taken += 1;
        if group.may_begin(self.limits) {
            self.ready_groups.push_back(key.clone());
        }
        Some((key, item))
    }

    /// Returns a slot of this group.
    pub fn end(&mut self, key: &K) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let was_ready = group.may_begin(self.limits);
        group.taken -= 1;
        self.taken -= 1;
        if !was_ready && group.may_begin(self.limits) {
            self.ready_groups.push_back(key.clone());
        }
        self.remove_if_idle(key);
    }

    /// Removes the waiting items of a group for which `is_removed` returns true.
    pub fn remove(&mut self, key: &K, is_removed: impl Fn(&T) -> bool) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.waiting.retain(|item| !is_removed(item));
        if group.waiting.is_empty() {
            self.ready_groups.retain(|other| other != key);
        }
        self.remove_if_idle(key);
    }

    fn remove_if_idle(&mut self, key: &K) {
        let is_idle = |group: &Group<T>| group.waiting.is_empty() && group.taken == 0;
        if self.groups.get(key).is_some_and(is_idle) {
            self.groups.remove(key);
        }
    }
}

/// A semaphore that gives its slots to groups in turn. Clones share the slots.
#[derive(Debug, Clone)]
pub struct FairSemaphore<K: Clone + Eq + Hash = String>(Waiters<K>);

type Waiters<K> = Arc<Mutex<FairQueue<K, oneshot::Sender<FairPermit<K>>>>>;

/// A slot. Dropping it returns the slot.
#[derive(Debug)]
pub struct FairPermit<K: Clone + Eq + Hash = String> {
    group: K,
    semaphore: Option<FairSemaphore<K>>,
}

impl<K: Clone + Eq + Hash> FairSemaphore<K> {
    /// A semaphore with these limits.
    pub fn new(limits: GroupLimits) -> Self {
        Self(Arc::new(Mutex::new(FairQueue::new(limits))))
    }

    /// Waits for a slot. Never `None` while the semaphore exists.
    pub async fn acquire(&self, group: impl Into<K>) -> Option<FairPermit<K>> {
        let (sender, permit) = oneshot::channel();
        self.0.lock().push(&group.into(), sender);
        self.grant();
        permit.await.ok()
    }

    /// Gives the free slots to the next waiters.
    fn grant(&self) {
        loop {
            let next = self.0.lock().take_next(|waiter| !waiter.is_closed());
            let Some((group, waiter)) = next else { return };
            let permit = FairPermit { group, semaphore: Some(self.clone()) };
            if let Err(mut permit) = waiter.send(permit) {
                // The waiter has been dropped, so the next one gets the slot.
                permit.semaphore = None;
                self.0.lock().end(&permit.group);
            }
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for FairPermit<K> {
    fn drop(&mut self) {
        let Some(semaphore) = self.semaphore.take() else { return };
        semaphore.0.lock().end(&self.group);
        semaphore.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const SLOTS: GroupLimits = GroupLimits { total: 3, per_group: 2 };

    fn begun(queue: &mut FairQueue<&'static str, usize>) -> Vec<(&'static str, usize)> {
        std::iter::from_fn(|| queue.begin()).collect()
    }

    #[test]
    fn groups_begin_in_turn_even_if_one_has_many_items() {
        let mut queue = FairQueue::new(GroupLimits { total: 4, per_group: 4 });
        (0..100).for_each(|n| queue.push(&"a", n));
        queue.push(&"b", 0);
        queue.push(&"b", 1);
        queue.push(&"c", 0);
        assert_eq!(begun(&mut queue), [("a", 0), ("b", 0), ("c", 0), ("a", 1)]);
        queue.end(&"c");
        assert_eq!(begun(&mut queue), [("b", 1)]);
    }

    #[test]
    fn a_group_never_has_all_slots() {
        let mut queue = FairQueue::new(SLOTS);
        (0..9).for_each(|n| queue.push(&"a", n));
        assert_eq!(begun(&mut queue), [("a", 0), ("a", 1)], "one slot is left");
        queue.push(&"b", 0);
        queue.push(&"b", 1);
        assert_eq!(begun(&mut queue), [("b", 0)]);
        queue.end(&"a");
        assert_eq!(begun(&mut queue), [("b", 1)], "b waited before a could begin again");
        queue.end(&"b");
        assert_eq!(begun(&mut queue), [("a", 2)]);
    }

    #[test]
    fn forgets_a_group_without_items() {
        let mut queue = FairQueue::new(SLOTS);
        queue.push(&"a", 0);
        queue.push(&"b", 1);
        queue.push(&"b", 2);
        queue.remove(&"a", |item| *item == 0);
        queue.remove(&"b", |item| *item == 1);
        assert_eq!(begun(&mut queue), [("b", 2)]);
        queue.end(&"b");
        assert!(queue.groups.is_empty() && queue.ready_groups.is_empty() && queue.taken == 0);
    }

    #[tokio::test]
    async fn h96_closed_connections_are_removed_while_others_wait() {
        let slots = FairSemaphore::<&str>::new(GroupLimits { total: 1, per_group: 1 });
        let mut first = slots.acquire("a").await;
        for _ in 0..100 {
            for _ in 0..10 {
                // The waiter is dropped immediately.
                assert!(slots.acquire("a").now_or_never().is_none());
            }
            let mut second = std::pin::pin!(slots.acquire("b"));
            assert!(futures_util::poll!(second.as_mut()).is_pending());
            drop(first.take());
            first = second.await;
        }
        let waiting: usize = slots.0.lock().groups.values().map(|group| group.waiting.len()).sum();
        assert!(waiting <= 10, "{waiting}");
    }

    #[tokio::test]
    async fn the_next_group_that_still_waits_gets_a_free_slot() {
        let slots = FairSemaphore::<String>::new(GroupLimits { total: 1, per_group: 1 });
        let first = slots.acquire("a").await;
        let wait = |group: &'static str| {
            let slots = slots.clone();
            tokio::spawn(async move { slots.acquire(group).await })
        };
        let (left, second, other) = (wait("a"), wait("a"), wait("b"));
        tokio::task::yield_now().await;
        left.abort();
        tokio::task::yield_now().await;
        drop(first);
        let turn = other.await.unwrap();
        assert_eq!(turn.as_ref().map(|turn| turn.group.as_str()), Some("b"));
        assert!(!second.is_finished());
        drop(turn);
        assert!(second.await.unwrap().is_some());
    }
}
