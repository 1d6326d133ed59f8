//! The memory of live reads: one budget for the objects that all of them find, of
//! which each group may hold a part.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, timeout_at};

use super::queue::ReadGroup;
use crate::cluster::list::Buffers;

/// How much memory is shared, in KiB.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// All of it.
    pub all: usize,
    /// How much of it those of one group may hold.
    pub each: usize,
}

/// The limits of the objects that live reads found, and of the graphs that are made of
/// those.
pub const LIVE_READS: MemoryLimits = MemoryLimits { all: 96 << 10, each: 32 << 10 };

/// How much is taken at a time, in KiB.
const STEP: usize = 64;

/// So many large objects are read at a time; each has its own memory.
const LARGE: usize = 2;

/// So long before its deadline a read gives up waiting, so that its words
/// arrive.
const MARGIN: Duration = Duration::from_millis(100);

/// Why a read may not hold more.
const LARGER: &str = "they are larger than a live read may be (32 MiB)";
const FULL: &str = "live reads use all the memory that they may; belay reads it again later";

/// All of it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadMemory {
    pool: Arc<Pool>,
    /// For objects that are being read.
    pub buffers: Buffers,
}

#[derive(Debug)]
struct Pool {
    limits: MemoryLimits,
    held: Mutex<MemoryUse>,
    freed: Notify,
}

/// What is held, in KiB.
#[derive(Debug, Default)]
struct MemoryUse {
    all: usize,
    groups: HashMap<ReadGroup, usize>,
}

impl MemoryUse {
    /// A group may hold its part, and no more than is left for others. So a few
    /// groups can't hold all of it, and what is given back goes to a group that
    /// holds little.
    fn take(&mut self, limits: MemoryLimits, group: &ReadGroup, amount: usize) -> bool {
        let own = self.groups.get(group).copied().unwrap_or_default() + amount;
        let all = self.all + amount;
        let fits = own <= limits.each && own <= limits.all.saturating_sub(all);
        if fits {
            self.all = all;
            self.groups.insert(group.clone(), own);
        }
        fits
    }

    fn give_back(&mut self, group: &ReadGroup, amount: usize) {
        self.all -= amount;
        if let Some(own) = self.groups.get_mut(group) {
            *own -= amount;
            if *own == 0 {
                self.groups.remove(group);
            }
        }
    }
}

/// What is held; given back when it is dropped.
#[derive(Debug)]
pub struct ReservedMemory {
    pool: Arc<Pool>,
    group: ReadGroup,
    amount: usize,
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.pool.held.lock().give_back(&self.group, self.amount);
        self.pool.freed.notify_waiters();
    }
}

/// What one read holds.
#[derive(Debug)]
pub struct ReadAccount {
    pool: Arc<Pool>,
    group: ReadGroup,
    until: Instant,
    shares: Vec<ReservedMemory>,
    /// What was taken and is not used, in bytes.
    left: usize,
    /// In KiB.
    taken: usize,
}

impl ReadMemory {
    /// Nothing is held.
    pub fn new(limits: MemoryLimits) -> Self {
        let pool = Pool { limits, held: Mutex::default(), freed: Notify::default() };
        Self { pool: Arc::new(pool), buffers: Buffers::new(LARGE) }
    }

    /// An account for one read of this group, which waits no longer than this.
    /// Requests and releases of a namespace hold memory as one group.
    pub fn account(&self, group: &ReadGroup, until: Instant) -> ReadAccount {
        let group = match group {
            ReadGroup::Release(namespace) | ReadGroup::Unproved(namespace)
                if !namespace.is_empty() =>
            {
                ReadGroup::Namespace(namespace.clone())
            }
            group => group.clone(),
        };
        let until = until.checked_sub(MARGIN).unwrap_or(until);
        ReadAccount { pool: self.pool.clone(), group, until, shares: Vec::new(), left: 0, taken: 0 }
    }
}

impl ReadAccount {
    /// Waits until so many bytes more may be held. An error is words.
    pub async fn hold(&mut self, bytes: usize) -> Result<(), &'static str> {
        if bytes > self.left {
            let amount = (bytes - self.left).div_ceil(1 << 10).max(STEP);
            self.taken += amount;
            if self.taken > self.pool.limits.each {
                return Err(LARGER);
            }
            loop {
                // Before the look, so that nothing is freed unseen in between.
                let freed = self.pool.freed.notified();
                if self.pool.held.lock().take(self.pool.limits, &self.group, amount) {
                    break;
                }
                timeout_at(self.until, freed).await.map_err(|_| FULL)?;
            }
            let (pool, group) = (self.pool.clone(), self.group.clone());
            self.shares.push(ReservedMemory { pool, group, amount });
            self.left += amount << 10;
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
    pub fn into_shares(self) -> Vec<ReservedMemory> {
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
        let memory = ReadMemory::new(LIVE_READS);
        let mut first = memory.account(&of("a"), soon());
        first.hold((LIVE_READS.each - STEP) << 10).await.unwrap();
        first.hold(1).await.unwrap();
        assert_eq!(first.hold(STEP << 10).await, Err(LARGER));
        // Another read of the group waits for it, and one of another group does
        // not.
        let mut second = memory.account(&of("a"), soon());
        let begun = Instant::now();
        assert_eq!(second.hold(1).await, Err(FULL));
        assert_eq!(begun.elapsed(), Duration::from_secs(10) - MARGIN);
        let begun = Instant::now();
        memory.account(&of("b"), soon()).hold(LIVE_READS.each << 10).await.unwrap();
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
        let held = memory.pool.held.lock();
        assert_eq!((held.all, held.groups.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn h12_requests_and_releases_of_a_namespace_hold_a_third_together() {
        let memory = ReadMemory::new(LIVE_READS);
        let mut requests = memory.account(&of("a"), soon());
        requests.hold((LIVE_READS.each - STEP) << 10).await.unwrap();
        let mut releases = memory.account(&ReadGroup::Release("a".to_owned()), soon());
        releases.hold(1).await.unwrap();
        let mut more = memory.account(&ReadGroup::Release("a".to_owned()), soon());
        assert_eq!(more.hold(1).await, Err(FULL));
        // Releases of cluster-scoped objects belong to no namespace.
        let mut other = memory.account(&ReadGroup::Release(String::new()), soon());
        assert_eq!(other.hold(LIVE_READS.each << 10).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn h12_groups_that_hold_much_leave_memory_to_one_that_holds_nothing() {
        let memory = ReadMemory::new(LIVE_READS);
        let mut held = Vec::new();
        let hold_all = async |group: usize| {
            let mut account = memory.account(&of(&group.to_string()), Instant::now());
            while account.hold(STEP << 10).await.is_ok() {}
            account
        };
        for group in 0..10 {
            held.push(hold_all(group).await);
            let begun = Instant::now();
            let mut quiet = memory.account(&of("quiet"), soon());
            assert_eq!(quiet.hold(STEP << 10).await, Ok(()), "{group}");
            assert_eq!(begun.elapsed(), Duration::ZERO);
        }
        for group in 10..40 {
            held.push(hold_all(group).await);
        }
        assert!(memory.pool.held.lock().all <= LIVE_READS.all);
        // Of what is given back the others get nothing.
        let mut waiting = Vec::new();
        for group in ["1", "2", "quiet"] {
            let mut account = memory.account(&of(group), soon());
            waiting.push(tokio::spawn(
                async move { account.hold(STEP << 10).await.map(|()| account) },
            ));
        }
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        drop(held[0].shares.drain(..4));
        tokio::task::yield_now().await;
        let finished: Vec<_> = waiting.iter().map(|waiting| waiting.is_finished()).collect();
        assert_eq!(finished, [false, false, true]);
    }
}
