//! Whether belay denies a DELETE of a plan.

use super::{DeletedBy, DeletionPlan, PlannedObject};
use crate::command::inspect::inspection::Inspection;
use crate::command::inspect::verdict::verdict;
use crate::decide::{Blocker, Decision, Verdict};
use crate::graph::NodeId;

impl DeletionPlan {
    /// The first denial by belay of DELETEs that are sent together, after those before them. The
    /// plan is of this inspection, and the API server does not deny the deletion of its targets.
    pub async fn first_denial(&self, inspection: &Inspection) -> Option<Verdict> {
        if inspection.lacks_webhooks().await {
            return None;
        }
        let cascade = self.cascade.into();
        // The API server has accepted what the command alone would deny.
        let targets = verdict(inspection, &inspection.deletable_targets(), cascade).await;
        let accepted = targets.map_or_else(Vec::new, |verdict| verdict.blockers);
        let is_accepted = |blocker: &Blocker| {
            let same = |one: &Blocker| one.reason == blocker.reason && one.object == blocker.object;
            accepted.iter().any(same)
        };
        let mut deleted: Vec<NodeId> = Vec::new();
        for wave in &self.waves {
            let sent = wave.objects.iter().filter(|one| one.deleted_by == DeletedBy::Command);
            for step in self.steps(sent.collect()) {
                deleted.extend(step.iter().filter_map(|one| one.id));
                let verdict = verdict(inspection, &deleted, cascade).await?;
                if verdict.decision != Decision::Deny || verdict.is_unknown() {
                    continue;
                }
                let blockers = verdict.blockers.iter().filter(|blocker| !is_accepted(blocker));
                let blockers: Vec<_> = blockers.cloned().collect();
                if !blockers.is_empty() {
                    return Some(Verdict { blockers, ..verdict });
                }
            }
        }
        None
    }

    /// The objects of a wave whose DELETEs are sent together. Objects that use each other are deleted
    /// one by one.
    pub fn steps<'o>(&self, sent: Vec<&'o PlannedObject>) -> Vec<Vec<&'o PlannedObject>> {
        let place = |one: &PlannedObject| {
            let mut in_cycles = self.cycles.iter().flat_map(|cycle| &cycle.objects);
            in_cycles.position(|object| *object == one.object)
        };
        let (mut one_by_one, together): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|one| place(one).is_some());
        one_by_one.sort_by_key(|one| place(one));
        let steps = one_by_one.into_iter().map(|one| vec![one]).chain([together]);
        steps.filter(|step| !step.is_empty()).collect()
    }
}
