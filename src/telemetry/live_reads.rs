//! The metrics of live reads.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::registering::{register, register_metric};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LiveReadLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LiveReviewLabels {
    operation: &'static str,
}

#[derive(Debug)]
pub struct LiveMetrics {
    reads: Family<LiveReadLabels, Counter>,
    reviews: Family<LiveReviewLabels, Counter>,
    duration: Histogram,
}

impl LiveMetrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let duration = Histogram::new(exponential_buckets(0.001, 2.0, 13));
        let help = "Time from the request to the answer of a live read";
        Self {
            reads: register(registry, "live_reads", "Reads that verdicts waited for"),
            reviews: register(
                registry,
                "live_reviews",
                "Reviews whose verdicts waited for live reads",
            ),
            duration: register_metric(registry, "live_read_duration_seconds", help, duration),
        }
    }

    /// Counts one review whose verdict waited for reads.
    pub fn count_review(&self, operation: &'static str) {
        self.reviews.get_or_create(&LiveReviewLabels { operation }).inc();
    }

    /// Counts one read that a verdict waited for.
    pub fn count_read(&self, result: &'static str, took: Duration) {
        self.reads.get_or_create(&LiveReadLabels { result }).inc();
        self.duration.observe(took.as_secs_f64());
    }
}
