//! Measured durations and their summary.

use std::time::Duration;

/// The durations of repeated measurements.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a duration.
    pub fn push(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// The number of durations.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The quantile for this fraction.
    pub fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The median, the 99th percentile and the maximum.
    pub fn row(&self) -> String {
        let [half, most, worst] = [0.5, 0.99, 1.0].map(|part| milliseconds(self.quantile(part)));
        format!("p50 {half}, p99 {most}, max {worst} ms ({})", self.count())
    }
}

/// In milliseconds, with two decimal places.
pub fn milliseconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1e3)
}
