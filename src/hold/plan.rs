//! Backfill and withdrawal: where a hold is missing, and where one is no
//! longer wanted. What stands on an object says what is to be done, so a plan
//! that was carried out is followed by none.

#[cfg(test)]
mod tests;

use json_patch::Patch;
use serde_json::json;

use super::patch::{add, remove, replace, test};
use crate::decide::{HoldPlace, Situation, is_hold_unsafe, is_hold_unsafe_on_kind};
use crate::objects::{HOLD, HoldEntry, Object};
use crate::policy::api::Action;
use crate::policy::{AppliedPolicy, ObjectFacts, Source};

/// What is to be done about the hold of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// It is as it should be, or that is not known.
    Nothing,
    /// The hold is missing: it was made before its policy, or came back
    /// without it (belay was down when somebody took the hold off).
    PutOn(HoldPlace),
    /// Nothing wants the hold that stands here, or it stands here twice.
    TakeOff(HoldEntry),
    /// The hold that stands here has a former name.
    Rename(HoldEntry),
}

impl Plan {
    /// What it does to an object, for the log; none where it does nothing.
    pub fn action(&self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::PutOn(_) => Some("put on"),
            Self::TakeOff(_) => Some("taken off"),
            Self::Rename(_) => Some("renamed"),
        }
    }
}

/// What is to be done about one object of a resource. `known` says whether the
/// policies are: where their kind has vanished, or was not read yet, there
/// seem to be none, and every hold would go.
pub fn plan(
    situation: &Situation<'_>,
    known: bool,
    resource: (&str, &str),
    object: &Object<'_>,
) -> Plan {
    // Under a pause everything is Audit, and that ends.
    if !known || object.is_terminating() || situation.policies.is_paused(situation.now) {
        return Plan::Nothing;
    }
    let metadata = &object.metadata;
    let facts = ObjectFacts::of_object(resource, (&metadata.namespace, &metadata.name), object);
    let wanted = hold_want(situation, facts);
    match (object.hold(), wanted) {
        (None, Wanted::Yes) if !is_hold_unsafe(resource.0, resource.1, object) => {
            Plan::PutOn(HoldPlace::in_list(object, usize::MAX))
        }
        (Some(hold), Wanted::No) => Plan::TakeOff(hold),
        (Some(hold), _) if hold.is_former() => {
            let present = metadata.finalizers.iter().flatten().any(|f| f == HOLD);
            if present { Plan::TakeOff(hold) } else { Plan::Rename(hold) }
        }
        _ => Plan::Nothing,
    }
}

/// Whether policies want the hold on an object, as far as its kind, labels and
/// place say: the object itself may still be one on which a hold is harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// No policy does, or the hold is harm on all objects of the kind.
    No,
    /// The labels of its Namespace are not known.
    Unknown,
    /// One does.
    Yes,
}

/// Whether policies want the hold on an object.
pub fn hold_want(situation: &Situation<'_>, facts: ObjectFacts<'_>) -> Wanted {
    if is_hold_unsafe_on_kind(facts.group, facts.resource) {
        return Wanted::No;
    }
    let applied = situation.policies_of(facts);
    let mut wanting = applied.iter().filter(|applied| wants_hold(applied));
    match (wanting.clone().next(), wanting.any(|applied| applied.certain)) {
        (None, _) => Wanted::No,
        (Some(_), false) => Wanted::Unknown,
        (Some(_), true) => Wanted::Yes,
    }
}

/// Whether a policy that applies to an object wants the hold on it.
pub fn wants_hold(applied: &AppliedPolicy<'_>) -> bool {
    applied.action == Action::Deny && applied.policy.holds()
}

/// Who certainly wants the hold on an object.
pub fn policies_wanting_hold(applied: &[AppliedPolicy<'_>]) -> Vec<Source> {
    let wanting = applied.iter().filter(|applied| applied.certain && wants_hold(applied));
    wanting.map(|applied| applied.policy.source.clone()).collect()
}

/// The patch that carries a plan out on the very version that was looked at;
/// `None` where there is nothing to do.
pub fn plan_patch(plan: &Plan, uid: &str, version: &str) -> Option<Patch> {
    // With the version, what is patched is not Terminating either.
    let mut operations = vec![test(&["uid"], uid), test(&["resourceVersion"], version)];
    match plan {
        Plan::Nothing => return None,
        Plan::PutOn(HoldPlace::First) => operations.push(add(&["finalizers"], json!([HOLD]))),
        Plan::PutOn(HoldPlace::At { index, .. }) => {
            operations.push(add(&["finalizers", &index.to_string()], json!(HOLD)));
        }
        Plan::TakeOff(hold) => {
            let index = hold.index.to_string();
            operations.push(test(&["finalizers", &index], hold.name));
            operations.push(remove(&["finalizers", &index]));
        }
        Plan::Rename(hold) => {
            let index = hold.index.to_string();
            operations.push(test(&["finalizers", &index], hold.name));
            operations.push(replace(&["finalizers", &index], json!(HOLD)));
        }
    }
    Some(Patch(operations))
}
