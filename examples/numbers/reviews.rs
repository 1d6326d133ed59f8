//! The metrics of the reviews of all replicas.

use std::collections::BTreeMap;

use crate::harness::{Installed, Result};

/// A histogram of durations and counters of verdicts, at a time or between two
/// times.
#[derive(Debug, Default)]
pub struct Reviews {
    /// The upper bound of each bucket in seconds, and the number of reviews up to
    /// that bound.
    buckets: Vec<(String, f64)>,
    /// The number of reviews with each set of labels.
    verdicts: BTreeMap<String, f64>,
}

impl Reviews {
    /// All reviews since the start of the replicas.
    pub fn of(installed: &Installed) -> Result<Self> {
        let mut reviews = Self::default();
        for belay in &installed.replicas {
            for line in belay.metrics()?.lines() {
                reviews.take(line)?;
            }
        }
        Ok(reviews)
    }

    fn take(&mut self, line: &str) -> Result<()> {
        let Some((key, value)) = line.rsplit_once(' ') else { return Ok(()) };
        let bound = key.strip_prefix("belay_admission_duration_seconds_bucket{le=\"");
        if let Some(bound) = bound.and_then(|rest| rest.strip_suffix("\"}")) {
            let value: f64 = value.parse()?;
            match self.buckets.iter_mut().find(|(known, _)| known == bound) {
                Some((_, count)) => *count += value,
                None => self.buckets.push((bound.to_owned(), value)),
            }
        }
        if let Some(labels) = key.strip_prefix("belay_admission_requests_total") {
            let label = |name: &str| {
                let rest = labels.split_once(&format!("{name}=\"")).map(|(_, rest)| rest);
                rest.and_then(|rest| rest.split('"').next()).unwrap_or_default()
            };
            let labels = ["webhook", "operation", "verdict"].map(label).join(" ");
            *self.verdicts.entry(labels).or_default() += value.parse::<f64>()?;
        }
        Ok(())
    }

    /// The reviews since an earlier count.
    pub fn since(mut self, before: &Self) -> Self {
        for ((_, count), (_, earlier)) in self.buckets.iter_mut().zip(&before.buckets) {
            *count -= earlier;
        }
        for (labels, count) in &mut self.verdicts {
            *count -= before.verdicts.get(labels).copied().unwrap_or_default();
        }
        self.verdicts.retain(|_, count| *count > 0.0);
        self
    }

    /// The number of reviews.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// The bounds of the bucket that contains the quantile for this fraction. The
    /// bounds differ by a factor of two.
    pub fn quantile(&self, part: f64) -> String {
        let rank = (part * self.count()).ceil();
        let at = self.buckets.iter().position(|(_, count)| *count >= rank).unwrap_or_default();
        let bound = |at: usize| -> Option<String> {
            let seconds: f64 = self.buckets.get(at)?.0.parse().ok()?;
            Some(format!("{} ms", seconds * 1e3))
        };
        let lower = at.checked_sub(1).and_then(bound).unwrap_or_else(|| "0 ms".to_owned());
        match self.buckets.get(at) {
            Some((upper, _)) if upper == "+Inf" => format!("more than {lower}"),
            _ => format!("{lower} to {}", bound(at).unwrap_or_default()),
        }
    }

    /// The number of reviews with each set of labels, one per line.
    pub fn verdicts(&self) -> String {
        let line = |(labels, count): (&String, &f64)| format!("    {labels}: {count}\n");
        self.verdicts.iter().map(line).collect()
    }
}
