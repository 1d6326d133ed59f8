//! The secret paths of the webhooks, which distinguish the API server from other clients.
//!
//! ```text
//!             watch                 ┌─► AcceptedPaths (every replica)
//!   Secret ───────────► every replica ─► signals.paths ─► the registration
//!     ▲                                                        │
//!     │ one step at a time                                     │
//!   the leader ◄── rotation::step ◄── signals.registered ◄─────┘
//! ```
//!
//! A secret path is accepted from the moment it is in the Secret. It is registered
//! once every replica has read it, and is removed once every API server uses
//! the next one.

mod content;
mod driver;
mod rotation;

use std::sync::Arc;

use super::context::Context;
use crate::webhook::AcceptedPaths;

/// Updates `accepted` and `signals.paths`, and the Secret while this replica is the leader, until
/// belay shuts down.
///
/// This call creates the readiness condition "path" before the future is polled.
pub fn run(context: Context, accepted: Arc<AcceptedPaths>) -> impl Future<Output = ()> + Send {
    let condition = context.readiness.condition("path");
    async move {
        let signals = context.signals.clone();
        let driver = driver::Driver::new(context, accepted, condition);
        signals.until_end(driver.run()).await;
    }
}
