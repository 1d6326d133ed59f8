//! The changes of a cluster since a plan.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::{DeletedBy, DeletionPlan, PlannedObject};
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::graph::Graph;
use crate::objects::Uid;

/// A change of the cluster since the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanChange {
    /// The kind of change.
    pub change: PlanChangeKind,
    /// The object.
    pub object: Object,
    /// The message.
    #[serde(rename = "says")]
    pub message: String,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum PlanChangeKind {
    /// The deletion now deletes an object that the plan does not contain.
    Added,
    /// An object was deleted and created again.
    Recreated,
    /// An object that stays now needs an object that is deleted.
    NewUser,
    /// The deletion now destroys another volume or address.
    NewLoss,
    /// The deletion of the targets no longer deletes an object of the plan.
    Kept,
}

/// Group, plural name, namespace and name.
type Coordinates<'o> = (&'o str, &'o str, &'o str, &'o str);

fn coordinates(object: &Object) -> Coordinates<'_> {
    (&object.group, &object.resource, &object.namespace, &object.name)
}

/// Whether a controller of Kubernetes may replace the object at any time, for an owner with one of
/// these uids: a Pod of a Deployment, or an EndpointSlice of a Service. The plan covers such an
/// object with that owner. Only owners that create such objects count, because anyone can write
/// owner references.
fn is_replaceable(planned: &PlannedObject, graph: &Graph, uids: &HashSet<&str>) -> bool {
    let object = planned.id.and_then(|id| graph.get(id));
    let mut controllers = std::iter::successors(object, |node| {
        node.controller().filter(|controller| controller.info().creates(node.info()))
    })
    .skip(1);
    planned.deleted_by == DeletedBy::GarbageCollector
        && controllers.any(|owner| uids.contains(owner.uid().to_string().as_str()))
}

impl DeletionPlan {
    /// The changes since this plan. `current` is a new plan of the same targets. An object that no
    /// longer exists is not a change.
    pub fn changes(&self, inspection: &Inspection, current: &Self) -> Vec<PlanChange> {
        let uids: HashSet<&str> = self.objects().map(|one| one.object.uid.as_str()).collect();
        let planned: HashSet<Coordinates<'_>> =
            self.objects().map(|one| coordinates(&one.object)).collect();
        let mut changes = Vec::new();
        let mut add = |change, object: &Object, message: String| {
            changes.push(PlanChange { change, object: object.clone(), message });
        };
        for one in current.objects().filter(|one| !uids.contains(one.object.uid.as_str())) {
            let named = one.object.sentence_name();
            match planned.contains(&coordinates(&one.object)) {
                _ if is_replaceable(one, &inspection.graph, &uids) => {}
                true => add(
                    PlanChangeKind::Recreated,
                    &one.object,
                    format!("{named} was created again since the plan"),
                ),
                false => add(
                    PlanChangeKind::Added,
                    &one.object,
                    format!("{named} is not in the plan, and would be deleted as well"),
                ),
            }
        }
        let broken: HashSet<_> = self
            .broken
            .iter()
            .map(|one| (coordinates(&one.object), coordinates(&one.loses)))
            .collect();
        for one in &current.broken {
            let user = coordinates(&one.object);
            if !broken.contains(&(user, coordinates(&one.loses))) && !planned.contains(&user) {
                let (user, used) = (one.object.sentence_name(), one.loses.sentence_name());
                let message = format!("{user} needs {used} ({})", one.field_path);
                add(PlanChangeKind::NewUser, &one.object, message);
            }
        }
        let destroyed: HashSet<_> =
            self.destroyed.iter().map(|lost| (&lost.what, &lost.name)).collect();
        for lost in &current.destroyed {
            if !destroyed.contains(&(&lost.what, &lost.name)) {
                let what = lost.what.to_lowercase();
                let message = format!("{what} {} would be destroyed as well", lost.name);
                add(PlanChangeKind::NewLoss, &lost.by, message);
            }
        }
        let remaining = self.remaining(inspection, current);
        for one in remaining.filter(|one| one.deleted_by == DeletedBy::Command) {
            let message = format!("{} is in the plan, and would stay", one.object.sentence_name());
            add(PlanChangeKind::Kept, &one.object, message);
        }
        changes
    }

    /// The objects of this plan that a controller is still deleting: they exist, and their owners
    /// do not.
    pub fn leftovers<'p>(
        &'p self,
        inspection: &Inspection,
        current: &Self,
    ) -> Vec<&'p PlannedObject> {
        let remaining = self.remaining(inspection, current);
        let remaining = remaining.filter(|one| one.deleted_by != DeletedBy::Command && !one.stays);
        let is_own = self.is_own();
        remaining.filter(|one| is_own(&one.object)).collect()
    }

    /// The objects of this plan that exist and are not in `current`.
    fn remaining<'p>(
        &'p self,
        inspection: &Inspection,
        current: &Self,
    ) -> impl Iterator<Item = &'p PlannedObject> {
        let uids: HashSet<&str> = current.objects().map(|one| one.object.uid.as_str()).collect();
        let exists = |object: &Object| {
            let node = object.find(&inspection.graph);
            node.is_some_and(|node| node.uid() == Uid::new(&object.uid))
        };
        let absent = self.objects().filter(|one| !uids.contains(one.object.uid.as_str()));
        absent.filter(|one| exists(&one.object)).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterIdentity, PlannedBreak, PlannedLoss, PlannedWave};
    use super::*;
    use crate::command::document::ReportedVerdict;
    use crate::objects::ObjectRef;

    fn object(resource: &str, name: &str, uid: &str) -> Object {
        let kinds = crate::objects::Kinds::default();
        let group = if resource == "replicasets" { "apps" } else { "" };
        Object::of(&ObjectRef::new((group, resource), "shop", name), &kinds).with_uid(uid)
    }

    fn planned(object: Object, deleted_by: DeletedBy) -> PlannedObject {
        PlannedObject { object, resource_version: None, deleted_by, stays: false, id: None }
    }

    fn plan(objects: Vec<PlannedObject>) -> DeletionPlan {
        DeletionPlan {
            cluster: ClusterIdentity { uid: None, server: String::new() },
            cascade: crate::command::inspect::Cascade::Background,
            targets: Vec::new(),
            verdict: ReportedVerdict::Allow,
            approvals: Vec::new(),
            waves: vec![PlannedWave { objects }],
            cycles: Vec::new(),
            destroyed: Vec::new(),
            broken: Vec::new(),
            not_read: Vec::new(),
        }
    }

    #[test]
    fn only_changes_that_the_plan_does_not_cover_are_reported() {
        use DeletedBy::{Command, GarbageCollector, NamespaceController};
        let before = || vec![planned(object("secrets", "a", "1"), Command)];
        let changed = |more: Vec<PlannedObject>| {
            let changes = plan(before()).changes(&Inspection::default(), &plan(more));
            changes.into_iter().map(|one| (one.change, one.object.name)).collect::<Vec<_>>()
        };
        let one = |resource, name, uid, by| vec![planned(object(resource, name, uid), by)];
        let added = |name: &str| vec![(PlanChangeKind::Added, name.to_owned())];
        assert_eq!(changed(before()), []);
        assert_eq!(changed(Vec::new()), [], "an interrupted command deleted it");
        let again = vec![(PlanChangeKind::Recreated, "a".to_owned())];
        assert_eq!(changed(one("secrets", "a", "2", Command)), again);
        assert_eq!(changed(one("secrets", "b", "2", Command)), added("b"));
        assert_eq!(changed(one("configmaps", "b", "2", NamespaceController)), added("b"));
        assert_eq!(changed(one("configmaps", "b", "2", GarbageCollector)), added("b"));
        assert_eq!(changed(one("pods", "b", "2", Command)), added("b"));
    }

    #[test]
    fn new_users_and_losses_are_changes() {
        let lose = |name: &str| PlannedBreak {
            object: object("pods", name, ""),
            loses: object("secrets", "a", ""),
            field_path: "spec".to_owned(),
        };
        let volume = |name: &str| PlannedLoss {
            what: "Volume".to_owned(),
            name: name.to_owned(),
            by: object("persistentvolumeclaims", "data", ""),
            size: String::new(),
        };
        let own = planned(object("pods", "own", "1"), DeletedBy::Command);
        let before = DeletionPlan {
            broken: vec![lose("old")],
            destroyed: vec![volume("old")],
            ..plan(vec![own])
        };
        let after = DeletionPlan {
            broken: vec![lose("old"), lose("new"), lose("own")],
            destroyed: vec![volume("old"), volume("new")],
            ..plan(Vec::new())
        };
        let messages: Vec<String> = before
            .changes(&Inspection::default(), &after)
            .into_iter()
            .map(|one| one.message)
            .collect();
        assert_eq!(
            messages,
            ["Pod shop/new needs Secret shop/a (spec)", "volume new would be destroyed as well"]
        );
    }
}
