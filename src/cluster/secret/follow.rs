//! Watches a Secret, and changes it step by step while this replica is the leader.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::watcher::watch_object;
use tokio::time::{Instant, sleep_until};

use crate::cluster::api_error::chain;
use crate::cluster::context::{Registered, Signals};
use crate::cluster::pace::Backoff;
use crate::objects::ApiError;

/// How long to wait without a change. Every change wakes the follower.
pub const IDLE: Duration = Duration::from_secs(3600);

/// A follower of a Secret.
pub trait Follower {
    /// The log message if the Secret can't be watched.
    const NOT_WATCHED: &'static str;
    /// The log message if the Secret can't be changed.
    const NOT_CHANGED: &'static str;

    /// Called with the new Secret; `None` if it does not exist.
    fn apply(&mut self, secret: Option<Secret>);

    /// Called on every replica with the state of the webhook configurations, because every replica
    /// may become the leader. Returns when a step is due even if nothing changes.
    fn apply_registered(&mut self, registered: &Registered) -> Option<Instant>;

    /// Carries out the next step, if this replica is the leader. Returns how long to wait before
    /// the following step.
    async fn step(&mut self, leads: bool) -> Result<Duration, ApiError>;
}

/// Follows the Secret of this name until the caller drops it. `longest` is the longest
/// time between two attempts.
pub async fn follow<F: Follower>(
    follower: &mut F,
    signals: &Signals,
    (secrets, name): (&Api<Secret>, &str),
    longest: Duration,
) {
    let mut registered = signals.registered.subscribe();
    let mut leading = signals.leading.subscribe();
    let mut events = pin!(watch_object(secrets.clone(), name));
    let backoff = || Backoff::new(Duration::from_millis(500), longest);
    let (mut watching, mut stepping) = (backoff(), backoff());
    // When to poll the stream again, and when to take the next step.
    let (mut next_event, mut next_step) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            event = async { sleep_until(next_event).await; events.next().await } => match event {
                Some(Ok(secret)) => {
                    watching.record_success();
                    follower.apply(secret);
                    next_step = Instant::now();
                }
                Some(Err(error)) => {
                    let wait = watching.fail(|| {
                        tracing::error!(error = chain(&error), secret = name, "{}", F::NOT_WATCHED);
                    });
                    next_event = Instant::now() + wait;
                }
                // A watch has no end.
                None => return,
            },
            // `signals` has both senders, so `changed` does not fail.
            _ = registered.changed() => next_step = Instant::now(),
            _ = leading.changed() => next_step = Instant::now(),
            () = sleep_until(next_step) => {}
        }
        let due = follower.apply_registered(&registered.borrow_and_update());
        if next_step > Instant::now() {
            continue;
        }
        let leads = *leading.borrow_and_update();
        let wait = match follower.step(leads).await {
            Ok(wait) => {
                stepping.record_success();
                wait
            }
            Err(error) => stepping.fail(|| {
                tracing::error!(%error, secret = name, "{}", F::NOT_CHANGED);
            }),
        };
        let next = Instant::now() + wait;
        next_step = due.map_or(next, |due| next.min(due));
    }
}
