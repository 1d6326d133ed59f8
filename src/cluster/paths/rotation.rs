//! Decides which secret path is registered, and when secret paths are created and removed, from
//! the content of the Secret and the observations of a replica.

use std::time::Duration;

use crate::timing::Paths;
use crate::webhook::SecretPath;

/// A secret path and its creation time, in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatedPath {
    pub path: SecretPath,
    pub made: i64,
}

/// The content of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The accepted secret paths. The newest is the last one.
    pub paths: Vec<DatedPath>,
    /// Whether a user requests a new secret path.
    pub requested: bool,
}

/// The next step of the leader.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Create a secret path and add it.
    Add,
    /// Remove all secret paths but the newest.
    Drop,
    /// Wait this long; `None`: until a change.
    Wait(Option<Duration>),
}

/// Computes the next step. `registered_for` is how long the newest secret path has been in all
/// webhooks; `None` if it is not in all of them.
pub fn step(
    content: &Content,
    rotation: &Paths,
    registered_for: Option<Duration>,
    now: i64,
) -> Step {
    let Some(newest) = content.paths.last() else { return Step::Add };
    if content.paths.len() > 1 {
        let Some(registered_for) = registered_for else { return Step::Wait(None) };
        let left = rotation.overlap.saturating_sub(registered_for);
        return if left.is_zero() { Step::Drop } else { Step::Wait(Some(left)) };
    }
    // A creation time in the future comes from a wrong clock.
    let age = Duration::from_secs(now.abs_diff(newest.made));
    let left = rotation.every.saturating_sub(age);
    if content.requested || left.is_zero() { Step::Add } else { Step::Wait(Some(left)) }
}

/// The secret path to register. `seen_for` is how long this replica has known the newest one. A
/// single secret path is registered at once.
pub fn path_to_register<'t>(
    paths: &'t [DatedPath],
    rotation: &Paths,
    seen_for: Duration,
    now: i64,
) -> Option<&'t SecretPath> {
    let (newest, older) = paths.split_last()?;
    let age = Duration::from_secs(u64::try_from(now - newest.made).unwrap_or_default());
    let chosen = match older.last() {
        // An earlier leader may already have waited long enough.
        Some(previous) if seen_for.max(age) < rotation.settle => previous,
        _ => newest,
    };
    Some(&chosen.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Timing;

    const NOW: i64 = 1_800_000_000;
    fn made(ages: &[i64]) -> Content {
        let path = |age: &i64| DatedPath { path: SecretPath::generate().unwrap(), made: NOW - age };
        Content { paths: ages.iter().map(path).collect(), requested: false }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn creates_a_secret_path_at_the_start_on_schedule_and_on_request() {
        let next =
            |content: &Content| step(content, &Timing::default().paths, Some(seconds(9)), NOW);
        assert_eq!(next(&made(&[])), Step::Add);
        assert_eq!(next(&made(&[86_000])), Step::Wait(Some(seconds(400))));
        assert_eq!(next(&made(&[86_400])), Step::Add);
        assert_eq!(next(&made(&[-86_400])), Step::Add, "made by a clock that was wrong");
        assert_eq!(next(&Content { requested: true, ..made(&[5]) }), Step::Add);
        // One rotation ends before the next one begins.
        let both = Content { requested: true, ..made(&[90_000, 5]) };
        assert_eq!(next(&both), Step::Wait(Some(seconds(591))));
    }

    #[test]
    fn the_previous_secret_path_is_removed_once_the_next_was_registered_for_long_enough() {
        let both = made(&[90_000, 700]);
        let next = |registered| step(&both, &Timing::default().paths, registered, NOW);
        assert_eq!(next(None), Step::Wait(None));
        assert_eq!(next(Some(seconds(599))), Step::Wait(Some(seconds(1))));
        assert_eq!(next(Some(seconds(600))), Step::Drop);
    }

    #[test]
    fn a_new_secret_path_is_registered_once_every_replica_has_read_it() {
        let at = |content: &Content, seen, now| {
            let chosen =
                path_to_register(&content.paths, &Timing::default().paths, seconds(seen), now);
            chosen.map(|path| content.paths.iter().position(|dated| dated.path == *path).unwrap())
        };
        assert_eq!(at(&made(&[]), 0, NOW), None);
        assert_eq!(at(&made(&[0]), 0, NOW), Some(0), "the only one, at once");
        let both = made(&[90_000, 0]);
        assert_eq!(at(&both, 59, NOW + 59), Some(0));
        assert_eq!(at(&both, 60, NOW), Some(1), "even if the clock stands still");
        assert_eq!(at(&both, 0, NOW + 60), Some(1), "a leader that began just now");
        assert_eq!(at(&made(&[9, 8, 0]), 5, NOW), Some(1));
    }
}
