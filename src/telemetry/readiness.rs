//! Readiness: a set of conditions. Each part of belay sets its own condition.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All conditions. belay is ready when all required conditions hold.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Vec<ReadinessCondition>>>);

/// One named condition. The part of belay that it describes sets it.
#[derive(Debug, Clone)]
pub struct ReadinessCondition {
    name: &'static str,
    holds: Arc<AtomicBool>,
    /// For a condition that is not required: the text while it does not hold.
    otherwise: Option<&'static str>,
    /// The reason why it does not hold; may be empty.
    why: Arc<Mutex<String>>,
}

impl ReadinessCondition {
    /// Sets whether the condition holds.
    pub fn set(&self, holds: bool) {
        self.holds.store(holds, Ordering::Release);
    }

    /// Sets the reason why the condition does not hold.
    pub fn explain(&self, why: &str) {
        why.clone_into(&mut self.why.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }
}

impl Readiness {
    /// Adds a required condition, which does not hold until it is set.
    pub fn condition(&self, name: &'static str) -> ReadinessCondition {
        self.add(name, None)
    }

    /// Adds a condition that is not required. `otherwise` is the text while it does not hold.
    pub fn optional_condition(
        &self,
        name: &'static str,
        otherwise: &'static str,
    ) -> ReadinessCondition {
        self.add(name, Some(otherwise))
    }

    fn add(&self, name: &'static str, otherwise: Option<&'static str>) -> ReadinessCondition {
        let holds = Arc::new(AtomicBool::new(false));
        let condition = ReadinessCondition { name, holds, otherwise, why: Arc::default() };
        self.all().push(condition.clone());
        condition
    }

    /// Whether all required conditions hold.
    pub fn is_ready(&self) -> bool {
        self.all().iter().all(|condition| condition.holds() || condition.otherwise.is_some())
    }

    /// One line for each condition, as `/readyz?verbose` prints them.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for condition in self.all().iter() {
            let (sign, word) = match (condition.holds(), condition.otherwise) {
                (true, _) => ('+', "ok"),
                (false, None) => ('-', "not ready"),
                (false, Some(otherwise)) => ('!', otherwise),
            };
            let why = condition.why.lock().unwrap_or_else(PoisonError::into_inner);
            let colon = if sign == '-' && !why.is_empty() { ": " } else { "" };
            let why = if colon.is_empty() { "" } else { why.as_str() };
            let _ = writeln!(text, "[{sign}]{} {word}{colon}{why}", condition.name);
        }
        text
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<ReadinessCondition>> {
        // A panic can't leave the list in an invalid state, because code only pushes to it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_ready_if_all_required_conditions_hold_and_names_the_missing_ones() {
        let readiness = Readiness::default();
        let certificate = readiness.condition("certificate");
        let policies = readiness.condition("policies");
        certificate.set(true);
        assert!(!readiness.is_ready());
        assert_eq!(readiness.describe(), "[+]certificate ok\n[-]policies not ready\n");
        policies.explain("their kind is not installed");
        let because = "[-]policies not ready: their kind is not installed\n";
        assert!(readiness.describe().ends_with(because), "{}", readiness.describe());
        policies.set(true);
        assert!(readiness.is_ready());
        readiness.optional_condition("files", "broken");
        assert!(readiness.is_ready());
        assert!(readiness.describe().ends_with("[!]files broken\n"));
    }
}
