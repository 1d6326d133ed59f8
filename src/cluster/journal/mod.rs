//! Records verdicts: as Events on the objects, and as the last day's activity in
//! the status of each policy.
//!
//! ```text
//!  review threads               this module                     the leader
//!  Journal::record ─(channel)─► activity ─► ConfigMap of ────► sum of all
//!   never waits                  │           this replica       replicas
//!                                └──► event_queue ─► Events
//! ```
//!
//! A failure here changes no verdict. Entries that do not fit into the channel are
//! counted and dropped.

mod activity;
mod entry;
mod event_queue;
mod events;
pub(super) mod replica;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

pub(crate) use activity::Activity;
pub(crate) use entry::Entry;
pub(super) use entry::to_the_second;

use self::event_queue::EventQueue;
use super::Context;
use crate::decide::{Review, Verdict};
use crate::telemetry::Metrics;

const CHANNEL_SIZE: usize = 4096;

/// How long belay waits for the last write when it shuts down.
const LAST_WRITE_LIMIT: Duration = Duration::from_secs(2);

/// Records verdicts from any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Journal {
    sender: mpsc::Sender<Entry>,
    metrics: Metrics,
}

impl Journal {
    /// Returns a journal and the receiver that [`run`] reads.
    pub fn new(metrics: Metrics) -> (Self, mpsc::Receiver<Entry>) {
        let (sender, receiver) = mpsc::channel(CHANNEL_SIZE);
        (Self { sender, metrics }, receiver)
    }

    /// Records a final verdict. Never waits.
    pub fn record(&self, review: &Review<'_>, verdict: &Verdict) {
        for entry in Entry::from_verdict(review, verdict, Timestamp::now()) {
            if self.sender.try_send(entry).is_err() {
                self.metrics.count_journal_dropped();
            }
        }
    }
}

/// Verdicts that are recorded and not yet written.
struct PendingWrites {
    activity: Mutex<Activity>,
    event_queue: Mutex<EventQueue>,
    /// Notified after a change of `activity`.
    activity_changed: Notify,
    /// Notified after a change of `event_queue`.
    queue_changed: Notify,
}

impl PendingWrites {
    fn new(context: &Context) -> Self {
        Self {
            activity: Mutex::default(),
            event_queue: Mutex::new(EventQueue::new(context.settings.timing.journal.events)),
            activity_changed: Notify::new(),
            queue_changed: Notify::new(),
        }
    }

    fn add(&self, context: &Context, entry: &Entry) {
        self.activity.lock().record(entry);
        self.activity_changed.notify_one();
        let involved = events::involved(&context.world.read(), entry);
        if let Some(involved) = involved {
            self.event_queue.lock().record(entry, involved);
            self.queue_changed.notify_one();
        }
    }
}

/// Writes the journal of this replica and Events until belay shuts down.
pub async fn run(context: Context, mut receiver: mpsc::Receiver<Entry>) {
    let pending = PendingWrites::new(&context);
    let intake = async {
        while let Some(entry) = receiver.recv().await {
            pending.add(&context, &entry);
        }
    };
    let started = Instant::now();
    tokio::select! {
        () = context.signals.ended() => {}
        _ = async {
            tokio::join!(intake, replica::write_journal(&context, &pending), events::write_events(&context, &pending, started))
        } => {}
    }
    // The last verdicts before the shutdown are written as well.
    let mut has_more = false;
    while let Ok(entry) = receiver.try_recv() {
        pending.add(&context, &entry);
        has_more = true;
    }
    if has_more || *pending.activity.lock() != Activity::default() {
        let _ = tokio::time::timeout(LAST_WRITE_LIMIT, replica::write(&context, &pending)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{FailurePolicy, decide_unreadable};
    use crate::webhook::{Parsed, parse_review};

    #[test]
    fn recording_never_waits_and_dropped_entries_are_counted() {
        let body = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "settings", "namespace": "shop", "operation": "DELETE", "dryRun": false,
            "userInfo": {"username": "alice"}, "object": null,
            "oldObject": {"metadata": {"name": "settings", "uid": "u"}}}}"#;
        let review =
            match parse_review(body.as_bytes(), crate::decide::AdmissionPhase::Validate).unwrap() {
                Parsed::Review(review) => review,
                Parsed::Unreadable { .. } => panic!("it is readable"),
            };
        let verdict = decide_unreadable(review.target(), "torn".into(), FailurePolicy::Fail);
        let metrics = Metrics::default();
        let (journal, mut receiver) = Journal::new(metrics.clone());
        for _ in 0..CHANNEL_SIZE + 3 {
            journal.record(&review, &verdict);
        }
        assert!(metrics.encode().contains("belay_journal_dropped_total 3"));
        let entry = receiver.try_recv().unwrap();
        assert_eq!((entry.user.as_str(), entry.uid.as_str()), ("alice", "u"));
    }
}
