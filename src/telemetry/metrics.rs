//! The metrics. Dashboards and alerts depend on their names.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::cluster::ClusterMetrics;
use super::live_reads::LiveMetrics;
use super::registering::{register, register_metric};

/// Labels of an answered review. Each has a small, fixed set of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReviewLabels {
    /// The admission phase.
    pub webhook: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// The decision.
    pub verdict: &'static str,
    /// The action of the strictest denying policy: Deny, Hold, Warn or Audit; None if no
    /// policy denies the request. A request with verdict Allow and action Deny passed because
    /// of an approval or an exemption.
    pub action: &'static str,
    /// The class of the user.
    pub subject_class: &'static str,
}

/// Labels of denials by a policy. Policies are few and cluster-scoped, so their names may
/// be labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DenialLabels {
    policy: String,
    reason: &'static str,
    action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BadRequestLabels {
    code: u16,
}

/// All metrics of the process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(pub(super) Arc<Inner>);

#[derive(Debug)]
pub struct Inner {
    registry: Registry,
    answered: Family<ReviewLabels, Counter>,
    duration: Histogram,
    denied: Family<DenialLabels, Counter>,
    bad_requests: Family<BadRequestLabels, Counter>,
    certificate_expiry: Gauge,
    certificate_failures: Counter,
    files_loaded: Counter,
    files_broken: Gauge,
    pub(super) cluster: ClusterMetrics,
    pub(super) live: LiveMetrics,
}

impl Default for Metrics {
    #[rustfmt::skip]
    fn default() -> Self {
        let mut registry = Registry::with_prefix("belay");
        let all = &mut registry;
        // From 50 µs to 1.6 s: a verdict takes microseconds, a live read
        // milliseconds, and the API server gives up after seconds.
        let buckets = exponential_buckets(0.000_05, 2.0, 16);
        let duration = "Time from the end of the request's body to the answer";
        Self(Arc::new(Inner {
            answered: register(all, "admission_requests", "Reviews answered"),
            duration: register_metric(all, "admission_duration_seconds", duration, Histogram::new(buckets)),
            denied: register(all, "denials", "Denials by policies (action Deny), and requests that they held or would deny (Hold, Warn, Audit)"),
            bad_requests: register(all, "bad_requests", "HTTP requests that were no readable review, by status code"),
            certificate_expiry: register(all, "certificate_expiry_seconds", "When the serving certificate expires, in seconds since 1970"),
            certificate_failures: register(all, "certificate_reload_failures", "How often changed certificates were unusable and the previous ones stayed in use"),
            files_loaded: register(all, "files_loaded", "How often policies and objects were read from files"),
            files_broken: register(all, "files_broken", "Whether a file is broken, so that the previous content stays in use (1), or not (0)"),
            cluster: ClusterMetrics::new(all),
            live: LiveMetrics::new(all),
            registry,
        }))
    }
}

impl Metrics {
    /// Counts one answered review.
    pub fn count_answered(&self, labels: &ReviewLabels, took: Duration) {
        self.0.answered.get_or_create(labels).inc();
        self.0.duration.observe(took.as_secs_f64());
    }

    /// Counts that a policy denied a request, or would have denied it.
    pub fn count_denied(&self, policy: &str, reason: &'static str, action: &'static str) {
        let labels = DenialLabels { policy: policy.to_owned(), reason, action };
        self.0.denied.get_or_create(&labels).inc();
    }

    /// Counts one HTTP request that was no readable review.
    pub fn count_bad_request(&self, code: u16) {
        self.0.bad_requests.get_or_create(&BadRequestLabels { code }).inc();
    }

    /// When the certificate in use expires, in seconds since 1970; `None` if there is no
    /// certificate yet.
    pub fn certificate_expiry(&self) -> Option<i64> {
        let expiry = self.0.certificate_expiry.get();
        (expiry != 0).then_some(expiry)
    }

    /// Records that a certificate with this expiry (in seconds since 1970) is in use.
    pub fn set_certificate_expiry(&self, expiry: i64) {
        self.0.certificate_expiry.set(expiry);
    }

    /// Counts changed certificates that can't be used.
    pub fn count_certificate_failure(&self) {
        self.0.certificate_failures.inc();
    }

    /// Records that all policies and objects were read from files.
    pub fn record_files_loaded(&self) {
        self.0.files_loaded.inc();
        self.0.files_broken.set(0);
    }

    /// Records that a file is broken. The content that was read last stays in use.
    pub fn record_files_broken(&self) {
        self.0.files_broken.set(1);
    }

    /// All metrics in the text format of Prometheus.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.0.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::FeedState;
    use super::*;

    #[test]
    fn metrics_have_the_names_that_dashboards_use() {
        let metrics = Metrics::default();
        let labels = ReviewLabels {
            webhook: "validate",
            operation: "delete",
            verdict: "Deny",
            action: "Deny",
            subject_class: "user",
        };
        metrics.count_answered(&labels, Duration::from_micros(80));
        metrics.count_denied("pvc-in-use", "InUse", "Deny");
        metrics.count_journal_dropped();
        metrics.count_bad_request(413);
        assert_eq!(metrics.certificate_expiry(), None);
        metrics.set_certificate_expiry(1_800_000_000);
        assert_eq!(metrics.certificate_expiry(), Some(1_800_000_000));
        metrics.count_certificate_failure();
        metrics.record_files_loaded();
        metrics.record_files_broken();
        metrics.set_leader(true);
        metrics.count_registration_repair("mutating");
        metrics.set_registration_missing("validating", true);
        metrics.set_registration_changed("validating", 2);
        metrics.count_live_review("delete");
        metrics.count_live_read("ok", Duration::from_millis(3));
        metrics.count_hold_change("added", true);
        metrics.set_feed(&FeedState {
            objects: 3,
            edges: 2,
            lag: Duration::from_secs(1),
            unknown: 1,
            watched: 4,
            incomplete: 0,
        });
        metrics.set_holds(7);
        metrics.count_release("unused");
        metrics.set_releasing(5, 1);
        let text = metrics.encode();
        for line in [
            r#"belay_admission_requests_total{webhook="validate",operation="delete",verdict="Deny",action="Deny",subject_class="user"} 1"#,
            "belay_admission_duration_seconds_count 1",
            r#"belay_denials_total{policy="pvc-in-use",reason="InUse",action="Deny"} 1"#,
            "belay_journal_dropped_total 1",
            r#"belay_bad_requests_total{code="413"} 1"#,
            "belay_certificate_expiry_seconds 1800000000",
            "belay_certificate_reload_failures_total 1",
            "belay_files_loaded_total 1",
            "belay_files_broken 1",
            "belay_leader 1",
            "belay_leader_changes_total 1",
            r#"belay_registration_repairs_total{configuration="mutating"} 1"#,
            r#"belay_registration_missing{configuration="validating"} 1"#,
            r#"belay_registration_changed{configuration="validating"} 2"#,
            r#"belay_live_reads_total{result="ok"} 1"#,
            r#"belay_live_reviews_total{operation="delete"} 1"#,
            "belay_live_read_duration_seconds_count 1",
            r#"belay_hold_changes_total{change="added",result="ok"} 1"#,
            "belay_graph_objects 3",
            "belay_graph_edges 2",
            "belay_feed_lag_seconds 1",
            "belay_unknown_kinds 1",
            "belay_watched_kinds 4",
            "belay_failed_watches 0",
            "belay_holds 7",
            r#"belay_releases_total{why="unused"} 1"#,
            "belay_releasing 5",
            "belay_stuck_objects 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
