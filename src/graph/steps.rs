//! A budget of work: steps, not time.
//!
//! A tenant may write thousands of owner references, labels and finalizers on
//! thousands of objects. A function that follows them charges a step for each one that it
//! looks at, and stops when the budget is used up.

use std::cell::Cell;

/// Counts the steps of one review.
#[derive(Debug)]
pub struct StepBudget {
    most: usize,
    steps: Cell<usize>,
}

impl StepBudget {
    /// A budget of so many steps.
    pub fn new(most: usize) -> Self {
        Self { most, steps: Cell::new(0) }
    }

    /// How many steps were charged.
    pub fn steps(&self) -> usize {
        self.steps.get()
    }
}

/// What functions charge their steps to: a meter, or no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepLimit<'m>(Option<&'m StepBudget>);

impl<'m> StepLimit<'m> {
    /// Work that this meter counts.
    pub fn new(budget: &'m StepBudget) -> Self {
        Self(Some(budget))
    }

    /// Charges steps. Returns whether the work may go on.
    pub fn charge(self, steps: usize) -> bool {
        if let Some(budget) = self.0 {
            budget.steps.set(budget.steps.get().saturating_add(steps));
        }
        !self.is_used_up()
    }

    /// Whether nothing is left of the budget.
    pub fn is_used_up(self) -> bool {
        self.0.is_some_and(|budget| budget.steps.get() > budget.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_after_its_last_step() {
        let budget = StepBudget::new(2);
        let work = StepLimit::new(&budget);
        assert!(work.charge(2) && !work.is_used_up());
        assert!(!work.charge(1) && work.is_used_up());
        assert_eq!(budget.steps(), 3);
        assert!(StepLimit::default().charge(usize::MAX));
    }
}
