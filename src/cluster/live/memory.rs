//! The memory of live reads: one budget for the objects that all of them find, of
//! which each group may hold a part.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant, timeout_at};

use super::queue::ReadGroup;
use crate::cluster::list::Buffers;

/// How much all live reads may hold together, in KiB: the objects that they
/// found, and the graphs that are made of those.
const ALL: usize = 96 << 10;

/// How much of it those of one group may hold.
const EACH: usize = 32 << 10;

/// How much is taken at a time, in KiB.
const STEP: usize = 64;

/// So many large objects are read at a time; each has its own memory.
const LARGE: usize = 2;

/// So long before its deadline a read gives up waiting, so that its words
/// arrive.
const MARGIN: Duration = Duration::from_millis(100);

/// Why a read may not hold more.
const LARGER: &str = "there is more of them than a live read may hold (32 MiB)";
const FULL: &str = "live reads hold all the memory that they may; it is read again later";

/// All of it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadMemory {
    all: Arc<Semaphore>,
    parts: Arc<Mutex<HashMap<ReadGroup, Weak<Semaphore>>>>,
    /// For objects that are being read.
    pub buffers: Buffers,
}

/// What is held; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    _part: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// What one read holds.
#[derive(Debug)]
pub struct Account {
    all: Arc<Semaphore>,
    part: Arc<Semaphore>,
    until: Instant,
    shares: Vec<Share>,
    /// What was taken and is not used, in bytes.
    left: usize,
    /// In KiB.
    taken: usize,
}

impl ReadMemory {
    /// Nothing is held.
    pub fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(ALL)),
            parts: Arc::default(),
            buffers: Buffers::new(LARGE),
        }
    }

    /// An account for one read of this group, which waits no longer than this.
    pub fn account(&self, group: &ReadGroup, until: Instant) -> Account {
        let mut parts = self.parts.lock();
        parts.retain(|_, part| part.strong_count() > 0);
        let part = parts.get(group).and_then(Weak::upgrade).unwrap_or_else(|| {
            let part = Arc::new(Semaphore::new(EACH));
            parts.insert(group.clone(), Arc::downgrade(&part));
            part
        });
        let until = until.checked_sub(MARGIN).unwrap_or(until);
        Account { all: self.all.clone(), part, until, shares: Vec::new(), left: 0, taken: 0 }
    }
}

impl Account {
    /// Waits until so many bytes more may be held. An error is words.
    pub async fn hold(&mut self, bytes: usize) -> Result<(), &'static str> {
        if bytes > self.left {
            let missing = (bytes - self.left).div_ceil(1 << 10).max(STEP);
            self.taken += missing;
            let amount = u32::try_from(missing).map_err(|_| LARGER)?;
            if self.taken > EACH {
                return Err(LARGER);
            }
            let part = self.part.clone().acquire_many_owned(amount);
            let part = timeout_at(self.until, part).await.map_err(|_| FULL)?;
            let all = self.all.clone().acquire_many_owned(amount);
            let all = timeout_at(self.until, all).await.map_err(|_| FULL)?;
            let (Ok(part), Ok(all)) = (part, all) else { return Err(FULL) };
            self.shares.push(Share { _part: part, _all: all });
            self.left += missing << 10;
        }
        self.left -= bytes;
        Ok(())
    }

    /// Gives all of it back.
    pub fn clear(&mut self) {
        self.shares.clear();
        (self.left, self.taken) = (0, 0);
    }

    /// The shares, for their new holder.
    pub fn into_shares(self) -> Vec<Share> {
        self.shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(namespace: &str) -> ReadGroup {
        ReadGroup::Namespace(namespace.to_owned())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_holds_its_part_and_leaves_the_rest_to_others() {
        let memory = ReadMemory::new();
        let mut first = memory.account(&of("a"), soon());
        first.hold((EACH - STEP) << 10).await.unwrap();
        first.hold(1).await.unwrap();
        assert_eq!(first.hold(STEP << 10).await, Err(LARGER));
        // Another read of the group waits for it, and one of another group does
        // not.
        let mut second = memory.account(&of("a"), soon());
        let begun = Instant::now();
        assert_eq!(second.hold(1).await, Err(FULL));
        assert_eq!(begun.elapsed(), Duration::from_secs(10) - MARGIN);
        let begun = Instant::now();
        memory.account(&of("b"), soon()).hold(EACH << 10).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let shares = first.into_shares();
        let mut third = memory.account(&of("a"), soon());
        let waiting = tokio::spawn(async move { third.hold(1).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(shares);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        // Groups that hold nothing are forgotten.
        drop(second);
        drop(memory.account(&of("c"), soon()));
        assert!(memory.parts.lock().len() <= 1);
        assert_eq!(memory.all.available_permits(), ALL);
    }

    #[tokio::test(start_paused = true)]
    async fn all_groups_together_have_one_bound() {
        let memory = ReadMemory::new();
        let mut held = Vec::new();
        for group in 0..ALL / EACH {
            let mut account = memory.account(&of(&group.to_string()), soon());
            account.hold(EACH << 10).await.unwrap();
            held.push(account);
        }
        let mut more = memory.account(&of("more"), soon());
        assert_eq!(more.hold(1).await, Err(FULL));
        held[0].clear();
        let mut more = memory.account(&of("more"), soon());
        assert_eq!(more.hold(1).await, Ok(()));
    }
}
