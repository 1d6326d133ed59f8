//! Backfill and withdrawal: belay adds missing holds and removes unwanted ones. A plan depends
//! only on the present state, so after its patch there is nothing left to do.

#[cfg(test)]
mod tests;

use json_patch::Patch;

use crate::decide::{
    HoldPosition, Situation, is_default_object, is_hold_unsafe, is_hold_unsafe_on_kind,
};
use crate::objects::operations::{remove_finalizer, replace, test};
use crate::objects::{HOLD, HoldEntry, Object, Text, finalizers_after_bulk_removal, is_hold};
use crate::policy::{AppliedPolicy, ObjectFacts, PolicySource};

/// What to do with the hold of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldPlan {
    /// Change nothing: the object has the hold or lacks it as wanted, a hold is unsafe, the
    /// wanted state is unknown, the object is Terminating, or a Pause is in force.
    Nothing,
    /// Add the missing hold: the object is older than its policy, or a user removed the
    /// hold while belay was down.
    Add(HoldPosition),
    /// Remove a hold that no policy wants, or a second hold.
    Remove(HoldEntry),
    /// Remove several such holds with one write.
    RemoveSeveral {
        /// The finalizers that remain.
        remaining: Vec<String>,
    },
    /// Rename a hold that has a former name.
    Rename(HoldEntry),
}

impl HoldPlan {
    /// The action for the log; `None` if there is nothing to do.
    pub fn action(&self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Add(_) => Some("added"),
            Self::Remove(_) | Self::RemoveSeveral { .. } => Some("removed"),
            Self::Rename(_) => Some("renamed"),
        }
    }
}

/// What to do with one object of a resource. `policies_known` is as in
/// [`super::check_use`].
pub fn plan(
    situation: &Situation<'_>,
    policies_known: bool,
    resource: (&str, &str),
    object: &Object<'_>,
) -> HoldPlan {
    // A Pause turns each action to Audit, but it ends, so holds stay as they are.
    if !policies_known || object.is_terminating() || situation.policies.is_paused(situation.now) {
        return HoldPlan::Nothing;
    }
    let metadata = &object.metadata;
    let remove = |hold: HoldEntry, is_unwanted: fn(&str) -> bool| {
        let finalizers: Vec<&str> =
            metadata.finalizers.iter().flatten().map(Text::as_str).collect();
        match finalizers_after_bulk_removal(&finalizers, is_unwanted) {
            None => HoldPlan::Remove(hold),
            Some(remaining) => HoldPlan::RemoveSeveral {
                remaining: remaining.into_iter().map(str::to_owned).collect(),
            },
        }
    };
    let facts = ObjectFacts::of_object(resource, (&metadata.namespace, &metadata.name), object);
    let desired = desired_hold(situation, facts);
    match (object.hold(), desired) {
        (None, DesiredHold::Present) if !is_hold_unsafe(resource.0, resource.1, object) => {
            // At the end of the list.
            HoldPlan::Add(HoldPosition::in_list(object, usize::MAX))
        }
        (Some(hold), DesiredHold::Absent) => remove(hold, is_hold),
        (Some(hold), _) if hold.is_former() => {
            let has_current = metadata.finalizers.iter().flatten().any(|f| f == HOLD);
            match has_current {
                true => remove(hold, |finalizer| is_hold(finalizer) && finalizer != HOLD),
                false => HoldPlan::Rename(hold),
            }
        }
        _ => HoldPlan::Nothing,
    }
}

/// Whether policies want a hold on an object, by its kind, labels and namespace. A hold may
/// still be unsafe for another reason (`is_hold_unsafe`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesiredHold {
    /// No policy wants it, a hold is unsafe on the kind, or Kubernetes creates the object in
    /// every Namespace.
    Absent,
    /// The labels of its Namespace are unknown.
    Unknown,
    /// A policy wants it.
    Present,
}

/// Whether policies want a hold on an object.
pub fn desired_hold(situation: &Situation<'_>, facts: ObjectFacts<'_>) -> DesiredHold {
    let ObjectFacts { group, resource, name, .. } = facts;
    if is_hold_unsafe_on_kind(group, resource) || is_default_object(group, resource, name) {
        return DesiredHold::Absent;
    }
    let applied = situation.policies_of(facts);
    let mut wanting = applied.iter().filter(|applied| applied.wants_hold());
    match (wanting.clone().next(), wanting.any(|applied| applied.certain)) {
        (None, _) => DesiredHold::Absent,
        (Some(_), false) => DesiredHold::Unknown,
        (Some(_), true) => DesiredHold::Present,
    }
}

/// The policies that certainly want the hold on an object.
pub fn policies_wanting_hold(applied: &[AppliedPolicy<'_>]) -> Vec<PolicySource> {
    let wanting = applied.iter().filter(|applied| applied.certain && applied.wants_hold());
    wanting.map(|applied| applied.policy.source.clone()).collect()
}

/// The patch for a plan on this resourceVersion; `None` if there is nothing to do.
pub fn plan_patch(plan: &HoldPlan, uid: &str, version: &str) -> Option<Patch> {
    // The test of the version also ensures that the object is not Terminating.
    let mut operations =
        vec![test(&["metadata", "uid"], uid), test(&["metadata", "resourceVersion"], version)];
    match plan {
        HoldPlan::Nothing => return None,
        HoldPlan::Add(position) => operations.push(position.add_hold()),
        HoldPlan::Remove(hold) => operations.extend(remove_finalizer(hold.index, hold.name)),
        HoldPlan::RemoveSeveral { remaining } => {
            operations.push(replace(&["metadata", "finalizers"], remaining.clone()));
        }
        HoldPlan::Rename(hold) => {
            let index = hold.index.to_string();
            operations.push(test(&["metadata", "finalizers", &index], hold.name));
            operations.push(replace(&["metadata", "finalizers", &index], HOLD));
        }
    }
    Some(Patch(operations))
}
