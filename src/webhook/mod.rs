//! The HTTPS server for AdmissionReviews, with limits, and the server for probes and metrics.
//!
//! ```text
//! POST /validate ─┐                                       ┌─ response::review_response_json
//! POST /mutate   ─┴─ body::read ── wire::parse ── decider ┴─ metrics, log
//!                    size, time    borrowed       live reads, turns
//! ```
//!
//! In a cluster, both paths start with a secret segment ([`SecretPath`]). belay answers 404 to a
//! caller without the secret.
//!
//! The handlers make no decisions. A [`Decider`] returns the verdicts.

mod admit;
mod body;
mod callers;
mod connection;
mod draining;
mod entry_limits;
pub(crate) mod fair;
mod handshakes;
mod path;
mod probes;
mod response;
mod server;
mod slots;
mod timed;
mod tls_records;
mod verdict_log;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{LocalBoxFuture, ready};

pub use path::{AcceptedPaths, SecretPath, random_hex, redact_secret_paths};
pub use response::review_response_json;
pub use server::{BoundServer, Certificates, ServerSettings, bind};
pub use slots::default_threads;
pub use wire::{Parsed, parse as parse_review};

use crate::certs::CertError;
use crate::decide::{FailurePolicy, Review, Verdict};
use crate::telemetry::{Metrics, Readiness};

/// The suffix of the path in the webhooks for labelled objects.
pub const LABELLED: &str = "/labelled";

/// Decides reviews.
pub trait Decider: Send + Sync {
    /// Returns the final verdict on a review, before the deadline. It waits only for live reads and
    /// for its turn among decisions with many steps.
    fn decide<'a>(
        &'a self,
        review: &'a Review<'a>,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Verdict>;

    /// Whether a Pause is in force.
    fn is_paused(&self) -> bool {
        false
    }
}

/// A function is a decider without live reads.
impl<F: Fn(&Review<'_>) -> Verdict + Send + Sync> Decider for F {
    fn decide<'a>(&'a self, review: &'a Review<'a>, _: Instant) -> LocalBoxFuture<'a, Verdict> {
        Box::pin(ready(self(review)))
    }
}

/// The limits of sizes and times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest accepted body.
    pub max_body: usize,
    /// The largest body that counts as small.
    pub max_small_body: usize,
    /// The memory for all small bodies, in bytes.
    pub small_body_memory: usize,
    /// The memory for all larger bodies, in bytes.
    pub large_body_memory: usize,
    /// The memory for long lists in parsed reviews, in bytes.
    pub list_memory: usize,
    /// The time in which belay reads the body of a request and answers. It starts after the head.
    /// The time limit of the connection is 0.5 s longer, and starts at the first byte of the
    /// request. The value must be below the webhook's `timeoutSeconds`.
    pub answer_timeout: Duration,
    /// The time after which belay closes an idle connection.
    pub keep_alive: Duration,
    /// The time after SIGTERM in which belay still answers. It already reports not ready, so
    /// that it gets no new connections.
    pub drain: Duration,
    /// The time after the drain time for requests in progress.
    pub shutdown: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The API server takes requests of up to 3 MiB. A review of an UPDATE has two such
            // objects, as JSON that escapes `<` as `\u003c`, which is six bytes.
            max_body: 40 << 20,
            max_small_body: 256 << 10,
            small_body_memory: 32 << 20,
            large_body_memory: 80 << 20,
            // Two versions of the largest object in etcd have lists of 17 MiB.
            list_memory: 40 << 20,
            answer_timeout: Duration::from_secs(4),
            keep_alive: Duration::from_secs(120),
            drain: Duration::ZERO,
            shutdown: Duration::from_secs(10),
        }
    }
}

/// The state that all handlers share.
#[derive(Clone)]
pub struct Shared {
    /// The decider.
    pub decider: Arc<dyn Decider>,
    /// The decision for unreadable reviews.
    pub failure_policy: FailurePolicy,
    /// The limits.
    pub limits: Limits,
    /// The metrics.
    pub metrics: Metrics,
    /// Whether belay is ready.
    pub readiness: Readiness,
    /// The accepted secrets in the path; `None` if the paths have no secret, because belay
    /// serves without a cluster.
    pub secret_paths: Option<Arc<AcceptedPaths>>,
    /// Prints the graph, if the debug endpoint is enabled.
    pub print_graph: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

/// The errors of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// belay can't listen on an address.
    #[error("cannot listen on {address}: {source}; choose another address with {option}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The option that sets it.
        option: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificate is unusable.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// A second signal ended the process.
    #[error("a second signal ended belay before the last requests were answered")]
    Aborted,
    /// A running server failed.
    #[error("the server stopped: {0}")]
    Run(#[source] std::io::Error),
}
