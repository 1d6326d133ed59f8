//! A budget of work: steps, not time.
//!
//! A tenant may write thousands of owner references, labels and finalizers on
//! thousands of objects. A function that follows them charges a step for each one that it
//! looks at, and stops when the budget is used up.

use std::cell::Cell;

/// Counts the steps of one review.
#[derive(Debug)]
pub struct Meter {
    most: usize,
    steps: Cell<usize>,
}

impl Meter {
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
pub struct Work<'m>(Option<&'m Meter>);

impl<'m> Work<'m> {
    /// Work that this meter counts.
    pub fn new(meter: &'m Meter) -> Self {
        Self(Some(meter))
    }

    /// Charges steps. Returns whether the work may go on.
    pub fn charge(self, steps: usize) -> bool {
        if let Some(meter) = self.0 {
            meter.steps.set(meter.steps.get().saturating_add(steps));
        }
        !self.is_used_up()
    }

    /// Whether nothing is left of the budget.
    pub fn is_used_up(self) -> bool {
        self.0.is_some_and(|meter| meter.steps.get() > meter.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_after_its_last_step() {
        let meter = Meter::new(2);
        let work = Work::new(&meter);
        assert!(work.charge(2) && !work.is_used_up());
        assert!(!work.charge(1) && work.is_used_up());
        assert_eq!(meter.steps(), 3);
        assert!(Work::default().charge(usize::MAX));
    }
}
