//! What is counted of the cluster side.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::Metrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Configuration {
    configuration: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HoldChange {
    change: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Released {
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    resource: String,
}

/// How the feed is doing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fed {
    /// Objects in the graph.
    pub objects: usize,
    /// Edges in the graph.
    pub edges: usize,
    /// For how long the watch that is furthest behind has been cut off.
    pub lag: Duration,
    /// Kinds that policies or Relations name and nobody serves.
    pub unknown: usize,
    /// Kinds that are watched.
    pub watched: usize,
    /// Kinds of those whose objects are not all known.
    pub failed: usize,
}

/// The metrics of the cluster side.
#[derive(Debug)]
pub struct ClusterMetrics {
    journal_dropped: Counter,
    leader: Gauge,
    leader_changes: Counter,
    registration_repairs: Family<Configuration, Counter>,
    registration_missing: Family<Configuration, Gauge>,
    holds: Gauge,
    backfills_stopped: Gauge,
    hold_changes: Family<HoldChange, Counter>,
    releases: Family<Released, Counter>,
    paused: Gauge,
    releasing: Gauge,
    stuck: Gauge,
    objects: Gauge,
    edges: Gauge,
    lag: Gauge<f64, AtomicU64>,
    unknown: Gauge,
    watched: Gauge,
    failed: Gauge,
    unreadable: Family<Resource, Gauge>,
}

impl ClusterMetrics {
    /// Registers them.
    #[rustfmt::skip]
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            journal_dropped: new(registry, "journal_dropped", "Verdicts that are in no status and no Event, because too many came at once"),
            leader: new(registry, "leader", "Whether this replica leads (1) or not (0); nobody leads while the sum is 0"),
            leader_changes: new(registry, "leader_changes", "Times that this replica began to lead or ceased to"),
            registration_repairs: new(registry, "registration_repairs", "Times that somebody had taken out what a webhook configuration has to say, and it was put back"),
            registration_missing: new(registry, "registration_missing", "Whether a webhook configuration does not exist (1) or does (0)"),
            holds: new(registry, "holds", "Objects that have the hold, as the leader counts them"),
            backfills_stopped: new(registry, "backfills_stopped", "Policies, each kind of theirs by itself, of whose objects more lack the hold than may get it late, so that none does"),
            hold_changes: new(registry, "hold_changes", "Holds put on late or taken off because nothing wants them"),
            releases: new(registry, "releases", "Holds that were let go of, by what made the object free"),
            paused: new(registry, "paused", "Whether a Pause is in force (1), so that nothing is refused in the whole cluster, or not (0)"),
            releasing: new(registry, "releasing", "Objects that are Terminating under the hold"),
            stuck: new(registry, "stuck_objects", "Objects of those of which nobody can say whether they are free, because something cannot be read or written"),
            objects: new(registry, "graph_objects", "Objects in the graph"),
            edges: new(registry, "graph_edges", "Edges in the graph"),
            lag: new(registry, "feed_lag_seconds", "For how long the watch that is furthest behind has been cut off"),
            unknown: new(registry, "unknown_kinds", "Kinds that policies name and nobody serves"),
            watched: new(registry, "watched_kinds", "Kinds that are watched"),
            failed: new(registry, "failed_watches", "Kinds that are watched and not all of whose objects are known: verdicts that need them fail closed"),
            unreadable: new(registry, "unreadable_objects", "Objects that can't be read, by resource: each counts as an object that may use anything that its kind can use"),
        }
    }
}

fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// A verdict is in no status and no Event.
    pub fn journal_dropped(&self) {
        self.0.cluster.journal_dropped.inc();
    }

    /// This replica leads from now on, or does no more.
    pub fn leads(&self, leads: bool) {
        self.0.cluster.leader.set(leads.into());
        self.0.cluster.leader_changes.inc();
    }

    /// Somebody had taken out what a webhook configuration has to say, and it
    /// was put back.
    pub fn registration_repaired(&self, configuration: &'static str) {
        let labels = Configuration { configuration };
        self.0.cluster.registration_repairs.get_or_create(&labels).inc();
    }

    /// Whether a webhook configuration does not exist.
    pub fn registration_missing(&self, configuration: &'static str, missing: bool) {
        let labels = Configuration { configuration };
        self.0.cluster.registration_missing.get_or_create(&labels).set(missing.into());
    }

    /// So many objects have the hold.
    pub fn holds(&self, count: usize) {
        self.0.cluster.holds.set(number(count));
    }

    /// At so many places policies stand still, because too many objects lack the
    /// hold.
    pub fn backfills_stopped(&self, count: usize) {
        self.0.cluster.backfills_stopped.set(number(count));
    }

    /// Whether a Pause is in force.
    pub fn paused(&self, paused: bool) {
        self.0.cluster.paused.set(paused.into());
    }

    /// A hold was put on late, or taken off because nothing wants it; or that
    /// did not succeed.
    pub fn hold_changed(&self, change: &'static str, succeeded: bool) {
        let result = if succeeded { "ok" } else { "failed" };
        self.0.cluster.hold_changes.get_or_create(&HoldChange { change, result }).inc();
    }

    /// A hold was let go of, for this reason.
    pub fn released(&self, why: &'static str) {
        self.0.cluster.releases.get_or_create(&Released { why }).inc();
    }

    /// So many objects wait under the hold, and of so many of them nobody can
    /// say whether they are free.
    pub fn releasing(&self, waiting: usize, stuck: usize) {
        self.0.cluster.releasing.set(number(waiting));
        self.0.cluster.stuck.set(number(stuck));
    }

    /// How the feed is doing.
    pub fn fed(&self, fed: &Fed) {
        let metrics = &self.0.cluster;
        metrics.objects.set(number(fed.objects));
        metrics.edges.set(number(fed.edges));
        metrics.lag.set(fed.lag.as_secs_f64());
        metrics.unknown.set(number(fed.unknown));
        metrics.watched.set(number(fed.watched));
        metrics.failed.set(number(fed.failed));
    }

    /// So many objects of these resources can't be read, and of no others.
    pub fn unreadable(&self, counts: &[(String, usize)]) {
        let unreadable = &self.0.cluster.unreadable;
        unreadable.clear();
        for (resource, count) in counts {
            let resource = resource.clone();
            unreadable.get_or_create(&Resource { resource }).set(number(*count));
        }
    }

    /// Counts one live read that a verdict waited for, by what came of it.
    pub fn read_live(&self, result: &'static str, took: Duration) {
        self.0.live.answered(result, took);
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
