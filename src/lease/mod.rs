//! Leader election as a pure function of the Lease, the replica and the time.
//!
//! Safety does not depend on it (docs/THEORY.md): two leaders only do the work twice. At
//! most one replica is the leader at a time, if the clocks of replicas differ by no more
//! than the skew:
//!
//! ```text
//!   renewed            + duration - skew     + duration
//!      │                       │                 │
//!      ├── the holder leads ───┤                 ├── others may take over ──►
//!      │    by its own clock   │                 │    by their own clocks
//! ```
//!
//! If they differ by more, [`LeaseObserver`] prevents two replicas from taking the Lease
//! from each other again and again.

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
    /// Whether it takes the Lease from a leader that lives. An uninstall does.
    pub takes_over: bool,
}

/// What a replica does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseDecision {
    /// This replica is the leader until this time.
    Lead {
        /// The end of the leadership without a renewal.
        until: Timestamp,
        /// When to renew.
        renew_at: Timestamp,
    },
    /// No replica is the leader: write [`next_spec`] on this resourceVersion.
    Acquire,
    /// Another replica is the leader.
    StandBy {
        /// When to read the Lease again.
        until: Timestamp,
    },
}

/// Decides what this replica does. The Lease must come from an answer of the API server,
/// never from a request.
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
        LeaseDecision::Lead { until: leads_until, renew_at: add_time(renewed, renewal(duration)) }
    } else {
        LeaseDecision::Acquire
    }
}

/// How long after a write the holder renews the Lease.
pub fn renewal(duration: Duration) -> Duration {
    duration / 3
}

/// The Lease to write on the resourceVersion that was read, to acquire or renew it. After
/// a conflict, read the Lease and evaluate it again.
pub fn next_spec(spec: &Spec, me: Candidate<'_>, now: Timestamp) -> Spec {
    let mine = spec.holder.as_deref() == Some(me.name);
    let duration = duration(spec, me);
    // A renewal never moves the time back, unless that time is impossible.
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

/// All replicas use the duration in the Lease, also while a rollout changes the setting.
/// A limit protects from nonsense values.
fn duration(spec: &Spec, me: Candidate<'_>) -> Duration {
    let most = me.duration.saturating_mul(10);
    spec.duration.map_or(me.duration, |said| said.min(most))
}

/// Whether a time is further ahead than a clock within the skew could have written.
/// Without this check no replica would be the leader until then.
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
/// If clocks differ by more than the skew, a Lease that its holder renews every few
/// seconds looks expired, or impossible. A replica that took it would take it from a
/// running leader. But a Lease that changes between two reads has a running holder,
/// whatever its times are. Before the second read only the times are known.
#[derive(Debug, Default)]
pub struct LeaseObserver {
    last: Option<Spec>,
    changed: Option<Instant>,
}

impl LeaseObserver {
    /// Observes the Lease as read at an instant. Returns for how long another holder
    /// counts as running from then on; `None` if no change shows that it runs.
    pub fn observe(&mut self, spec: &Spec, me: Candidate<'_>, at: Instant) -> Option<Duration> {
        if self.last.as_ref().is_some_and(|last| last != spec) {
            self.changed = Some(at);
        }
        self.last = Some(spec.clone());
        let another = spec.holder.as_deref().is_some_and(|holder| holder != me.name);
        let seen = self.changed.filter(|_| another && !me.takes_over)?;
        let left = duration(spec, me).checked_sub(at.saturating_duration_since(seen))?;
        (!left.is_zero()).then_some(left)
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
