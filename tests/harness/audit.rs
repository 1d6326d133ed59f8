//! The requests of belay's account in the API server's audit log, and which of them were
//! forbidden.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::install::NAME;
use super::{ControlPlane, Result};

/// The account that replicas run as.
pub const ACCOUNT: &str = "system:serviceaccount:belay:belay";

/// The interval in which the log is read.
const INTERVAL: Duration = Duration::from_millis(500);

/// Everything that the API server has recorded.
pub fn audited(plane: &ControlPlane) -> Vec<Value> {
    let log = plane.audit_log().unwrap_or_default();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Everything that the API server has recorded of accounts in belay's
/// namespace.
pub fn events(plane: &ControlPlane) -> Vec<Value> {
    let accounts = format!("system:serviceaccount:{NAME}:");
    let log = plane.audit_log().unwrap_or_default();
    // Most lines are long and about other accounts, so they are not parsed.
    let lines = log.lines().filter(|line| line.contains(&accounts));
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| text(&event["user"]["username"]).starts_with(&accounts)).collect()
}

/// The requests that failed because of a missing right.
pub fn forbidden(plane: &ControlPlane) -> Vec<String> {
    events(plane).iter().filter(|event| lacks_a_right(event)).map(event_text).collect()
}

/// A string value; an empty text for other types.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a request was refused because a right is missing.
fn lacks_a_right(event: &Value) -> bool {
    if event["responseStatus"]["code"] != 403 || lists_labelled_instances(event) {
        return false;
    }
    if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
        return true;
    }
    // The account had the right, but admission may have refused the request. The self-test
    // expects such a refusal of belay's own webhook, and a Terminating namespace refuses Events.
    // If the log contains only metadata of an answer, there is no message. Other messages may be
    // about a missing right: to give an approval, or to create an object by an apply.
    let message = text(&event["responseStatus"]["message"]);
    let by_admission =
        message.contains("admission webhook") || message.contains("is being terminated");
    !message.is_empty() && !by_admission
}

/// Whether a request lists the labelled instances of a CRD that is deleted. If belay may not, they
/// count as unlabelled.
fn lists_labelled_instances(event: &Value) -> bool {
    let group = text(&event["objectRef"]["apiGroup"]);
    event["verb"] == "list"
        && text(&event["requestURI"]).contains("labelSelector=belay.dev%2Fprotect")
        && group.contains('.')
        && !group.ends_with(".k8s.io")
}

fn event_text(event: &Value) -> String {
    let message = text(&event["responseStatus"]["message"]);
    format!("{} {}: {message}", text(&event["verb"]), text(&event["requestURI"]))
}

/// Follows the audit log while it exists, and ends the program with the first right that
/// belay's account lacks.
///
/// A failed check at the end of a test is not enough: the control planes of the scenarios are
/// statics that are never dropped, belay retries forbidden requests again and again, and a test may
/// pass without these requests.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts with the next record of the log.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let mut log = File::open(plane.logs().join("audit.log"))?;
        log.seek(SeekFrom::End(0))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let thread = std::thread::spawn(move || follow(log, &stops));
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread reads the log a last time before it ends.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn follow(mut log: File, stop: &AtomicBool) {
    let mut rest = Vec::new();
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        if let Err(error) = log.read_to_end(&mut rest) {
            // Without the log, forbidden requests would not be noticed.
            eprintln!("the audit log cannot be read: {error}");
            std::process::exit(1);
        }
        // The last line may be incomplete.
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = rest.drain(..whole).collect();
        let lines = String::from_utf8_lossy(&lines);
        for line in lines.lines().filter(|line| line.contains("\"code\":403")) {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            if event["user"]["username"] == ACCOUNT && lacks_a_right(&event) {
                end(&event);
            }
        }
        if is_last {
            return;
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Prints the event where no test captures it, and ends the program with a failure.
fn end(event: &Value) {
    let mut stderr = std::io::stderr();
    let _ = writeln!(
        stderr,
        "\nbelay's account lacks a right, so this run ends:\n  {}\nThe roles are the chart's, with \
         the values of Install::of_everything: a kind that a test makes, or protects, has to be \
         among them. A test that removes rights sets Install::may_be_forbidden.",
        event_text(event)
    );
    std::process::exit(101);
}
