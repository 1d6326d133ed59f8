//! The objects that a message advises to delete first. belay must not advise a DELETE that it
//! would deny.

use super::affected::lost_volume;
use super::cascade::explain_hold;
use super::causes::is_in_other_namespace;
use super::change::describe_change;
use super::delete::decide_with_propagation;
use super::item::JudgedObject;
use super::{
    Blocker, Decision, ObjectName, Operation, Reason, RefusedDelete, Review, Situation, Verdict,
};
use crate::graph::{Propagation, StepBudget, StepCounter};
use crate::objects::{HoldAge, ObjectRef, STATEFUL_SETS};

/// The limit of steps for the DELETEs of these objects, apart from the limit of the review.
/// Beyond the limit, a message gives no advice.
const ADVICE_STEPS: usize = 500_000;

/// The objects that keep the object of a blocker.
fn keeping_objects<'c>(
    target: &'c ObjectRef,
    blocker: Option<&'c Blocker>,
) -> impl Iterator<Item = &'c ObjectName> {
    let are_objects =
        |b: &&Blocker| matches!(b.reason, Reason::InUse | Reason::NotEmpty | Reason::StillNeeded);
    let causes = blocker.filter(are_objects).into_iter().flat_map(|blocker| &blocker.causes);
    causes.filter_map(|cause| cause.object_to_delete(target))
}

impl Verdict {
    /// Adds data for the message:
    ///
    /// - the change of an UPDATE
    /// - of the objects that the message could advise to delete first: the objects whose DELETE
    ///   belay would deny or hold, the Terminating objects, and the objects whose DELETE would also
    ///   delete a volume or claim
    ///
    /// `advised`: the number of blockers for which the message advises a step.
    pub(super) fn with_advice(
        mut self,
        situation: &Situation<'_>,
        review: &Review<'_>,
        advised: usize,
    ) -> Self {
        if self.blockers.is_empty() {
            return self;
        }
        let budget = StepBudget::new(ADVICE_STEPS);
        let situation = &Situation { work: StepCounter::new(&budget), ..*situation };
        let item = |object: &ObjectName| {
            let live = situation.reads().map(|reads| &reads.graph);
            let mut graphs = std::iter::once(situation.graph).chain(live);
            let node = graphs.find_map(|graph| graph.object_by_ref(&object.object))?;
            Some(JudgedObject::of_node(situation, node))
        };
        let refused_verdict = |item: &JudgedObject<'_>| {
            let verdict = match item.is_terminating() && item.hold() != HoldAge::NotHeld {
                true => explain_hold(situation, review, item),
                false => decide_with_propagation(situation, review, item, Propagation::Background),
            };
            let is_refused = matches!(verdict.decision, Decision::Deny | Decision::Hold);
            is_refused.then_some(verdict)
        };
        let namespace = self.target.own_namespace();
        let must_not_advise = |object: &ObjectName| {
            let denies = |verdict: Verdict| verdict.decision == Decision::Deny;
            object.object.is_volume()
                // The message shows no names of other namespaces.
                || is_in_other_namespace(namespace, &object.object.namespace)
                || item(object).and_then(|item| refused_verdict(&item)).is_some_and(denies)
        };
        let (mut refused_deletes, mut lost_volumes) = (Vec::new(), Vec::new());
        let mut terminating_objects = Vec::new();
        let blockers = self.blockers.iter().take(advised);
        let objects = blockers.flat_map(|blocker| keeping_objects(&self.target, Some(blocker)));
        for object in objects {
            let Some(item) = item(object) else { continue };
            if item.is_terminating() && object.object != self.target {
                terminating_objects.push(object.clone());
            }
            if object.object.is_of(STATEFUL_SETS) && self.reason == Some(Reason::InUse) {
                lost_volumes.extend(lost_volume(situation, &item, Propagation::Background));
            }
            let Some(verdict) = refused_verdict(&item) else { continue };
            let first: Vec<ObjectName> =
                keeping_objects(&verdict.target, verdict.blockers.first()).cloned().collect();
            let can_advise = !first.iter().any(must_not_advise);
            // If a hold waits for no known user, belay releases it.
            if verdict.decision == Decision::Deny || (can_advise && !first.is_empty()) {
                let first = if can_advise { first } else { Vec::new() };
                refused_deletes.push(RefusedDelete { object: object.clone(), first });
            }
        }
        self.refused_deletes = refused_deletes;
        self.terminating_objects = terminating_objects;
        self.lost_volumes.extend(lost_volumes);
        // An UPDATE of namespaces/finalize deletes the Namespace, except if it only removes a
        // guarded finalizer.
        let deletes = review.resource.subresource == "finalize"
            && self.reason != Some(Reason::FinalizerGuarded);
        let is_change = review.operation == Operation::Update && !deletes;
        self.change = is_change.then(|| describe_change(review));
        self
    }
}
