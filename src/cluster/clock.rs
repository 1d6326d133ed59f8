use jiff::Timestamp;
use tokio::time::Instant;

/// The time of the API server's clock if it is known, so that the clock of a user's
/// machine doesn't matter. Otherwise the local clock, which replicas use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    server_time: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// Starts the clock with the time in an answer of the API server.
    pub fn from_server(time: Timestamp) -> Self {
        Self { server_time: Some((time, Instant::now())) }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let Some((server_time, at)) = self.server_time else { return Timestamp::now() };
        server_time.saturating_add(at.elapsed()).unwrap_or(server_time)
    }
}
