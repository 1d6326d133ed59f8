//! The state of the server after SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the server is draining. Then clients must send their next request to another replica.
#[derive(Debug, Clone, Default)]
pub(super) struct Draining(Arc<AtomicBool>);

impl Draining {
    pub(super) fn is_draining(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }
}
