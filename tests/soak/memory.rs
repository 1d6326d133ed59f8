//! How much memory each replica has in use, over time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::Installed;
use crate::harness::lock;

/// One sample: seconds since the start, KiB of each running replica.
pub type Sample = (u64, Vec<Option<u64>>);

/// Measures every few seconds until it is stopped.
pub fn watch(belay: &Arc<Mutex<Installed>>, stop: &AtomicBool) -> Vec<Sample> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let replicas = lock(belay).replicas.iter().map(|b| b.process.resident()).collect();
        samples.push((start.elapsed().as_secs(), replicas));
        crate::harness::pause(Duration::from_secs(1));
    }
    samples
}

/// The mean of the first quarter and of the last, in KiB.
pub fn quarters(samples: &[Sample]) -> Option<(u64, u64)> {
    let mean = |samples: &[Sample]| {
        let all: Vec<u64> = samples.iter().flat_map(|(_, r)| r.iter().flatten().copied()).collect();
        all.iter().sum::<u64>().checked_div(all.len() as u64)
    };
    let quarter = samples.len() / 4;
    Some((mean(&samples[..quarter])?, mean(&samples[samples.len() - quarter..])?))
}

/// Whether memory grew by more than starts, caches and the allocator explain.
pub fn grows(samples: &[Sample]) -> bool {
    // Less than ten minutes are not enough: most of it is the start.
    let long = samples.last().is_some_and(|(seconds, _)| *seconds >= 600);
    long && quarters(samples).is_some_and(|(first, last)| last > first + first / 2 + 16 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn(u64) -> u64) -> Vec<Sample> {
        (0..1000).map(|second| (second, vec![Some(of(second)), None])).collect()
    }

    #[test]
    fn growing_memory_is_distinguished_from_steady_memory() {
        assert!(!grows(&samples(|second| 40_000 + second % 7 * 1000)));
        assert!(grows(&samples(|second| 40_000 + second * 100)));
        assert!(!grows(&samples(|second| 40_000 + second * 100)[..500]));
        assert_eq!(quarters(&samples(|_| 5)), Some((5, 5)));
    }
}
