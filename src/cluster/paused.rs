//! A pause, made loud. While one is in force nothing is refused in the whole
//! cluster, so nobody should have to look for it: every replica has it in a
//! metric and in its log, and the leader writes Events on the Pause itself.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use tokio::time::{MissedTickBehavior, interval};

use super::api::MANAGER;
use super::context::Context;
use super::pace::{Backoff, within};
use crate::policy::{Pause, api};

/// Where Events live of what has no namespace.
const NAMESPACE: &str = "default";

/// Says when a pause begins and ends, until belay ends.
pub async fn run(context: Context) {
    let timing = &context.settings.timing;
    let mut ticks = interval(timing.checks.pauses);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut logged: Option<Pause> = None;
    let mut told: Option<Pause> = None;
    let (mut backoff, mut due) = (Backoff::from(timing.retry), Instant::now());
    loop {
        ticks.tick().await;
        let now = Timestamp::now();
        let running = context.world.read().policies.pause(now.as_second()).cloned();
        context.metrics.paused(running.is_some());
        if running != logged {
            log(running.as_ref());
            logged.clone_from(&running);
        }
        let leads = *context.signals.leading.borrow();
        let news = news(told.as_ref(), running.as_ref()).filter(|_| leads);
        let Some((pause, begins)) = news.filter(|_| due <= Instant::now()) else { continue };
        let event = event(&context, pause, begins, now);
        match store(&context.client, &event).await {
            Ok(()) => {
                told = running;
                backoff.succeeded();
            }
            Err(why) => {
                if backoff.is_first() {
                    tracing::warn!(
                        why,
                        "the Event about a pause was not written; it is tried again"
                    );
                }
                due = Instant::now() + backoff.next();
            }
        }
    }
}

/// What is to be told by an Event: a pause, and whether it begins. Whoever comes
/// to lead in the middle of one tells it as well; the Event has the same name,
/// so it stands there once.
fn news<'p>(told: Option<&'p Pause>, running: Option<&'p Pause>) -> Option<(&'p Pause, bool)> {
    match (told, running) {
        (told, Some(running)) => (told != Some(running)).then_some((running, true)),
        (Some(told), None) => Some((told, false)),
        (None, None) => None,
    }
}

fn log(running: Option<&Pause>) {
    match running {
        Some(pause) => tracing::warn!(
            pause = pause.name,
            by = pause.by,
            until = pause.until(),
            "PAUSED: nothing is refused in the whole cluster, and every policy only records"
        ),
        None => tracing::warn!("no pause is in force any more: policies refuse again"),
    }
}

/// What `kubectl get events` and `kubectl describe pause` show.
fn event(context: &Context, pause: &Pause, begins: bool, now: Timestamp) -> Event {
    let Pause { name, uid, by, expires } = pause;
    let (mark, type_, reason, message) = match begins {
        true => (
            format!("{expires:x}"),
            "Warning",
            "Paused",
            format!(
                "{by} has paused belay: until {} nothing is refused in the whole cluster, and \
                 every policy only records; end it early: kubectl belay pause --end",
                pause.until()
            ),
        ),
        false => (
            "ended".to_owned(),
            "Normal",
            "PauseEnded",
            "belay refuses again what its policies say; what went through meanwhile: kubectl \
             belay denials --would"
                .to_owned(),
        ),
    };
    let time = Some(Time(now));
    Event {
        metadata: ObjectMeta {
            // A uid is short enough for any name, as the name of a Pause is not.
            name: Some(format!("pause.{uid}.{mark}")),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(api::Pause::api_version(&()).into_owned()),
            kind: Some(api::Pause::kind(&()).into_owned()),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        },
        reason: Some(reason.to_owned()),
        message: Some(message),
        type_: Some(type_.to_owned()),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        source: Some(EventSource {
            component: Some("belay".to_owned()),
            host: Some(context.settings.replica.clone()),
        }),
        // `belay denials` looks for what belay reports: a pause is no denial.
        ..Event::default()
    }
}

/// Stores it, unless another leader has.
async fn store(client: &kube::Client, event: &Event) -> Result<(), String> {
    let api: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let made = async {
        match api.create(&params, event).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    };
    within(made).await.map_err(|trouble| trouble.words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_told_once_and_its_end_when_none_is_left() {
        let pause = |name: &str| Pause { name: name.into(), ..Pause::default() };
        let (one, two) = (pause("one"), pause("two"));
        assert_eq!(news(None, None), None);
        assert_eq!(news(None, Some(&one)), Some((&one, true)));
        assert_eq!(news(Some(&one), Some(&one)), None);
        assert_eq!(news(Some(&one), Some(&two)), Some((&two, true)));
        assert_eq!(news(Some(&two), None), Some((&two, false)));
    }
}
