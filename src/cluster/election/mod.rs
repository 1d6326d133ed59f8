//! Leader election with a Lease. [`crate::lease`] decides; this module reads and writes
//! the Lease.
//!
//! ```text
//!        ┌── 409, refused, no answer ──┐
//!        ▼                             │
//!       read ── evaluate ── Acquire ── write ── lead until then, renew ──┐
//!        ▲         └─ StandBy: wait      ▲                                 │
//!        └───────────────┘               └─────────────────────────────────┘
//! ```
//!
//! A replica is the leader only after the API server stored its own write, and only for
//! the duration that it wrote. Two clocks limit that time: the wall clock, which the
//! other replicas compare, and the monotonic clock from before the request was sent. A
//! request that hangs does not extend the leadership.

mod leadership;
mod leases;
mod record;
mod seize;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep};

use self::leadership::{LeaderTerm, Leadership};
use self::leases::{Leases, lease_spec};
pub(crate) use self::record::LeaderInfo;
use self::record::{apply_to_lease, leader_info, set_certificate_until, spec_from_lease};
pub(crate) use self::seize::{Kept, Seat, seize};
use super::context::Context;
use super::pace::{Backoff, jittered, within_limit};
use crate::lease::{
    Candidate, LeaseDecision, LeaseObserver, Spec, evaluate, next_spec, released_spec, renewal,
};
use crate::objects::ApiError;
use crate::timing::{self, Timing};

/// Takes part in the election and updates `signals.leading`, until belay shuts down.
/// Dropping the future ends the leadership; only a shutdown also releases the Lease.
pub async fn run(context: Context) {
    let timing = context.settings.timing.lease;
    let mut ending = context.signals.ending.subscribe();
    let leadership = Leadership::new(&context);
    let settings = &context.settings;
    let election = Election {
        leases: Leases::new(&context.client, (&settings.namespace, &settings.name), timing.request),
        context: &context,
        timing,
        leadership: &leadership,
    };
    tokio::select! {
        () = election.run_candidate() => {}
        () = leadership.watch_expiry() => {}
        // An error means that the sender is gone, which is a shutdown as well.
        _ = ending.wait_for(|ending| *ending) => {}
    }
    // The leadership ends here before another replica can notice it.
    if leadership.resign()
        && let Err(error) = within_limit(timing.farewell, election.step_down()).await
    {
        tracing::warn!(
            %error,
            "cannot release the Lease; another replica becomes the leader after the Lease expires"
        );
    }
}

/// The largest difference between clocks that belay assumes.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_mins(2);

/// The leader according to the Lease of an installation; `None` if there is no leader.
///
/// A Lease that has expired by the local clock, but not by much, may be that of a leader
/// whose clock is wrong. A running leader renews it while this function waits.
///
/// A Lease that has run out by this clock, and not by far, may be that of a
/// leader whose clock is wrong: one who lives renews it while one waits.
pub(crate) async fn leader(
    client: &kube::Client,
    (namespace, name): (&str, &str),
    now: Timestamp,
) -> Result<Option<LeaderInfo>, ApiError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let read = async || Ok::<_, ApiError>(leases.get_opt(name).await?.unwrap_or_default());
    let lease = read().await?;
    let spec = lease_spec(&lease);
    let timing::Lease { duration, skew, .. } = Timing::default().lease;
    // No replica has an empty name: the caller is not a candidate.
    let nobody = Candidate { name: "", duration, skew };
    if evaluate(&spec, nobody, now) != LeaseDecision::Acquire {
        return Ok(leader_info(&lease));
    }
    let Some(renewed) = spec.renewed else { return Ok(None) };
    if now.duration_since(renewed).abs() > MAX_CLOCK_DIFFERENCE {
        return Ok(None);
    }
    // The holder renews the Lease after a third of its duration.
    let written = spec.duration.map_or(duration, |written| written.min(duration));
    sleep(renewal(written) + skew).await;
    let again = read().await?;
    Ok(leader_info(&again).filter(|_| lease_spec(&again) != spec))
}

struct Election<'a> {
    context: &'a Context,
    leases: Leases,
    timing: timing::Lease,
    leadership: &'a Leadership<'a>,
}

impl Election<'_> {
    fn candidate(&self) -> Candidate<'_> {
        let timing::Lease { duration, skew, .. } = self.timing;
        Candidate { name: &self.context.settings.replica, duration, skew }
    }

    /// Runs until the future is dropped. Logs an error once, when it starts.
    async fn run_candidate(&self) {
        // A leader that fails to renew must retry before its term expires.
        let mut backoff = Backoff::new(Duration::from_millis(500), self.timing.look * 2);
        let mut observer = LeaseObserver::default();
        loop {
            match self.round(&mut observer).await {
                Ok(wait) => {
                    if backoff.succeeded() {
                        tracing::info!("the Lease can be read and written again");
                    }
                    sleep(wait).await;
                }
                Err(error) => {
                    if backoff.is_first() {
                        tracing::error!(
                            %error,
                            lease = self.context.settings.name,
                            "cannot read or write the Lease; belay retries. Check that its \
                             ServiceAccount may get, create and update the Lease"
                        );
                    }
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Reads the Lease, acquires it if possible, and renews it while that succeeds.
    /// Returns how long to wait before the next round.
    async fn round(&self, observer: &mut LeaseObserver) -> Result<Duration, ApiError> {
        let mut lease = self.leases.read().await?;
        let mut spec = lease_spec(&lease);
        if let Some(left) = observer.observe(&spec, self.candidate(), Instant::now().into_std()) {
            return Ok(self.stand_by(left));
        }
        loop {
            match evaluate(&spec, self.candidate(), Timestamp::now()) {
                LeaseDecision::StandBy { until } => {
                    let left = until.duration_since(Timestamp::now());
                    return Ok(self.stand_by(Duration::try_from(left).unwrap_or_default()));
                }
                // A Lease that was only read is not proof of leadership: it may be a
                // write whose answer was lost, and the time of that request is unknown.
                LeaseDecision::Acquire | LeaseDecision::Lead { .. } => {}
            }
            lease = match self.write(lease, &spec).await? {
                None => return Ok(jittered(Duration::from_millis(50))),
                Some((lease, renew_in)) => {
                    sleep(renew_in).await;
                    lease
                }
            };
            spec = lease_spec(&lease);
        }
    }

    /// Another replica is the leader for this long. Returns how long to wait before the
    /// next round.
    fn stand_by(&self, left: Duration) -> Duration {
        self.leadership.resign();
        left.min(jittered(self.timing.look))
    }

    /// Writes the Lease. Returns the stored Lease and when to renew it; `None` if another
    /// replica has written meanwhile.
    async fn write(
        &self,
        mut lease: Lease,
        read: &Spec,
    ) -> Result<Option<(Lease, Duration)>, ApiError> {
        let (sent, now) = (Instant::now(), Timestamp::now());
        let wanted = next_spec(read, self.candidate(), now);
        apply_to_lease(&wanted, lease.spec.get_or_insert_default());
        set_certificate_until(&mut lease, self.context.metrics.certificate_expiry());
        let Some(stored) = self.leases.store(&lease).await? else { return Ok(None) };
        let spec = lease_spec(&stored);
        match evaluate(&spec, self.candidate(), Timestamp::now()) {
            LeaseDecision::Lead { until, renew_at } => {
                let good_for = until.duration_since(now);
                let good_for = Duration::try_from(good_for).unwrap_or_default();
                self.leadership.assume(LeaderTerm { until: sent + good_for, until_time: until });
                let renew_in = renew_at.duration_since(Timestamp::now());
                let renew_in = Duration::try_from(renew_in).unwrap_or_default();
                Ok(Some((stored, jittered(renew_in))))
            }
            // The answer took too long, or a clock jumped.
            LeaseDecision::Acquire | LeaseDecision::StandBy { .. } => Ok(None),
        }
    }

    /// Releases the Lease if this replica holds it. An earlier write may still be under
    /// way, so the Lease is read first.
    async fn step_down(&self) -> Result<(), ApiError> {
        loop {
            let mut lease = self.leases.read().await?;
            let spec = lease.spec.get_or_insert_default();
            let said = spec_from_lease(spec);
            if said.holder.as_deref() != Some(self.candidate().name) {
                return Ok(());
            }
            apply_to_lease(&released_spec(&said), spec);
            set_certificate_until(&mut lease, None);
            if self.leases.store(&lease).await?.is_some() {
                return Ok(());
            }
        }
    }
}
