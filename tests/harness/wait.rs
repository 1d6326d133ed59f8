//! Waiting for a condition, with a limit: never a bare sleep.

use std::time::{Duration, Instant};

use super::Result;
use super::process::Process;

/// Tries `attempt` until it succeeds or `limit` has passed. Then the result is the last
/// error with the name of the awaited condition. The pauses grow with time, because some
/// attempts start a kubectl, which takes 80 ms of a core.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > limit => {
                return Err(format!("{what}: not within {limit:?}: {error}").into());
            }
            Err(_) => {
                let pause = start.elapsed() / 4;
                std::thread::sleep(
                    pause.clamp(Duration::from_millis(30), Duration::from_millis(500)),
                );
            }
        }
    }
}

/// Pauses between two steps of a test, or while nothing may happen. Use [`eventually`] to
/// wait for a condition.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The same in asynchronous tests.
pub async fn pause_async(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits for a condition while a process runs. If the process ends during its start, the
/// error contains its log.
pub fn while_running(
    process: &mut Process,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<()>,
) -> Result<()> {
    let name = process.name().to_owned();
    eventually(&name, limit, || {
        if process.is_running() {
            return attempt().map(|()| Ok(()));
        }
        let log = process.log();
        let tail: Vec<_> = log.lines().rev().take(5).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        Ok(Err(format!("{name} ended while it started:\n{}", tail.join("\n")).into()))
    })?
}
