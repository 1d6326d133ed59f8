//! Who leads, on a Lease of the API server. What follows from a Lease is
//! decided in [`crate::lease`]; here it is read and written.
//!
//! ```text
//!        ┌── 409, refused, no answer ──┐
//!        ▼                             │
//!       read ── evaluate ── Acquire ── write ── believe until then, renew ─┐
//!        ▲         └─ StandBy: wait      ▲                                 │
//!        └───────────────┘               └─────────────────────────────────┘
//! ```
//!
//! A replica believes that it leads only on the answer to a write of its own,
//! and no longer than the time that it wrote, by two clocks: the one on the
//! wall, which the other replicas are compared by, and the one that never goes
//! back, from before the request was sent. A request that hangs does not keep
//! it from ceasing to believe.

mod leases;
mod post;
mod record;
mod seize;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep};

use self::leases::{Leases, said};
use self::post::{Belief, Post};
pub use self::record::Led;
use self::record::{into_lease, led, of_lease, serves};
pub use self::seize::{Kept, Seat, seize};
use super::context::Context;
use super::pace::{Backoff, jittered, within_limit};
use crate::lease::{
    Candidate, LeaseDecision, LeaseObserver, Spec, evaluate, next_spec, released_spec, renewal,
};
use crate::objects::ApiError;
use crate::timing::{self, Timing};

/// Takes part in the election until belay ends, and keeps `signals.leading`.
/// When it is dropped this replica leads no more; only when belay ends does it
/// say so to the others.
pub async fn run(context: Context) {
    let timing = context.settings.timing.lease;
    let mut ending = context.signals.ending.subscribe();
    let post = Post::new(&context);
    let settings = &context.settings;
    let election = Election {
        leases: Leases::new(&context.client, (&settings.namespace, &settings.name), timing.request),
        context: &context,
        timing,
        post: &post,
    };
    tokio::select! {
        () = election.take_part() => {}
        () = post.keep_watch() => {}
        // Without a sender nobody is there to be led.
        _ = ending.wait_for(|ending| *ending) => {}
    }
    // Ours no more before anybody else can know.
    if post.leave()
        && let Err(error) = within_limit(timing.farewell, election.step_down()).await
    {
        tracing::warn!(
            %error,
            "the Lease could not be given up; another replica leads when it has run out"
        );
    }
}

/// Clocks may well be this far apart, and no further.
const ASTRAY: SignedDuration = SignedDuration::from_mins(2);

/// Who leads at this time, as far as the Lease of an installation says; none:
/// nobody does. An error is words that say why that cannot be read.
///
/// A Lease that has run out by this clock, and not by far, may be that of a
/// leader whose clock is wrong: one who lives renews it while one waits.
pub async fn leader(
    client: &kube::Client,
    (namespace, name): (&str, &str),
    now: Timestamp,
) -> Result<Option<Led>, ApiError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let read = async || Ok::<_, ApiError>(leases.get_opt(name).await?.unwrap_or_default());
    let lease = read().await?;
    let spec = said(&lease);
    let timing::Lease { duration, skew, .. } = Timing::default().lease;
    // Nobody has this name: whoever asks does not take part.
    let nobody = Candidate { name: "", duration, skew };
    if evaluate(&spec, nobody, now) != LeaseDecision::Acquire {
        return Ok(led(&lease));
    }
    let Some(renewed) = spec.renewed else { return Ok(None) };
    if now.duration_since(renewed).abs() > ASTRAY {
        return Ok(None);
    }
    // The holder renews it after a third of what it wrote.
    let written = spec.duration.map_or(duration, |written| written.min(duration));
    sleep(renewal(written) + skew).await;
    let again = read().await?;
    Ok(led(&again).filter(|_| said(&again) != spec))
}

struct Election<'a> {
    context: &'a Context,
    leases: Leases,
    timing: timing::Lease,
    post: &'a Post<'a>,
}

impl Election<'_> {
    fn me(&self) -> Candidate<'_> {
        let timing::Lease { duration, skew, .. } = self.timing;
        Candidate { name: &self.context.settings.replica, duration, skew }
    }

    /// For ever. An error is told of once, when it begins.
    async fn take_part(&self) {
        // A leader that cannot renew has to try again before its time is over.
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
                            "the Lease cannot be read or written; belay tries again, and check \
                             that its account may get, create and update it"
                        );
                    }
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Reads the Lease, takes it if it is to be had, and renews it for as long
    /// as that works. The result is how long to wait before the next round.
    async fn round(&self, observer: &mut LeaseObserver) -> Result<Duration, ApiError> {
        let mut lease = self.leases.read().await?;
        let mut spec = said(&lease);
        if let Some(left) = observer.observe(&spec, self.me(), Instant::now().into_std()) {
            return Ok(self.stand_by(left));
        }
        loop {
            match evaluate(&spec, self.me(), Timestamp::now()) {
                LeaseDecision::StandBy { until } => {
                    let left = until.duration_since(Timestamp::now());
                    return Ok(self.stand_by(Duration::try_from(left).unwrap_or_default()));
                }
                // What was only read is not believed: it may be a write whose
                // answer was lost, of which nobody knows when it was sent.
                LeaseDecision::Acquire | LeaseDecision::Lead { .. } => {}
            }
            lease = match self.write(lease, &spec).await? {
                None => return Ok(jittered(Duration::from_millis(50))),
                Some((lease, renew_in)) => {
                    sleep(renew_in).await;
                    lease
                }
            };
            spec = said(&lease);
        }
    }

    /// Somebody else leads for as long as this; how long to wait before the
    /// next round.
    fn stand_by(&self, left: Duration) -> Duration {
        self.post.leave();
        left.min(jittered(self.timing.look))
    }

    /// Writes the Lease, and believes the answer: the Lease as it is stored
    /// now, and when to renew it. None: somebody else has written meanwhile.
    async fn write(
        &self,
        mut lease: Lease,
        read: &Spec,
    ) -> Result<Option<(Lease, Duration)>, ApiError> {
        let (sent, now) = (Instant::now(), Timestamp::now());
        let wanted = next_spec(read, self.me(), now);
        into_lease(&wanted, lease.spec.get_or_insert_default());
        serves(&mut lease, self.context.metrics.certificate_expiry());
        let Some(stored) = self.leases.store(&lease).await? else { return Ok(None) };
        let spec = said(&stored);
        match evaluate(&spec, self.me(), Timestamp::now()) {
            LeaseDecision::Lead { until, renew_at } => {
                let good_for = until.duration_since(now);
                let good_for = Duration::try_from(good_for).unwrap_or_default();
                self.post.take(Belief { until: sent + good_for, until_time: until });
                let renew_in = renew_at.duration_since(Timestamp::now());
                let renew_in = Duration::try_from(renew_in).unwrap_or_default();
                Ok(Some((stored, jittered(renew_in))))
            }
            // The answer took too long, or a clock jumped.
            LeaseDecision::Acquire | LeaseDecision::StandBy { .. } => Ok(None),
        }
    }

    /// Says that nobody leads, if the Lease says that we do. A write of ours
    /// may still have been under way, so that it has to be read.
    async fn step_down(&self) -> Result<(), ApiError> {
        loop {
            let mut lease = self.leases.read().await?;
            let spec = lease.spec.get_or_insert_default();
            let said = of_lease(spec);
            if said.holder.as_deref() != Some(self.me().name) {
                return Ok(());
            }
            into_lease(&released_spec(&said), spec);
            serves(&mut lease, None);
            if self.leases.store(&lease).await?.is_some() {
                return Ok(());
            }
        }
    }
}
