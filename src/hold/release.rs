//! One release as a state machine. It never waits and reads no clock. Every input has the
//! time of a monotonic clock.

use std::sync::Arc;
use std::time::Duration;

use super::count::{MAX_READ_ROUNDS, ReleaseReason, UnknownUse, UseCheck};
use super::patch::{HoldRemoval, TargetState, TokenWrite};
use super::protocol::{Input, Output, ReleaseEnd, ReleaseTiming, RequestResult, WaitReason};
use crate::decide::LiveRead;

/// One pass, which begins with its token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pass {
    /// The target in the answer to the write of the token.
    observed: TargetState,
    begun: Duration,
    /// When the last read was sent; before the first read, when the token was written.
    /// The data of a read is at least as new as this, however late its answer arrives.
    read_at: Duration,
    rounds: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    /// No request is in progress.
    Idle,
    /// Reading the target; with the resourceVersion for which the write of the token
    /// failed.
    Getting(Option<Arc<str>>),
    WritingToken(Arc<str>, Duration),
    CheckingUse(Pass),
    /// The reads that remain; the first one is in progress.
    Reading(Pass, Vec<LiveRead>),
    Removing(ReleaseReason),
    Ended(ReleaseEnd),
}

/// The number of conflicts in a row that other writers explain. After more, the API
/// server denies every write of the object.
const REFUSALS: u8 = 4;

/// The release of one target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Release {
    uid: Arc<str>,
    /// Distinguishes the tokens of this process from those of others.
    replica: Arc<str>,
    /// The limits; `settle` comes from the policies.
    pub limits: ReleaseTiming,
    observed: Option<TargetState>,
    /// When this process first saw it Terminating, by its own clock, so that no other
    /// clock matters.
    since: Option<Duration>,
    tokens: u32,
    failures: u32,
    /// The number of conflicts in a row.
    refusals: u8,
    /// Whether a new pass was requested during a request.
    again: bool,
    state: State,
}

impl Release {
    /// A release of the object with this uid. Each start of the process has a new
    /// `replica`.
    pub fn new(uid: Arc<str>, replica: Arc<str>, limits: ReleaseTiming) -> Self {
        let (observed, since, state) = (None, None, State::Idle);
        Self {
            uid,
            replica,
            limits,
            observed,
            since,
            tokens: 0,
            failures: 0,
            refusals: 0,
            again: false,
            state,
        }
    }

    /// How the release ended; `None` before the end.
    pub fn ended(&self) -> Option<ReleaseEnd> {
        match self.state {
            State::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Whether a request or a count is in progress.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle | State::Ended(_))
    }

    /// Whether settle has passed: a look leads to a pass.
    #[cfg(test)]
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        self.since.is_some_and(|since| now >= since + self.limits.settle)
    }

    /// Whether it has not been seen Terminating yet.
    #[cfg(test)]
    pub(super) fn is_unaware(&self) -> bool {
        self.since.is_none()
    }

    /// One step. Each Get, WriteToken, Read, CheckUse and Remove has exactly one answer. An answer
    /// to a request that is no longer in progress changes nothing.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Output> {
        if self.ended().is_some() {
            return Vec::new();
        }
        match (std::mem::replace(&mut self.state, State::Idle), input) {
            (state, Input::Observed(observed)) => {
                self.state = state;
                self.observe(now, observed)
            }
            (_, Input::Deleted) => self.end(ReleaseEnd::Gone),
            (State::Idle, Input::StartPass) => self.begin_pass(now),
            // A user may have been deleted after its kind was listed, so the release
            // needs another pass.
            (state, Input::StartPass) => {
                self.again = true;
                self.state = state;
                Vec::new()
            }
            (State::Getting(marked), Input::Got(answer)) => {
                self.handle_get(now, answer, marked.as_ref())
            }
            (State::WritingToken(token, begun), Input::TokenWritten(answer)) => {
                self.handle_token(now, answer, &token, begun)
            }
            (State::CheckingUse(pass), Input::UseChecked(count)) => {
                self.handle_count(now, pass, count)
            }
            (State::Reading(pass, left), Input::Read { asked }) => {
                // A long list or a wait in the queue does not make an answer old.
                let read_at = asked.unwrap_or(pass.read_at);
                let left = left.into_iter().skip(1).collect();
                self.read_next(now, Pass { read_at, ..pass }, left)
            }
            (State::Reading(_, left), Input::ReadFailed(why)) => {
                let kind = left.first().map(LiveRead::kind_name).unwrap_or_default();
                self.give_up_pass(now, &format!("{kind}: {why}"))
            }
            (State::Removing(free), Input::Removed(answer)) => {
                self.handle_removal(now, free, answer)
            }
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// The watch may be late, but an object is never restored: another uid or a removed
    /// hold ends the release.
    fn observe(&mut self, now: Duration, observed: TargetState) -> Vec<Output> {
        if observed.uid != self.uid {
            return self.end(ReleaseEnd::Gone);
        }
        let (deleted, held) = (observed.deleted.is_some(), observed.hold.is_some());
        self.observed = Some(observed);
        match (deleted, held, self.since) {
            // Before it is Terminating, a hold may still be added.
            (false, _, _) => Vec::new(),
            // A Terminating object gets no new finalizers.
            (true, false, _) if !matches!(self.state, State::Removing(_)) => {
                self.end(ReleaseEnd::Gone)
            }
            (true, true, None) => {
                self.since = Some(now);
                vec![Output::SchedulePass(now + self.limits.settle)]
            }
            _ => Vec::new(),
        }
    }

    fn begin_pass(&mut self, now: Duration) -> Vec<Output> {
        let (Some(observed), Some(since)) = (&self.observed, self.since) else { return Vec::new() };
        let settled = since + self.limits.settle;
        if now < settled {
            return vec![Output::SchedulePass(settled)];
        }
        self.tokens += 1;
        let token: Arc<str> = format!("{}/{}", self.replica, self.tokens).into();
        let mark = TokenWrite { observed: observed.clone(), token: token.clone() };
        self.state = State::WritingToken(token, now);
        vec![Output::WriteToken(mark)]
    }

    fn handle_get(
        &mut self,
        now: Duration,
        answer: RequestResult,
        marked: Option<&Arc<str>>,
    ) -> Vec<Output> {
        match answer {
            RequestResult::Object(observed) => {
                // A conflict with another writer needs no long wait. Other failures back
                // off as usual.
                if marked.is_some_and(|version| *version != observed.version) {
                    self.failures = self.failures.min(1);
                    self.refusals = 0;
                }
                let mut outputs = self.observe(now, observed);
                if self.ended().is_none() {
                    if self.refusals >= REFUSALS {
                        let what = "the API server refuses every change of it, or does not \
                                    answer; check that the stored object is still valid";
                        outputs.push(Output::Waits(WaitReason::Unknown(what.into())));
                    }
                    outputs.extend(self.schedule_pass(now));
                }
                outputs
            }
            RequestResult::Missing { namespace: false } => self.end(ReleaseEnd::Gone),
            other => self.handle_failure(now, other),
        }
    }

    /// A pass only uses data that was read after its token was written. So the order of
    /// the tokens is the order of the passes.
    fn handle_token(
        &mut self,
        now: Duration,
        answer: RequestResult,
        token: &Arc<str>,
        begun: Duration,
    ) -> Vec<Output> {
        match answer {
            RequestResult::Object(observed)
                if observed.uid == self.uid
                    && observed.token.as_ref() == Some(token)
                    && observed.deleted.is_some()
                    && observed.hold.is_some() =>
            {
                self.observed = Some(observed.clone());
                self.state = State::CheckingUse(Pass { observed, begun, read_at: now, rounds: 0 });
                vec![Output::CheckUse]
            }
            RequestResult::Object(observed) => {
                self.handle_get(now, RequestResult::Object(observed), None)
            }
            RequestResult::Missing { namespace: false } => self.end(ReleaseEnd::Gone),
            RequestResult::Conflict => {
                let version = self.observed.as_ref().map(|observed| observed.version.clone());
                self.read_again(version)
            }
            RequestResult::NoAnswer => self.read_again(None),
            other => self.handle_failure(now, other),
        }
    }

    fn handle_count(&mut self, now: Duration, pass: Pass, count: UseCheck) -> Vec<Output> {
        let mut outputs = match count {
            UseCheck::NeedsReads(reads) if pass.rounds < MAX_READ_ROUNDS && !reads.is_empty() => {
                let pass = Pass { rounds: pass.rounds + 1, ..pass };
                return self.read_next(now, pass, reads);
            }
            UseCheck::Releasable(free) => return self.remove(now, &pass, free),
            UseCheck::InUse(causes) => {
                self.refusals = 0;
                vec![Output::Waits(WaitReason::InUse(causes))]
            }
            UseCheck::Unknown(why) => {
                vec![Output::Waits(WaitReason::Unknown(why.to_string().into()))]
            }
            UseCheck::NeedsReads(_) => {
                let why = UnknownUse::TooManyRounds.to_string();
                vec![Output::Waits(WaitReason::Unknown(why.into()))]
            }
        };
        outputs.push(Output::DropReads);
        outputs.extend(self.schedule_pass(now));
        outputs
    }

    /// Removes the hold if the reads are fresh, and ends the pass otherwise.
    fn remove(&mut self, now: Duration, pass: &Pass, free: ReleaseReason) -> Vec<Output> {
        let fresh = now.saturating_sub(pass.read_at) <= self.limits.max_read_age
            && now.saturating_sub(pass.begun) <= self.limits.max_pass;
        match HoldRemoval::of_target(&pass.observed).filter(|_| fresh) {
            Some(removal) => {
                self.state = State::Removing(free);
                vec![Output::DropReads, Output::Remove(removal)]
            }
            None => self.give_up_pass(now, "the reads are too old to remove the hold"),
        }
    }

    /// Starts the next read, or the count.
    fn read_next(&mut self, now: Duration, pass: Pass, left: Vec<LiveRead>) -> Vec<Output> {
        let Some(read) = left.first().cloned() else {
            self.state = State::CheckingUse(pass);
            return vec![Output::CheckUse];
        };
        self.state = State::Reading(Pass { read_at: now, ..pass }, left);
        vec![Output::Read(read)]
    }

    fn handle_removal(
        &mut self,
        now: Duration,
        free: ReleaseReason,
        answer: RequestResult,
    ) -> Vec<Output> {
        match answer {
            // Another client had added a second hold.
            RequestResult::Object(observed) if observed.hold.is_some() => {
                let mut outputs = self.observe(now, observed);
                if self.ended().is_none() {
                    outputs.extend(self.schedule_pass(now));
                }
                outputs
            }
            RequestResult::Object(_) => self.end(ReleaseEnd::Released(free)),
            RequestResult::Missing { namespace: false } => self.end(ReleaseEnd::Gone),
            RequestResult::Conflict | RequestResult::NoAnswer => self.read_again(None),
            other => self.handle_failure(now, other),
        }
    }

    /// After a conflict or a lost answer, the object shows the result of the write.
    fn read_again(&mut self, marked: Option<Arc<str>>) -> Vec<Output> {
        self.refusals = self.refusals.saturating_add(1);
        self.state = State::Getting(marked);
        vec![Output::Get]
    }

    fn handle_failure(&mut self, now: Duration, answer: RequestResult) -> Vec<Output> {
        let waiting = match answer {
            RequestResult::Missing { namespace: true } => WaitReason::Stranded,
            RequestResult::Failed(why) => WaitReason::Unknown(why),
            _ => WaitReason::Unknown("the API server gave no answer".into()),
        };
        let mut outputs = vec![Output::Waits(waiting)];
        outputs.extend(self.schedule_pass(now));
        outputs
    }

    fn give_up_pass(&mut self, now: Duration, what: &str) -> Vec<Output> {
        let mut outputs = vec![Output::Waits(WaitReason::Unknown(what.into())), Output::DropReads];
        outputs.extend(self.schedule_pass(now));
        outputs
    }

    /// Ends the pass and schedules the next one. Other events may start it earlier.
    fn schedule_pass(&mut self, now: Duration) -> Vec<Output> {
        self.state = State::Idle;
        if std::mem::take(&mut self.again) {
            return vec![Output::SchedulePass(now)];
        }
        let factor = 1_u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX);
        self.failures = (self.failures + 1).min(16);
        let wait = self.limits.retry.saturating_mul(factor).min(self.limits.max_retry);
        vec![Output::SchedulePass(now + wait)]
    }

    fn end(&mut self, end: ReleaseEnd) -> Vec<Output> {
        self.state = State::Ended(end);
        vec![Output::Ended(end)]
    }
}
