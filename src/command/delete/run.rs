//! Deletes the waves one after the other.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::report::{DeleteReport, DeleteResult};
use super::request::DeleteOutcome::{Accepted, Changed, Gone, Refused};
use super::request::delete;
use super::state::{DeletionState, Leftovers, Selection};
use crate::command::CommandError;
use crate::command::delete_answer::CONCURRENT_DELETES;
use crate::command::document::Object;
use crate::command::inspect::{
    DeletedBy, DeletionPlan, Drift, PlanChange, PlannedObject, TargetQuery,
};
use crate::command::screen::progress;
use crate::command::wait::{Awaited, Waiter};
use crate::objects::counted;

/// The maximum number of reads of the cluster because an object changed just before its DELETE.
const MAX_CHANGES: usize = 10;

/// The milliseconds to wait after each refusal. The replica that refused may not yet know the
/// deletions before it.
const PAUSES: [u64; 4] = [200, 400, 800, 1600];

/// A deletion in progress.
pub struct RunningDeletion {
    selection: Selection,
    plan: DeletionPlan,
    /// The state before the first wave, until it is used.
    first: Option<DeletionState>,
    /// As in [`Impact`](crate::command::inspect::Impact).
    denies_content_deletes: bool,
    waiter: Waiter,
    /// The uids of the objects with an accepted DELETE.
    sent: HashSet<String>,
    deleted: Vec<Object>,
    /// As in [`Leftovers`].
    not_awaited: Vec<PlannedObject>,
    /// The last changes that did not stop the deletion.
    other_changes: Vec<PlanChange>,
    /// The number of executed waves, with the wait for leftovers.
    waves: usize,
    /// The number of reads because an object changed just before its DELETE.
    reads_after_change: usize,
    /// The number of refusals in this wave.
    refusals: usize,
    /// The objects of this wave whose DELETE was accepted before a refusal.
    accepted: Vec<Object>,
}

/// The DELETEs to send now, and the objects to wait for.
struct Step<'s> {
    send: Vec<&'s PlannedObject>,
    wait: Vec<&'s PlannedObject>,
    /// The number of waves after this one.
    later: usize,
}

/// The result of the DELETEs of a wave.
enum Sent {
    /// All were accepted.
    All,
    /// An object has changed, or the API server may accept a refused DELETE later. The cluster must
    /// be read again.
    Again,
    /// The deletion ends.
    Ended(Box<DeleteReport>),
}

impl RunningDeletion {
    pub fn new(
        selection: Selection,
        plan: DeletionPlan,
        state: DeletionState,
        timeout: Duration,
    ) -> Self {
        let client = state.caller.client.clone();
        let waiter = Waiter::new(client, selection.cluster.clone(), Instant::now() + timeout);
        // From now on, the targets are those of the plan, and some of them no longer exist.
        let query = TargetQuery::of_objects(&plan.targets);
        Self {
            selection: Selection { query, ..selection },
            plan,
            denies_content_deletes: state.impact.denies_content_deletes,
            first: Some(state),
            waiter,
            sent: HashSet::new(),
            deleted: Vec::new(),
            not_awaited: Vec::new(),
            other_changes: Vec::new(),
            waves: 0,
            reads_after_change: 0,
            refusals: 0,
            accepted: Vec::new(),
        }
    }

    pub async fn run_waves(mut self) -> Result<DeleteReport, CommandError> {
        loop {
            let state = match self.first.take() {
                Some(state) => state,
                None => {
                    DeletionState::read_again(&self.selection, self.denies_content_deletes).await?
                }
            };
            let Drift { changes, others } = state.drift(&self.plan, &self.selection);
            if !others.is_empty() {
                self.other_changes = others;
            }
            if !changes.is_empty() {
                let message = "stopped, because the cluster has changed since the plan".to_owned();
                return Ok(DeleteReport { changes, ..self.report(DeleteResult::Changed, message) });
            }
            let Leftovers { awaited, not_awaited } = state.leftovers(&self.plan);
            if !not_awaited.is_empty() {
                self.not_awaited = not_awaited;
            }
            let Some(step) = self.next_step(&state, awaited.iter().collect()) else {
                return self.end(&state).await;
            };
            if let Some(report) = self.execute(&state, step).await? {
                return Ok(report);
            }
        }
    }

    /// The next wave with something to do. Objects whose deletion began before come first.
    fn next_step<'s>(
        &self,
        state: &'s DeletionState,
        leftovers: Vec<&'s PlannedObject>,
    ) -> Option<Step<'s>> {
        let waves = &state.plan.waves;
        let is_awaited = self.plan.own_filter();
        let first = Step { send: Vec::new(), wait: leftovers, later: waves.len() };
        let steps = waves.iter().enumerate().map(|(index, wave)| {
            let is_open = |planned: &&PlannedObject| {
                planned.deleted_by == DeletedBy::Command
                    && !self.sent.contains(&planned.object.uid)
                    && !state.needs_no_delete(planned)
            };
            Step {
                send: wave.objects.iter().filter(is_open).collect(),
                wait: wave
                    .objects
                    .iter()
                    .filter(|planned| !planned.stays && is_awaited(&planned.object))
                    .collect(),
                later: waves.len() - index - 1,
            }
        });
        let mut steps = std::iter::once(first).chain(steps);
        steps.find(|step| !step.send.is_empty() || !step.wait.is_empty())
    }

    /// Executes a step. Returns a report if the deletion ends here.
    async fn execute(
        &mut self,
        state: &DeletionState,
        step: Step<'_>,
    ) -> Result<Option<DeleteReport>, CommandError> {
        let awaited = {
            let is_awaited = self.plan.own_filter();
            let planned = state.plan.objects().filter(|planned| is_awaited(&planned.object));
            state.to_awaited(planned.chain(step.wait.iter().copied()))
        };
        self.waiter.watch(&awaited).await?;
        self.waves += 1;
        let (wave, count) = (self.waves, self.waves + step.later);
        progress(&format!("wave {wave} of {count}: {}", describe(&step)));
        let steps = state.plan.steps(step.send);
        for (index, together) in steps.iter().enumerate() {
            match self.send(state, together).await {
                Sent::All => self.refusals = 0,
                Sent::Again => return Ok(None),
                Sent::Ended(report) => return Ok(Some(*report)),
            }
            if index + 1 < steps.len() {
                // A held object stays until the objects of the next step are deleted.
                let next = together.iter().copied().filter(|planned| !state.is_held(planned));
                let next = state.to_awaited(next.filter(|planned| !planned.stays));
                if !self.wait(next).await.is_empty() {
                    break;
                }
            }
        }
        let open = state.plan.waves.iter().skip(state.plan.waves.len() - step.later);
        let open =
            open.flat_map(|wave| &wave.objects).filter(|planned| !state.needs_no_delete(planned));
        let open = open.count();
        let waiting =
            step.wait.into_iter().filter(|planned| !self.deleted.contains(&planned.object));
        let remaining = self.wait(state.to_awaited(waiting)).await;
        if remaining.is_empty() {
            return Ok(None);
        }
        let later = match open {
            0 => String::new(),
            open => {
                format!(" (the command has not touched {} of later waves)", counted(open, "object"))
            }
        };
        let message = format!("the time limit ended{later}: these objects still exist");
        let report = self.report_of_end(DeleteResult::TimedOut, message);
        Ok(Some(report.with_remaining(remaining, &self.selection.cluster).await))
    }

    /// Waits for the deletion of these objects. Returns those that exist at the time limit.
    async fn wait(&mut self, waiting: Vec<Awaited<'_>>) -> Vec<Object> {
        let awaited: Vec<Object> = waiting.iter().map(|(object, _)| (*object).clone()).collect();
        let remaining = self.waiter.wait(waiting).await;
        self.deleted.extend(awaited.into_iter().filter(|object| !remaining.contains(object)));
        remaining
    }

    /// Sends the DELETEs of a wave. After a failure, it sends no further DELETE, and waits for the
    /// other answers. If objects were deleted before, it retries a refusal a few times.
    async fn send(&mut self, state: &DeletionState, send: &[&PlannedObject]) -> Sent {
        let (selection, is_stopped) = (&self.selection, Cell::new(false));
        let deletes = send.iter().map(|planned| async {
            if is_stopped.get() {
                return None;
            }
            let outcome = delete(state, selection, planned).await;
            is_stopped.set(is_stopped.get() || matches!(outcome, Ok(Refused(_)) | Err(_)));
            Some((&planned.object, outcome))
        });
        let deletes = deletes.collect::<Vec<_>>();
        let outcomes = futures_util::stream::iter(deletes).buffered(CONCURRENT_DELETES);
        let outcomes: Vec<_> = outcomes.filter_map(std::future::ready).collect().await;
        let mut accepted = std::mem::take(&mut self.accepted);
        let (mut changed, mut failure) = (None, None);
        for (object, outcome) in outcomes {
            let name = object.sentence_name();
            match outcome {
                Ok(Accepted) => accepted.push(object.clone()),
                Ok(Gone) => drop(self.sent.insert(object.uid.clone())),
                Ok(Changed) => changed = Some(name),
                Ok(Refused(why)) => {
                    let message = format!("stopped: the DELETE of {name} was refused: {why}");
                    failure = failure.or(Some((DeleteResult::Refused, message)));
                }
                Err(why) => {
                    let message = format!("stopped: the DELETE of {name} failed: {why}");
                    failure = failure.or(Some((DeleteResult::Failed, message)));
                }
            }
        }
        self.sent.extend(accepted.iter().map(|object| object.uid.clone()));
        if let Some((result, message)) = failure {
            let is_refused = result == DeleteResult::Refused && !self.deleted.is_empty();
            if let Some(&pause) = PAUSES.get(self.refusals).filter(|_| is_refused) {
                self.refusals += 1;
                self.accepted = accepted;
                tokio::time::sleep(Duration::from_millis(pause)).await;
                return Sent::Again;
            }
            let report = DeleteReport { accepted, ..self.report(result, message) };
            return Sent::Ended(Box::new(report));
        }
        let Some(name) = changed else { return Sent::All };
        self.reads_after_change += 1;
        if self.reads_after_change > MAX_CHANGES {
            let message = format!("stopped: {name} changes all the time");
            return Sent::Ended(Box::new(self.report(DeleteResult::Changed, message)));
        }
        Sent::Again
    }

    /// The report at the end. Only objects that stay Terminating according to the impact may
    /// remain.
    async fn end(self, state: &DeletionState) -> Result<DeleteReport, CommandError> {
        let remaining = state.plan.objects().map(|planned| &planned.object);
        let is_awaited = self.plan.own_filter();
        let remaining: Vec<Object> =
            remaining.filter(|object| is_awaited(object)).cloned().collect();
        if remaining.is_empty() {
            let message = match self.deleted.len() {
                0 => "nothing is left to delete".to_owned(),
                1 => "1 object was deleted".to_owned(),
                count => format!("{count} objects were deleted"),
            };
            return Ok(self.report_of_end(DeleteResult::Deleted, message));
        }
        let message = "these objects stay Terminating, as expected".to_owned();
        let report = self.report_of_end(DeleteResult::Stays, message);
        Ok(report.with_remaining(remaining, &self.selection.cluster).await)
    }

    /// The report after all DELETEs, or at the time limit.
    fn report_of_end(&self, result: DeleteResult, message: String) -> DeleteReport {
        let is_awaited = self.plan.own_filter();
        let planned = self.plan.objects().chain(&self.not_awaited).map(|planned| &planned.object);
        let not_awaited = planned.filter(|object| !is_awaited(object)).cloned().collect();
        DeleteReport { not_awaited, ..self.report(result, message) }
    }

    fn report(&self, result: DeleteResult, message: String) -> DeleteReport {
        let report = DeleteReport::new(result, message, &self.plan, &self.selection.cluster);
        let (deleted, other_changes) = (self.deleted.clone(), self.other_changes.clone());
        DeleteReport { deleted, other_changes, ..report }
    }
}

/// What a step does, in one line.
fn describe(step: &Step<'_>) -> String {
    let list = |objects: &[&PlannedObject]| {
        let names: Vec<&str> =
            objects.iter().map(|planned| planned.object.arguments.as_str()).collect();
        names.join(", ")
    };
    match step.send.is_empty() {
        true => format!("waiting for {}", list(&step.wait)),
        false => format!("deleting {}", list(&step.send)),
    }
}
