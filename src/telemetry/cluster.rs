//! The metrics of the cluster side.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::registering::register;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ConfigurationLabels {
    pub(super) configuration: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HoldChangeLabels {
    pub(super) change: &'static str,
    pub(super) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReleaseLabels {
    pub(super) why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResourceLabels {
    pub(super) resource: String,
}

/// The state of the feed.
#[derive(Debug, Clone, Copy, Default)]
pub struct FeedState {
    /// Objects in the graph.
    pub objects: usize,
    /// Edges in the graph.
    pub edges: usize,
    /// The longest time for which a watch has been disconnected.
    pub lag: Duration,
    /// Kinds that policies, Relations or `--labelled-kinds` name but the API server does not serve.
    /// A kind counts once for each of these that names it.
    pub unknown: usize,
    /// Watched kinds.
    pub watched: usize,
    /// Watched kinds whose objects are not all known.
    pub incomplete: usize,
}

#[derive(Debug)]
pub struct ClusterMetrics {
    pub(super) journal_dropped: Counter,
    pub(super) leader: Gauge,
    pub(super) leader_changes: Counter,
    pub(super) registration_repairs: Family<ConfigurationLabels, Counter>,
    pub(super) registration_missing: Family<ConfigurationLabels, Gauge>,
    pub(super) registration_changed: Family<ConfigurationLabels, Gauge>,
    pub(super) holds: Gauge,
    pub(super) backfills_stopped: Gauge,
    pub(super) hold_changes: Family<HoldChangeLabels, Counter>,
    pub(super) releases: Family<ReleaseLabels, Counter>,
    pub(super) paused: Gauge,
    pub(super) releasing: Gauge,
    pub(super) stuck: Gauge,
    pub(super) objects: Gauge,
    pub(super) edges: Gauge,
    pub(super) lag: Gauge<f64, AtomicU64>,
    pub(super) unknown: Gauge,
    pub(super) watched: Gauge,
    pub(super) incomplete: Gauge,
    pub(super) unreadable: Family<ResourceLabels, Gauge>,
}

impl ClusterMetrics {
    /// Registers the metrics.
    #[rustfmt::skip]
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            journal_dropped: register(registry, "journal_dropped", "Verdicts that are in no status and no Event, because too many came at once"),
            leader: register(registry, "leader", "Whether this replica is the leader (1) or not (0); there is no leader while the sum is 0"),
            leader_changes: register(registry, "leader_changes", "How often this replica became the leader or lost leadership"),
            registration_repairs: register(registry, "registration_repairs", "Repairs of a changed webhook configuration"),
            registration_missing: register(registry, "registration_missing", "Whether a webhook configuration does not exist (1) or does (0)"),
            registration_changed: register(registry, "registration_changed", "Webhooks in a webhook configuration that differ from the installation"),
            holds: register(registry, "holds", "Objects that have the hold, as the leader counts them"),
            backfills_stopped: register(registry, "backfills_stopped", "Stopped backfills, by policy and kind: more objects lack the hold than the limit allows"),
            hold_changes: register(registry, "hold_changes", "Holds that the leader added to existing objects, or removed because no policy wants them"),
            releases: register(registry, "releases", "Released holds, by reason"),
            paused: register(registry, "paused", "Whether a Pause is in force (1), so that belay denies nothing in the whole cluster, or not (0)"),
            releasing: register(registry, "releasing", "Terminating objects with the hold"),
            stuck: register(registry, "stuck_objects", "Terminating objects with the hold whose users are unknown, because a read or write fails"),
            objects: register(registry, "graph_objects", "Objects in the graph"),
            edges: register(registry, "graph_edges", "Edges in the graph"),
            lag: register(registry, "feed_lag_seconds", "The longest time for which a watch has been disconnected"),
            unknown: register(registry, "unknown_kinds", "Kinds that policies, Relations or --labelled-kinds name but the API server does not serve; a kind counts once for each of these that names it"),
            watched: register(registry, "watched_kinds", "Watched kinds"),
            incomplete: register(registry, "failed_watches", "Watched kinds whose objects are not all known: verdicts that need them are Unknown"),
            unreadable: register(registry, "unreadable_objects", "Objects that can't be read, by resource: each may use any object that its kind can use"),
        }
    }
}
