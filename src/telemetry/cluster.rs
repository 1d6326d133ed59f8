//! The metrics of the cluster side.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Configuration {
    pub(super) configuration: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HoldChange {
    pub(super) change: &'static str,
    pub(super) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Released {
    pub(super) why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Resource {
    pub(super) resource: String,
}

/// The state of the feed.
#[derive(Debug, Clone, Copy, Default)]
pub struct FeedState {
    /// Objects in the graph.
    pub objects: usize,
    /// Edges in the graph.
    pub edges: usize,
    /// How long the oldest disconnected watch has been disconnected.
    pub lag: Duration,
    /// Kinds that policies or Relations name but the API server doesn't serve.
    pub unknown: usize,
    /// Watched kinds.
    pub watched: usize,
    /// Watched kinds whose objects are not all known.
    pub failed: usize,
}

/// The metrics of the cluster side.
#[derive(Debug)]
pub struct ClusterMetrics {
    pub(super) journal_dropped: Counter,
    pub(super) leader: Gauge,
    pub(super) leader_changes: Counter,
    pub(super) registration_repairs: Family<Configuration, Counter>,
    pub(super) registration_missing: Family<Configuration, Gauge>,
    pub(super) registration_changed: Family<Configuration, Gauge>,
    pub(super) holds: Gauge,
    pub(super) backfills_stopped: Gauge,
    pub(super) hold_changes: Family<HoldChange, Counter>,
    pub(super) releases: Family<Released, Counter>,
    pub(super) paused: Gauge,
    pub(super) releasing: Gauge,
    pub(super) stuck: Gauge,
    pub(super) objects: Gauge,
    pub(super) edges: Gauge,
    pub(super) lag: Gauge<f64, AtomicU64>,
    pub(super) unknown: Gauge,
    pub(super) watched: Gauge,
    pub(super) failed: Gauge,
    pub(super) unreadable: Family<Resource, Gauge>,
}

impl ClusterMetrics {
    /// Registers the metrics.
    #[rustfmt::skip]
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            journal_dropped: new(registry, "journal_dropped", "Verdicts that are in no status and no Event, because too many came at once"),
            leader: new(registry, "leader", "Whether this replica leads (1) or not (0); nobody leads while the sum is 0"),
            leader_changes: new(registry, "leader_changes", "Times that this replica began to lead or ceased to"),
            registration_repairs: new(registry, "registration_repairs", "Times that somebody had taken out what a webhook configuration has to say, and it was put back"),
            registration_missing: new(registry, "registration_missing", "Whether a webhook configuration does not exist (1) or does (0)"),
            registration_changed: new(registry, "registration_changed", "Webhooks of a webhook configuration that are not as they were installed"),
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
