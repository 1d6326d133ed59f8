//! Whether this replica is the leader, and until when.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::context::Context;

/// The time until which this replica is the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderTerm {
    /// The end by the monotonic clock.
    pub until: Instant,
    /// The end by the wall clock.
    pub until_time: Timestamp,
}

impl LeaderTerm {
    fn is_valid(&self, instant: Instant, time: Timestamp) -> bool {
        instant < self.until && time < self.until_time
    }
}

/// The leadership of this replica.
pub struct Leadership<'a> {
    context: &'a Context,
    term: watch::Sender<Option<LeaderTerm>>,
}

impl<'a> Leadership<'a> {
    pub fn new(context: &'a Context) -> Self {
        Self { context, term: watch::Sender::new(None) }
    }

    pub fn assume(&self, term: LeaderTerm) {
        self.term.send_replace(Some(term));
        if !self.context.signals.leading.send_replace(true) {
            self.context.metrics.set_leader(true);
            tracing::info!(replica = self.context.settings.replica, "this replica is the leader");
        }
    }

    /// Returns whether this replica was the leader.
    pub fn resign(&self) -> bool {
        self.term.send_replace(None);
        let was_ours = self.context.signals.leading.send_replace(false);
        if was_ours {
            self.context.metrics.set_leader(false);
            tracing::info!(
                replica = self.context.settings.replica,
                "this replica is no longer the leader"
            );
        }
        was_ours
    }

    /// Ends the leadership when its term has expired, even while this replica waits for an answer.
    pub async fn watch_expiry(&self) {
        // The wall clock may jump, so it is checked regularly.
        const CLOCK_CHECK: Duration = Duration::from_millis(500);
        let mut changes = self.term.subscribe();
        loop {
            let term = *changes.borrow_and_update();
            let now = Instant::now();
            let wait = match term {
                None => Duration::MAX,
                Some(term) if term.is_valid(now, Timestamp::now()) => {
                    let left = term.until_time.duration_since(Timestamp::now());
                    let left = Duration::try_from(left).unwrap_or_default();
                    left.min(term.until.saturating_duration_since(now)).min(CLOCK_CHECK)
                }
                Some(_) => {
                    tracing::warn!("the Lease was not renewed in time");
                    self.resign();
                    continue;
                }
            };
            tokio::select! {
                // The sender lives as long as `self`.
                _ = changes.changed() => {}
                () = sleep(wait) => {}
            }
        }
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        // The expiry is not watched any more.
        self.resign();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_by_the_clock_that_reaches_its_end_first() {
        let (instant, time) = (Instant::now(), Timestamp::now());
        let later = Duration::from_secs(10);
        let term = LeaderTerm { until: instant + later, until_time: time + later };
        assert!(term.is_valid(instant, time));
        assert!(!term.is_valid(instant + later, time));
        assert!(!term.is_valid(instant, time + later));
    }
}
