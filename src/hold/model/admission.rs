//! A hold that is added during a DELETE.
//!
//! The API server decides by the object that it read at the start of the DELETE (*seen*),
//! whatever is stored when it calls the webhooks. If that object has no finalizer, the API
//! server deletes the object at the end.

use stateright::{Model, Property};

use super::story::{Narrate, check, size};
use crate::objects::HoldAge;

/// How many seconds a tick is.
const TICK: i64 = 10;

/// Ticks that a write may be under way: 34 seconds, rounded up.
const FLIGHT: u8 = 4;

/// An object in use, with no hold; a backfill; deletes.
#[derive(Debug, Clone, Copy)]
struct Admission {
    /// Whether a hold has to be effective before anything is allowed because
    /// of it.
    effective: bool,
    ticks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// When the backfill put the hold on.
    held: Option<u8>,
    /// When the DELETE began, and whether the object was held then.
    delete: Option<(u8, bool)>,
    /// What admission said.
    allowed: Option<bool>,
    /// Whether the object is there, Terminating or not.
    there: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    Backfill,
    Begin,
    Ask,
    Store,
}

impl Model for Admission {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { now: 0, held: None, delete: None, allowed: None, there: true }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.there {
            return;
        }
        let overdue = state.delete.is_some_and(|(begun, _)| state.now + 1 - begun > FLIGHT);
        if state.now < self.ticks && !overdue {
            actions.push(Action::Tick);
        }
        if state.held.is_none() {
            actions.push(Action::Backfill);
        }
        match (state.delete, state.allowed) {
            (None, _) => actions.push(Action::Begin),
            (Some(_), None) => actions.push(Action::Ask),
            // It may be asked again, as often as the API server tries.
            (Some(_), Some(_)) => actions.extend([Action::Ask, Action::Store]),
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        let seconds = |tick: u8| i64::from(tick) * TICK;
        match action {
            Action::Tick => next.now += 1,
            Action::Backfill => next.held = Some(state.now),
            Action::Begin => next.delete = Some((state.now, state.held.is_some())),
            Action::Ask => {
                // It is in use, so it is allowed only where it will wait.
                next.allowed = Some(match state.held {
                    None => false,
                    Some(_) if !self.effective => true,
                    Some(at) => HoldAge::Since(seconds(at)).is_effective(seconds(state.now)),
                });
            }
            Action::Store => {
                let held = state.delete.is_some_and(|(_, held)| held);
                if state.allowed == Some(true) && !held {
                    next.there = false;
                }
                (next.delete, next.allowed) = (None, None);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("what is in use does not vanish", |_, state: &State| state.there)]
    }
}

impl Narrate for Admission {
    fn tell(&self, before: &State, action: &Action, after: &State) -> (String, String, String) {
        let (who, what) = match action {
            Action::Tick => ("time", format!("{TICK} seconds pass")),
            Action::Backfill => ("leader", "puts the hold on, by a backfill".to_owned()),
            Action::Begin => ("API server", "begins a DELETE with the object as it is".to_owned()),
            Action::Ask => {
                let said = if after.allowed == Some(true) { "it will wait: Allow" } else { "Deny" };
                ("webhook", format!("is asked, sees hold: {:?}; {said}", before.held.is_some()))
            }
            Action::Store if after.there => ("API server", "ends the DELETE".to_owned()),
            Action::Store => ("API server", "ends the DELETE: the object vanishes".to_owned()),
        };
        (format!("{} s", i64::from(before.now) * TICK), who.to_owned(), what)
    }
}

#[test]
fn nothing_vanishes_because_of_a_hold_that_is_not_effective() {
    let model = Admission { effective: true, ticks: 12 * size() };
    assert!(check("effective hold", model).is_none());
}

#[test]
fn with_any_hold_an_object_vanishes_under_its_users() {
    let model = Admission { effective: false, ticks: 12 };
    assert!(check("without the effective hold", model).is_some());
}
