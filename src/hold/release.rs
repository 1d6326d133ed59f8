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
    started_at: Duration,
    /// When the last read was sent. Even if its answer arrives late, its data is not older than
    /// this. Before the first read: when the answer to the write of the token arrived.
    read_at: Duration,
    rounds: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    /// No request is in progress.
    Idle,
    /// Reading the target. After a conflict, with the resourceVersion of the failed write of the
    /// token.
    Getting(Option<Arc<str>>),
    WritingToken(Arc<str>, Duration),
    CheckingUse(Pass),
    /// The batches of reads that remain; the first one is in progress.
    Reading(Pass, Vec<Vec<LiveRead>>),
    Removing(ReleaseReason),
    Ended(ReleaseEnd),
}

/// Other writers rarely cause more failed writes in a row than this. After that many conflicts
/// and lost answers, belay reports that the API server denies every write or does not answer.
const MAX_FAILED_WRITES: u8 = 4;

/// The release of one target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Release {
    uid: Arc<str>,
    /// Distinguishes the tokens of this process from those of others.
    replica: Arc<str>,
    /// The time limits; `settle` comes from the policies.
    pub limits: ReleaseTiming,
    observed: Option<TargetState>,
    /// When this process first saw the target Terminating. It uses its own clock, so that no
    /// other clock matters.
    terminating_since: Option<Duration>,
    token_count: u32,
    /// The exponent of the delay before the next pass. It grows with each pass that does not end
    /// the release.
    backoff_exponent: u32,
    /// The number of conflicts and lost answers. A change by another writer, and a count that finds
    /// users, reset it.
    failed_writes: u8,
    /// Whether [`Input::StartPass`] arrived during a pass.
    start_again: bool,
    state: State,
}

impl Release {
    /// A release of the object with this uid. Each start of the process has a new
    /// `replica`.
    pub fn new(uid: Arc<str>, replica: Arc<str>, limits: ReleaseTiming) -> Self {
        Self {
            uid,
            replica,
            limits,
            observed: None,
            terminating_since: None,
            token_count: 0,
            backoff_exponent: 0,
            failed_writes: 0,
            start_again: false,
            state: State::Idle,
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

    /// Whether the settle time has passed, so that [`Input::StartPass`] starts a pass.
    #[cfg(test)]
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        self.terminating_since.is_some_and(|since| now >= since + self.limits.settle)
    }

    /// Whether the release has not seen the target Terminating yet.
    #[cfg(test)]
    pub(super) fn awaits_deletion(&self) -> bool {
        self.terminating_since.is_none()
    }

    /// Handles one input. Each Get, WriteToken, Read, CheckUse and Remove has exactly one answer.
    /// An answer to a request that is no longer in progress changes nothing.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Output> {
        if self.ended().is_some() {
            return Vec::new();
        }
        match (std::mem::replace(&mut self.state, State::Idle), input) {
            (state, Input::Observed(observed)) => {
                self.state = state;
                self.observe(now, observed)
            }
            (_, Input::Deleted) => self.end(ReleaseEnd::NoLongerHeld),
            (State::Idle, Input::StartPass) => self.begin_pass(now),
            // A user may have been deleted after its kind was listed, so the release
            // needs another pass.
            (state, Input::StartPass) => {
                self.start_again = true;
                self.state = state;
                Vec::new()
            }
            (State::Getting(failed_version), Input::Got(answer)) => {
                self.handle_get(now, answer, failed_version.as_ref())
            }
            (State::WritingToken(token, started_at), Input::TokenWritten(answer)) => {
                self.handle_token(now, answer, &token, started_at)
            }
            (State::CheckingUse(pass), Input::UseChecked(check)) => {
                self.handle_use_check(now, pass, check)
            }
            (State::Reading(pass, batches), Input::ReadSucceeded { requested_at }) => {
                // The age of a list begins at the request of its last page. So neither earlier
                // pages nor the wait in the queue count.
                let read_at = requested_at.unwrap_or(pass.read_at);
                let remaining = batches.into_iter().skip(1).collect();
                self.read_next(now, Pass { read_at, ..pass }, remaining)
            }
            (State::Reading(..), Input::ReadFailed(why)) => self.give_up_pass(now, &why),
            (State::Removing(reason), Input::Removed(answer)) => {
                self.handle_removal(now, reason, answer)
            }
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// The watch may report an old state of the target. But a new uid and a removed hold are
    /// final, so they end the release.
    fn observe(&mut self, now: Duration, observed: TargetState) -> Vec<Output> {
        if observed.uid != self.uid {
            return self.end(ReleaseEnd::NoLongerHeld);
        }
        let (terminating, held) = (observed.deletion_timestamp.is_some(), observed.hold.is_some());
        self.observed = Some(observed);
        match (terminating, held, self.terminating_since) {
            // Before the deletion, another writer may still add the hold.
            (false, _, _) => Vec::new(),
            // The API server adds no new finalizer to a Terminating object.
            (true, false, _) if !matches!(self.state, State::Removing(_)) => {
                self.end(ReleaseEnd::NoLongerHeld)
            }
            (true, true, None) => {
                self.terminating_since = Some(now);
                vec![Output::SchedulePass(now + self.limits.settle)]
            }
            _ => Vec::new(),
        }
    }

    fn begin_pass(&mut self, now: Duration) -> Vec<Output> {
        let (Some(observed), Some(since)) = (&self.observed, self.terminating_since) else {
            return Vec::new();
        };
        let settled = since + self.limits.settle;
        if now < settled {
            return vec![Output::SchedulePass(settled)];
        }
        self.token_count += 1;
        let token: Arc<str> = format!("{}/{}", self.replica, self.token_count).into();
        let write = TokenWrite { observed: observed.clone(), token: token.clone() };
        self.state = State::WritingToken(token, now);
        vec![Output::WriteToken(write)]
    }

    fn handle_get(
        &mut self,
        now: Duration,
        answer: RequestResult,
        failed_version: Option<&Arc<str>>,
    ) -> Vec<Output> {
        match answer {
            RequestResult::Object(observed) => {
                // Another writer caused the conflict, which needs no long wait.
                if failed_version.is_some_and(|version| *version != observed.resource_version) {
                    self.backoff_exponent = self.backoff_exponent.min(1);
                    self.failed_writes = 0;
                }
                let mut outputs = self.observe(now, observed);
                if self.ended().is_none() {
                    if self.failed_writes >= MAX_FAILED_WRITES {
                        let what = "the API server refuses every change of it, or does not \
                                    answer; check that the stored object is still valid";
                        outputs.push(Output::ReportWait(WaitReason::Unknown(what.into())));
                    }
                    outputs.extend(self.schedule_pass(now));
                }
                outputs
            }
            RequestResult::TargetMissing => self.end(ReleaseEnd::NoLongerHeld),
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
        started_at: Duration,
    ) -> Vec<Output> {
        match answer {
            RequestResult::Object(observed)
                if observed.uid == self.uid
                    && observed.token.as_ref() == Some(token)
                    && observed.deletion_timestamp.is_some()
                    && observed.hold.is_some() =>
            {
                self.observed = Some(observed.clone());
                self.state =
                    State::CheckingUse(Pass { observed, started_at, read_at: now, rounds: 0 });
                vec![Output::CheckUse]
            }
            RequestResult::Object(observed) => {
                self.handle_get(now, RequestResult::Object(observed), None)
            }
            RequestResult::TargetMissing => self.end(ReleaseEnd::NoLongerHeld),
            RequestResult::Conflict => {
                let version =
                    self.observed.as_ref().map(|observed| observed.resource_version.clone());
                self.read_again(version)
            }
            RequestResult::Unknown => self.read_again(None),
            other => self.handle_failure(now, other),
        }
    }

    fn handle_use_check(&mut self, now: Duration, pass: Pass, check: UseCheck) -> Vec<Output> {
        let mut outputs = match check {
            UseCheck::NeedsReads(reads) if pass.rounds < MAX_READ_ROUNDS && !reads.is_empty() => {
                let pass = Pass { rounds: pass.rounds + 1, ..pass };
                return self.read_next(now, pass, reads);
            }
            UseCheck::Releasable(reason) => return self.remove(now, &pass, reason),
            UseCheck::InUse(causes) => {
                self.failed_writes = 0;
                vec![Output::ReportWait(WaitReason::InUse(causes))]
            }
            UseCheck::Unknown(why) => {
                vec![Output::ReportWait(why.into())]
            }
            UseCheck::NeedsReads(_) => {
                vec![Output::ReportWait(UnknownUse::TooManyRounds.into())]
            }
        };
        outputs.push(Output::DropReads);
        outputs.extend(self.schedule_pass(now));
        outputs
    }

    /// Removes the hold if the reads are fresh. Otherwise ends the pass.
    fn remove(&mut self, now: Duration, pass: &Pass, reason: ReleaseReason) -> Vec<Output> {
        let fresh = now.saturating_sub(pass.read_at) <= self.limits.max_read_age
            && now.saturating_sub(pass.started_at) <= self.limits.max_pass;
        match HoldRemoval::of_target(&pass.observed).filter(|_| fresh) {
            Some(removal) => {
                self.state = State::Removing(reason);
                vec![Output::DropReads, Output::Remove(removal)]
            }
            None => self.give_up_pass(now, "the reads are too old to remove the hold"),
        }
    }

    /// Starts the next batch of reads. After the last one, counts the users again.
    fn read_next(&mut self, now: Duration, pass: Pass, batches: Vec<Vec<LiveRead>>) -> Vec<Output> {
        let Some(reads) = batches.first().cloned() else {
            self.state = State::CheckingUse(pass);
            return vec![Output::CheckUse];
        };
        self.state = State::Reading(Pass { read_at: now, ..pass }, batches);
        vec![Output::Read(reads)]
    }

    fn handle_removal(
        &mut self,
        now: Duration,
        reason: ReleaseReason,
        answer: RequestResult,
    ) -> Vec<Output> {
        match answer {
            // Another client has added the hold a second time. The API server allows this, because
            // the object already had this finalizer.
            RequestResult::Object(observed) if observed.hold.is_some() => {
                let mut outputs = self.observe(now, observed);
                if self.ended().is_none() {
                    outputs.extend(self.schedule_pass(now));
                }
                outputs
            }
            RequestResult::Object(_) => self.end(ReleaseEnd::Released(reason)),
            RequestResult::TargetMissing => self.end(ReleaseEnd::NoLongerHeld),
            RequestResult::Conflict | RequestResult::Unknown => self.read_again(None),
            other => self.handle_failure(now, other),
        }
    }

    /// Reads the target, which shows the result of a write after a conflict or a lost answer.
    fn read_again(&mut self, failed_version: Option<Arc<str>>) -> Vec<Output> {
        self.failed_writes = self.failed_writes.saturating_add(1);
        self.state = State::Getting(failed_version);
        vec![Output::Get]
    }

    fn handle_failure(&mut self, now: Duration, answer: RequestResult) -> Vec<Output> {
        let reason = match answer {
            RequestResult::NamespaceMissing => WaitReason::Stranded,
            RequestResult::Failed(why) => WaitReason::Unknown(why),
            _ => WaitReason::Unknown("the API server gave no answer".into()),
        };
        let mut outputs = vec![Output::ReportWait(reason)];
        outputs.extend(self.schedule_pass(now));
        outputs
    }

    fn give_up_pass(&mut self, now: Duration, why: &str) -> Vec<Output> {
        let mut outputs =
            vec![Output::ReportWait(WaitReason::Unknown(why.into())), Output::DropReads];
        outputs.extend(self.schedule_pass(now));
        outputs
    }

    /// Ends the pass and schedules the next one. [`Input::StartPass`] may start it earlier.
    fn schedule_pass(&mut self, now: Duration) -> Vec<Output> {
        self.state = State::Idle;
        if std::mem::take(&mut self.start_again) {
            return vec![Output::SchedulePass(now)];
        }
        let factor = 1_u32.checked_shl(self.backoff_exponent.min(16)).unwrap_or(u32::MAX);
        self.backoff_exponent = (self.backoff_exponent + 1).min(16);
        let delay = self.limits.retry.saturating_mul(factor).min(self.limits.max_retry);
        vec![Output::SchedulePass(now + delay)]
    }

    fn end(&mut self, end: ReleaseEnd) -> Vec<Output> {
        self.state = State::Ended(end);
        vec![Output::Ended(end)]
    }
}
