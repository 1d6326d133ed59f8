//! The facts that a driver has not received yet.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::hold::TargetState;

/// The newest facts for a driver.
#[derive(Debug, Default)]
pub struct DriverUpdate {
    /// The state of the target in the last watch event.
    pub observed: Option<TargetState>,
    /// Whether the watch reported that the target was removed.
    pub deleted: bool,
    /// When to start the next pass. The driver starts it earlier if its own pass is due earlier.
    pub pass_by: Option<Instant>,
    /// How long this process must see the target Terminating before the first pass.
    pub settle: Option<Duration>,
}

/// The update that a driver has not received yet. Its memory does not grow with the number of
/// changes.
#[derive(Debug, Default)]
pub struct PendingUpdate {
    update: Mutex<DriverUpdate>,
    pub added: Notify,
}

impl PendingUpdate {
    pub fn add(&self, change: impl FnOnce(&mut DriverUpdate)) {
        change(&mut self.update.lock());
        self.added.notify_one();
    }

    /// Returns the update since the last call.
    pub fn take(&self) -> DriverUpdate {
        std::mem::take(&mut *self.update.lock())
    }
}
