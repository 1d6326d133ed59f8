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
use crate::webhook::fair::{FairSemaphore, Slots};

/// So many steps all decisions on one review may take at once. Few reviews need a
/// tenth of it.
const AT_ONCE: usize = 50_000;

/// How many decisions that take more are made at one time.
pub(super) const SLOTS: Slots = Slots { all: 1, each: 1 };

/// What all decisions on one review may take.
pub(super) struct Effort {
    most: usize,
    at_once: StepBudget,
    /// The steps in turns.
    in_turn: Cell<usize>,
}

impl Default for Effort {
    fn default() -> Self {
        Self::new(STEPS)
    }
}

impl Effort {
    /// So many steps.
    pub(super) fn new(most: usize) -> Self {
        let at_once = StepBudget::new(most.min(AT_ONCE));
        Self { most, at_once, in_turn: Cell::new(0) }
    }

    /// How many were taken.
    pub(super) fn steps(&self) -> usize {
        self.at_once.steps().saturating_add(self.in_turn.get())
    }

    /// Decides on this thread, if little work is enough.
    pub(super) fn at_once<T>(&self, decide: impl FnOnce(&StepBudget) -> T) -> Option<T> {
        let is_used_up = || StepLimit::new(&self.at_once).is_used_up();
        if is_used_up() {
            return None;
        }
        let decided = decide(&self.at_once);
        (!is_used_up()).then_some(decided)
    }

    /// Decides on another thread, once this group has its turn. The turn lasts twice
    /// as long as the work: in the other half, writers and other readers get the lock
    /// of the world. A caller that no longer waits gets no turn. What the other thread
    /// needs is copied when the turn has come.
    pub(super) async fn in_turn<T: Send + 'static, D>(
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
            // A caller that has gone needs no answer.
            let _ = answer.send((value, budget.steps()));
            std::thread::sleep(begun.elapsed());
            drop(turn);
        });
        let (value, steps) = decided.await.ok()?;
        self.in_turn.set(self.in_turn.get().saturating_add(steps));
        Some(value)
    }
}
