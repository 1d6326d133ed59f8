//! Whether the server is about to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the end has begun: clients are to take their next request elsewhere.
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
