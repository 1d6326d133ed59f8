//! How long to wait: for one answer, and before the next attempt.

use std::future::Future;
use std::time::Duration;

use super::api::Trouble;

/// How long one request may take. The API server itself gives up after a
/// minute, and by then whatever was to be written is old.
const ONE_REQUEST: Duration = Duration::from_secs(10);

/// Waits for the answer to one request, and not for ever.
pub(super) async fn within<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(ONE_REQUEST, request).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => {
            let seconds = ONE_REQUEST.as_secs();
            Err(Trouble::Failed(format!("the API server did not answer within {seconds} s")))
        }
    }
}

/// Counts failures in a row, so that each story of them is told once and the
/// pauses grow.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
}

impl Patience {
    /// Another failure. Says whether it is the first one.
    pub(super) fn failed(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }

    /// It works. Says whether it did not before.
    pub(super) fn worked(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// How long to wait before the next attempt: from half a second to a
    /// minute, with up to a quarter more by `chance`, any number, so that
    /// replicas that failed together do not come back together.
    pub(super) fn pause(&self, chance: u32) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let doubled = 1_u64 << (self.failures - 1).min(7);
        let pause = Duration::from_millis(500 * doubled).min(Duration::from_secs(60));
        pause + pause / 4 * (chance % 1000) / 1000
    }

    /// The same, by a chance that the clock gives.
    pub(super) fn wait(&self) -> Duration {
        let chance = jiff::Timestamp::now().subsec_nanosecond();
        self.pause(chance.unsigned_abs() / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_the_story_is_told_once() {
        let mut patience = Patience::default();
        assert_eq!(patience.pause(999), Duration::ZERO);
        assert!(patience.failed());
        assert_eq!(patience.pause(0), Duration::from_millis(500));
        assert!(!patience.failed());
        assert_eq!(patience.pause(0), Duration::from_secs(1));
        assert!((0..1000).all(|_| !patience.failed()));
        assert_eq!(patience.pause(0), Duration::from_secs(60));
        let longest = patience.pause(999);
        assert!(longest > Duration::from_secs(74) && longest < Duration::from_secs(75));
        assert!(patience.worked());
        assert!(!patience.worked());
    }
}
