//! What time it is.

use jiff::Timestamp;
use tokio::time::Instant;

/// The time by the API server's clock, where it was told: nobody's laptop has to
/// be right. Otherwise it is that of this machine, which is what replicas go by.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    told: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The API server has just said that it is this time.
    pub fn told(time: Timestamp) -> Self {
        Self { told: Some((time, Instant::now())) }
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        let Some((told, at)) = self.told else { return Timestamp::now() };
        told.saturating_add(at.elapsed()).unwrap_or(told)
    }
}
