//! Time and order: one target, one or two leaders, and the users of the target: a Deployment,
//! its ReplicaSet and its Pod.
//!
//! An actor may stop at any point, because the model forces no action to happen. The server
//! executes a request and the leader receives the answer in one action, unless the answer is
//! lost or `delayed_answers` is set.

mod description;
mod leaders;
mod storage;
mod user_changes;

use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};

use crate::hold::{Input, Release, RequestResult};
pub(super) use storage::{PatchTests, Secret};
use storage::{Write, observed};

/// The kinds of the users, owners first.
pub(super) const USER_KINDS: [(&str, &str); 3] =
    [("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("pods", "Pod")];

/// The seconds of a tick.
pub(super) const TICK: u64 = 2;

/// The guards of the protocol that are enabled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guards {
    /// A leader waits for the settle time.
    pub(super) settle: bool,
    /// A leader reads live and not from its cache.
    pub(super) live: bool,
    /// The lists of a pass begin after its token is stored. Otherwise the leader reads its cache, which
    /// becomes current when it starts the pass.
    pub(super) lists_after_token: bool,
    /// A leader lists owners before their dependents.
    pub(super) owners_first: bool,
    /// A leader waits for a batch of lists before it sends the next one.
    pub(super) batches: bool,
    /// The `test` operations of the patches.
    pub(super) tests: PatchTests,
    /// A leader removes no hold after an old read.
    pub(super) fresh: bool,
}

/// The size of the model, and the events that can happen.
#[derive(Debug, Clone, Copy)]
pub(super) struct RaceModel {
    pub(super) guards: Guards,
    pub(super) leaders: usize,
    /// The limit of passes of each leader.
    pub(super) passes: u8,
    /// The limit of lost answers.
    pub(super) lost_answers: u8,
    /// The limit of changes of users by other clients.
    pub(super) user_changes: u8,
    /// The limit of time, in ticks; if 0, no time passes.
    pub(super) ticks: u8,
    /// The limit of ticks between the sending and the storing of a write.
    pub(super) write_delay: u8,
    /// Whether time may pass between the answer to a list and its use by the leader.
    pub(super) delayed_answers: bool,
    /// Whether the model begins before the DELETE, with a create that may be slow.
    pub(super) starts_before_delete: bool,
    /// Whether the target may be re-created with the same deletionTimestamp.
    pub(super) recreates: bool,
}

impl RaceModel {
    /// The base of all variants: all guards and two leaders; no time passes.
    pub(super) const BASE: Self = Self {
        guards: Guards {
            settle: true,
            live: true,
            lists_after_token: true,
            owners_first: true,
            batches: true,
            tests: PatchTests { uid: true, token: true, deletion_timestamp: true },
            fresh: true,
        },
        leaders: 2,
        passes: 1,
        lost_answers: 1,
        user_changes: 2,
        ticks: 0,
        write_delay: 0,
        delayed_answers: false,
        starts_before_delete: false,
        recreates: false,
    };
}

/// An object that may need the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UserObject {
    /// Whether the object uses the target.
    pub(super) uses: bool,
    /// Whether the object of the previous kind owns this object.
    pub(super) owned: bool,
    /// Whether the create of the object began after the DELETE of the target.
    pub(super) create_began_after_delete: bool,
    /// Whether the object, or the owner that created it, was stored when the last pass began, and
    /// has not begun or stopped to use the target since.
    pub(super) stored_before_pass: bool,
    /// Whether this is the create that begins before the DELETE of the target and may be stored
    /// after it.
    pub(super) is_slow_create: bool,
}

/// The state of the user of one kind. No user is created twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum UserState {
    NotCreated,
    Exists(UserObject),
    Deleted,
}

impl UserState {
    pub(super) fn object(self) -> Option<UserObject> {
        match self {
            Self::Exists(user) => Some(user),
            _ => None,
        }
    }
}

pub(super) type Users = [UserState; 3];

/// A request of a leader that the API server has not executed yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Get,
    Write(Write),
    /// Lists of the kinds with these indices in [`USER_KINDS`], in any order.
    Lists(Vec<usize>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    pub(super) release: Release,
    pub(super) request: Option<Request>,
    /// A write without an answer, which the API server may still store.
    pub(super) abandoned_write: Option<Write>,
    /// The results of the lists of this pass, by kind.
    pub(super) listed: [Option<UserState>; 3],
    /// The other reads of this pass, as bits ([`leaders`]).
    other_reads: u64,
    /// Whether the leader has an answer that it has not used yet.
    pub(super) has_unused_answer: bool,
    /// The times of the first and the last list of this pass.
    first_list: u8,
    last_list: u8,
    /// The number of passes that the leader may still start.
    passes_left: u8,
    /// The users in the cache of the leader.
    cache: Users,
}

/// A broken promise of docs/THEORY.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Violation {
    /// A user remains that was stored before the last pass.
    PromiseOne,
    /// A user remains whose create began before the DELETE.
    PromiseTwo,
    /// The leader removed the hold after a pass with old reads.
    StalePass,
    /// The object lost its hold without a pass of its own.
    NoPass,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: u8,
    pub(super) target: Option<Secret>,
    pub(super) users: Users,
    pub(super) leaders: Vec<Leader>,
    /// When the slow create began, until it is stored.
    pub(super) slow_create: Option<u8>,
    /// The token in the manifest of the target that a user has exported.
    pub(super) exported: Option<Arc<str>>,
    user_changes_left: u8,
    lost_answers_left: u8,
    pub(super) violation: Option<Violation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// One tick passes.
    Tick,
    /// A user deletes the target.
    DeleteTarget,
    /// The watch shows this leader that the target is Terminating.
    ObserveDeletion(usize),
    /// This leader starts a pass.
    StartPass(usize),
    /// The API server executes the request of this leader.
    Execute(usize),
    /// The API server executes this list of the request of this leader.
    ExecuteList(usize, usize),
    /// This leader uses a delayed answer.
    UseAnswer(usize),
    /// This leader gets no answer to its request.
    LoseAnswer(usize),
    /// The API server executes the abandoned write of this leader.
    ExecuteAbandoned(usize),
    /// The abandoned write of this leader is lost.
    DropAbandoned(usize),
    /// The cache of this leader becomes current.
    UpdateCache(usize),
    /// A user begins the slow create of a Pod.
    BeginCreate,
    /// The API server stores the slow create.
    StoreCreate,
    /// A user edits the Deployment so that it uses the target.
    StartUse,
    /// A user edits the ReplicaSet so that it no longer uses the target.
    StopUse,
    /// A controller creates the object of this kind.
    CreateDependent(usize),
    /// A user creates a Pod.
    CreatePod,
    /// A user deletes the object of this kind, in the background.
    DeleteUser(usize),
    /// A user deletes the object of this kind and orphans its dependent.
    DeleteAndOrphan(usize),
    /// The garbage collector deletes the object of this kind, whose owner was deleted.
    CollectGarbage(usize),
    /// A user exports the manifest of the target.
    ExportTarget,
    /// A user re-creates the target from the exported manifest, and deletes it.
    RecreateTarget,
}

impl Model for RaceModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let user = |uses, owned| {
            UserState::Exists(UserObject {
                uses,
                owned,
                create_began_after_delete: false,
                stored_before_pass: false,
                is_slow_create: false,
            })
        };
        let initial: &[Users] = if self.starts_before_delete || self.recreates {
            &[[UserState::NotCreated; 3]]
        } else {
            &[
                [user(true, false), UserState::NotCreated, UserState::NotCreated],
                [user(false, false), UserState::NotCreated, UserState::NotCreated],
                [UserState::NotCreated, user(true, false), UserState::NotCreated],
            ]
        };
        let mut states = Vec::new();
        for users in initial {
            let mut secret = Secret::new(1, 0);
            if self.starts_before_delete {
                secret.deletion_time = None;
            }
            let leader = |l: usize| Leader {
                release: Release::new("1".into(), ["A", "B"][l].into(), self.limits()),
                request: None,
                abandoned_write: None,
                listed: [None; 3],
                other_reads: 0,
                has_unused_answer: false,
                first_list: 0,
                last_list: 0,
                passes_left: self.passes,
                cache: *users,
            };
            let mut state = State {
                now: 0,
                target: Some(secret),
                users: *users,
                leaders: (0..self.leaders).map(leader).collect(),
                slow_create: None,
                exported: None,
                user_changes_left: self.user_changes,
                lost_answers_left: self.lost_answers,
                violation: None,
            };
            if !self.starts_before_delete {
                for l in 0..self.leaders {
                    if let Some(seen) = state.target.as_ref().map(observed) {
                        self.give_input(&mut state, l, Input::Observed(seen));
                    }
                }
            }
            states.push(state);
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        let is_overdue = |sent: u8| state.now + 1 - sent > self.write_delay;
        let mut may_tick = state.now < self.ticks;
        may_tick &= !state.slow_create.is_some_and(is_overdue);
        for (l, leader) in state.leaders.iter().enumerate() {
            match &leader.request {
                None if leader.has_unused_answer => actions.push(Action::UseAnswer(l)),
                None if !leader.release.is_busy() && leader.release.ended().is_none() => {
                    let terminating =
                        state.target.as_ref().is_some_and(|t| t.deletion_time.is_some());
                    let settled = leader.release.is_settled(time_of(state.now));
                    if self.starts_before_delete && terminating && leader.release.awaits_deletion()
                    {
                        actions.push(Action::ObserveDeletion(l));
                    } else if leader.passes_left > 0 && settled {
                        actions.push(Action::StartPass(l));
                    }
                }
                None => {}
                Some(request) => {
                    match request {
                        Request::Lists(kinds) => {
                            actions.extend(kinds.iter().map(|kind| Action::ExecuteList(l, *kind)));
                        }
                        Request::Get | Request::Write(_) => actions.push(Action::Execute(l)),
                    }
                    let mut may_lose = state.lost_answers_left > 0;
                    if let Request::Write(write) = request {
                        may_tick &= !is_overdue(write.sent);
                        may_lose &= leader.abandoned_write.is_none();
                    }
                    if may_lose {
                        actions.push(Action::LoseAnswer(l));
                    }
                }
            }
            if let Some(write) = &leader.abandoned_write {
                may_tick &= !is_overdue(write.sent);
                actions.push(Action::ExecuteAbandoned(l));
                if self.ticks > 0 {
                    actions.push(Action::DropAbandoned(l));
                }
            }
            if !self.guards.live && leader.cache != state.users {
                actions.push(Action::UpdateCache(l));
            }
        }
        if may_tick {
            actions.push(Action::Tick);
        }
        if self.starts_before_delete
            && state.target.as_ref().is_some_and(|t| t.deletion_time.is_none())
        {
            if state.slow_create.is_none() && state.users[2] == UserState::NotCreated {
                actions.push(Action::BeginCreate);
            }
            actions.push(Action::DeleteTarget);
        }
        if state.slow_create.is_some() {
            actions.push(Action::StoreCreate);
        }
        if self.recreates {
            let token = state.target.as_ref().and_then(|t| t.token.clone());
            if state.exported.is_none() && token.is_some() {
                actions.push(Action::ExportTarget);
            }
            if state.target.is_none() && state.exported.is_some() {
                actions.push(Action::RecreateTarget);
            }
        }
        // Changes of users matter only while the target exists.
        if state.user_changes_left > 0 && state.target.is_some() {
            self.add_user_changes(state, actions);
        }
        for i in 1..3 {
            let is_owned = state.users[i].object().is_some_and(|user| user.owned);
            if is_owned && state.users[i - 1] == UserState::Deleted {
                actions.push(Action::CollectGarbage(i));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::DeleteTarget => {
                let target = next.target.as_mut()?;
                target.deletion_time = Some(0);
                target.version += 1;
            }
            Action::ObserveDeletion(l) => {
                let seen = observed(next.target.as_ref()?);
                self.give_input(&mut next, l, Input::Observed(seen));
            }
            Action::StartPass(l) => {
                next.leaders[l].passes_left -= 1;
                if !self.guards.lists_after_token {
                    next.leaders[l].cache = next.users;
                }
                self.give_input(&mut next, l, Input::StartPass);
            }
            Action::Execute(l) => self.execute_request(&mut next, l)?,
            Action::ExecuteList(l, kind) => self.execute_list(&mut next, l, kind)?,
            Action::UseAnswer(l) => {
                next.leaders[l].has_unused_answer = false;
                self.give_input(&mut next, l, Input::ReadSucceeded { requested_at: None });
            }
            Action::LoseAnswer(l) => {
                next.lost_answers_left -= 1;
                let input = match next.leaders[l].request.take()? {
                    Request::Get => Input::Got(RequestResult::Unknown),
                    Request::Lists(_) => Input::ReadFailed("no answer".into()),
                    Request::Write(write) => {
                        let answer = match write.list_times {
                            None => Input::TokenWritten(RequestResult::Unknown),
                            Some(_) => Input::Removed(RequestResult::Unknown),
                        };
                        next.leaders[l].abandoned_write = Some(write);
                        answer
                    }
                };
                self.give_input(&mut next, l, input);
            }
            Action::ExecuteAbandoned(l) => {
                let write = next.leaders[l].abandoned_write.take()?;
                self.store_write(&mut next, &write);
            }
            Action::DropAbandoned(l) => next.leaders[l].abandoned_write = None,
            Action::UpdateCache(l) => next.leaders[l].cache = next.users,
            Action::BeginCreate => next.slow_create = Some(next.now),
            Action::StoreCreate => {
                next.slow_create = None;
                let user = UserObject {
                    uses: true,
                    owned: false,
                    create_began_after_delete: false,
                    stored_before_pass: false,
                    is_slow_create: true,
                };
                next.users[2] = UserState::Exists(user);
                if next.target.is_none() {
                    next.violation = next.violation.or(Some(Violation::PromiseTwo));
                }
            }
            Action::ExportTarget => next.exported = next.target.as_ref()?.token.clone(),
            Action::RecreateTarget => {
                let mut recreated = Secret::new(2, 0);
                recreated.token = next.exported.clone();
                next.target = Some(recreated);
            }
            other => self.change_users(&mut next, &other)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "Promise I: no user stored before the last pass loses the target",
                |_, s: &State| s.violation != Some(Violation::PromiseOne),
            ),
            Property::always(
                "Promise II: no user whose create began before the DELETE loses the target",
                |_, s: &State| s.violation != Some(Violation::PromiseTwo),
            ),
            Property::always("only a fresh pass removes the hold", |_, s: &State| {
                s.violation != Some(Violation::StalePass)
            }),
            Property::always(
                "a re-created object keeps its hold until its own pass",
                |_, s: &State| s.violation != Some(Violation::NoPass),
            ),
        ]
    }
}

fn time_of(now: u8) -> Duration {
    Duration::from_secs(u64::from(now) * TICK)
}
