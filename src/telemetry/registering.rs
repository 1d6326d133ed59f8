use prometheus_client::registry::{Metric, Registry};

/// Registers a new metric with this name and help.
pub(super) fn register<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    register_metric(registry, name, help, M::default())
}

/// Registers this metric with this name and help.
pub(super) fn register_metric<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}
