//! What belay said, for those who look later: Events on the objects, and for
//! the status of each policy its last day.
//!
//! ```text
//!  threads that answer        this room                       the leader
//!  Journal::note ──(channel)──► book ─► ConfigMap of the ───► sum of all
//!   never waits                  │       replica               replicas
//!                                └──► notices ─► Events
//! ```
//!
//! Nothing here decides, and nothing that fails here changes a verdict. What
//! is said while the channel is full is counted and lost.

mod book;
mod entry;
mod events;
mod notices;
pub(super) mod replica;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

pub use book::{Book, shown};
pub use entry::Entry;
pub(super) use entry::to_the_second;

use self::notices::Notices;
use super::Context;
use crate::decide::{Review, Verdict};
use crate::telemetry::Metrics;

/// So many entries wait at the most.
const WAITING: usize = 4096;

/// How long the last write may take when belay ends.
const LAST: Duration = Duration::from_secs(2);

/// Where verdicts are noted, from any thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Journal {
    sender: mpsc::Sender<Entry>,
    metrics: Metrics,
}

impl Journal {
    /// A journal, and the end at which [`run`] reads it.
    pub fn new(metrics: Metrics) -> (Self, mpsc::Receiver<Entry>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { sender, metrics }, receiver)
    }

    /// Notes a final verdict. It never waits.
    pub fn note(&self, review: &Review<'_>, verdict: &Verdict) {
        for entry in Entry::of(review, verdict, Timestamp::now()) {
            if self.sender.try_send(entry).is_err() {
                self.metrics.journal_dropped();
            }
        }
    }
}

/// What has been said and is to be written.
struct Desk {
    book: Mutex<Book>,
    notices: Mutex<Notices>,
    /// Something is new in the book.
    said: Notify,
    /// Something is new in the notices.
    news: Notify,
}

impl Desk {
    fn new(context: &Context) -> Self {
        Self {
            book: Mutex::default(),
            notices: Mutex::new(Notices::new(context.settings.timing.journal.events)),
            said: Notify::new(),
            news: Notify::new(),
        }
    }

    fn take(&self, context: &Context, entry: &Entry) {
        self.book.lock().note(entry);
        self.said.notify_one();
        let involved = events::involved(&context.world.read(), entry);
        if let Some(involved) = involved {
            self.notices.lock().note(entry, involved);
            self.news.notify_one();
        }
    }
}

/// Keeps the book of this replica and writes Events, until belay ends.
pub async fn run(context: Context, mut receiver: mpsc::Receiver<Entry>) {
    let desk = Desk::new(&context);
    let intake = async {
        while let Some(entry) = receiver.recv().await {
            desk.take(&context, &entry);
        }
    };
    let started = Instant::now();
    tokio::select! {
        () = context.signals.ended() => {}
        _ = async {
            tokio::join!(intake, replica::keep(&context, &desk), events::keep(&context, &desk, started))
        } => {}
    }
    // What was said last is in the status all the same.
    let mut left = false;
    while let Ok(entry) = receiver.try_recv() {
        desk.take(&context, &entry);
        left = true;
    }
    if left || *desk.book.lock() != Book::default() {
        let _ = tokio::time::timeout(LAST, replica::write(&context, &desk)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{FailurePolicy, decide_unreadable};
    use crate::webhook::{Parsed, parse_review};

    #[test]
    fn noting_never_waits_and_what_is_lost_is_counted() {
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
        for _ in 0..WAITING + 3 {
            journal.note(&review, &verdict);
        }
        assert!(metrics.encode().contains("belay_journal_dropped_total 3"));
        let entry = receiver.try_recv().unwrap();
        assert_eq!((entry.user.as_str(), entry.uid.as_str()), ("alice", "u"));
    }
}
