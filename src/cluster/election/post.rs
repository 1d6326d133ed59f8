//! The post of the leader: since when and until when this replica believes
//! that it is its own.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::context::Context;

/// Until when this replica believes that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Belief {
    /// By the clock that never goes back.
    pub until: Instant,
    /// By the clock on the wall.
    pub until_time: Timestamp,
}

impl Belief {
    fn holds(&self, instant: Instant, time: Timestamp) -> bool {
        instant < self.until && time < self.until_time
    }
}

/// The post of the leader, and whether this replica believes to hold it.
pub struct Post<'a> {
    context: &'a Context,
    belief: watch::Sender<Option<Belief>>,
}

impl<'a> Post<'a> {
    pub fn new(context: &'a Context) -> Self {
        Self { context, belief: watch::Sender::new(None) }
    }

    /// This replica leads, as far as this goes.
    pub fn take(&self, belief: Belief) {
        self.belief.send_replace(Some(belief));
        if !self.context.signals.leading.send_replace(true) {
            self.context.metrics.leads(true);
            tracing::info!(replica = self.context.settings.replica, "this replica leads");
        }
    }

    /// It does no more. The result is whether it did.
    pub fn leave(&self) -> bool {
        self.belief.send_replace(None);
        let was_ours = self.context.signals.leading.send_replace(false);
        if was_ours {
            self.context.metrics.leads(false);
            tracing::info!(replica = self.context.settings.replica, "this replica leads no more");
        }
        was_ours
    }

    /// Leaves when the belief has run out, whatever else is being waited for.
    pub async fn keep_watch(&self) {
        // The clock on the wall may jump, so it is looked at now and then.
        const GLANCE: Duration = Duration::from_millis(500);
        let mut changes = self.belief.subscribe();
        loop {
            let belief = *changes.borrow_and_update();
            let now = Instant::now();
            let wait = match belief {
                None => Duration::MAX,
                Some(belief) if belief.holds(now, Timestamp::now()) => {
                    let left = belief.until_time.duration_since(Timestamp::now());
                    let left = Duration::try_from(left).unwrap_or_default();
                    left.min(belief.until.saturating_duration_since(now)).min(GLANCE)
                }
                Some(_) => {
                    tracing::warn!("the Lease could not be renewed in time");
                    self.leave();
                    continue;
                }
            };
            tokio::select! {
                // The sender is our own.
                _ = changes.changed() => {}
                () = sleep(wait) => {}
            }
        }
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        // Nobody would keep watch.
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_ends_by_whichever_clock_comes_first() {
        let (instant, time) = (Instant::now(), Timestamp::now());
        let later = Duration::from_secs(10);
        let belief = Belief { until: instant + later, until_time: time + later };
        assert!(belief.holds(instant, time));
        assert!(!belief.holds(instant + later, time));
        assert!(!belief.holds(instant, time + later));
    }
}
