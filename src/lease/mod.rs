//! Leader election as a pure function of the Lease, the replica and the time.
//!
//! Safety does not depend on leader election (docs/THEORY.md): two leaders only do the work
//! twice. At most one replica is the leader at a time, if the clocks of replicas differ by no
//! more than the skew:
//!
//! ```text
//!   renewed            + duration - skew     + duration
//!      │                       │                 │
//!      ├── the holder leads ───┤                 ├── others may take over ──►
//!      │    by its own clock   │                 │    by their own clocks
//! ```
//!
//! If the clocks differ by more, [`LeaseObserver`] prevents two replicas from repeatedly taking the
//! Lease from each other.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// The spec of the Lease. Every write depends on the resourceVersion that was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Spec {
    /// The leader; `None` after the leader released the Lease.
    pub holder: Option<String>,
    /// When the holder acquired the Lease, by its clock.
    pub acquired: Option<Timestamp>,
    /// When the holder last renewed the Lease, by its clock.
    pub renewed: Option<Timestamp>,
    /// How long a renewal is valid.
    pub duration: Option<Duration>,
    /// How often the holder has changed.
    pub transitions: u32,
}

/// This replica and its settings.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The name of this replica; each start of the process has a new one.
    pub name: &'a str,
    /// How long a renewal by this replica is valid.
    pub duration: Duration,
    /// How much the clocks of two replicas may differ. It must be less than the duration,
    /// or no replica could become the leader.
    pub skew: Duration,
    /// Whether this replica takes the Lease from a running leader. Only an uninstall does that.
    pub takes_over: bool,
}

/// The next step of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseDecision {
    /// This replica is the leader until this time.
    Lead {
        /// The end of the leadership without a renewal.
        until: Timestamp,
        /// When to renew.
        renew_at: Timestamp,
    },
    /// No other replica is the leader, or this one takes over: write [`next_spec`] on this
    /// resourceVersion.
    Acquire,
    /// Another replica is the leader, or the clock of this replica went back.
    StandBy {
        /// When to read the Lease again.
        until: Timestamp,
    },
}

/// Decides what this replica does. Pass the stored Lease, from an answer of the API server, not the
/// Lease that this replica sent.
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
        if now < expires && !me.takes_over {
            LeaseDecision::StandBy { until: expires }
        } else {
            LeaseDecision::Acquire
        }
    } else if now < renewed {
        // The clock of this replica went back a little after its last renewal.
        LeaseDecision::StandBy { until: renewed }
    } else if now < leads_until {
        LeaseDecision::Lead {
            until: leads_until,
            renew_at: add_time(renewed, renewal_interval(duration)),
        }
    } else {
        LeaseDecision::Acquire
    }
}

/// The longest time from a write of the Lease to its renewal. The Lease of an uninstall is valid
/// for a long time. Because it is renewed often, a reader soon sees whether the uninstall runs.
pub const MAX_RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// The time from a write of the Lease to its renewal.
pub fn renewal_interval(duration: Duration) -> Duration {
    (duration / 3).min(MAX_RENEWAL_INTERVAL)
}

/// The Lease to write on the resourceVersion that was read, to acquire or renew it. After
/// a conflict, read the Lease and evaluate it again.
pub fn next_spec(spec: &Spec, me: Candidate<'_>, now: Timestamp) -> Spec {
    let is_own = spec.holder.as_deref() == Some(me.name);
    let duration = duration(spec, me);
    // A renewal never sets an earlier time, unless the stored time is impossible.
    let later_renewal = spec.renewed.filter(|renewed| {
        is_own && *renewed > now && !is_too_far_ahead(*renewed, duration, me, now)
    });
    Spec {
        holder: Some(me.name.to_owned()),
        acquired: spec.acquired.filter(|_| is_own).or(Some(now)),
        renewed: later_renewal.or(Some(now)),
        duration: Some(me.duration),
        transitions: if is_own { spec.transitions } else { spec.transitions.saturating_add(1) },
    }
}

/// The duration in the Lease, up to a limit. All replicas use it, also while a rollout changes the
/// setting.
fn duration(spec: &Spec, me: Candidate<'_>) -> Duration {
    let limit = me.duration.saturating_mul(10);
    spec.duration.map_or(me.duration, |duration| duration.min(limit))
}

/// Whether a time is ahead of `now` by more than the duration plus the skew. Without this check, no
/// replica could become the leader before that time.
fn is_too_far_ahead(
    renewed: Timestamp,
    duration: Duration,
    me: Candidate<'_>,
    now: Timestamp,
) -> bool {
    renewed > add_time(now, duration.saturating_add(me.skew))
}

/// The changes of the Lease that this replica has observed.
///
/// If clocks differ by more than the skew, the Lease of a running leader may look expired or
/// impossible. So the observer compares each Lease with the last one. If the Lease changes between
/// two reads, its holder is running, whatever the times in the Lease are.
#[derive(Debug, Default)]
pub struct LeaseObserver {
    last: Option<Spec>,
    changed: Option<Instant>,
}

impl LeaseObserver {
    /// Observes a Lease that was read at an instant. Returns how long another holder still counts
    /// as running; `None` if no change shows that it runs.
    pub fn observe(&mut self, spec: &Spec, me: Candidate<'_>, at: Instant) -> Option<Duration> {
        if self.last.as_ref().is_some_and(|last| last != spec) {
            self.changed = Some(at);
        }
        self.last = Some(spec.clone());
        let has_other_holder = spec.holder.as_deref().is_some_and(|holder| holder != me.name);
        let last_change = self.changed.filter(|_| has_other_holder && !me.takes_over)?;
        let remaining =
            duration(spec, me).checked_sub(at.saturating_duration_since(last_change))?;
        (!remaining.is_zero()).then_some(remaining)
    }
}

/// The Lease to write when the leader steps down, so that the next leader need not wait.
/// The leader stops its work first.
pub fn released_spec(spec: &Spec) -> Spec {
    Spec { holder: None, renewed: None, ..spec.clone() }
}

fn add_time(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
