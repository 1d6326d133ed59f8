//! The memory of live reads: one budget for the objects of all reads. Each group may reserve a
//! part of it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, timeout_at};

use super::queue::ReadGroup;
use crate::cluster::list::Buffers;
use crate::decide::READ_TOO_LARGE;

/// The limits of reserved memory, in KiB.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// For all groups together.
    pub total: usize,
    pub per_group: usize,
    /// The smallest amount that is reserved at a time.
    pub step: usize,
}

/// The limits for the objects of live reads and the graphs that are built from them.
pub const LIVE_READ_LIMITS: MemoryLimits =
    MemoryLimits { total: 96 << 10, per_group: 32 << 10, step: 64 };

/// The number of large objects that are read at a time. Each has its own buffer.
const LARGE_OBJECTS: usize = 2;

/// A read stops waiting for memory this long before its deadline, so that its error arrives in
/// time.
const MARGIN: Duration = Duration::from_millis(100);

/// The error of a read for which no memory is free.
const FULL: &str = "no memory is free for this live read";

/// A budget of memory. Each group may reserve a part of it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadMemory {
    pool: Arc<Pool>,
    /// The buffers for large objects that are being read.
    pub buffers: Buffers,
}

#[derive(Debug)]
struct Pool {
    limits: MemoryLimits,
    reserved: Mutex<MemoryUse>,
    freed: Notify,
}

/// The reserved memory, in KiB.
#[derive(Debug, Default)]
struct MemoryUse {
    total: usize,
    groups: HashMap<ReadGroup, usize>,
}

impl MemoryUse {
    /// Reserves an amount, if the group then has at most its part, and at most as much as remains
    /// free. So a few groups can't reserve all memory, and a group with little reserved memory
    /// gets freed memory first.
    fn reserve(&mut self, limits: MemoryLimits, group: &ReadGroup, amount: usize) -> bool {
        let in_group = self.groups.get(group).copied().unwrap_or_default() + amount;
        let total = self.total + amount;
        let fits = in_group <= limits.per_group && in_group <= limits.total.saturating_sub(total);
        if fits {
            self.total = total;
            self.groups.insert(group.clone(), in_group);
        }
        fits
    }

    fn free(&mut self, group: &ReadGroup, amount: usize) {
        self.total -= amount;
        if let Some(in_group) = self.groups.get_mut(group) {
            *in_group -= amount;
            if *in_group == 0 {
                self.groups.remove(group);
            }
        }
    }
}

/// Reserved memory. Dropping it frees the memory.
#[derive(Debug)]
pub struct ReservedMemory {
    pool: Arc<Pool>,
    group: ReadGroup,
    amount: usize,
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.pool.reserved.lock().free(&self.group, self.amount);
        self.pool.freed.notify_waiters();
    }
}

/// The reserved memory of one read.
#[derive(Debug)]
pub struct ReadAccount {
    pool: Arc<Pool>,
    group: ReadGroup,
    deadline: Instant,
    reserved: Vec<ReservedMemory>,
    /// The reserved memory that is not used, in bytes.
    unused: usize,
    /// The sum of `reserved`, in KiB.
    total: usize,
}

impl ReadMemory {
    pub fn new(limits: MemoryLimits) -> Self {
        let pool = Pool { limits, reserved: Mutex::default(), freed: Notify::default() };
        Self { pool: Arc::new(pool), buffers: Buffers::new(LARGE_OBJECTS) }
    }

    /// Creates an account for one read of this group. Requests and releases of a namespace reserve
    /// memory as one group.
    pub fn account(&self, group: &ReadGroup, deadline: Instant) -> ReadAccount {
        let group = match group {
            ReadGroup::Release(namespace) | ReadGroup::UnprovenObjects(namespace)
                if !namespace.is_empty() =>
            {
                ReadGroup::Namespace(namespace.clone())
            }
            group => group.clone(),
        };
        let deadline = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        let (pool, reserved) = (self.pool.clone(), Vec::new());
        ReadAccount { pool, group, deadline, reserved, unused: 0, total: 0 }
    }
}

impl ReadAccount {
    /// Waits until this many more bytes are reserved.
    pub async fn reserve(&mut self, bytes: usize) -> Result<(), &'static str> {
        if bytes > self.unused {
            let amount = (bytes - self.unused).div_ceil(1 << 10).max(self.pool.limits.step);
            self.total += amount;
            if self.total > self.pool.limits.per_group {
                return Err(READ_TOO_LARGE);
            }
            loop {
                // Created before the check, so that no memory is freed unnoticed in between.
                let freed = self.pool.freed.notified();
                if self.pool.reserved.lock().reserve(self.pool.limits, &self.group, amount) {
                    break;
                }
                timeout_at(self.deadline, freed).await.map_err(|_| FULL)?;
            }
            let (pool, group) = (self.pool.clone(), self.group.clone());
            self.reserved.push(ReservedMemory { pool, group, amount });
            self.unused += amount << 10;
        }
        self.unused -= bytes;
        Ok(())
    }

    /// Frees all memory of the account.
    pub fn clear(&mut self) {
        self.reserved.clear();
        (self.unused, self.total) = (0, 0);
    }

    /// Returns the memory, which stays reserved until the caller drops it.
    pub fn into_reserved(self) -> Vec<ReservedMemory> {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: usize = LIVE_READ_LIMITS.step;

    fn group_of(namespace: &str) -> ReadGroup {
        ReadGroup::Namespace(namespace.to_owned())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_holds_its_part_and_leaves_the_rest_to_others() {
        let memory = ReadMemory::new(LIVE_READ_LIMITS);
        let mut first = memory.account(&group_of("a"), soon());
        first.reserve((LIVE_READ_LIMITS.per_group - STEP) << 10).await.unwrap();
        first.reserve(1).await.unwrap();
        assert_eq!(first.reserve(STEP << 10).await, Err(READ_TOO_LARGE));
        // Another read of the group waits for memory. A read of another group does not.
        let mut second = memory.account(&group_of("a"), soon());
        let begun = Instant::now();
        assert_eq!(second.reserve(1).await, Err(FULL));
        assert_eq!(begun.elapsed(), Duration::from_secs(10) - MARGIN);
        let begun = Instant::now();
        memory
            .account(&group_of("b"), soon())
            .reserve(LIVE_READ_LIMITS.per_group << 10)
            .await
            .unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let shares = first.into_reserved();
        let mut third = memory.account(&group_of("a"), soon());
        let waiting = tokio::spawn(async move { third.reserve(1).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(shares);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        // Groups that hold nothing are forgotten.
        drop(second);
        drop(memory.account(&group_of("c"), soon()));
        let held = memory.pool.reserved.lock();
        assert_eq!((held.total, held.groups.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn h12_requests_and_releases_of_a_namespace_hold_a_third_together() {
        let memory = ReadMemory::new(LIVE_READ_LIMITS);
        let mut requests = memory.account(&group_of("a"), soon());
        requests.reserve((LIVE_READ_LIMITS.per_group - STEP) << 10).await.unwrap();
        let mut releases = memory.account(&ReadGroup::Release("a".to_owned()), soon());
        releases.reserve(1).await.unwrap();
        let mut more = memory.account(&ReadGroup::Release("a".to_owned()), soon());
        assert_eq!(more.reserve(1).await, Err(FULL));
        // Releases of cluster-scoped objects belong to no namespace.
        let mut other = memory.account(&ReadGroup::Release(String::new()), soon());
        assert_eq!(other.reserve(LIVE_READ_LIMITS.per_group << 10).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn h12_groups_that_hold_much_leave_memory_to_one_that_holds_nothing() {
        let memory = ReadMemory::new(LIVE_READ_LIMITS);
        let mut held = Vec::new();
        let hold_all = async |group: usize| {
            let mut account = memory.account(&group_of(&group.to_string()), Instant::now());
            while account.reserve(STEP << 10).await.is_ok() {}
            account
        };
        for group in 0..10 {
            held.push(hold_all(group).await);
            let begun = Instant::now();
            let mut quiet = memory.account(&group_of("quiet"), soon());
            assert_eq!(quiet.reserve(STEP << 10).await, Ok(()), "{group}");
            assert_eq!(begun.elapsed(), Duration::ZERO);
        }
        for group in 10..40 {
            held.push(hold_all(group).await);
        }
        assert!(memory.pool.reserved.lock().total <= LIVE_READ_LIMITS.total);
        // Only the group without reserved memory gets the freed memory.
        let mut waiting = Vec::new();
        for group in ["1", "2", "quiet"] {
            let mut account = memory.account(&group_of(group), soon());
            waiting.push(tokio::spawn(async move {
                account.reserve(STEP << 10).await.map(|()| account)
            }));
        }
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        drop(held[0].reserved.drain(..4));
        tokio::task::yield_now().await;
        let finished: Vec<_> = waiting.iter().map(|waiting| waiting.is_finished()).collect();
        assert_eq!(finished, [false, false, true]);
    }
}
