//! The output for the user while tests run, and at the end.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// How often the line of progress is printed where standard output is no terminal.
const EVERY: Duration = Duration::from_secs(15);

/// The number of running tests that are named, and of slow ones.
const NAMED: usize = 3;
const SLOWEST: usize = 10;

/// The number of lines of a failure that are printed again at the end.
const CAUSE: usize = 6;

/// The state of all tests.
pub struct Progress {
    started: Instant,
    printed: Instant,
    terminal: bool,
    total: usize,
    running: BTreeMap<String, Instant>,
    done: Vec<(f64, String)>,
    /// With the first words of the failure.
    failed: Vec<(String, String)>,
}

impl Progress {
    pub fn new(total: usize) -> Self {
        let now = Instant::now();
        let terminal = std::io::stdout().is_terminal();
        let (running, done, failed) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { started: now, printed: now, terminal, total, running, done, failed }
    }

    pub fn start(&mut self, test: String) {
        self.running.insert(test, Instant::now());
        self.print();
    }

    pub fn end(&mut self, test: String, seconds: f64) {
        self.running.remove(&test);
        self.done.push((seconds, test));
        self.print();
    }

    /// Reports a failure with the output of the test.
    pub fn fail(&mut self, test: &str, output: &str) {
        self.clear();
        println!("FAILED {test}\n{}", output.trim_end());
        self.failed.push((test.to_owned(), cause(output)));
    }

    /// Reports that a program ended in the middle of its tests.
    pub fn abandon(&mut self, program: &str) {
        let prefix = format!("{program}::");
        let left: Vec<_> =
            self.running.keys().filter(|test| test.starts_with(&prefix)).cloned().collect();
        for test in left {
            self.running.remove(&test);
            self.failed.push((test, "its program ended before it".to_owned()));
        }
    }

    /// Prints the line of progress: often on a terminal, else now and then.
    pub fn print(&mut self) {
        let every = if self.terminal { Duration::from_millis(200) } else { EVERY };
        if self.printed.elapsed() < every {
            return;
        }
        self.printed = Instant::now();
        let mut running: Vec<_> = self.running.iter().map(|(test, since)| (since, test)).collect();
        running.sort();
        let named: Vec<_> = running.iter().take(NAMED).map(|(_, test)| test.as_str()).collect();
        let more = running.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let failed = self.failed.len();
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let line = format!(
            "{} of {}{failed} · {} · running {}{more}",
            self.done.len(),
            self.total,
            minutes(self.started.elapsed()),
            named.join(", "),
        );
        self.clear();
        if self.terminal {
            print!("{line}");
        } else {
            println!("{line}");
        }
        let _ = std::io::stdout().flush();
    }

    fn clear(&self) {
        if self.terminal {
            print!("\r\x1b[K");
        }
    }

    /// Prints the summary; whether all tests passed.
    pub fn finish(mut self) -> bool {
        self.clear();
        self.done.sort_by(|a, b| b.0.total_cmp(&a.0));
        println!("slowest tests:");
        for (seconds, test) in self.done.iter().take(SLOWEST) {
            println!("{seconds:8.1} s  {test}");
        }
        let passed = self.done.len().saturating_sub(self.failed.len());
        let left = self.total.saturating_sub(passed + self.failed.len());
        let elapsed = minutes(self.started.elapsed());
        println!("{passed} passed, {} failed, {left} not run in {elapsed}", self.failed.len());
        for (test, cause) in &self.failed {
            println!("FAILED {test}\n{cause}");
        }
        self.failed.is_empty() && left == 0
    }
}

/// The place and message of the first panic of a test.
fn cause(output: &str) -> String {
    let panic = output.lines().skip_while(|line| !line.contains("panicked at"));
    let message = panic.take_while(|line| !line.starts_with("stack backtrace"));
    message.take(CAUSE).collect::<Vec<_>>().join("\n")
}

fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
