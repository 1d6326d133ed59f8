//! Time and order: one target, a Deployment that makes a ReplicaSet that makes
//! a Pod, and one or two leaders.
//!
//! No step has to happen: an actor without steps is slow, paused or dead. So the checker
//! tries "at any point" automatically. Steps that no other step can distinguish are one: an
//! answer arrives when its request is carried out, unless it is lost, or `split` holds it back.

mod leaders;
mod narration;
mod others;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};

use crate::decide::LiveRead;
use crate::hold::{Input, Release, RequestResult};
pub(super) use storage::{Guarded, Secret};
use storage::{Write, observed};

/// The kinds that users are of, producers first.
pub(super) const USERS: [(&str, &str); 3] =
    [("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("pods", "Pod")];

/// How many seconds a tick is.
pub(super) const TICK: u64 = 2;

/// Which guards are in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guards {
    pub(super) settle: bool,
    pub(super) live: bool,
    pub(super) producers_first: bool,
    /// The `test` operations of the patches.
    pub(super) tests: Guarded,
    pub(super) fresh: bool,
}

/// How large the world is, and what can happen in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RaceModel {
    pub(super) guards: Guards,
    pub(super) leaders: usize,
    /// Passes that a leader begins.
    pub(super) passes: u8,
    /// Answers that get lost.
    pub(super) losses: u8,
    /// Things that others do to users.
    pub(super) user_changes: u8,
    /// Ticks after which nothing is looked at; none: no time passes.
    pub(super) ticks: u8,
    /// How many ticks a write may be under way.
    pub(super) write_delay: u8,
    /// Whether a list's answer may be looked at later than it was given.
    pub(super) delayed_answers: bool,
    /// Whether it begins before the DELETE, with a create that may be slow.
    pub(super) from_delete: bool,
    /// Whether the target may be re-created, and the times that API servers report may be
    /// wrong.
    pub(super) recreates: bool,
}

impl RaceModel {
    /// Every guard, two leaders, no time.
    pub(super) const PROMISE_ONE: Self = Self {
        guards: Guards {
            settle: true,
            live: true,
            producers_first: true,
            tests: Guarded { uid: true, token: true, deleted: true },
            fresh: true,
        },
        leaders: 2,
        passes: 1,
        losses: 1,
        user_changes: 2,
        ticks: 0,
        write_delay: 0,
        delayed_answers: false,
        from_delete: false,
        recreates: false,
    };
}

/// An object that may need the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UserObject {
    /// It names the target.
    pub(super) uses: bool,
    /// Its owner reference names the one before it.
    pub(super) owned: bool,
    /// It was made after the target had been deleted.
    pub(super) created_after_delete: bool,
    /// It, or who made it, was stored before the last pass began.
    pub(super) known: bool,
    /// The write that made it began before the DELETE.
    pub(super) created_before_delete: bool,
}

/// A place for one user of each kind. None is made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum UserState {
    NotCreated,
    Exists(UserObject),
    Deleted,
}

impl UserState {
    pub(super) fn object(self) -> Option<UserObject> {
        match self {
            Self::Exists(thing) => Some(thing),
            _ => None,
        }
    }
}

pub(super) type Users = [UserState; 3];

/// A request of a leader that has not been carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Get,
    Write(Write),
    /// A list of one of the three kinds.
    List(usize, LiveRead),
}

/// One leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    pub(super) release: Release,
    pub(super) request: Option<Request>,
    /// A write that was given up on, and is under way all the same.
    pub(super) abandoned_write: Option<Write>,
    /// What the lists of this pass said.
    pub(super) found: [Option<UserState>; 3],
    /// The other reads of this pass, by their numbers.
    others: u64,
    /// A list's answer that was not looked at yet.
    pub(super) unread: bool,
    /// When the first and the last list of this pass were taken.
    first: u8,
    last: u8,
    passes: u8,
    /// What its cache says of users.
    cache: Users,
}

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Broken {
    /// A user that was stored before the last pass was left without.
    PromiseOne,
    /// So was one whose write began before the DELETE.
    PromiseTwo,
    /// The hold went by a pass that is too old.
    Stale,
    /// No pass ever looked for the object that lost its hold.
    Unasked,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: u8,
    pub(super) target: Option<Secret>,
    pub(super) users: Users,
    pub(super) leaders: Vec<Leader>,
    /// A create that began, and when.
    pub(super) slow: Option<u8>,
    /// A manifest of the target that a user keeps, with this token.
    pub(super) exported: Option<Arc<str>>,
    moves: u8,
    losses: u8,
    pub(super) broken: Option<Broken>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Two seconds pass.
    Tick,
    /// A user deletes the target.
    Delete,
    /// The watch shows a leader that it is Terminating.
    Watch(usize),
    /// A leader begins a pass.
    Look(usize),
    /// Its request is carried out.
    Land(usize),
    /// It looks at the answer.
    RequestResult(usize),
    /// No answer comes.
    Lose(usize),
    /// A write lands that was given up on.
    Stray(usize),
    /// Or never does.
    Never(usize),
    /// Its cache catches up.
    Sync(usize),
    /// A create begins, of a Pod by a person.
    Begin,
    /// And is stored.
    Stored,
    /// A user edits the Deployment: now it names the target.
    Move,
    /// A user edits a ReplicaSet: it no longer names the target.
    Drop,
    /// A controller makes what it makes.
    Make(usize),
    /// A user creates a Pod.
    Bare,
    /// An object is deleted, in the background.
    Remove(usize),
    /// Or orphaning what it made.
    Orphan(usize),
    /// The collector takes what lost its owner.
    Collect(usize),
    /// A user keeps a manifest of the target.
    Export,
    /// The target is re-created from that manifest, and deleted.
    Remake,
}

impl Model for RaceModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let thing = |uses, owned| {
            UserState::Exists(UserObject {
                uses,
                owned,
                created_after_delete: false,
                known: false,
                created_before_delete: false,
            })
        };
        let starts: &[Users] = if self.from_delete || self.recreates {
            &[[UserState::NotCreated; 3]]
        } else {
            &[
                [thing(true, false), UserState::NotCreated, UserState::NotCreated],
                [thing(false, false), UserState::NotCreated, UserState::NotCreated],
                [UserState::NotCreated, thing(true, false), UserState::NotCreated],
            ]
        };
        let mut states = Vec::new();
        for users in starts {
            let mut secret = Secret::new(1, 0);
            if self.from_delete {
                secret.deleted = None;
            }
            let leader = |l: usize| Leader {
                release: Release::new("1".into(), ["A", "B"][l].into(), self.limits()),
                request: None,
                abandoned_write: None,
                found: [None; 3],
                others: 0,
                unread: false,
                first: 0,
                last: 0,
                passes: self.passes,
                cache: *users,
            };
            let mut state = State {
                now: 0,
                target: Some(secret),
                users: *users,
                leaders: (0..self.leaders).map(leader).collect(),
                slow: None,
                exported: None,
                moves: self.user_changes,
                losses: self.losses,
                broken: None,
            };
            if !self.from_delete {
                for l in 0..self.leaders {
                    if let Some(seen) = state.target.as_ref().map(observed) {
                        self.feed(&mut state, l, Input::Observed(seen));
                    }
                }
            }
            states.push(state);
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        let slow_write = |sent: u8| state.now + 1 - sent > self.write_delay;
        let mut may_tick = state.now < self.ticks;
        may_tick &= !state.slow.is_some_and(slow_write);
        for (l, leader) in state.leaders.iter().enumerate() {
            match &leader.request {
                None if leader.unread => actions.push(Action::RequestResult(l)),
                None if !leader.release.is_busy() && leader.release.ended().is_none() => {
                    let terminating = state.target.as_ref().is_some_and(|t| t.deleted.is_some());
                    let settled = leader.release.is_settled(at(state.now));
                    if self.from_delete && terminating && leader.release.is_unaware() {
                        actions.push(Action::Watch(l));
                    } else if leader.passes > 0 && settled {
                        actions.push(Action::Look(l));
                    }
                }
                None => {}
                Some(request) => {
                    actions.push(Action::Land(l));
                    let mut may_lose = state.losses > 0;
                    if let Request::Write(write) = request {
                        may_tick &= !slow_write(write.sent);
                        may_lose &= leader.abandoned_write.is_none();
                    }
                    if may_lose {
                        actions.push(Action::Lose(l));
                    }
                }
            }
            if let Some(write) = &leader.abandoned_write {
                may_tick &= !slow_write(write.sent);
                actions.push(Action::Stray(l));
                if self.ticks > 0 {
                    actions.push(Action::Never(l));
                }
            }
            if !self.guards.live && leader.cache != state.users {
                actions.push(Action::Sync(l));
            }
        }
        if may_tick {
            actions.push(Action::Tick);
        }
        if self.from_delete && state.target.as_ref().is_some_and(|t| t.deleted.is_none()) {
            if state.slow.is_none() && state.users[2] == UserState::NotCreated {
                actions.push(Action::Begin);
            }
            actions.push(Action::Delete);
        }
        if state.slow.is_some() {
            actions.push(Action::Stored);
        }
        if self.recreates {
            let token = state.target.as_ref().and_then(|t| t.token.clone());
            if state.exported.is_none() && token.is_some() {
                actions.push(Action::Export);
            }
            if state.target.is_none() && state.exported.is_some() {
                actions.push(Action::Remake);
            }
        }
        // What others do matters only while there is something to lose.
        if state.moves > 0 && state.target.is_some() {
            self.moves(state, actions);
        }
        for i in 1..3 {
            let orphan = state.users[i].object().is_some_and(|thing| thing.owned);
            if orphan && state.users[i - 1] == UserState::Deleted {
                actions.push(Action::Collect(i));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Delete => {
                let target = next.target.as_mut()?;
                target.deleted = Some(0);
                target.version += 1;
            }
            Action::Watch(l) => {
                let seen = observed(next.target.as_ref()?);
                self.feed(&mut next, l, Input::Observed(seen));
            }
            Action::Look(l) => {
                next.leaders[l].passes -= 1;
                self.feed(&mut next, l, Input::StartPass);
            }
            Action::Land(l) => self.carry_out(&mut next, l)?,
            Action::RequestResult(l) => {
                next.leaders[l].unread = false;
                self.feed(&mut next, l, Input::Read { asked: None });
            }
            Action::Lose(l) => {
                next.losses -= 1;
                let input = match next.leaders[l].request.take()? {
                    Request::Get => Input::Got(RequestResult::NoAnswer),
                    Request::List(..) => Input::ReadFailed("no answer".into()),
                    Request::Write(write) => {
                        let answer = match write.lists {
                            None => Input::TokenWritten(RequestResult::NoAnswer),
                            Some(_) => Input::Removed(RequestResult::NoAnswer),
                        };
                        next.leaders[l].abandoned_write = Some(write);
                        answer
                    }
                };
                self.feed(&mut next, l, input);
            }
            Action::Stray(l) => {
                let write = next.leaders[l].abandoned_write.take()?;
                self.land(&mut next, &write);
            }
            Action::Never(l) => next.leaders[l].abandoned_write = None,
            Action::Sync(l) => next.leaders[l].cache = next.users,
            Action::Begin => next.slow = Some(next.now),
            Action::Stored => {
                next.slow = None;
                let thing = UserObject {
                    uses: true,
                    owned: false,
                    created_after_delete: false,
                    known: false,
                    created_before_delete: true,
                };
                next.users[2] = UserState::Exists(thing);
                if next.target.is_none() {
                    next.broken = next.broken.or(Some(Broken::PromiseTwo));
                }
            }
            Action::Export => next.exported = next.target.as_ref()?.token.clone(),
            Action::Remake => {
                let mut again = Secret::new(2, 0);
                again.token = next.exported.clone();
                next.target = Some(again);
            }
            other => self.move_users(&mut next, &other)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "Promise I: no user stored before the last pass is left without",
                |_, s: &State| s.broken != Some(Broken::PromiseOne),
            ),
            Property::always(
                "Promise II: nor one whose write began before the DELETE",
                |_, s: &State| s.broken != Some(Broken::PromiseTwo),
            ),
            Property::always("the hold goes by a fresh pass", |_, s: &State| {
                s.broken != Some(Broken::Stale)
            }),
            Property::always(
                "a re-created object keeps its hold until its own pass",
                |_, s: &State| s.broken != Some(Broken::Unasked),
            ),
        ]
    }
}

fn at(now: u8) -> Duration {
    Duration::from_secs(u64::from(now) * TICK)
}
