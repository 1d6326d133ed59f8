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
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep};

use self::leadership::{LeaderTerm, Leadership};
use self::leases::{Leases, exists, lease_spec};
pub(crate) use self::record::{LeaderInfo, is_left_behind, uninstall_name};
use self::record::{
    apply_to_lease, leader_info, set_certificate_until, spec_from_lease, uninstalled_by,
};
use super::context::Context;
use super::pace::{Backoff, jittered, within_limit};
use crate::lease::{
    Candidate, LeaseDecision, LeaseObserver, Spec, evaluate, next_spec, released_spec,
    renewal_interval,
};
use crate::objects::ApiError;
use crate::timing::{self, Timing};

/// Takes part in the election and updates `signals.leading`, until belay shuts down.
/// Dropping the future ends the leadership; only a shutdown also releases the Lease.
pub async fn run(context: Context) {
    let mut ending = context.signals.ending.subscribe();
    let election = Election::new(&context);
    tokio::select! {
        never = election.run_candidate() => match never {},
        () = election.leadership.watch_expiry() => {}
        // If the sender was dropped, no part of belay uses the leadership.
        _ = ending.wait_for(|ending| *ending) => {}
    }
    // This replica stops before another replica can take over.
    if election.leadership.resign()
        && let Err(error) = election.step_down().await
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
/// If the Lease expired a short time ago by the local clock, the clock of the leader may be wrong.
/// So this function waits for a while: a running leader renews the Lease in that time.
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
    // No replica has this name: the process takes no part in the election.
    let observer = Candidate { name: "", duration, skew, takes_over: false };
    if evaluate(&spec, observer, now) != LeaseDecision::Acquire {
        return Ok(leader_info(&lease));
    }
    let Some(renewed) = spec.renewed else { return Ok(None) };
    if now.duration_since(renewed).abs() > MAX_CLOCK_DIFFERENCE {
        return Ok(None);
    }
    // The holder renews the Lease after a third of its duration.
    let written = spec.duration.map_or(duration, |written| written.min(duration));
    sleep(renewal_interval(written) + skew).await;
    let again = read().await?;
    Ok(leader_info(&again).filter(|_| lease_spec(&again) != spec))
}

/// How many times another client may write the Lease first while an uninstall takes it.
const MAX_ATTEMPTS: usize = 20;

/// The leader whose Lease an uninstall has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviousLeader {
    /// The name of the replica; `None` if there was no leader.
    pub name: Option<String>,
    /// How long the previous leader may still act as the leader.
    pub may_act_for: Duration,
}

/// The part of this process in the election of an installation.
pub(crate) struct Election<'a> {
    context: &'a Context,
    leases: Leases,
    timing: timing::Lease,
    leadership: Leadership<'a>,
    /// How long a write is valid.
    duration: Duration,
    /// Whether to take the Lease from a running leader.
    takes_over: bool,
}

impl<'a> Election<'a> {
    /// The election for a replica.
    fn new(context: &'a Context) -> Self {
        let (settings, timing) = (&context.settings, context.settings.timing.lease);
        Self {
            leases: Leases::new(
                &context.client,
                (&settings.namespace, &settings.name),
                timing.request,
            ),
            context,
            timing,
            leadership: Leadership::new(context),
            duration: timing.duration,
            takes_over: false,
        }
    }

    /// The election for an uninstall. Its writes are valid for much longer than the writes of a
    /// replica, so that no replica takes the Lease while the API server does not answer.
    pub fn of_uninstall(context: &'a Context) -> Self {
        let election = Self::new(context);
        Self { duration: election.timing.uninstall, takes_over: true, ..election }
    }

    /// The annotations of a Lease that this uninstall leaves behind when it ends. A replica
    /// takes such a Lease if the webhook configurations exist.
    pub fn left_behind_annotations(&self) -> serde_json::Value {
        uninstalled_by(self.candidate().name)
    }

    fn candidate(&self) -> Candidate<'_> {
        let Self { duration, takes_over, .. } = *self;
        let name = &self.context.settings.replica;
        Candidate { name, duration, skew: self.timing.skew, takes_over }
    }

    /// The time, by the API server's clock if a command has read it.
    fn now(&self) -> Timestamp {
        self.context.world.read().clock.now()
    }

    /// Takes the Lease from the leader, or renews it. `None`: the Namespace does not exist or is
    /// Terminating, so there can be no Lease and no leader.
    pub async fn take_over(&self) -> Result<Option<PreviousLeader>, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let lease = self.leases.read().await?;
            let before = lease_spec(&lease);
            match self.write(lease, &before).await {
                Ok(Some(_)) => return Ok(Some(self.previous(before))),
                Ok(None) => {}
                // NotFound can't mean the Lease, because this request creates it.
                Err(ApiError::NotFound | ApiError::NamespaceTerminating(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::Other("another client writes the Lease again and again".to_owned()))
    }

    /// The leader before the take-over, and how long it may still act. An expired Lease does not
    /// prove that the leader stopped, because the leader's clock may be far behind.
    fn previous(&self, before: Spec) -> PreviousLeader {
        // A replica may have longer intervals than this uninstall.
        let written = before.duration.unwrap_or_default();
        let longest = written.min(Timing::default().lease.duration).max(self.timing.duration);
        let may_act_for = if before.holder.is_some() { longest } else { Duration::ZERO };
        PreviousLeader { name: before.holder, may_act_for }
    }

    /// Takes part until the future is dropped. It logs only the first of consecutive errors.
    pub async fn run_candidate(&self) -> Infallible {
        // A leader that cannot renew has to try again before its time is over.
        let mut backoff = Backoff::new(Duration::from_millis(500), self.timing.look * 2);
        let mut observer = LeaseObserver::default();
        loop {
            match self.round(&mut observer).await {
                Ok(wait) => {
                    if backoff.record_success() {
                        tracing::info!("the Lease can be read and written again");
                    }
                    sleep(wait).await;
                }
                Err(error) => {
                    let wait = backoff.fail(|| {
                        tracing::error!(
                            %error,
                            lease = self.context.settings.name,
                            "cannot read or write the Lease; belay retries. Check that its \
                             ServiceAccount may get, create and update the Lease"
                        );
                    });
                    sleep(wait).await;
                }
            }
        }
    }

    /// Reads the Lease, acquires it if possible, and renews it while that succeeds.
    /// Returns how long to wait before the next round.
    async fn round(&self, observer: &mut LeaseObserver) -> Result<Duration, ApiError> {
        let mut lease = self.leases.read().await?;
        let mut spec = lease_spec(&lease);
        // An uninstall that has ended leaves the Lease behind, so that replicas don't create
        // belay's objects again. If the webhook configurations exist, belay was installed again.
        let installed_again =
            is_left_behind(&lease) && self.context.signals.registered.borrow().any_exists;
        let takes_over = self.takes_over || installed_again;
        let me = Candidate { takes_over, ..self.candidate() };
        if let Some(left) = observer.observe(&spec, me, Instant::now().into_std()) {
            return Ok(self.stand_by(left));
        }
        loop {
            match evaluate(&spec, me, self.now()) {
                LeaseDecision::StandBy { until } => {
                    let left = until.duration_since(self.now());
                    return Ok(self.stand_by(Duration::try_from(left).unwrap_or_default()));
                }
                // A Lease that was only read is not proof of leadership: it may be a
                // write whose answer was lost, and the time of that request is unknown.
                LeaseDecision::Acquire | LeaseDecision::Lead { .. } => {}
            }
            if let Some(holder) = spec.holder.as_ref().filter(|name| *name != me.name)
                && self.takes_over
            {
                tracing::warn!(
                    holder,
                    "a replica has taken the Lease; the uninstall takes it again"
                );
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

    /// Gives up the leadership, because another replica is the leader. `left` is the rest of its
    /// term. Returns how long to wait before the next round.
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
        let (sent, now) = (Instant::now(), self.now());
        let wanted = next_spec(read, self.candidate(), now);
        apply_to_lease(&wanted, lease.spec.get_or_insert_default());
        set_certificate_until(&mut lease, self.context.metrics.certificate_expiry());
        let Some(stored) = self.leases.store(&lease).await? else { return Ok(None) };
        let spec = lease_spec(&stored);
        match evaluate(&spec, self.candidate(), self.now()) {
            LeaseDecision::Lead { until, renew_at } => {
                let good_for = until.duration_since(now);
                let good_for = Duration::try_from(good_for).unwrap_or_default();
                self.leadership.assume(LeaderTerm { until: sent + good_for, until_time: until });
                let renew_in = renew_at.duration_since(self.now());
                let renew_in = Duration::try_from(renew_in).unwrap_or_default();
                Ok(Some((stored, jittered(renew_in))))
            }
            // The answer took too long, or a clock jumped.
            LeaseDecision::Acquire | LeaseDecision::StandBy { .. } => Ok(None),
        }
    }

    /// Writes that there is no leader, if the Lease names this process. It gives up after a while.
    pub async fn step_down(&self) -> Result<(), ApiError> {
        within_limit(self.timing.farewell, self.release_lease()).await
    }

    async fn release_lease(&self) -> Result<(), ApiError> {
        loop {
            // An earlier write of this replica may have arrived late.
            let mut lease = self.leases.read().await?;
            let spec = lease.spec.get_or_insert_default();
            let before = spec_from_lease(spec);
            if before.holder.as_deref() != Some(self.candidate().name) {
                return Ok(());
            }
            apply_to_lease(&released_spec(&before), spec);
            set_certificate_until(&mut lease, None);
            if self.leases.store(&lease).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// Deletes the Lease, unless a replica has taken it. Returns whether it existed.
    pub async fn delete_lease(&self) -> Result<bool, ApiError> {
        let lease = self.leases.read().await?;
        let holder = lease_spec(&lease).holder;
        if let Some(other) = holder.filter(|holder| holder != self.candidate().name) {
            return Err(ApiError::Other(format!("{other} has taken it")));
        }
        if exists(&lease) { self.leases.delete(&lease).await } else { Ok(false) }
    }
}
