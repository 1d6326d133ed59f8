//! Logs: text on a terminal, JSON lines otherwise.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One line of text an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// Writes log lines to standard error. `BELAY_LOG` sets the level, with the syntax of `RUST_LOG`.
/// The default is `info`, with two exceptions. It omits lines of actix about its threads and about
/// invalid HTTP, which any Pod can send. It omits lines of kube, which quote answers that can't be
/// parsed, because an answer may be a Secret. A second call changes nothing.
pub fn init_logs(format: LogFormat) {
    let default = || EnvFilter::new("info,actix_server=warn,actix_http=off,kube_client=off");
    let (filter, mistyped) = match std::env::var("BELAY_LOG").ok().filter(|text| !text.is_empty()) {
        None => (default(), None),
        Some(text) => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (default(), Some(error.to_string())),
        },
    };
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let text = match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    // An error means that a test or an embedding program has already set a subscriber.
    let _ = if text {
        tracing::subscriber::set_global_default(builder.with_ansi(terminal).finish())
    } else {
        tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish())
    };
    if let Some(error) = mistyped {
        tracing::warn!(error, "BELAY_LOG is not understood and not used");
    }
}

/// Limits log lines that any caller can cause to one in a second.
#[derive(Debug)]
pub struct LineLimit(Mutex<(Option<Instant>, u64)>);

impl LineLimit {
    /// The minimum time between two lines.
    const INTERVAL: Duration = Duration::from_secs(1);

    /// A limit before the first line.
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// If a line may be written now, returns the number of omitted lines since the last one.
    pub fn admit_log_line(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        let (last, suppressed) = &mut *lines;
        if last.is_some_and(|last| now.saturating_duration_since(last) < Self::INTERVAL) {
            *suppressed += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(suppressed))
    }
}

impl Default for LineLimit {
    fn default() -> Self {
        Self::new()
    }
}

/// Limits the log lines about requests in one second, for each namespace and in total.
#[derive(Debug, Default)]
pub struct NamespaceLineLimit(Mutex<SecondCount>);

#[derive(Debug, Default)]
struct SecondCount {
    start: Option<Instant>,
    all: usize,
    by_namespace: HashMap<Box<str>, usize>,
    suppressed: u64,
}

impl NamespaceLineLimit {
    /// The limit for one namespace.
    const MAX_PER_NAMESPACE: usize = 5;

    /// The limit for all namespaces together.
    const MAX_TOTAL: usize = 100;

    /// If a line may be written now, returns the number of omitted lines since the last one.
    pub fn admit_log_line(&self, namespace: &str, now: Instant) -> Option<u64> {
        let mut second = self.0.lock();
        if second.start.is_none_or(|start| now.saturating_duration_since(start).as_secs() > 0) {
            *second = SecondCount {
                start: Some(now),
                suppressed: second.suppressed,
                ..SecondCount::default()
            };
        }
        let SecondCount { all, by_namespace, suppressed, .. } = &mut *second;
        let lines = by_namespace.get(namespace).copied().unwrap_or_default();
        if lines >= Self::MAX_PER_NAMESPACE || *all >= Self::MAX_TOTAL {
            *suppressed += 1;
            return None;
        }
        *all += 1;
        by_namespace.insert(namespace.into(), lines + 1);
        Some(std::mem::take(suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h82_refusals_in_one_namespace_leave_lines_to_others() {
        let (lines, start) = (NamespaceLineLimit::default(), Instant::now());
        let admitted = |namespace: &str, milliseconds| {
            lines.admit_log_line(namespace, start + Duration::from_millis(milliseconds))
        };
        assert_eq!([0; 5].map(|at| admitted("noisy", at)), [Some(0); 5]);
        assert_eq!([admitted("noisy", 0), admitted("noisy", 999)], [None; 2]);
        assert_eq!([admitted("quiet", 999), admitted("noisy", 1_000)], [Some(2), Some(0)]);
        let all = (0..1_000).filter(|n| admitted(&format!("of-{n}"), 1_001).is_some()).count();
        assert_eq!(all, 99);
    }

    #[test]
    fn h35_a_line_is_written_once_a_second_with_the_number_of_those_left_out() {
        let (limit, start) = (LineLimit::new(), Instant::now());
        let at = |milliseconds| limit.admit_log_line(start + Duration::from_millis(milliseconds));
        assert_eq!(
            [at(0), at(1), at(999), at(1_000), at(2_500)],
            [Some(0), None, None, Some(2), Some(0)]
        );
    }
}
