//! A review in, a verdict out.
//!
//! This module has no async code, clock or IO. A verdict is a value, and separate
//! functions render it for users, the audit log and the API server. A verdict lists the
//! live reads that it still needs ([`LiveRead`]). The caller makes them and decides again
//! with their results ([`LiveReads`]).
//!
//! ```text
//!  Review ─► file per operation  ─► Judgement ─► Verdict ─► message, warnings,
//!             delete  update          policies bind,          audit annotations,
//!             create  finalize        exempt; actions;        JSON patch
//!             evict                   approvals
//! ```
//!
//! `approved` collects the approvals that cover an object, and `ancestors` those of its owners.

mod affected;
mod ancestors;
mod approval_commands;
mod approved;
mod blocker;
mod cascade;
mod causes;
mod change;
mod content;
mod create;
mod delete;
mod evict;
mod existence;
mod finalize;
mod first_steps;
mod item;
mod judgement;
mod long_lists;
mod next_step;
mod orphaning;
mod owners;
mod protection_changes;
mod remedy;
mod render;
mod review;
mod situation;
mod status_causes;
mod stripping;
mod unreadable;
mod update;
mod users;
mod verdict;

#[cfg(test)]
mod tests;

// The release and the plans share these with verdicts.
pub(crate) use ancestors::RecordScope;
pub(crate) use approval_commands::{APPROVE, TO_OVERRIDE, approve_command, approve_command_with};
pub(crate) use approved::{
    RequiredApprovals, ineffective_approvals, required_approvals, sufficient_approvals,
};
pub use blocker::{Blocker, Cause, ContentReason, Decision, ObjectName, Reason};
pub(crate) use cascade::{CollectorRefusal, refusal_in_cascade};
pub(crate) use causes::MAX_LISTED_CAUSES;
pub(crate) use create::{NoHoldReason, is_hold_unsafe, is_hold_unsafe_on_kind, no_hold_reason};
pub use existence::{Existence, target_existence};
pub(crate) use item::{JudgedObject, WAITING_FINALIZERS, object_name, only_wait};
pub use next_step::{NextStep, READ_TOO_LARGE};
pub(crate) use remedy::{join_steps, step_of_each, step_to_end_use, step_to_find_out};
pub(crate) use render::{
    ELSEWHERE, HOLD_WARNING, NO_LONGER_USES, UNTIL_APPROVED, describe_cause,
    is_listed_as_protected, policy_names, remedies, sentence,
};
pub use render::{audit_annotations, causes, message, patch, warnings};
pub use review::{AdmissionPhase, DeleteOptions, Operation, Resource, Review, ReviewDetails};
pub use situation::{ListPart, LiveRead, LiveReads, ObjectSource, Situation};
pub(crate) use situation::{is_default_object, is_root_ca};
pub use status_causes::{StatusCause, denial};
pub use unreadable::{FailurePolicy, decide_unconfirmed, decide_unknown, decide_unreadable};
pub(crate) use users::{example_rank, relevant_users};
pub use verdict::{
    ChangeDescription, DenialStatus, Exemption, HoldChange, HoldPosition, IneffectiveApproval,
    LostVolume, Overrides, Recordable, RefusedDelete, Verdict, decide_paused,
};

use crate::graph::{Node, StepBudget, StepCounter};

/// The verdict on a review. It is final when it needs no live reads. Until then it assumes
/// that the reads find nothing new.
///
/// The work is limited. The verdict on a review that needs more work is Unknown.
pub fn decide(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    decide_within(situation, review, &StepBudget::new(REVIEW_STEPS))
}

/// The limit of steps of a review, in all its decisions together. A cascade of
/// `affected::MAX_FOLLOWED` objects takes a quarter of them.
pub(crate) const REVIEW_STEPS: usize = 16_000_000;

/// Like [`decide`], within a budget that earlier decisions may have used in part.
pub fn decide_within(
    situation: &Situation<'_>,
    review: &Review<'_>,
    budget: &StepBudget,
) -> Verdict {
    let situation = &Situation { work: StepCounter::new(budget), ..*situation };
    existence::decide_unknown_container(situation, review).unwrap_or_else(|| {
        let verdict = decide_operation(situation, review);
        // The message of a denial advises a step only for the first blocker.
        let verdict = verdict.with_advice(situation, review, 1);
        existence::limit_to_existing(situation, review, verdict)
    })
}

/// The verdict on the DELETEs of several objects together, so that none of them blocks
/// another. The review has the user and the options. The verdict names the first object.
pub fn decide_together(
    situation: &Situation<'_>,
    review: &Review<'_>,
    nodes: &[Node<'_>],
) -> Verdict {
    let verdict = match nodes {
        [node] => delete::decide_delete_or_explain_hold(
            situation,
            review,
            &JudgedObject::of_node(situation, *node),
        ),
        _ => delete::decide_deletes_together(situation, review, nodes),
    };
    verdict.with_advice(situation, review, remedy::MAX_DESCRIBED)
}

/// The verdict by phase and operation. It assumes that the object of the review exists.
fn decide_operation(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let resource = &review.resource;
    let subresource = resource.subresource.as_str();
    let is = |group: &str, name: &str| resource.group == group && resource.resource == name;
    match (review.phase, review.operation) {
        (AdmissionPhase::Mutate, Operation::Create) if subresource.is_empty() => {
            create::create(situation, review)
        }
        (AdmissionPhase::Mutate, Operation::Update) => {
            update::decide_hold_removal(situation, review)
        }
        (AdmissionPhase::Validate, Operation::Delete) if subresource.is_empty() => {
            delete::decide_delete(situation, review)
        }
        (AdmissionPhase::Validate, _) if review.is_eviction() => evict::evict(situation, review),
        (AdmissionPhase::Validate, Operation::Update)
            if is("", "namespaces") && subresource == "finalize" =>
        {
            finalize::finalize(situation, review)
        }
        (AdmissionPhase::Validate, Operation::Update) => update::update(situation, review),
        _ => Verdict::allow(review.target()),
    }
}
