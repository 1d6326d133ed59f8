//! Readiness is a set of conditions that the parts of belay keep themselves.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All conditions together. belay is ready when every one of them holds.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Vec<Condition>>>);

/// One named condition, kept by the part that knows.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    holds: Arc<AtomicBool>,
}

impl Condition {
    /// Says whether the condition holds now.
    pub fn set(&self, holds: bool) {
        self.holds.store(holds, Ordering::Release);
    }

    fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }
}

impl Readiness {
    /// A new condition, which does not hold until it is set.
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { name, holds: Arc::new(AtomicBool::new(false)) };
        self.all().push(condition.clone());
        condition
    }

    /// Whether every condition holds.
    pub fn is_ready(&self) -> bool {
        self.all().iter().all(Condition::holds)
    }

    /// One line a condition, as `/readyz?verbose` prints them.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for condition in self.all().iter() {
            let (sign, word) = if condition.holds() { ('+', "ok") } else { ('-', "not ready") };
            let _ = writeln!(text, "[{sign}]{} {word}", condition.name);
        }
        text
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Condition>> {
        // The list is only ever pushed to: a panic elsewhere cannot leave it
        // half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_all_of_them_and_what_is_missing_is_named() {
        let readiness = Readiness::default();
        let certificate = readiness.condition("certificate");
        let policies = readiness.condition("policies");
        certificate.set(true);
        assert!(!readiness.is_ready());
        assert_eq!(readiness.describe(), "[+]certificate ok\n[-]policies not ready\n");
        policies.set(true);
        assert!(readiness.is_ready());
    }
}
