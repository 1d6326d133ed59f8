//! What an operator sees: metrics, logs, readiness. Never a decision, never
//! an object's body, never the name of an object or a user as a label; the name
//! of a policy is the one exception.

mod cluster;
mod cluster_updates;
mod live;
mod logs;
mod metrics;
mod readiness;

pub use cluster::FeedState;
pub use logs::{LineLimit, LogFormat, NamespaceLines, init_logs};
pub use metrics::{Metrics, ReviewLabels};
pub use readiness::{Condition, Readiness};
