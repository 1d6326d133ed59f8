//! What comes of a request: the mutating phase is asked first, the validating
//! one about what the first has left, as an API server asks them.

use serde_json::Value;

use super::error::CaseError;
use crate::command::document::policy_name;
use crate::command::files::World;
use crate::decide::{self, AdmissionPhase, Cause, Decision, Verdict};
use crate::objects::is_hold;
use crate::webhook::{Parsed, parse_review};

/// What was said to a request.
pub struct Outcome {
    /// The stricter verdict of both phases.
    pub verdict: Verdict,
    /// What the person is told although it passes.
    warnings: Vec<String>,
    /// Whether the object has the hold afterwards; none: it is not changed by
    /// this request.
    pub held: Option<bool>,
}

/// Asks about a review at this time. An error says why it is no review.
pub fn outcome(world: &World, mut review: Value, now: i64) -> Result<Outcome, CaseError> {
    let first = judged(world, &review, AdmissionPhase::Mutate, now)?;
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
    let second = judged(world, &review, AdmissionPhase::Validate, now)?;
    warnings.extend(decide::warnings(&second));
    let verdict = if second.decision >= first.decision { second } else { first };
    let held = held(&review, &verdict);
    Ok(Outcome { verdict, warnings, held })
}

/// One phase, by the bytes that it would be sent.
fn judged(
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

/// Whether what is stored afterwards has the hold.
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
    /// The fixed word of what stands against the request, if anything does.
    pub fn reason(&self) -> Option<&'static str> {
        let Verdict { decision, reason, .. } = &self.verdict;
        reason.filter(|_| *decision != Decision::Allow).map(decide::Reason::as_str)
    }

    /// The policies that made the verdict what it is, or that let somebody
    /// pass who is exempt from them.
    pub fn policies(&self) -> Vec<String> {
        let Verdict { decision, blockers, overrides, .. } = &self.verdict;
        let decisive = blockers.iter().filter(|blocker| blocker.outcome == *decision);
        let sources = decisive.flat_map(|blocker| &blocker.policies).chain(&overrides.exempted);
        let mut names: Vec<String> = sources.map(policy_name).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Everything that is said: the refusal, or what action Deny would have
    /// refused with, or the warnings.
    pub fn message(&self) -> String {
        let annotations = decide::audit_annotations(&self.verdict);
        let would = annotations.into_iter().find(|(key, _)| *key == "would-deny");
        let refusal = decide::message(&self.verdict).or(would.map(|(_, refusal)| refusal));
        refusal.unwrap_or_else(|| self.warnings.join("; "))
    }

    /// What is named as standing against the request, as messages name it.
    pub fn blockers(&self) -> Vec<String> {
        let Verdict { decision, blockers, .. } = &self.verdict;
        let decisive = blockers.iter().filter(|blocker| blocker.outcome == *decision);
        decisive.flat_map(|blocker| &blocker.causes).flat_map(named).collect()
    }
}

fn named(cause: &Cause) -> Vec<String> {
    match cause {
        Cause::User { root, through, .. } => {
            [Some(root), through.as_ref()].into_iter().flatten().map(ToString::to_string).collect()
        }
        Cause::Content { object, .. }
        | Cause::Exists(object)
        | Cause::Dependent(object)
        | Cause::Owner(object)
        | Cause::WeakerProtection(object) => vec![object.to_string()],
        Cause::Elsewhere { causes, .. } => causes.iter().flat_map(named).collect(),
        Cause::Finalizer(finalizer) => vec![finalizer.clone()],
        Cause::Always
        | Cause::Unproved
        | Cause::Hold { .. }
        | Cause::Unknown(_)
        | Cause::Unproven(_)
        | Cause::TooLarge(_) => Vec::new(),
    }
}
