//! The order of the DELETEs of a plan, and whether belay denies one of them.

use super::{DeletedBy, DeletionPlan, PlannedCycle, PlannedObject, PlannedWave, planned_waves};
use crate::command::document::{Object, ReportedVerdict};
use crate::command::inspect::impact::{Cascade, Impact};
use crate::command::inspect::inspection::Inspection;
use crate::command::inspect::verdict::verdict;
use crate::decide::{Blocker, Decision, Verdict};
use crate::graph::{NodeId, Propagation};

/// The maximum number of objects of a cycle that are tried as the next object.
const MAX_TRIED: usize = 20;

/// The order of the DELETEs.
pub struct PlannedOrder {
    pub waves: Vec<PlannedWave>,
    pub cycles: Vec<PlannedCycle>,
    /// The denial of DELETEs by belay, if the API server does not deny the deletion of the targets.
    /// The waves are sent one after the other, and the DELETEs of a wave together.
    pub denial: Option<Verdict>,
}

impl PlannedOrder {
    /// The order of the deletion with this impact. `verdict`: on the targets; `None` if unknown.
    pub async fn new(
        inspection: &Inspection,
        impact: &Impact,
        verdict: Option<&Verdict>,
        cascade: Cascade,
    ) -> Self {
        let (waves, cycles) = planned_waves(inspection, impact);
        let mut order = Self { waves, cycles, denial: None };
        let may_be_denied = impact.verdict != ReportedVerdict::Deny
            && (verdict.is_some() || !order.cycles.is_empty());
        if may_be_denied && !inspection.lacks_webhooks().await {
            order.find_denial(inspection, cascade).await;
        }
        order
    }

    /// Finds the denial. Also sorts each cycle, so that an object whose DELETE is accepted is next.
    async fn find_denial(&mut self, inspection: &Inspection, cascade: Cascade) {
        let cascade = cascade.into();
        // These blockers deny nothing: the API server has accepted the DELETEs of the targets.
        let targets = verdict(inspection, &inspection.deletable_targets(), cascade).await;
        let mut known = targets.map_or_else(Vec::new, |verdict| verdict.blockers);
        let mut deleted: Vec<NodeId> = Vec::new();
        let mut sorted: Vec<Object> = Vec::new();
        for wave in &self.waves {
            let objects = wave.objects.iter();
            let sent = objects.filter(|planned| planned.deleted_by == DeletedBy::Command);
            let mut steps = steps(&self.cycles, sent.collect());
            while !steps.is_empty() {
                let (next, denied) =
                    self.next_step(inspection, cascade, (&deleted, &steps), &known).await;
                let step = steps.remove(next);
                deleted.extend(step.iter().filter_map(|planned| planned.id));
                sorted.extend(step.iter().map(|planned| planned.object.clone()));
                let Some(denied) = denied else { continue };
                known.extend(denied.blockers.iter().cloned());
                match &mut self.denial {
                    Some(denial) => denial.blockers.extend(denied.blockers),
                    None => self.denial = Some(denied),
                }
            }
        }
        let place =
            |object: &Object| sorted.iter().position(|other| other == object).unwrap_or(usize::MAX);
        for cycle in &mut self.cycles {
            cycle.objects.sort_by_key(place);
        }
    }

    /// The index of the next step: the first object of a cycle whose DELETE is accepted. If all
    /// DELETEs are denied, it is the first step, with its denial.
    async fn next_step(
        &self,
        inspection: &Inspection,
        cascade: Propagation,
        (deleted, steps): (&[NodeId], &[Vec<&PlannedObject>]),
        known: &[Blocker],
    ) -> (usize, Option<Verdict>) {
        let is_in_cycle = |step: &Vec<&PlannedObject>| {
            let [planned] = step.as_slice() else { return false };
            self.cycles.iter().any(|cycle| cycle.objects.contains(&planned.object))
        };
        let in_cycles = steps.iter().take_while(|step| is_in_cycle(step)).count();
        let mut first = None;
        for (index, step) in steps.iter().take(in_cycles.clamp(1, MAX_TRIED)).enumerate() {
            let ids = step.iter().filter_map(|planned| planned.id);
            let all: Vec<NodeId> = deleted.iter().copied().chain(ids).collect();
            match new_denial(inspection, &all, cascade, known).await {
                None => return (index, None),
                denial => first = first.or(denial),
            }
        }
        (0, first)
    }
}

/// The denial of the DELETEs of these objects together, without known blockers.
async fn new_denial(
    inspection: &Inspection,
    deleted: &[NodeId],
    cascade: Propagation,
    known: &[Blocker],
) -> Option<Verdict> {
    let verdict = verdict(inspection, deleted, cascade).await?;
    if verdict.decision != Decision::Deny || verdict.is_unknown() {
        return None;
    }
    let is_same = |a: &Blocker, b: &Blocker| a.reason == b.reason && a.object == b.object;
    let is_new = |blocker: &&Blocker| !known.iter().any(|known| is_same(known, blocker));
    let blockers: Vec<_> = verdict.deciding_blockers().filter(is_new).cloned().collect();
    (!blockers.is_empty()).then_some(Verdict { blockers, ..verdict })
}

impl DeletionPlan {
    /// The objects of a wave whose DELETEs are sent together. Objects that use each other are deleted
    /// one by one.
    pub fn steps<'o>(&self, sent: Vec<&'o PlannedObject>) -> Vec<Vec<&'o PlannedObject>> {
        steps(&self.cycles, sent)
    }
}

fn steps<'o>(cycles: &[PlannedCycle], sent: Vec<&'o PlannedObject>) -> Vec<Vec<&'o PlannedObject>> {
    let place_in_cycles = |planned: &PlannedObject| {
        let mut in_cycles = cycles.iter().flat_map(|cycle| &cycle.objects);
        in_cycles.position(|object| *object == planned.object)
    };
    let (mut one_by_one, together): (Vec<_>, Vec<_>) =
        sent.into_iter().partition(|planned| place_in_cycles(planned).is_some());
    one_by_one.sort_by_key(|planned| place_in_cycles(planned));
    let steps = one_by_one.into_iter().map(|planned| vec![planned]).chain([together]);
    steps.filter(|step| !step.is_empty()).collect()
}
