//! Runs the state machine of one target.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::requests::{Response, TargetClient};
use super::sweep::{Sweep, Sweeps};
use super::update::{DriverUpdate, PendingUpdate};
use crate::cluster::context::Context;
use crate::cluster::list::Buffers;
use crate::cluster::live::{
    CollectedReads, MemoryLimits, ReadGroup, ReadMemory, Reader, ReservedMemory, TargetBody,
};
use crate::cluster::world::{ObjectKey, SharedWorld, World};
use crate::decide::{LiveReads, ObjectSource, Situation};
use crate::graph::{StepBudget, StepCounter};
use crate::hold::{
    Input, Output, PASS_STEPS, Release, ReleaseEnd, ReleaseReason, ReleaseTiming, RequestResult,
    UnknownUse, UseCheck, WaitReason, check_use,
};
use crate::objects::KindId;
use crate::webhook::fair::{FairPermit, FairSemaphore, GroupLimits};

/// What a driver reports.
#[derive(Debug, Clone)]
pub enum DriverReport {
    /// Why the hold stays for now.
    Waits(WaitReason),
    Ended(ReleaseEnd),
}

/// How much longer the turn of a pass lasts for each step of its counts. A step takes about
/// 50 ns, so the counts of all concurrent passes use about a quarter of one CPU.
const REST_PER_STEP: Duration = Duration::from_micros(72);

/// The memory for the bodies of targets, in KiB. A small body counts as 16 KiB, so all
/// concurrent passes of small targets take a quarter of this memory.
const BODY_LIMITS: MemoryLimits = MemoryLimits { total: 24 << 10, per_group: 8 << 10, step: 16 };

/// The data that all drivers share.
#[derive(Clone)]
pub struct DriverContext {
    pub context: Context,
    /// The memory for large objects that are being read.
    pub buffers: Buffers,
    pub sweeps: Sweeps,
    /// The memory for the bodies of targets while their passes run.
    pub bodies: ReadMemory,
    /// Limits the number of concurrent passes. Namespaces take turns.
    pub passes: FairSemaphore,
    /// The zero of the times that state machines use.
    pub start: Instant,
}

impl DriverContext {
    /// `passes` limits the number of concurrent passes.
    pub fn new(context: Context, reader: Reader, passes: GroupLimits) -> Self {
        let buffers = reader.buffers();
        let sweeps = Sweeps::new(reader, context.world.clone());
        let bodies = ReadMemory::new(BODY_LIMITS);
        let passes = FairSemaphore::new(passes);
        Self { context, buffers, sweeps, bodies, passes, start: Instant::now() }
    }

    /// Keeps the body of a target for the counts, if there is memory for it now.
    async fn keep_body(
        &self,
        namespace: &str,
        object: Option<Value>,
    ) -> Option<(TargetBody, Vec<ReservedMemory>)> {
        let body = TargetBody::new(&object?)?;
        let group = ReadGroup::Release(namespace.to_owned());
        let mut account = self.bodies.account(&group, Instant::now());
        account.reserve(body.bytes()).await.ok()?;
        Some((body, account.into_reserved()))
    }
}

/// A target with its state machine.
pub struct Driver {
    shared: DriverContext,
    pub key: ObjectKey,
    pub target: TargetClient,
    release: Release,
    /// The target from the answer to the write of the token, with its reserved memory.
    target_body: Option<(TargetBody, Vec<ReservedMemory>)>,
    /// The sweep with the reads of this pass.
    sweep: Option<Arc<Sweep>>,
    /// Why the last count permits the release.
    release_reason: Option<ReleaseReason>,
    /// Whether the removal of the hold succeeded, or may have succeeded. If the watch is faster
    /// than the answer, or the answer is lost, the state machine ends with `NoLongerHeld`,
    /// although belay released the target.
    may_have_released: bool,
    /// The steps of the counts of this pass.
    budget: StepBudget,
    /// The time of the next pass that the state machine planned.
    planned_pass: Option<Instant>,
    /// When the pass that an update requested is due. It may be before `planned_pass`.
    requested_pass: Option<Instant>,
}

impl Driver {
    pub fn new(
        shared: DriverContext,
        key: ObjectKey,
        target: TargetClient,
        uid: Arc<str>,
        settle: Duration,
    ) -> Self {
        let instance = shared.context.settings.instance.as_str().into();
        let limits = ReleaseTiming { settle, ..ReleaseTiming::default() };
        let release = Release::new(uid, instance, limits);
        Self {
            shared,
            key,
            target,
            release,
            target_body: None,
            sweep: None,
            release_reason: None,
            may_have_released: false,
            budget: StepBudget::new(PASS_STEPS),
            planned_pass: None,
            requested_pass: None,
        }
    }

    /// Runs until the release has ended.
    pub async fn run(
        &mut self,
        pending: &PendingUpdate,
        report: impl Fn(&TargetClient, DriverReport),
    ) {
        while self.release.ended().is_none() {
            let due = self.planned_pass.into_iter().chain(self.requested_pass).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            // The future of a pass is boxed, so that a target that only waits takes little memory.
            tokio::select! {
                () = pending.added.notified() => {
                    Box::pin(self.handle_wakeup(false, pending, &report)).await;
                }
                () = sleep_until(due) => {
                    // A pass sends reads, so it waits for its turn. An update needs no turn.
                    let passes = self.shared.passes.clone();
                    let turn = passes.acquire(&self.key.1).await;
                    Box::pin(self.handle_wakeup(true, pending, &report)).await;
                    self.end_turn(turn);
                }
            }
        }
    }

    /// Ends the turn of a pass after a rest, which depends on the steps of its counts. The driver
    /// does not wait for the rest, so the driver handles updates meanwhile.
    fn end_turn(&mut self, turn: Option<FairPermit>) {
        let budget = std::mem::replace(&mut self.budget, StepBudget::new(PASS_STEPS));
        let steps = u32::try_from(budget.steps()).unwrap_or(u32::MAX);
        if let Some(turn) = turn.filter(|_| steps > 0) {
            tokio::spawn(async move {
                sleep(REST_PER_STEP.saturating_mul(steps)).await;
                drop(turn);
            });
        }
    }

    /// Passes the facts of an update to the state machine.
    async fn apply_update(
        &mut self,
        update: DriverUpdate,
        inputs: &mut Vec<Input>,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        let DriverUpdate { observed, deleted, pass_by, settle } = update;
        self.release.limits.settle = settle.unwrap_or(self.release.limits.settle);
        self.requested_pass = pass_by.into_iter().chain(self.requested_pass).min();
        if deleted {
            self.step(Input::Deleted, inputs, report).await;
        } else if let Some(observed) = observed {
            self.step(Input::Observed(observed), inputs, report).await;
        }
        // A new pass starts in `run`, where it waits for its turn. A running pass gets the input
        // here.
        if self.release.is_busy() && self.requested_pass.is_some_and(|time| time <= Instant::now())
        {
            self.requested_pass = None;
            self.step(Input::StartPass, inputs, report).await;
        }
    }

    /// Applies the pending updates. Then starts a pass if one is due. This pass also covers the changes
    /// that the updates report.
    async fn handle_wakeup(
        &mut self,
        is_pass_due: bool,
        pending: &PendingUpdate,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        let mut inputs = Vec::new();
        self.apply_update(pending.take(), &mut inputs, report).await;
        if is_pass_due {
            (self.planned_pass, self.requested_pass) = (None, None);
            inputs.push(Input::StartPass);
        }
        self.process_inputs(inputs, pending, report).await;
    }

    /// Continues until the state machine has no further input. It also applies the updates that
    /// arrive meanwhile.
    async fn process_inputs(
        &mut self,
        mut inputs: Vec<Input>,
        pending: &PendingUpdate,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        while let Some(input) = inputs.pop() {
            self.step(input, &mut inputs, report).await;
            self.apply_update(pending.take(), &mut inputs, report).await;
        }
        // Many targets may wait, and users can make each of them large.
        (self.target_body, self.sweep) = (None, None);
    }

    /// Passes one input to the state machine and carries out its outputs. Their results are new
    /// inputs.
    async fn step(
        &mut self,
        input: Input,
        inputs: &mut Vec<Input>,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        let now = Instant::now().saturating_duration_since(self.shared.start);
        for output in self.release.step(now, input) {
            inputs.extend(self.carry_out(output, report).await);
        }
    }

    async fn carry_out(
        &mut self,
        output: Output,
        report: &impl Fn(&TargetClient, DriverReport),
    ) -> Option<Input> {
        let client = &self.shared.context.client;
        match output {
            Output::SchedulePass(time) => {
                self.planned_pass = Some(self.shared.start + time);
                None
            }
            Output::Get => {
                let result = self.target.get(client).await.result;
                self.may_have_released &= !is_held(&result);
                Some(Input::Got(result))
            }
            Output::WriteToken(write) => {
                let Response { result, object } = self.target.patch(client, &write.patch()).await;
                self.target_body = self.shared.keep_body(&self.key.1, object.ok()).await;
                self.may_have_released &= !is_held(&result);
                Some(Input::TokenWritten(result))
            }
            Output::Read(reads) => Some(match self.join_sweep().await.read_all(reads).await {
                Ok(requested_at) => {
                    let start = self.shared.start;
                    let requested_at =
                        requested_at.map(|time| time.saturating_duration_since(start));
                    Input::ReadSucceeded { requested_at }
                }
                Err(why) => Input::ReadFailed(why),
            }),
            Output::CheckUse => {
                let check = self.check_use().await;
                self.release_reason = match &check {
                    UseCheck::Releasable(reason) => Some(*reason),
                    _ => None,
                };
                Some(Input::UseChecked(check))
            }
            Output::DropReads => {
                self.sweep = None;
                None
            }
            Output::Remove(removal) => {
                let result = self.target.patch(client, &removal.patch()).await.result;
                if let RequestResult::Failed(why) = &result
                    && let Some(suppressed) = self.target.admit_log_line()
                {
                    tracing::warn!(
                        resource = self.target.info.resource,
                        namespace = self.target.namespace,
                        name = self.target.name,
                        %why,
                        left_out = (suppressed > 0).then_some(suppressed),
                        "the hold could not be removed"
                    );
                }
                self.may_have_released = match &result {
                    RequestResult::Object(_) => !is_held(&result),
                    RequestResult::Unknown => true,
                    RequestResult::Conflict
                    | RequestResult::Failed(_)
                    | RequestResult::TargetMissing
                    | RequestResult::NamespaceMissing => false,
                };
                Some(Input::Removed(result))
            }
            Output::ReportWait(waiting) => {
                report(&self.target, DriverReport::Waits(waiting));
                None
            }
            Output::Ended(end) => {
                self.sweep = None;
                let reason = self.release_reason.filter(|_| self.may_have_released);
                let end = match (end, reason) {
                    (ReleaseEnd::NoLongerHeld, Some(reason)) => ReleaseEnd::Released(reason),
                    _ => end,
                };
                report(&self.target, DriverReport::Ended(end));
                None
            }
        }
    }

    /// Joins a sweep at the first call of a pass. The sweep starts after the token was written.
    async fn join_sweep(&mut self) -> Arc<Sweep> {
        if let Some(sweep) = &self.sweep {
            return sweep.clone();
        }
        let (kind, namespace, _) = &self.key;
        let sweep = self.shared.sweeps.join(*kind, namespace).await;
        self.sweep.insert(sweep).clone()
    }

    /// Counts the remaining users. A pass that needs no reads, for example of an approved target,
    /// joins no sweep.
    async fn check_use(&mut self) -> UseCheck {
        let Some((body, _)) = &self.target_body else {
            return UseCheck::Unknown(UnknownUse::TargetUnread);
        };
        let (world, target) = (&self.shared.context.world, (self.key.0, body));
        match &self.sweep {
            Some(sweep) => {
                check_collected(world, &mut *sweep.collected().await, target, &self.budget)
            }
            None => {
                let mut nothing = CollectedReads::new(&world.read());
                check_collected(world, &mut nothing, target, &self.budget)
            }
        }
    }
}

/// Whether this result contains the target with its hold.
fn is_held(result: &RequestResult) -> bool {
    matches!(result, RequestResult::Object(observed) if observed.hold.is_some())
}

/// Checks with the collected reads of a pass whether a user still counts. It holds the lock of the
/// world only for the steps that remain in `budget`, because the reads are already parsed.
pub fn check_collected(
    world: &SharedWorld,
    collected: &mut CollectedReads,
    (kind, body): (KindId, &TargetBody),
    budget: &StepBudget,
) -> UseCheck {
    collected.update(world);
    let world = world.read();
    if !collected.fits(&world) {
        return UseCheck::Unknown(UnknownUse::KindsChanged);
    }
    let World { graph, policies, policies_current, clock, .. } = &*world;
    let now = clock.now().as_second();
    let limit = StepCounter::new(budget);
    collected.without_hold(kind, body, |reads: &LiveReads, node| {
        let situation = Situation {
            work: limit,
            ..Situation::new(graph, policies, ObjectSource::Cluster(reads), now)
        };
        match node {
            Some(node) => check_use(&situation, *policies_current, reads, node),
            None => UseCheck::Unknown(UnknownUse::TargetUnreadable),
        }
    })
}

#[cfg(test)]
mod tests;
