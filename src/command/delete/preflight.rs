//! Checks all DELETEs before the first one, so that no denial stops the deletion half-way.

use futures_util::StreamExt as _;
use schemars::JsonSchema;
use serde::Serialize;

use super::state::{DeletionState, Selection};
use crate::command::delete_answer::{CONCURRENT_DELETES, ServerAnswer};
use crate::command::document::{Object, ReportedVerdict};
use crate::command::inspect::{DeletedBy, PlannedObject, PolicyState, verdict, verdict_at};
use crate::decide::{Decision, Reason, Verdict, approve_command, remedies};
use crate::graph::NodeId;
use crate::objects::ObjectRef;
use crate::policy::Approval;

/// The result of the checks.
#[derive(Debug, Default)]
pub struct Preflight {
    /// The DELETEs that would be refused.
    pub refusals: Vec<DeleteRefusal>,
    /// The commands that approve the denied DELETEs.
    pub approve: Vec<String>,
    /// The checks without an answer.
    pub unknown: Vec<String>,
}

/// A DELETE that would be refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteRefusal {
    /// The object.
    pub object: Object,
    /// The reason.
    #[serde(rename = "says")]
    pub message: String,
}

impl Preflight {
    /// Why the deletion does not start; `None` if it may.
    pub fn refusal(&self, state: &DeletionState) -> Option<String> {
        if state.impact.verdict == ReportedVerdict::Deny {
            return Some("the deletion is denied; nothing was deleted".to_owned());
        }
        let first = self.refusals.first()?;
        let more = match self.refusals.len() - 1 {
            0 => String::new(),
            more => format!(", and of {more} more objects"),
        };
        Some(format!(
            "the DELETE of {}{more} would be refused; nothing was deleted",
            first.object.sentence_name()
        ))
    }
}

/// Checks the deletion: the verdict, and a dry run of each DELETE.
pub async fn check(state: &DeletionState, selection: &Selection) -> Preflight {
    let mut preflight = Preflight::default();
    if state.impact.verdict == ReportedVerdict::Deny {
        return preflight;
    }
    let deletes = state.plan.waves.iter().enumerate().flat_map(|(index, wave)| {
        let sent = wave.objects.iter().filter(|planned| planned.deleted_by == DeletedBy::Command);
        sent.filter(|planned| !state.needs_no_delete(planned)).map(move |planned| (index, planned))
    });
    let answers = deletes.map(|(wave, planned)| async move {
        let answer = ask(state, selection, planned).await;
        (wave, planned, answer)
    });
    let answers: Vec<_> = futures_util::stream::iter(answers.collect::<Vec<_>>())
        .buffered(CONCURRENT_DELETES)
        .collect()
        .await;
    for (wave, PlannedObject { object, .. }, answer) in answers {
        let message = match &answer {
            Some(ServerAnswer::Denies(denial))
                if is_ended_by_earlier_waves(wave, &denial.verdict) =>
            {
                continue;
            }
            Some(ServerAnswer::Unknown(why)) => {
                preflight.unknown.push(format!("{}: {why}", object.arguments));
                continue;
            }
            answer => answer.as_ref().and_then(ServerAnswer::refusal),
        };
        let Some(message) = message else { continue };
        preflight.refusals.push(DeleteRefusal { object: object.clone(), message });
        if let Some(ServerAnswer::Denies(denial)) = &answer {
            preflight.approve.extend(remedies(&denial.verdict).1);
        }
    }
    preflight
}

/// Why the deletion could stop half-way: at `end`, in seconds since 1970, the approvals of a
/// later wave have expired, or a Pause has ended.
pub async fn denial_by_expiry(
    state: &DeletionState,
    selection: &Selection,
    end: i64,
) -> Option<String> {
    let DeletionState { inspection, plan, .. } = state;
    let sent = plan.objects().filter(|planned| planned.deleted_by == DeletedBy::Command);
    let ids: Vec<NodeId> = sent.filter_map(|planned| planned.id).collect();
    let cascade = selection.cascade.into();
    let now = verdict(inspection, &ids, cascade).await?;
    let later = verdict_at(inspection, &ids, cascade, end).await?;
    // The DELETEs of the first wave are sent at once.
    let first = &plan.waves.first()?.objects;
    let is_first = |object| {
        let node = inspection.graph.object_by_ref(object);
        node.is_some_and(|node| first.iter().any(|planned| planned.id == Some(node.id())))
    };
    if now.decision == Decision::Deny
        || later.decision != Decision::Deny
        || later.blockers.iter().all(|blocker| is_first(&blocker.object))
        || state.inspection.lacks_webhooks().await
    {
        return None;
    }
    let policies = &inspection.policies;
    let counts = |approval: &&Approval| now.overrides.approvals.contains(&approval.name);
    let counting = policies.approvals.iter().filter(counts);
    let expiring: Vec<_> = counting.filter(|approval| approval.expires <= end).collect();
    let names = expiring.iter().map(|approval| {
        let Approval { name, approver, .. } = approval;
        format!("approval {name} of {approver} expires at {}", approval.until())
    });
    let pause = policies.pause(inspection.now()).filter(|pause| pause.expires <= end);
    let pause = pause.map(|pause| format!("Pause {} ends at {}", pause.name, pause.until()));
    let names: Vec<String> = names.chain(pause).collect();
    let approve = expiring.first().map(|approval| {
        let command = approve_command(&approval.target, approval.content);
        format!(", or approve for longer: {command} --for …")
    });
    Some(format!(
        "{}, before the time limit ends, and a later DELETE would be denied; nothing was deleted; \
         next: use a shorter --timeout{}",
        names.join(" and "),
        approve.unwrap_or_default()
    ))
}

async fn ask(
    state: &DeletionState,
    selection: &Selection,
    planned: &PlannedObject,
) -> Option<ServerAnswer> {
    let info = state.info(planned)?;
    let object = ObjectRef::of_kind(info, &planned.object.namespace, &planned.object.name);
    let knows_verdict = state.inspection.policy_state == PolicyState::Known
        && state.impact.verdict != ReportedVerdict::Unknown;
    if knows_verdict && has_planned_user(state, planned) {
        return ServerAnswer::ask_right(&state.caller, &object).await;
    }
    let propagation = state.propagation(planned.id?, selection.cascade);
    let uid = planned.object.uid.as_str();
    Some(ServerAnswer::ask(&state.caller, info, (&object, uid), propagation).await)
}

/// Whether the plan deletes a user of the object. Admission would deny a dry run of its DELETE now.
fn has_planned_user(state: &DeletionState, planned: &PlannedObject) -> bool {
    let graph = &state.inspection.graph;
    let users = planned.id.into_iter().flat_map(|id| graph.users(id));
    let users: Vec<NodeId> = users.filter(|user| user.needs()).map(|user| user.node.id()).collect();
    state.plan.objects().any(|other| other.id.is_some_and(|id| users.contains(&id)))
}

/// Whether a denial ends when the objects of earlier waves are deleted. A denial for another
/// reason, such as a missing approval, does not end.
fn is_ended_by_earlier_waves(wave: usize, verdict: &Verdict) -> bool {
    let ends = |reason| matches!(reason, Reason::InUse | Reason::NotEmpty | Reason::StillNeeded);
    wave > 0 && verdict.more == 0 && verdict.blockers.iter().all(|blocker| ends(blocker.reason))
}
