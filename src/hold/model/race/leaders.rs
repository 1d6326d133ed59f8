//! The leaders, which run the release of the program.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use super::super::manifests;
use super::storage::{self, Write, observed};
use super::{
    Guards, RaceModel, Request, Secret, State, TICK, USER_KINDS, UserObject, UserState, Users,
    Violation,
};
use crate::decide::LiveRead;
use crate::hold::exceptions::UserException;
use crate::hold::{Input, Output, ReleaseTiming, RequestResult, UseCheck};

impl RaceModel {
    pub(super) fn limits(&self) -> ReleaseTiming {
        let settle = if self.starts_before_delete && self.guards.settle { 4 * TICK } else { 0 };
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

    /// Gives an input to a leader, and handles outputs that take no time.
    pub(super) fn give_input(&self, state: &mut State, l: usize, input: Input) {
        let now = super::time_of(state.now);
        let mut release = state.leaders[l].release.clone();
        let mut next = vec![input];
        while let Some(input) = next.pop() {
            for output in release.step(now, input) {
                let leader = &mut state.leaders[l];
                match output {
                    Output::Get => leader.request = Some(Request::Get),
                    Output::WriteToken(write) => {
                        let write = Write::of_token(write.patch(), state.now);
                        leader.request = Some(Request::Write(write));
                    }
                    Output::Remove(removal) => {
                        let list_times = (leader.first_list, leader.last_list);
                        let write = Write::of_removal(removal.patch(), state.now, list_times);
                        leader.request = Some(Request::Write(write));
                    }
                    Output::Read(reads) => {
                        let mut kinds = Vec::new();
                        for read in reads {
                            let resource = manifests::resource(&read);
                            match USER_KINDS.iter().position(|(r, _)| *r == resource) {
                                Some(kind) => kinds.push(kind),
                                // Other kinds have no objects.
                                None => leader.other_reads |= 1 << read_number(&read),
                            }
                        }
                        leader.last_list = state.now;
                        if !kinds.is_empty() {
                            leader.request = Some(Request::Lists(kinds));
                        // If Pods, the last kind, are not listed yet, a delay here can't make a
                        // list stale.
                        } else if self.delayed_answers && leader.listed[2].is_some() {
                            leader.has_unused_answer = true;
                        } else {
                            next.push(Input::ReadSucceeded { requested_at: None });
                        }
                    }
                    Output::CheckUse => {
                        let mut check = check_use_cached(&leader.listed, leader.other_reads);
                        if let UseCheck::NeedsReads(batches) = &mut check {
                            if !self.guards.owners_first {
                                batches.reverse();
                            }
                            if !self.guards.batches {
                                *batches = vec![batches.concat()];
                            }
                        }
                        next.push(Input::UseChecked(check));
                    }
                    Output::DropReads => {
                        leader.listed = [None; 3];
                        leader.other_reads = 0;
                    }
                    Output::SchedulePass(_) | Output::ReportWait(_) | Output::Ended(_) => {}
                }
            }
        }
        state.leaders[l].release = release;
    }

    /// The API server executes a write.
    pub(super) fn store_write(&self, state: &mut State, write: &Write) -> RequestResult {
        let had_pass = state.target.as_ref().is_some_and(|target| target.had_pass);
        let answer = storage::apply(&mut state.target, write, self.guards.tests);
        let RequestResult::Object(_) = answer else { return answer };
        match write.list_times {
            // A pass begins.
            None => {
                for user in &mut state.users {
                    if let UserState::Exists(user) = user {
                        user.stored_before_pass = true;
                    }
                }
            }
            Some(list_times) => self.check_promises(state, list_times, had_pass),
        }
        answer
    }

    /// Checks, after the removal of the hold, which users remain and how old the reads are.
    fn check_promises(&self, state: &mut State, (first_list, last_list): (u8, u8), had_pass: bool) {
        let now = state.now;
        // A user counts unless the user and its owners are newcomers.
        let counts = |i: usize| {
            let Some(user) = state.users[i].object() else { return false };
            let with_owners = (0..=i).rev().take_while(|j| {
                *j == i || state.users[j + 1].object().is_some_and(|below| below.owned)
            });
            let mut with_owners = with_owners.filter_map(|j| state.users[j].object());
            user.uses && with_owners.any(|object| !object.create_began_after_delete)
        };
        let remains = |condition: fn(UserObject) -> bool| {
            (0..3).any(|i| counts(i) && state.users[i].object().is_some_and(condition))
        };
        let violation = if remains(|user| user.stored_before_pass) {
            Some(Violation::PromiseOne)
        } else if remains(|user| user.is_slow_create) {
            Some(Violation::PromiseTwo)
        } else if !had_pass {
            Some(Violation::NoPass)
        } else {
            // max_read_age and max_pass in ticks, plus the delay of the write.
            let is_old = u64::from(now - last_list) > 1 + u64::from(self.write_delay)
                || u64::from(now - first_list) > 2 + u64::from(self.write_delay);
            (self.ticks > 0 && is_old).then_some(Violation::StalePass)
        };
        state.violation = state.violation.or(violation);
    }
}

type Key = ([Option<UserState>; 3], u64);

/// The reads of kinds without users. A state has a bit for each, by its index here.
static READS: Mutex<Vec<LiveRead>> = Mutex::new(Vec::new());

fn read_number(read: &LiveRead) -> usize {
    let mut reads = READS.lock().unwrap();
    reads.iter().position(|other| other == read).unwrap_or_else(|| {
        assert!(reads.len() < 64, "more kinds than bits");
        reads.push(read.clone());
        reads.len() - 1
    })
}

/// The count of the program after these reads, cached because the states repeat.
fn check_use_cached(listed: &[Option<UserState>; 3], other_reads: u64) -> UseCheck {
    static CACHE: LazyLock<Mutex<HashMap<Key, UseCheck>>> = LazyLock::new(Mutex::default);
    // The count does not read these fields.
    let without_unread_fields = |user: UserState| match user {
        UserState::Exists(user) => UserState::Exists(UserObject {
            stored_before_pass: false,
            is_slow_create: false,
            ..user
        }),
        _ => UserState::NotCreated,
    };
    let key = (listed.map(|user| user.map(without_unread_fields)), other_reads);
    let mut cache = CACHE.lock().unwrap();
    if let Some(check) = cache.get(&key) {
        return check.clone();
    }
    let reads = READS.lock().unwrap().clone();
    let read = (0..).zip(reads).filter(|(bit, _)| other_reads >> bit & 1 == 1);
    let mut done: HashSet<LiveRead> = read.map(|(_, read)| read).collect();
    let mut objects = Vec::new();
    for (kind, user) in listed.iter().enumerate() {
        let Some(user) = user else { continue };
        done.insert(storage::list(kind));
        objects.extend(user.object().map(|user| storage::user_manifest(kind, user)));
    }
    let target = storage::manifest(&Secret::new(1, 0));
    let check = manifests::check_use(&target, &objects, &done, UserException::ALL);
    cache.insert(key, check.clone());
    check
}

impl RaceModel {
    /// The users that a list of this leader returns: the stored ones, or without one of the guards
    /// `live` and `lists_after_token` those in its cache.
    pub(super) fn visible_users<'s>(&self, state: &'s State, l: usize) -> &'s Users {
        let Guards { live, lists_after_token, .. } = self.guards;
        if live && lists_after_token { &state.users } else { &state.leaders[l].cache }
    }

    pub(super) fn execute_request(&self, next: &mut State, l: usize) -> Option<()> {
        let input = match next.leaders[l].request.take()? {
            Request::Get => Input::Got(match &next.target {
                Some(target) => RequestResult::Object(observed(target)),
                None => RequestResult::TargetMissing,
            }),
            Request::Write(write) => {
                let answer = self.store_write(next, &write);
                match write.list_times {
                    None => Input::TokenWritten(answer),
                    Some(_) => Input::Removed(answer),
                }
            }
            Request::Lists(_) => return None,
        };
        self.give_input(next, l, input);
        Some(())
    }

    /// The API server executes one list. The leader gets the answers of a batch together.
    pub(super) fn execute_list(&self, next: &mut State, l: usize, kind: usize) -> Option<()> {
        let users = *self.visible_users(next, l);
        let leader = &mut next.leaders[l];
        let Some(Request::Lists(kinds)) = &mut leader.request else { return None };
        kinds.retain(|other| *other != kind);
        let is_last = kinds.is_empty();
        if leader.listed.iter().all(Option::is_none) {
            leader.first_list = next.now;
        }
        leader.last_list = next.now;
        leader.listed[kind] = Some(users[kind]);
        if !is_last {
            return Some(());
        }
        leader.request = None;
        if self.delayed_answers {
            leader.has_unused_answer = true;
        } else {
            self.give_input(next, l, Input::ReadSucceeded { requested_at: None });
        }
        Some(())
    }
}
