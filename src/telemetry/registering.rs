//! Registers metrics.

use prometheus_client::registry::{Metric, Registry};

/// Registers a metric with this name and help.
pub(super) fn new<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    registered(registry, name, help, M::default())
}

pub(super) fn registered<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}
