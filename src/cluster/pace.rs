//! The waits between attempts. They grow, and they are random so that replicas do not retry at the
//! same time.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use crate::objects::ApiError;
use crate::timing::Retry;

/// Waits between attempts, each twice as long as the one before.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl From<Retry> for Backoff {
    fn from(Retry { first, longest }: Retry) -> Self {
        Self::new(first, longest)
    }
}

impl Backoff {
    /// Creates a backoff with its first and its longest wait.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0 }
    }

    /// Called after a failure. Returns how long to wait before the next attempt.
    pub fn next(&mut self) -> Duration {
        let wait = self.first.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        jittered(wait.min(self.most))
    }

    /// Like `next`. Logs only the first of consecutive failures.
    pub fn fail(&mut self, log: impl FnOnce()) -> Duration {
        if self.failures == 0 {
            log();
        }
        self.next()
    }

    /// Called after a success. Returns whether the attempt before had failed.
    pub fn record_success(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }
}

/// The time limit of one request. The API server itself gives up after a minute, when the data to
/// write would be outdated.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Limits the time of one request, so that a hanging request becomes an error.
pub async fn within<T, E: Into<ApiError>>(
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    within_limit(LIMIT, request).await
}

/// Limits the time of one request to `limit`.
pub async fn within_limit<T, E: Into<ApiError>>(
    limit: Duration,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    timed(limit, request).await?.map_err(Into::into)
}

/// Limits the time of one request and keeps its own error.
pub async fn timed<T>(limit: Duration, request: impl Future<Output = T>) -> Result<T, ApiError> {
    tokio::time::timeout(limit, request).await.map_err(|_| ApiError::TimedOut(limit))
}

/// A random duration between four fifths of this one and all of it.
pub fn jittered(wait: Duration) -> Duration {
    (wait / 1000).saturating_mul(1000 - random(200))
}

/// A random number below `below`, from the random keys of a `RandomState`. It only spreads load and
/// is not secret.
pub fn random(below: u32) -> u32 {
    let chance = RandomState::new().hash_one(0_u8) % u64::from(below.max(1));
    u32::try_from(chance).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(4));
        let mut logged = 0;
        for longest in [1, 2, 4, 4, 4] {
            let (wait, longest) = (backoff.fail(|| logged += 1), Duration::from_secs(longest));
            assert!(longest.mul_f64(0.79) < wait && wait <= longest, "{wait:?} of {longest:?}");
        }
        assert_eq!(logged, 1);
        assert!(backoff.record_success());
        assert!(!backoff.record_success());
        assert!(backoff.next() <= Duration::from_secs(1));
    }

    #[test]
    fn chance_differs() {
        let waits: std::collections::HashSet<_> =
            (0..50).map(|_| jittered(Duration::from_secs(100))).collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
