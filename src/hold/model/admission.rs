//! A hold that belay adds during a DELETE.
//!
//! At the start of a DELETE, the API server reads the object. If this version has no finalizer,
//! the API server removes the object after admission, also if the stored object now has a hold.

use stateright::{Model, Property};

use super::checker::{Describe, check, size};
use crate::objects::HoldAge;

/// The seconds of a tick.
const TICK: i64 = 10;

/// The longest duration of a DELETE in ticks: 34 seconds, rounded up.
const MAX_DELETE_TICKS: u8 = 4;

/// An object in use that gets its hold from a backfill, and DELETEs of the object.
#[derive(Debug, Clone, Copy)]
struct Admission {
    /// Whether belay allows a DELETE only if the hold is effective.
    requires_effective: bool,
    ticks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// When the backfill added the hold.
    held_since: Option<u8>,
    /// When the DELETE began, and whether the object was held then.
    delete: Option<(u8, bool)>,
    /// The answer of the webhook to the DELETE.
    allowed: Option<bool>,
    /// Whether the object exists, Terminating or not.
    exists: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    Backfill,
    BeginDelete,
    CallWebhook,
    EndDelete,
}

impl Model for Admission {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { now: 0, held_since: None, delete: None, allowed: None, exists: true }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.exists {
            return;
        }
        let overdue =
            state.delete.is_some_and(|(begun, _)| state.now + 1 - begun > MAX_DELETE_TICKS);
        if state.now < self.ticks && !overdue {
            actions.push(Action::Tick);
        }
        if state.held_since.is_none() {
            actions.push(Action::Backfill);
        }
        match (state.delete, state.allowed) {
            (None, _) => actions.push(Action::BeginDelete),
            (Some(_), None) => actions.push(Action::CallWebhook),
            // The API server may retry the DELETE and call the webhook again.
            (Some(_), Some(_)) => actions.extend([Action::CallWebhook, Action::EndDelete]),
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        let seconds = |tick: u8| i64::from(tick) * TICK;
        match action {
            Action::Tick => next.now += 1,
            Action::Backfill => next.held_since = Some(state.now),
            Action::BeginDelete => next.delete = Some((state.now, state.held_since.is_some())),
            Action::CallWebhook => {
                // The object is in use, so belay allows the DELETE only if a hold keeps the object.
                next.allowed = Some(match state.held_since {
                    None => false,
                    Some(_) if !self.requires_effective => true,
                    Some(since) => HoldAge::Since(seconds(since)).is_effective(seconds(state.now)),
                });
            }
            Action::EndDelete => {
                let held = state.delete.is_some_and(|(_, held)| held);
                if state.allowed == Some(true) && !held {
                    next.exists = false;
                }
                (next.delete, next.allowed) = (None, None);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("an object in use is not removed", |_, state: &State| state.exists)]
    }
}

impl Describe for Admission {
    fn describe(&self, before: &State, action: &Action, after: &State) -> (String, String, String) {
        let (actor, what) = match action {
            Action::Tick => ("time", format!("{TICK} seconds pass")),
            Action::Backfill => ("leader", "adds the hold in a backfill".to_owned()),
            Action::BeginDelete => ("API server", "begins a DELETE".to_owned()),
            Action::CallWebhook => {
                let answer = if after.allowed == Some(true) { "Allow" } else { "Deny" };
                ("webhook", format!("sees hold: {}; answers {answer}", before.held_since.is_some()))
            }
            Action::EndDelete if after.exists => ("API server", "ends the DELETE".to_owned()),
            Action::EndDelete => {
                ("API server", "ends the DELETE and removes the object".to_owned())
            }
        };
        (format!("{} s", i64::from(before.now) * TICK), actor.to_owned(), what)
    }
}

#[test]
fn no_object_in_use_is_removed_if_only_effective_holds_count() {
    let model = Admission { requires_effective: true, ticks: 12 * size() };
    assert!(check("effective hold", model).is_none());
}

#[test]
fn an_object_in_use_can_be_removed_if_any_hold_counts() {
    let model = Admission { requires_effective: false, ticks: 12 };
    assert!(check("without the effective hold", model).is_some());
}
