//! Reports pauses. While one is in force, belay denies nothing in the whole cluster. So
//! every replica logs it and sets a metric, and the leader writes Events on the Pause.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Resource as _;
use tokio::time::{MissedTickBehavior, interval};

use super::context::Context;
use super::event::{EventReport, InvolvedObject, create};
use super::pace::Backoff;
use crate::policy::{Pause, api};

/// Reports the start and the end of pauses until belay shuts down.
pub async fn run(context: Context) {
    let timing = &context.settings.timing;
    let mut ticks = interval(timing.checks.pauses);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut logged: Option<Pause> = None;
    let mut reported: Option<Pause> = None;
    let (mut backoff, mut due) = (Backoff::from(timing.retry), Instant::now());
    loop {
        ticks.tick().await;
        let now = Timestamp::now();
        let running = context.world.read().policies.pause(now.as_second()).cloned();
        context.metrics.set_paused(running.is_some());
        if running != logged {
            log(running.as_ref());
            logged.clone_from(&running);
        }
        let leads = *context.signals.leading.borrow();
        let next_report = next_report(reported.as_ref(), running.as_ref()).filter(|_| leads);
        let Some((pause, begins)) = next_report.filter(|_| due <= Instant::now()) else { continue };
        let event = event(&context, pause, begins, now);
        match create(&context.client, &event).await {
            // The Event is new, or another leader has stored it.
            Ok(_) => {
                reported = running;
                backoff.record_success();
            }
            Err(error) => {
                let wait = backoff.fail(|| {
                    tracing::warn!(
                        %error,
                        "cannot write the Event about a pause; belay retries"
                    );
                });
                due = Instant::now() + wait;
            }
        }
    }
}

/// Returns the pause for the next Event, and whether the pause starts. A new leader also reports a
/// running pause. The Event has the same name, so it exists once.
fn next_report<'p>(
    reported: Option<&'p Pause>,
    running: Option<&'p Pause>,
) -> Option<(&'p Pause, bool)> {
    match (reported, running) {
        (reported, Some(running)) => (reported != Some(running)).then_some((running, true)),
        (Some(reported), None) => Some((reported, false)),
        (None, None) => None,
    }
}

fn log(running: Option<&Pause>) {
    match running {
        Some(pause) => tracing::warn!(
            pause = pause.name,
            by = pause.by,
            until = pause.until(),
            "PAUSED: belay denies nothing in the whole cluster; policies only record"
        ),
        None => tracing::warn!("the pause has ended; belay enforces its policies again"),
    }
}

/// Builds the Event that `kubectl get events` and `kubectl describe pause` show.
fn event(context: &Context, pause: &Pause, begins: bool, now: Timestamp) -> Event {
    let Pause { name, uid, by, expires } = pause;
    let (mark, reason, message) = match begins {
        true => (
            format!("{expires:x}"),
            "Paused",
            format!(
                "{by} has paused belay. belay denies nothing in the whole cluster until {}. To end the pause: kubectl belay pause --end",
                pause.until()
            ),
        ),
        false => (
            "ended".to_owned(),
            "PauseEnded",
            "belay enforces its policies again. To list the requests that it would have denied: \
             kubectl belay denials --would"
                .to_owned(),
        ),
    };
    let involved = InvolvedObject {
        api_version: api::Pause::api_version(&()).into_owned(),
        kind: api::Pause::kind(&()).into_owned(),
        name: name.clone(),
        uid: uid.clone(),
        ..InvolvedObject::default()
    };
    // The name of a Pause may be too long for the name of an Event, but a uid is short.
    let name = format!("pause.{uid}.{mark}");
    EventReport { name, involved: &involved, is_warning: begins, reason, message, time: now }
        .into_event(&context.settings.instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_reported_once_and_its_end_when_none_is_left() {
        let pause = |name: &str| Pause { name: name.into(), ..Pause::default() };
        let (one, two) = (pause("one"), pause("two"));
        assert_eq!(next_report(None, None), None);
        assert_eq!(next_report(None, Some(&one)), Some((&one, true)));
        assert_eq!(next_report(Some(&one), Some(&one)), None);
        assert_eq!(next_report(Some(&one), Some(&two)), Some((&two, true)));
        assert_eq!(next_report(Some(&two), None), Some((&two, false)));
    }
}
