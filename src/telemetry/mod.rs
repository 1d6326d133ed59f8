//! Metrics, logs and readiness. They never contain bodies of objects. Labels never
//! contain names of objects or users, except names of policies.

mod cluster;
mod cluster_updates;
mod live_reads;
mod logs;
mod metrics;
mod readiness;
mod registering;

pub use cluster::FeedState;
pub use logs::{LineLimit, LogFormat, NamespaceLineLimit, init_logs};
pub use metrics::{Metrics, ReviewLabels};
pub use readiness::{Readiness, ReadinessCondition};
