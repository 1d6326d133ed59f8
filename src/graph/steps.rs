//! A budget of work, counted in steps instead of time.
//!
//! A tenant may write thousands of owner references, labels and finalizers on thousands of
//! objects. A function that reads them charges one step for each, and stops when the budget
//! is used up.

use std::cell::Cell;

/// The approximate number of steps of a search that hashes or compares several texts, such as the
/// search for the policies of an object or for the result of a live read.
pub const SEARCH_STEPS: usize = 8;

/// Counts the steps of one review, one pass of a release, or one event of the feed.
#[derive(Debug)]
pub struct StepBudget {
    limit: usize,
    steps: Cell<usize>,
}

impl StepBudget {
    /// A budget of `limit` steps.
    pub fn new(limit: usize) -> Self {
        Self { limit, steps: Cell::new(0) }
    }

    /// The number of charged steps.
    pub fn steps(&self) -> usize {
        self.steps.get()
    }
}

/// Counts steps against a budget, or against none.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepCounter<'b>(Option<&'b StepBudget>);

impl<'b> StepCounter<'b> {
    /// Charges steps to this budget.
    pub fn new(budget: &'b StepBudget) -> Self {
        Self(Some(budget))
    }

    /// Charges steps. Returns whether the budget allows more work.
    pub fn charge(self, steps: usize) -> bool {
        if let Some(budget) = self.0 {
            budget.steps.set(budget.steps.get().saturating_add(steps));
        }
        !self.is_used_up()
    }

    /// Whether the budget is used up.
    pub fn is_used_up(self) -> bool {
        self.0.is_some_and(|budget| budget.steps.get() > budget.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_after_its_last_step() {
        let budget = StepBudget::new(2);
        let work = StepCounter::new(&budget);
        assert!(work.charge(2) && !work.is_used_up());
        assert!(!work.charge(1) && work.is_used_up());
        assert_eq!(budget.steps(), 3);
        assert!(StepCounter::default().charge(usize::MAX));
    }
}
