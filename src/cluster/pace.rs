//! How fast things are tried again.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Waits that double, each with chance in it, so that what broke at once is
/// not tried again at once by everybody.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(30);

    /// The next wait.
    pub fn next(&mut self) -> Duration {
        let doubled = Self::FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        jittered(doubled.min(Self::LONGEST))
    }

    /// It went well.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Between half of it and all of it.
pub fn jittered(wait: Duration) -> Duration {
    let half = wait / 2;
    half + half.mul_f64(f64::from(random(1000)) / 1000.0)
}

/// A number below `below`. It spreads load and is good for nothing else: each
/// hasher of the standard library has keys of its own.
pub fn random(below: u32) -> u32 {
    let value = RandomState::new().hash_one(0_u8) % u64::from(below.max(1));
    u32::try_from(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_begin_again() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..12).map(|_| backoff.next()).collect();
        for (n, wait) in waits.iter().enumerate() {
            let full = (Backoff::FIRST * (1 << n)).min(Backoff::LONGEST);
            assert!(*wait >= full / 2 && *wait <= full, "{n}: {wait:?}");
        }
        assert_eq!(waits.iter().max().map(|wait| *wait <= Backoff::LONGEST), Some(true));
        backoff.reset();
        assert!(backoff.next() <= Backoff::FIRST);
    }
}
