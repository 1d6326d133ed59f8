//! Decides about the hold of an object that is not Terminating.

use serde::Deserialize as _;
use serde_json::Value;

use super::owners::OwnerReads;
use super::report::HeldReason;
use crate::cluster::Snapshot;
use crate::cluster::holds::HoldPlanner;
use crate::cluster::release::TargetClient;
use crate::decide::{LiveReads, ObjectSource, Situation};
use crate::graph::Graph;
use crate::hold::{HoldPlan, plan};
use crate::objects::Object;
use crate::policy::PolicySet;

/// Plans holds as if no policies and no labels existed.
pub struct UninstallPlanner<'a> {
    pub snapshot: &'a Snapshot,
    pub owners: &'a OwnerReads,
    /// Whether an object keeps its hold if it would be deleted without it.
    pub keeps_if_owner_terminates: bool,
    pub dry_run: bool,
}

impl HoldPlanner for UninstallPlanner<'_> {
    type Keep = HeldReason;

    async fn plan(&self, target: &TargetClient, object: &Value) -> Result<HoldPlan, HeldReason> {
        let (group, info) = (target.info.group.as_str(), &target.info);
        let Ok(mut read) = Object::deserialize(object) else {
            return Err(HeldReason::Refused("it can't be read".to_owned()));
        };
        // A label on the object requests the hold even without policies.
        read.metadata.labels = Default::default();
        let (graph, policies, reads) =
            (Graph::default(), PolicySet::default(), LiveReads::default());
        let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(&reads), 0);
        let planned = plan(&situation, true, (group, &info.resource), &read);
        if planned == HoldPlan::Nothing {
            return Ok(HoldPlan::Nothing);
        }
        let kind = self.snapshot.context.world.read().graph.kinds.find(group, &info.kind);
        let Some(kind) = kind else { return Err(HeldReason::Unserved) };
        if self.keeps_if_owner_terminates
            && let Some(why) = self.owners.why_owner_terminating(self.snapshot, kind, object).await
        {
            return Err(HeldReason::OwnerTerminating(why));
        }
        if self.dry_run { Err(HeldReason::DryRun) } else { Ok(planned) }
    }
}
