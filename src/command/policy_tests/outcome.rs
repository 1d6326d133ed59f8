//! Decides a request in the order of an API server: first the mutating webhook, then the
//! validating webhook with the changed object.

use serde_json::Value;

use super::error::CaseError;
use crate::command::document::policy_name;
use crate::command::files::World;
use crate::decide::{self, AdmissionPhase, Cause, Decision, Verdict};
use crate::objects::is_hold;
use crate::webhook::{Parsed, parse_review};

/// The outcome of a request.
pub struct Outcome {
    /// The stricter verdict of both phases.
    pub verdict: Verdict,
    /// The warnings of an allowed request.
    warnings: Vec<String>,
    /// Whether the object has the hold afterwards. `None`: the request does not change it.
    pub held: Option<bool>,
}

/// Decides a review at this time. The error explains an invalid review.
pub fn outcome(world: &World, mut review: Value, now: i64) -> Result<Outcome, CaseError> {
    let first = decide_at(world, &review, AdmissionPhase::Mutate, now)?;
    let mut warnings = decide::warnings(&first);
    if !first.decision.passes() {
        let held = held(&review, &first);
        return Ok(Outcome { verdict: first, warnings, held });
    }
    if let Some(patch) = decide::patch(&first)
        && let Some(object) = review.pointer_mut("/request/object")
    {
        json_patch::patch(object, &patch)
            .map_err(|error| CaseError::PatchFails(error.to_string()))?;
    }
    let second = decide_at(world, &review, AdmissionPhase::Validate, now)?;
    warnings.extend(decide::warnings(&second));
    let verdict = if second.decision >= first.decision { second } else { first };
    let held = held(&review, &verdict);
    Ok(Outcome { verdict, warnings, held })
}

/// Decides one phase. The review is serialized and parsed, as in a real request.
fn decide_at(
    world: &World,
    review: &Value,
    phase: AdmissionPhase,
    now: i64,
) -> Result<Verdict, CaseError> {
    let bytes = review.to_string().into_bytes();
    match parse_review(&bytes, phase) {
        Ok(Parsed::Review(review)) => Ok(world.decide(&review, now)),
        Ok(Parsed::Unreadable { detail, .. }) => {
            Err(CaseError::UnreadableObject(detail.to_string()))
        }
        Err(error) => Err(CaseError::NoReview(error.message)),
    }
}

/// Whether the stored object has the hold.
fn held(review: &Value, verdict: &Verdict) -> Option<bool> {
    let request = review.get("request")?;
    if matches!(request.get("operation")?.as_str(), Some("DELETE" | "CONNECT")) {
        return None;
    }
    let stored = if verdict.decision.passes() { "object" } else { "oldObject" };
    let finalizers = request.get(stored)?.pointer("/metadata/finalizers");
    let mut finalizers = finalizers.and_then(Value::as_array).into_iter().flatten();
    Some(finalizers.any(|finalizer| finalizer.as_str().is_some_and(is_hold)))
}

impl Outcome {
    /// The reason code of the denial, if there is one.
    pub fn reason(&self) -> Option<&'static str> {
        let Verdict { decision, reason, .. } = &self.verdict;
        reason.filter(|_| *decision != Decision::Allow).map(decide::Reason::as_str)
    }

    /// The policies that determined the verdict, or that exempt the user.
    pub fn policies(&self) -> Vec<String> {
        let Verdict { decision, blockers, overrides, .. } = &self.verdict;
        let decisive = blockers.iter().filter(|blocker| blocker.decision == *decision);
        let sources = decisive.flat_map(|blocker| &blocker.policies).chain(&overrides.exempted);
        let mut names: Vec<String> = sources.map(policy_name).collect();
        names.sort();
        names.dedup();
        names
    }

    /// All messages: the denial, the denial that action Deny would cause, or the warnings.
    pub fn message(&self) -> String {
        let annotations = decide::audit_annotations(&self.verdict);
        let would_deny = annotations.into_iter().find(|(key, _)| *key == "would-deny");
        let refusal = decide::message(&self.verdict).or(would_deny.map(|(_, refusal)| refusal));
        refusal.unwrap_or_else(|| self.warnings.join("; "))
    }

    /// The blockers, as messages name them.
    pub fn blockers(&self) -> Vec<String> {
        let Verdict { decision, blockers, .. } = &self.verdict;
        let decisive = blockers.iter().filter(|blocker| blocker.decision == *decision);
        decisive.flat_map(|blocker| &blocker.causes).flat_map(object_names).collect()
    }
}

fn object_names(cause: &Cause) -> Vec<String> {
    match cause {
        Cause::User { owner, user, .. } => {
            [Some(owner), user.as_ref()].into_iter().flatten().map(ToString::to_string).collect()
        }
        Cause::Content { object, .. }
        | Cause::Exists(object)
        | Cause::Dependent(object)
        | Cause::Owner(object)
        | Cause::RepeatedUid(object)
        | Cause::WeakerProtection(object) => vec![object.to_string()],
        Cause::Elsewhere { causes, .. } => causes.iter().flat_map(object_names).collect(),
        Cause::Finalizer(finalizer) | Cause::LostFinalizer(finalizer) => vec![finalizer.clone()],
        Cause::Always
        | Cause::CheckedAtRelease
        | Cause::Hold { .. }
        | Cause::PerhapsOthers
        | Cause::Unknown(..)
        | Cause::NotEvaluated(..)
        | Cause::TooLarge(_) => Vec::new(),
    }
}
