//! Limits the work of one review, and gives reviews with many steps their turn.
//!
//! A tenant chooses how many objects a decision must follow. So a thread that answers reviews
//! takes only a limited number of steps for each. Larger reviews are decided on another thread,
//! one at a time, and namespaces take turns.

use std::cell::Cell;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::cluster::live::ReadGroup;
use crate::decide::REVIEW_STEPS;
use crate::graph::{StepBudget, StepCounter};
use crate::webhook::fair::{FairSemaphore, GroupLimits};

/// The maximum number of steps of all decisions on one review without queueing. Most reviews
/// need less than a tenth of it.
const UNQUEUED_STEPS: usize = 20_000;

/// The number of queued decisions that run at the same time.
pub(super) const SLOTS: GroupLimits = GroupLimits { total: 1, per_group: 1 };

/// The step budget of all decisions on one review.
pub(super) struct Effort {
    limit: usize,
    unqueued: StepBudget,
    /// The steps of queued decisions.
    queued_steps: Cell<usize>,
}

impl Default for Effort {
    fn default() -> Self {
        Self::new(REVIEW_STEPS)
    }
}

impl Effort {
    pub(super) fn new(limit: usize) -> Self {
        let unqueued = StepBudget::new(limit.min(UNQUEUED_STEPS));
        Self { limit, unqueued, queued_steps: Cell::new(0) }
    }

    /// The number of steps so far.
    pub(super) fn steps(&self) -> usize {
        self.unqueued.steps().saturating_add(self.queued_steps.get())
    }

    /// Charges `known_steps` of the decision, and decides on this thread. Returns `None` if the
    /// steps without queueing are used up.
    pub(super) fn try_now<T>(
        &self,
        known_steps: usize,
        decide: impl FnOnce(&StepBudget) -> T,
    ) -> Option<T> {
        let counter = StepCounter::new(&self.unqueued);
        if !counter.charge(known_steps) {
            return None;
        }
        let decided = decide(&self.unqueued);
        (!counter.is_used_up()).then_some(decided)
    }

    /// Decides on another thread when it is the turn of this group. `prepare` copies the input
    /// when the turn has come. The turn lasts twice as long as the work, so that writers and
    /// other readers get the lock of the world. A caller that no longer waits gets no turn.
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
        let remaining = self.limit.saturating_sub(self.steps());
        let (answer, decided) = oneshot::channel();
        spawn_blocking(move || {
            let start = Instant::now();
            let budget = StepBudget::new(remaining);
            let value = decide(&budget);
            // Sending fails if the caller no longer waits.
            let _ = answer.send((value, budget.steps()));
            std::thread::sleep(start.elapsed());
            drop(turn);
        });
        let (value, steps) = decided.await.ok()?;
        self.queued_steps.set(self.queued_steps.get().saturating_add(steps));
        Some(value)
    }
}
