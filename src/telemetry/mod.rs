//! What an operator sees: metrics, logs, readiness. Never a decision, never
//! an object's body, never the name of an object or a user as a label.

mod live;
mod logs;
mod metrics;
mod readiness;

pub use logs::{LogFormat, init_logs};
pub use metrics::Metrics;
pub use readiness::{Condition, Readiness};
