//! Deletes the waves one after the other.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::report::{DeleteReport, DeleteResult};
use super::state::{DeletionState, Selection};
use super::wave::{DeleteOutcome, delete};
use crate::command::CommandError;
use crate::command::delete_answer::CONCURRENT_DELETES;
use crate::command::document::Object;
use crate::command::inspect::{DeletedBy, DeletionPlan, PlannedObject, TargetQuery};
use crate::command::screen::progress;
use crate::command::wait::{Waiter, explain};
use crate::objects::counted;

/// The maximum number of reads of the cluster because an object changed just before its DELETE.
const MAX_CHANGES: usize = 10;

/// A deletion in progress.
pub struct Run {
    selection: Selection,
    plan: DeletionPlan,
    first: Option<DeletionState>,
    /// As in [`Impact`](crate::command::inspect::Impact).
    denies_content: bool,
    waiter: Waiter,
    /// The uids of the objects with an accepted DELETE.
    sent: HashSet<String>,
    deleted: Vec<Object>,
    waves: usize,
    changes: usize,
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
    /// An object has changed, so the cluster must be read again.
    Again,
    /// The deletion ends.
    Ended(Box<DeleteReport>),
}

impl Run {
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
            denies_content: state.impact.denies_content,
            first: Some(state),
            waiter,
            sent: HashSet::new(),
            deleted: Vec::new(),
            waves: 0,
            changes: 0,
        }
    }

    pub async fn finish(mut self) -> Result<DeleteReport, CommandError> {
        loop {
            let state = match self.first.take() {
                Some(state) => state,
                None => DeletionState::read_again(&self.selection, self.denies_content).await?,
            };
            let changes = self.plan.changes(&state.inspection, &state.plan);
            if !changes.is_empty() {
                let says = "stopped, because the cluster has changed since the plan".to_owned();
                return Ok(DeleteReport { changes, ..self.report(DeleteResult::Changed, says) });
            }
            let leftovers = state.leftovers(&self.plan);
            let Some(step) = self.next_step(&state, leftovers.iter().collect()) else {
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
        let awaits = self.plan.awaits();
        let first = Step { send: Vec::new(), wait: leftovers, later: waves.len() };
        let steps = waves.iter().enumerate().map(|(index, wave)| {
            let is_open = |one: &&PlannedObject| {
                one.deleted_by == DeletedBy::Command
                    && !self.sent.contains(&one.object.uid)
                    && !state.is_terminating(one)
            };
            Step {
                send: wave.objects.iter().filter(is_open).collect(),
                wait: wave.objects.iter().filter(|one| !one.stays && awaits(one)).collect(),
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
        let planned = state.plan.objects().filter(self.plan.awaits());
        let all = planned.chain(step.wait.iter().copied());
        self.waiter.watch(&state.awaited(all)).await?;
        self.waves += 1;
        let (wave, count) = (self.waves, self.waves + step.later);
        progress(&format!("wave {wave} of {count}: {}", names(&step)));
        match self.send(state, &step.send).await? {
            Sent::All => {}
            Sent::Again => return Ok(None),
            Sent::Ended(report) => return Ok(Some(*report)),
        }
        let open = state.plan.waves.iter().skip(state.plan.waves.len() - step.later);
        let open = open.flat_map(|wave| &wave.objects).filter(|one| !state.is_terminating(one));
        let open = open.count();
        let waiting = state.awaited(step.wait);
        let awaited: Vec<Object> = waiting.iter().map(|(object, _)| (*object).clone()).collect();
        let remaining = self.waiter.wait(waiting).await;
        self.deleted.extend(awaited.into_iter().filter(|object| !remaining.contains(object)));
        if remaining.is_empty() {
            return Ok(None);
        }
        let later = match open {
            0 => String::new(),
            open => {
                format!(" (the command has not touched {} of later waves)", counted(open, "object"))
            }
        };
        let says = format!("the time limit ended{later}: these objects still exist");
        Ok(Some(self.report_remaining(DeleteResult::TimedOut, &says, remaining).await))
    }

    /// Sends the DELETEs of a wave.
    async fn send(
        &mut self,
        state: &DeletionState,
        send: &[&PlannedObject],
    ) -> Result<Sent, CommandError> {
        let selection = &self.selection;
        let deletes = send.iter().map(|planned| async move {
            (&planned.object, delete(state, selection, planned).await)
        });
        let deletes = deletes.collect::<Vec<_>>();
        let mut outcomes = futures_util::stream::iter(deletes).buffered(CONCURRENT_DELETES);
        let (mut sent, mut changed, mut failed) = (Vec::new(), None, None);
        while let Some((object, outcome)) = outcomes.next().await {
            match outcome {
                Ok(DeleteOutcome::Accepted | DeleteOutcome::Gone) => sent.push(object.uid.clone()),
                Ok(DeleteOutcome::Changed) => changed = Some(object.clone()),
                failure => {
                    failed = Some((object.clone(), failure));
                    break;
                }
            }
        }
        drop(outcomes);
        self.sent.extend(sent);
        match failed {
            Some((object, Ok(DeleteOutcome::Refused(why)))) => {
                let says = format!("stopped: the DELETE of {} was refused: {why}", object.typed);
                let report = self.report(DeleteResult::Refused, says);
                return Ok(Sent::Ended(Box::new(report)));
            }
            Some((object, outcome)) => {
                let why = outcome.err().map_or_else(String::new, |error| error.to_string());
                return Err(CommandError::Remote(format!(
                    "cannot delete {}: {why}; next: run the same command again",
                    object.typed
                )));
            }
            None => {}
        }
        let Some(object) = changed else { return Ok(Sent::All) };
        self.changes += 1;
        if self.changes > MAX_CHANGES {
            let says = format!("stopped: {} changes all the time", object.typed);
            return Ok(Sent::Ended(Box::new(self.report(DeleteResult::Changed, says))));
        }
        Ok(Sent::Again)
    }

    /// The report at the end. Only objects that the impact keeps Terminating may remain.
    async fn end(self, state: &DeletionState) -> Result<DeleteReport, CommandError> {
        let remaining = state.plan.objects().filter(self.plan.awaits());
        let remaining: Vec<Object> = remaining.map(|planned| planned.object.clone()).collect();
        if remaining.is_empty() {
            let says = match self.deleted.len() {
                0 => "nothing is left to delete".to_owned(),
                1 => "1 object was deleted".to_owned(),
                count => format!("{count} objects were deleted"),
            };
            let not_awaited = self.not_awaited();
            return Ok(DeleteReport { not_awaited, ..self.report(DeleteResult::Deleted, says) });
        }
        let says = "these objects stay Terminating, as expected";
        Ok(self.report_remaining(DeleteResult::Stays, says, remaining).await)
    }

    /// The report that names the remaining objects after this text, with the reasons why they stay.
    async fn report_remaining(
        &self,
        result: DeleteResult,
        text: &str,
        remaining: Vec<Object>,
    ) -> DeleteReport {
        let stays = explain(self.waiter.cluster(), &remaining).await;
        let list: Vec<&str> = remaining.iter().map(|object| object.typed.as_str()).collect();
        let says = format!("{text}: {}", list.join(", "));
        let not_awaited = self.not_awaited();
        DeleteReport { remaining, stays, not_awaited, ..self.report(result, says) }
    }

    fn not_awaited(&self) -> Vec<Object> {
        let awaits = self.plan.awaits();
        let objects = self.plan.objects().filter(|one| !awaits(one));
        objects.map(|planned| planned.object.clone()).collect()
    }

    fn report(&self, result: DeleteResult, says: String) -> DeleteReport {
        let report = DeleteReport::new(result, says, &self.plan, &self.selection.cluster);
        DeleteReport { deleted: self.deleted.clone(), ..report }
    }
}

/// What a step does, in one line.
fn names(step: &Step<'_>) -> String {
    let list = |objects: &[&PlannedObject]| {
        let names: Vec<&str> = objects.iter().map(|one| one.object.typed.as_str()).collect();
        names.join(", ")
    };
    match step.send.is_empty() {
        true => format!("waiting for {}", list(&step.wait)),
        false => format!("deleting {}", list(&step.send)),
    }
}
