//! The work of one review, and the turns of reviews that take much of it.
//!
//! A tenant chooses how many objects a decision has to follow. So a thread that
//! answers reviews does a little work for each. What takes more is decided on a
//! thread of its own, one review at a time, in turn between namespaces.

use std::cell::Cell;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::cluster::live::ReadGroup;
use crate::decide::STEPS;
use crate::graph::{StepBudget, StepLimit};
use crate::webhook::fair::{FairSemaphore, GroupLimits};

/// The steps that all decisions on one review may take without queueing. Most reviews
/// need less than a tenth.
const AT_ONCE: usize = 50_000;

/// How many decisions that take more are made at one time.
pub(super) const SLOTS: GroupLimits = GroupLimits { total: 1, per_group: 1 };

/// What all decisions on one review may take.
pub(super) struct Effort {
    most: usize,
    try_now: StepBudget,
    /// The steps in turns.
    run_queued: Cell<usize>,
}

impl Default for Effort {
    fn default() -> Self {
        Self::new(STEPS)
    }
}

impl Effort {
    pub(super) fn new(most: usize) -> Self {
        let try_now = StepBudget::new(most.min(AT_ONCE));
        Self { most, try_now, run_queued: Cell::new(0) }
    }

    /// How many were taken.
    pub(super) fn steps(&self) -> usize {
        self.try_now.steps().saturating_add(self.run_queued.get())
    }

    /// Decides on this thread, if little work is enough.
    pub(super) fn try_now<T>(&self, decide: impl FnOnce(&StepBudget) -> T) -> Option<T> {
        let is_used_up = || StepLimit::new(&self.try_now).is_used_up();
        if is_used_up() {
            return None;
        }
        let decided = decide(&self.try_now);
        (!is_used_up()).then_some(decided)
    }

    /// Decides on another thread, once this group has its turn. The turn lasts twice
    /// as long as the work: in the other half, writers and other readers get the lock
    /// of the world. A caller that no longer waits gets no turn. What the other thread
    /// needs is copied when the turn has come.
    pub(super) async fn run_queued<T: Send + 'static, D>(
        &self,
        turns: &FairSemaphore<ReadGroup>,
        group: ReadGroup,
        prepare: impl FnOnce() -> D,
    ) -> Option<T>
    where
        D: FnOnce(&StepBudget) -> T + Send + 'static,
    {
        let turn = turns.acquire(group).await?;
        let decide = prepare();
        let left = self.most.saturating_sub(self.steps());
        let (answer, decided) = oneshot::channel();
        spawn_blocking(move || {
            let begun = Instant::now();
            let budget = StepBudget::new(left);
            let value = decide(&budget);
            // A disconnected caller needs no answer.
            let _ = answer.send((value, budget.steps()));
            std::thread::sleep(begun.elapsed());
            drop(turn);
        });
        let (value, steps) = decided.await.ok()?;
        self.run_queued.set(self.run_queued.get().saturating_add(steps));
        Some(value)
    }
}
