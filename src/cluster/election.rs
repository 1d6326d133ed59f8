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

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::api::Trouble;
use super::context::Context;
use super::pace::{Backoff, jittered};
use crate::lease::{Candidate, Spec, Stand, evaluate, next, stepped_down};

/// The numbers of an election.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a write is good, in whole seconds. It is renewed at a third.
    pub duration: Duration,
    /// How much the clocks of two replicas may differ.
    pub skew: Duration,
    /// How long one request may take.
    pub request: Duration,
    /// How often who stands by looks at the Lease.
    pub look: Duration,
    /// How long stepping down may take.
    pub farewell: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            skew: Duration::from_secs(2),
            // Twice within the time that is left when a renewal is due.
            request: Duration::from_secs(3),
            look: Duration::from_secs(2),
            farewell: Duration::from_secs(2),
        }
    }
}

/// Takes part in the election until belay ends, and keeps `signals.leading`.
/// When it is dropped this replica leads no more; only when belay ends does it
/// say so to the others.
pub async fn run(context: Context) {
    run_with(context, Timing::default()).await;
}

/// As [`run`], by other numbers.
pub async fn run_with(context: Context, timing: Timing) {
    let mut ending = context.signals.ending.subscribe();
    let post = Post::new(&context);
    let election = Election {
        leases: Api::namespaced(context.client.clone(), &context.settings.namespace),
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
    if post.leave() {
        let farewell = timeout(timing.farewell, election.step_down()).await;
        if let Err(trouble) = farewell.unwrap_or_else(|_| Err(no_answer(timing.farewell))) {
            tracing::warn!(
                error = trouble.words(),
                "the Lease could not be given up; another replica leads when it has run out"
            );
        }
    }
}

/// Until when this replica believes that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Belief {
    /// By the clock that never goes back.
    until: Instant,
    /// By the clock on the wall.
    until_time: Timestamp,
}

impl Belief {
    fn holds(&self, instant: Instant, time: Timestamp) -> bool {
        instant < self.until && time < self.until_time
    }
}

/// The post of the leader, and whether this replica believes to hold it.
struct Post<'a> {
    context: &'a Context,
    belief: watch::Sender<Option<Belief>>,
}

impl<'a> Post<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, belief: watch::Sender::new(None) }
    }

    fn take(&self, belief: Belief) {
        self.belief.send_replace(Some(belief));
        if !self.context.signals.leading.send_replace(true) {
            self.context.metrics.leads(true);
            tracing::info!(replica = self.context.settings.replica, "this replica leads");
        }
    }

    /// Whether it was ours.
    fn leave(&self) -> bool {
        self.belief.send_replace(None);
        let was_ours = self.context.signals.leading.send_replace(false);
        if was_ours {
            self.context.metrics.leads(false);
            tracing::info!(replica = self.context.settings.replica, "this replica leads no more");
        }
        was_ours
    }

    /// Leaves when the belief has run out, whatever else is being waited for.
    async fn keep_watch(&self) {
        // The clock on the wall may jump, so it is looked at now and then.
        const GLANCE: Duration = Duration::from_millis(500);
        let mut changes = self.belief.subscribe();
        loop {
            let belief = *changes.borrow_and_update();
            let now = Instant::now();
            let wait = match belief {
                None => Duration::MAX,
                Some(belief) if belief.holds(now, Timestamp::now()) => {
                    let left = belief.until_time.duration_since(Timestamp::now());
                    let left = Duration::try_from(left).unwrap_or_default();
                    left.min(belief.until.saturating_duration_since(now)).min(GLANCE)
                }
                Some(_) => {
                    tracing::warn!("the Lease could not be renewed in time");
                    self.leave();
                    continue;
                }
            };
            tokio::select! {
                // The sender is our own.
                _ = changes.changed() => {}
                () = sleep(wait) => {}
            }
        }
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        // Nobody would keep watch.
        self.leave();
    }
}

struct Election<'a> {
    context: &'a Context,
    leases: Api<Lease>,
    timing: Timing,
    post: &'a Post<'a>,
}

impl Election<'_> {
    fn me(&self) -> Candidate<'_> {
        let Timing { duration, skew, .. } = self.timing;
        Candidate { name: &self.context.settings.replica, duration, skew }
    }

    /// For ever. An error is told of once, when it begins.
    async fn take_part(&self) {
        // A leader that cannot renew has to try again before its time is over.
        let mut backoff = Backoff::new(Duration::from_millis(500), self.timing.look * 2);
        loop {
            match self.round().await {
                Ok(wait) => {
                    if backoff.succeeded() {
                        tracing::info!("the Lease can be read and written again");
                    }
                    sleep(wait).await;
                }
                Err(trouble) => {
                    if backoff.is_first() {
                        tracing::error!(
                            error = trouble.words(),
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
    async fn round(&self) -> Result<Duration, Trouble> {
        let mut lease = self.read().await?;
        loop {
            let spec = lease.spec.as_ref().map(of_lease).unwrap_or_default();
            match evaluate(&spec, self.me(), Timestamp::now()) {
                Stand::StandBy { until } => {
                    self.post.leave();
                    let left = until.duration_since(Timestamp::now());
                    let left = Duration::try_from(left).unwrap_or_default();
                    return Ok(left.min(jittered(self.timing.look)));
                }
                // What was only read is not believed: it may be a write whose
                // answer was lost, of which nobody knows when it was sent.
                Stand::Acquire | Stand::Lead { .. } => {}
            }
            lease = match self.write(lease, &spec).await? {
                None => return Ok(jittered(Duration::from_millis(50))),
                Some((lease, renew_in)) => {
                    sleep(renew_in).await;
                    lease
                }
            };
        }
    }

    /// Writes the Lease, and believes the answer: the Lease as it is stored
    /// now, and when to renew it. None: somebody else has written meanwhile.
    async fn write(
        &self,
        mut lease: Lease,
        read: &Spec,
    ) -> Result<Option<(Lease, Duration)>, Trouble> {
        let (sent, now) = (Instant::now(), Timestamp::now());
        let wanted = next(read, self.me(), now);
        into_lease(&wanted, lease.spec.get_or_insert_default());
        let Some(stored) = self.store(&lease).await? else { return Ok(None) };
        let spec = stored.spec.as_ref().map(of_lease).unwrap_or_default();
        match evaluate(&spec, self.me(), Timestamp::now()) {
            Stand::Lead { until, renew_at } => {
                let good_for = until.duration_since(now);
                let good_for = Duration::try_from(good_for).unwrap_or_default();
                self.post.take(Belief { until: sent + good_for, until_time: until });
                let renew_in = renew_at.duration_since(Timestamp::now());
                let renew_in = Duration::try_from(renew_in).unwrap_or_default();
                Ok(Some((stored, jittered(renew_in))))
            }
            // The answer took too long, or a clock jumped.
            Stand::Acquire | Stand::StandBy { .. } => Ok(None),
        }
    }

    /// The Lease, an empty one if there is none.
    async fn read(&self) -> Result<Lease, Trouble> {
        let settings = &self.context.settings;
        let read = self.leases.get_opt(&settings.name);
        let found = timeout(self.timing.request, read)
            .await
            .map_err(|_| no_answer(self.timing.request))??;
        Ok(found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(settings.name.clone()),
                namespace: Some(settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        }))
    }

    /// Writes on the version that was read; none: that is not the latest.
    async fn store(&self, lease: &Lease) -> Result<Option<Lease>, Trouble> {
        let parameters = PostParams::default();
        let is_there = lease.metadata.resource_version.is_some();
        let write = async {
            if is_there {
                self.leases.replace(&self.context.settings.name, &parameters, lease).await
            } else {
                self.leases.create(&parameters, lease).await
            }
        };
        let answer = timeout(self.timing.request, write)
            .await
            .map_err(|_| no_answer(self.timing.request))?;
        match answer {
            Ok(stored) => Ok(Some(stored)),
            // It was changed or made since it was read.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            // Or deleted. What cannot even be made has no namespace.
            Err(kube::Error::Api(status)) if status.code == 404 && is_there => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Says that nobody leads, if the Lease says that we do. A write of ours
    /// may still have been under way, so that it has to be read.
    async fn step_down(&self) -> Result<(), Trouble> {
        loop {
            let mut lease = self.read().await?;
            let spec = lease.spec.get_or_insert_default();
            let said = of_lease(spec);
            if said.holder.as_deref() != Some(self.me().name) {
                return Ok(());
            }
            into_lease(&stepped_down(&said), spec);
            if self.store(&lease).await?.is_some() {
                return Ok(());
            }
        }
    }
}

fn no_answer(limit: Duration) -> Trouble {
    Trouble::Failed(format!("the API server did not answer within {limit:?}"))
}

fn of_lease(lease: &LeaseSpec) -> Spec {
    let seconds = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let transitions = lease.lease_transitions.and_then(|count| u32::try_from(count).ok());
    Spec {
        holder: lease.holder_identity.clone().filter(|holder| !holder.is_empty()),
        acquired: lease.acquire_time.as_ref().map(|time| time.0),
        renewed: lease.renew_time.as_ref().map(|time| time.0),
        duration: seconds.map(Duration::from_secs),
        transitions: transitions.unwrap_or_default(),
    }
}

/// What the API server does not know of is left as it was.
fn into_lease(spec: &Spec, lease: &mut LeaseSpec) {
    let seconds = spec.duration.map(|duration| i32::try_from(duration.as_secs()));
    lease.holder_identity.clone_from(&spec.holder);
    lease.acquire_time = spec.acquired.map(micros);
    lease.renew_time = spec.renewed.map(micros);
    lease.lease_duration_seconds = seconds.map(|seconds| seconds.unwrap_or(i32::MAX).max(1));
    lease.lease_transitions = Some(i32::try_from(spec.transitions).unwrap_or(i32::MAX));
}

/// As precise as the API server stores it, and never later.
fn micros(time: Timestamp) -> MicroTime {
    let over = SignedDuration::from_nanos(i64::from(time.subsec_nanosecond().rem_euclid(1000)));
    MicroTime(time.saturating_sub(over).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_survives_the_lease_and_what_others_wrote_stays() {
        let time = Timestamp::new(1_767_268_800, 123_456_789).unwrap();
        let rounded = Timestamp::new(1_767_268_800, 123_456_000).unwrap();
        let spec = Spec {
            holder: Some("a".to_owned()),
            acquired: Some(time),
            renewed: Some(time),
            duration: Some(Duration::from_secs(15)),
            transitions: 3,
        };
        let mut lease = LeaseSpec {
            strategy: Some("OldestEmulationVersion".to_owned()),
            ..LeaseSpec::default()
        };
        into_lease(&spec, &mut lease);
        let back = of_lease(&lease);
        assert_eq!(back, Spec { acquired: Some(rounded), renewed: Some(rounded), ..spec });
        assert_eq!(lease.strategy.as_deref(), Some("OldestEmulationVersion"));
        into_lease(&stepped_down(&back), &mut lease);
        assert_eq!((lease.holder_identity, lease.renew_time), (None, None));
    }

    #[test]
    fn a_lease_that_says_nonsense_says_nothing() {
        let lease = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(-1),
            lease_transitions: Some(-1),
            ..LeaseSpec::default()
        };
        assert_eq!(of_lease(&lease), Spec::default());
    }

    #[test]
    fn a_belief_ends_by_whichever_clock_comes_first() {
        let (instant, time) = (Instant::now(), Timestamp::now());
        let later = Duration::from_secs(10);
        let belief = Belief { until: instant + later, until_time: time + later };
        assert!(belief.holds(instant, time));
        assert!(!belief.holds(instant + later, time));
        assert!(!belief.holds(instant, time + later));
    }
}
