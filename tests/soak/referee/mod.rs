//! The referee: reads the audit log in order and reports errors.
//!
//! It uses the log, the final content of the API server, and no code of belay: it
//! implements policies from their documentation. It shares only the oracle, which simulates
//! the garbage collector and does not use belay either.

mod closure;
mod event;
mod history;
mod judge;
mod object;
#[allow(dead_code, missing_docs)]
#[path = "../../../src/graph/fates/oracle.rs"]
mod oracle;
mod policy;
#[cfg(test)]
mod tests;
mod uses;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

pub use event::Event;
pub use history::{History, Key};
pub use judge::{Finding, Looked, is_person};
pub use watches::Watches;

use judge::Judge;

/// The propagation policy of a DELETE: the oracle's term, defined here again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// First the owner.
    Background,
    /// First the dependents.
    Foreground,
    /// Without the dependents.
    Orphan,
}

/// The result of the referee.
#[derive(Debug, Default)]
pub struct Sentence {
    /// The errors.
    pub findings: Vec<Finding>,
    /// The numbers of checked objects.
    pub looked: Looked,
    /// How many objects it followed from their first write to the last.
    pub objects: usize,
    /// The number of objects that ever had a hold.
    pub held: usize,
    /// The number of those that left storage.
    pub released: usize,
    /// Requests of people that were refused, by their reason.
    pub refused: BTreeMap<String, usize>,
}

/// The processed log.
#[derive(Debug, Default)]
pub struct Referee {
    /// The lives of all objects.
    pub history: History,
    /// belay's watches.
    pub watches: Watches,
    refused: BTreeMap<String, usize>,
    end: i64,
}

impl Referee {
    /// Reads a log from its beginning.
    pub fn read(log: impl BufRead) -> std::io::Result<Self> {
        let mut referee = Self::default();
        for line in log.lines() {
            if let Some(event) = Event::parse(&line?) {
                referee.take(&event);
            }
        }
        Ok(referee)
    }

    /// Processes one event.
    pub fn take(&mut self, event: &Event) {
        self.end = self.end.max(event.span.to);
        self.watches.take(event);
        if event.code >= 400 && is_person(&event.user) {
            let reason = format!("{} {}", event.code, event.reason);
            *self.refused.entry(reason.trim_end().to_owned()).or_default() += 1;
        }
        self.history.take(event);
    }

    /// Judges the log. `there`: the uids of the objects that the API server has now, of the
    /// kinds in `listed`.
    pub fn judge(
        mut self,
        belay: &str,
        there: &BTreeSet<String>,
        listed: &dyn Fn(&Key) -> bool,
    ) -> Sentence {
        let disagree = self.history.settle(there, listed);
        let policies = policy::policies(&self.history);
        let judge = Judge { history: &self.history, policies: &policies, belay, end: self.end };
        let (mut findings, looked) = judge.findings();
        findings.extend(disagree.into_iter().map(Finding::Disagree));
        let held = |life: &&history::Life| life.versions.iter().any(|v| v.has(uses::HOLD));
        let lives = || self.history.lives.values();
        Sentence {
            findings,
            looked,
            objects: lives().count(),
            held: lives().filter(held).count(),
            released: lives().filter(held).filter(|life| life.gone.is_some()).count(),
            refused: self.refused.clone(),
        }
    }
}
