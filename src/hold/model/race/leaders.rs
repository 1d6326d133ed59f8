//! The leaders: real machines, asked and answered.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use super::super::manifests;
use super::storage::{self, Write, observed};
use super::{Broken, RaceModel, Request, Secret, State, TICK, USERS, UserObject, UserState, Users};
use crate::decide::LiveRead;
use crate::hold::exceptions::UserException;
use crate::hold::{Input, Output, ReleaseTiming, RequestResult, UseCheck};

impl RaceModel {
    pub(super) fn limits(&self) -> ReleaseTiming {
        let settle = if self.from_delete && self.guards.settle { 4 * TICK } else { 0 };
        let fresh = if self.guards.fresh { TICK } else { 1_000_000 };
        let pass = if self.guards.fresh { 2 * TICK } else { 1_000_000 };
        ReleaseTiming {
            settle: Duration::from_secs(settle),
            max_read_age: Duration::from_secs(fresh),
            max_pass: Duration::from_secs(pass),
            retry: Duration::ZERO,
            max_retry: Duration::ZERO,
        }
    }

    /// Gives an input to a leader, and does at once what takes no time.
    pub(super) fn feed(&self, state: &mut State, l: usize, input: Input) {
        let now = Duration::from_secs(u64::from(state.now) * TICK);
        let target = state.leaders[l].release.clone();
        let mut release = target;
        let mut next = vec![input];
        while let Some(input) = next.pop() {
            for output in release.step(now, input) {
                let leader = &mut state.leaders[l];
                match output {
                    Output::Get => leader.request = Some(Request::Get),
                    Output::WriteToken(mark) => {
                        let patch = mark.patch();
                        leader.request = Some(Request::Write(Write::mark(patch, state.now)));
                    }
                    Output::Remove(removal) => {
                        let write =
                            Write::removal(removal.patch(), state.now, (leader.first, leader.last));
                        leader.request = Some(Request::Write(write));
                    }
                    Output::Read(read) => {
                        let resource = manifests::resource(&read);
                        match USERS.iter().position(|(r, _)| *r == resource) {
                            Some(kind) => leader.request = Some(Request::List(kind, read)),
                            // There are no users of another kind.
                            None => {
                                leader.others |= 1 << number(&read);
                                leader.last = state.now;
                                // The last list of all is answered like those
                                // that are modelled.
                                if self.delayed_answers && leader.found[2].is_some() {
                                    leader.unread = true;
                                } else {
                                    next.push(Input::Read { asked: None });
                                }
                            }
                        }
                    }
                    Output::CheckUse => {
                        let mut count = counted(&leader.found, leader.others);
                        if let (UseCheck::NeedsReads(reads), false) =
                            (&mut count, self.guards.producers_first)
                        {
                            reads.reverse();
                        }
                        next.push(Input::UseChecked(count));
                    }
                    Output::DropReads => {
                        leader.found = [None; 3];
                        leader.others = 0;
                    }
                    Output::SchedulePass(_) | Output::Waits(_) | Output::Ended(_) => {}
                }
            }
        }
        state.leaders[l].release = release;
    }

    /// Whatever a write comes to in storage.
    pub(super) fn land(&self, state: &mut State, write: &Write) -> RequestResult {
        let asked = state.target.as_ref().is_some_and(|target| target.asked);
        let answer = storage::apply(&mut state.target, write, self.guards.tests);
        let RequestResult::Object(_) = answer else { return answer };
        match write.lists {
            // A pass begins. What is stored now was stored before it.
            None => {
                for slot in &mut state.users {
                    if let UserState::Exists(thing) = slot {
                        thing.known = true;
                    }
                }
            }
            Some(lists) => self.hold_went(state, lists, asked),
        }
        answer
    }

    /// The hold was removed: does a user still need the target?
    fn hold_went(&self, state: &mut State, (first, last): (u8, u8), asked: bool) {
        let now = state.now;
        let counts = |i: usize| {
            let Some(thing) = state.users[i].object() else { return false };
            let older = (0..=i).rev().take_while(|j| {
                *j == i || state.users[j + 1].object().is_some_and(|below| below.owned)
            });
            let mut older = older.filter_map(|j| state.users[j].object());
            thing.uses && older.any(|thing| !thing.created_after_delete)
        };
        let left = |is: fn(UserObject) -> bool| {
            (0..3).any(|i| counts(i) && state.users[i].object().is_some_and(is))
        };
        let broken = if left(|thing| thing.known) {
            Some(Broken::PromiseOne)
        } else if left(|thing| thing.created_before_delete) {
            Some(Broken::PromiseTwo)
        } else if !asked {
            Some(Broken::Unasked)
        } else {
            // As fresh as the limits say, and the time a write takes.
            let old = u64::from(now - last) > 1 + u64::from(self.write_delay)
                || u64::from(now - first) > 2 + u64::from(self.write_delay);
            (self.ticks > 0 && old).then_some(Broken::Stale)
        };
        state.broken = state.broken.or(broken);
    }
}

type Key = ([Option<UserState>; 3], u64);

/// The reads of kinds without users, numbered in order: a state has a bit for each.
static READS: Mutex<Vec<LiveRead>> = Mutex::new(Vec::new());

fn number(read: &LiveRead) -> usize {
    let mut reads = READS.lock().unwrap();
    reads.iter().position(|other| other == read).unwrap_or_else(|| {
        assert!(reads.len() < 64, "more kinds than bits");
        reads.push(read.clone());
        reads.len() - 1
    })
}

/// The real count. Few questions are asked, very often.
fn counted(found: &[Option<UserState>; 3], others: u64) -> UseCheck {
    static KNOWN: LazyLock<Mutex<HashMap<Key, UseCheck>>> = LazyLock::new(Mutex::default);
    let plain = |slot: UserState| match slot {
        UserState::Exists(thing) => {
            UserState::Exists(UserObject { known: false, created_before_delete: false, ..thing })
        }
        _ => UserState::NotCreated,
    };
    let key = (found.map(|slot| slot.map(plain)), others);
    let mut known = KNOWN.lock().unwrap();
    if let Some(count) = known.get(&key) {
        return count.clone();
    }
    let reads = READS.lock().unwrap().clone();
    let read = (0..).zip(reads).filter(|(bit, _)| others >> bit & 1 == 1);
    let mut done: HashSet<LiveRead> = read.map(|(_, read)| read).collect();
    let mut objects = Vec::new();
    for (kind, slot) in found.iter().enumerate() {
        let Some(slot) = slot else { continue };
        done.insert(storage::list(kind));
        objects.extend(slot.object().map(|thing| storage::user(kind, thing)));
    }
    let target = storage::manifest(&Secret::new(1, 0));
    let count = manifests::count(&target, &objects, &done, UserException::ALL);
    known.insert(key, count.clone());
    count
}

impl RaceModel {
    /// What a list shows: what is stored, or, with that guard out, what the
    /// cache has.
    pub(super) fn shown<'s>(&self, state: &'s State, l: usize) -> &'s Users {
        if self.guards.live { &state.users } else { &state.leaders[l].cache }
    }

    pub(super) fn carry_out(&self, next: &mut State, l: usize) -> Option<()> {
        let input = match next.leaders[l].request.take()? {
            Request::Get => Input::Got(match &next.target {
                Some(target) => RequestResult::Object(observed(target)),
                None => RequestResult::Missing { namespace: false },
            }),
            Request::Write(write) => {
                let answer = self.land(next, &write);
                match write.lists {
                    None => Input::TokenWritten(answer),
                    Some(_) => Input::Removed(answer),
                }
            }
            Request::List(kind, _) => {
                let users = *self.shown(next, l);
                let leader = &mut next.leaders[l];
                if leader.found.iter().all(Option::is_none) {
                    leader.first = next.now;
                }
                leader.last = next.now;
                leader.found[kind] = Some(users[kind]);
                if self.delayed_answers {
                    leader.unread = true;
                    return Some(());
                }
                Input::Read { asked: None }
            }
        };
        self.feed(next, l, input);
        Some(())
    }
}
