//! Who leads: a pure function of what the Lease says, who asks, and when.
//!
//! Safety does not rest on it (docs/THEORY.md): two leaders only do the work
//! twice. It is still never two who believe at once, while clocks of replicas
//! differ by no more than the stated skew:
//!
//! ```text
//!   renewed            + duration - skew     + duration
//!      │                       │                 │
//!      ├── the holder leads ───┤                 ├── others may take over ──►
//!      │    by its own clock   │                 │    by their own clocks
//! ```
//!
//! While they differ by more, [`LeaseObserver`] keeps two replicas from taking it from
//! each other for ever.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// What the Lease says. The API server's version of it stands beside it, and
/// whoever writes makes the write depend on that.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Spec {
    /// Who leads; none after somebody has stepped down.
    pub holder: Option<String>,
    /// Since when, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// When the holder wrote last, by its clock.
    pub renewed: Option<Timestamp>,
    /// How long that is good.
    pub duration: Option<Duration>,
    /// How often the holder has changed.
    pub transitions: u32,
}

/// Who asks, and the numbers.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The name of this replica, another one for each start of the process.
    pub name: &'a str,
    /// How long what it writes is good.
    pub duration: Duration,
    /// How much the clocks of two replicas may differ. It has to be less than
    /// the duration: nobody would ever lead.
    pub skew: Duration,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseDecision {
    /// We lead before this time, as far as this Lease goes. Renew it at the
    /// other one.
    Lead {
        /// From here on we must not believe it.
        until: Timestamp,
        /// When to write.
        renew_at: Timestamp,
    },
    /// We lead no more, or nobody does: write [`next`], on this very version.
    Acquire,
    /// Somebody else does: look again at this time.
    StandBy {
        /// When.
        until: Timestamp,
    },
}

/// Where this replica stands. Only a Lease that was read from the API server,
/// or came back from a write, may be given here, never one that was only sent.
pub fn evaluate(spec: &Spec, me: Candidate<'_>, now: Timestamp) -> LeaseDecision {
    let (Some(holder), Some(renewed)) = (&spec.holder, spec.renewed) else {
        return LeaseDecision::Acquire;
    };
    let duration = duration(spec, me);
    let leads_until = add_time(renewed, duration.saturating_sub(me.skew));
    if is_too_far_ahead(renewed, duration, me, now) {
        LeaseDecision::Acquire
    } else if holder != me.name {
        let expires = add_time(renewed, duration);
        if now < expires {
            LeaseDecision::StandBy { until: expires }
        } else {
            LeaseDecision::Acquire
        }
    } else if now < renewed {
        // Our clock went back a little: what we wrote is still ahead of us.
        LeaseDecision::StandBy { until: renewed }
    } else if now < leads_until {
        LeaseDecision::Lead { until: leads_until, renew_at: add_time(renewed, renewal(duration)) }
    } else {
        LeaseDecision::Acquire
    }
}

/// How long after a write its holder renews the Lease.
pub fn renewal(duration: Duration) -> Duration {
    duration / 3
}

/// The Lease to write, on the version of the one that was read: to take it, or
/// to renew it. When the write is refused somebody else has written: read
/// again, and evaluate that.
pub fn next_spec(spec: &Spec, me: Candidate<'_>, now: Timestamp) -> Spec {
    let mine = spec.holder.as_deref() == Some(me.name);
    let duration = duration(spec, me);
    // A renewal never takes back what an earlier one said, unless that was
    // nonsense.
    let kept = spec
        .renewed
        .filter(|renewed| mine && *renewed > now && !is_too_far_ahead(*renewed, duration, me, now));
    Spec {
        holder: Some(me.name.to_owned()),
        acquired: spec.acquired.filter(|_| mine).or(Some(now)),
        renewed: kept.or(Some(now)),
        duration: Some(me.duration),
        transitions: if mine { spec.transitions } else { spec.transitions.saturating_add(1) },
    }
}

/// What the Lease says counts for everybody, also while replicas are being
/// given another duration; but not for years, whoever wrote that.
fn duration(spec: &Spec, me: Candidate<'_>) -> Duration {
    let most = me.duration.saturating_mul(10);
    spec.duration.map_or(me.duration, |said| said.min(most))
}

/// Whether a time lies further ahead than any clock within the stated skew
/// could have written. Nobody would lead until then.
fn is_too_far_ahead(
    renewed: Timestamp,
    duration: Duration,
    me: Candidate<'_>,
    now: Timestamp,
) -> bool {
    renewed > add_time(now, duration.saturating_add(me.skew))
}

/// What a replica has seen of the Lease with its own eyes.
///
/// Where clocks differ by more than the stated skew, a Lease that somebody
/// renews every few seconds looks old, or as if from the future. Whoever took
/// it would take it from one who lives, and who takes it back. But a Lease that
/// changes between two looks has a holder who lives, whatever the times in it
/// say. Before the second look there are only the times.
#[derive(Debug, Default)]
pub struct LeaseObserver {
    last: Option<Spec>,
    changed: Option<Instant>,
}

impl LeaseObserver {
    /// Looks at what was read at an instant. The result is for how long from
    /// then on the holder, another one than we, counts as alive; none: by this
    /// nothing is known of it.
    pub fn observe(&mut self, spec: &Spec, me: Candidate<'_>, at: Instant) -> Option<Duration> {
        if self.last.as_ref().is_some_and(|last| last != spec) {
            self.changed = Some(at);
        }
        self.last = Some(spec.clone());
        let another = spec.holder.as_deref().is_some_and(|holder| holder != me.name);
        let seen = self.changed.filter(|_| another)?;
        let left = duration(spec, me).checked_sub(at.saturating_duration_since(seen))?;
        (!left.is_zero()).then_some(left)
    }
}

/// The Lease to write when its holder steps down, so that nobody has to wait.
/// It stops believing first.
pub fn released_spec(spec: &Spec) -> Spec {
    Spec { holder: None, renewed: None, ..spec.clone() }
}

fn add_time(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
