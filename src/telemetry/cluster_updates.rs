//! The updates of the metrics of the cluster side.

use std::time::Duration;

use super::Metrics;
use super::cluster::{
    ConfigurationLabels, FeedState, HoldChangeLabels, ReleaseLabels, ResourceLabels,
};

impl Metrics {
    /// Counts a verdict that is in no status and no Event.
    pub fn count_journal_dropped(&self) {
        self.0.cluster.journal_dropped.inc();
    }

    /// Records that this replica became the leader or lost leadership.
    pub fn set_leader(&self, is_leader: bool) {
        self.0.cluster.leader.set(is_leader.into());
        self.0.cluster.leader_changes.inc();
    }

    /// Counts a repair of a webhook configuration.
    pub fn count_registration_repair(&self, configuration: &'static str) {
        let labels = ConfigurationLabels { configuration };
        self.0.cluster.registration_repairs.get_or_create(&labels).inc();
    }

    /// Sets whether a webhook configuration is missing.
    pub fn set_registration_missing(&self, configuration: &'static str, missing: bool) {
        let labels = ConfigurationLabels { configuration };
        self.0.cluster.registration_missing.get_or_create(&labels).set(missing.into());
    }

    /// Sets the number of webhooks in a configuration that differ from the installation.
    pub fn set_registration_changed(&self, configuration: &'static str, count: usize) {
        let labels = ConfigurationLabels { configuration };
        self.0.cluster.registration_changed.get_or_create(&labels).set(number(count));
    }

    /// Sets the number of objects with the hold.
    pub fn set_holds(&self, count: usize) {
        self.0.cluster.holds.set(number(count));
    }

    /// Sets the number of backfills that are stopped because too many objects lack the hold.
    pub fn set_backfills_stopped(&self, count: usize) {
        self.0.cluster.backfills_stopped.set(number(count));
    }

    /// Sets whether a Pause is in force.
    pub fn set_paused(&self, paused: bool) {
        self.0.cluster.paused.set(paused.into());
    }

    /// Counts a hold that belay added to an existing object, or removed because no policy wants
    /// it, or a failure to do so.
    pub fn count_hold_change(&self, change: &'static str, succeeded: bool) {
        let result = if succeeded { "ok" } else { "failed" };
        self.0.cluster.hold_changes.get_or_create(&HoldChangeLabels { change, result }).inc();
    }

    /// Counts a released hold by reason.
    pub fn count_release(&self, why: &'static str) {
        self.0.cluster.releases.get_or_create(&ReleaseLabels { why }).inc();
    }

    /// Sets the number of Terminating objects with the hold, and how many of them have unknown
    /// users.
    pub fn set_releasing(&self, waiting: usize, stuck: usize) {
        self.0.cluster.releasing.set(number(waiting));
        self.0.cluster.stuck.set(number(stuck));
    }

    /// Sets the metrics of the feed.
    pub fn set_feed(&self, state: &FeedState) {
        let metrics = &self.0.cluster;
        metrics.objects.set(number(state.objects));
        metrics.edges.set(number(state.edges));
        metrics.lag.set(state.lag.as_secs_f64());
        metrics.unknown.set(number(state.unknown));
        metrics.watched.set(number(state.watched));
        metrics.incomplete.set(number(state.incomplete));
    }

    /// Sets the number of unreadable objects of each resource.
    pub fn set_unreadable(&self, counts: &[(String, usize)]) {
        let unreadable = &self.0.cluster.unreadable;
        unreadable.clear();
        for (resource, count) in counts {
            let resource = resource.clone();
            unreadable.get_or_create(&ResourceLabels { resource }).set(number(*count));
        }
    }

    /// Counts one review whose verdict waited for live reads, by its operation.
    pub fn count_live_review(&self, operation: &'static str) {
        self.0.live.count_review(operation);
    }

    /// Counts one live read that a verdict waited for, by its result.
    pub fn count_live_read(&self, result: &'static str, took: Duration) {
        self.0.live.count_read(result, took);
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
