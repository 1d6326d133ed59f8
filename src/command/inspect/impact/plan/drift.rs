//! The changes of a cluster since a plan.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::{DeletedBy, DeletionPlan, PlannedObject};
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::graph::Graph;
use crate::objects::{CLAIMS, Uid, VOLUMES};

/// The changes of a cluster since a plan.
#[derive(Debug, Default)]
pub struct Drift {
    /// The changes that stop the deletion.
    pub changes: Vec<PlanChange>,
    /// The changes in other namespaces that do not stop it.
    pub others: Vec<PlanChange>,
}

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
    /// An object that stays now needs an object that is deleted, or keeps data of the plan Terminating.
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

/// Whether an object has data, or is data.
fn is_data(object: &Object) -> bool {
    [CLAIMS, VOLUMES].into_iter().any(|kind| object.is_of(kind))
}

impl DeletionPlan {
    /// The changes since this plan. `current` is a new plan of the same targets. An object that no
    /// longer exists is not a change. `ignored_namespaces`: other namespaces, whose new dependents do
    /// not stop the deletion.
    ///
    /// Tenants can create objects in their namespaces all the time (H203). So a new user in another
    /// namespace stops the deletion only if it loses data. A new dependent does, because it is
    /// deleted, unless the user ignores its namespace.
    pub fn drift(
        &self,
        inspection: &Inspection,
        current: &Self,
        ignored_namespaces: &[String],
    ) -> Drift {
        let uids: HashSet<&str> = self.objects().map(|one| one.object.uid.as_str()).collect();
        let planned: HashSet<Coordinates<'_>> =
            self.objects().map(|one| coordinates(&one.object)).collect();
        let is_own = self.own_filter();
        let mut drift = Drift::default();
        let mut add = |change, object: &Object, stops: bool, message: String| {
            let changes = if stops { &mut drift.changes } else { &mut drift.others };
            changes.push(PlanChange { change, object: object.clone(), message });
        };
        // Whether the loss of an object stops the deletion, and the message.
        let loss = |object: &Object, message: String| match &object.namespace {
            _ if is_own(object) => (true, message),
            namespace if ignored_namespaces.contains(namespace) => (false, message),
            namespace => {
                (true, format!("{message}; to ignore this, add --ignore-namespace {namespace}"))
            }
        };
        for one in current.objects().filter(|one| !uids.contains(one.object.uid.as_str())) {
            let named = one.object.sentence_name();
            let (change, message) = match planned.contains(&coordinates(&one.object)) {
                _ if is_replaceable(one, &inspection.graph, &uids) => continue,
                true => {
                    (PlanChangeKind::Recreated, format!("{named} was created again since the plan"))
                }
                false => (
                    PlanChangeKind::Added,
                    format!("{named} is not in the plan, and would be deleted as well"),
                ),
            };
            let (stops, message) = match one.deleted_by {
                DeletedBy::Command => (true, message),
                _ => loss(&one.object, message),
            };
            add(change, &one.object, stops, message);
        }
        let destroyed: HashSet<_> =
            self.destroyed.iter().map(|lost| (&lost.what, &lost.name)).collect();
        for lost in &current.destroyed {
            if !destroyed.contains(&(&lost.what, &lost.name)) {
                let what = lost.what.to_lowercase();
                let message = format!("{what} {} would be destroyed as well", lost.name);
                let (stops, message) = loss(&lost.by, message);
                add(PlanChangeKind::NewLoss, &lost.by, stops, message);
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
                let stops = is_own(&one.object) || is_data(&one.loses);
                add(PlanChangeKind::NewUser, &one.object, stops, message);
            }
        }
        let to_delete: HashSet<&str> =
            self.objects().filter(|one| !one.stays).map(|one| one.object.uid.as_str()).collect();
        let is_terminating = |one: &PlannedObject| {
            let node = one.id.and_then(|id| inspection.graph.get(id));
            node.is_some_and(|node| node.is_terminating())
        };
        // Its DELETE can't be undone: the data is destroyed when the user releases it.
        let data = current.objects().filter(|one| is_data(&one.object) && !is_terminating(one));
        for one in data.filter(|one| to_delete.contains(one.object.uid.as_str())) {
            let Some(user) = &one.kept_by else { continue };
            let (named, used) = (user.sentence_name(), one.object.sentence_name());
            let message = format!("{named} uses {used}, which would stay Terminating");
            add(PlanChangeKind::NewUser, user, true, message);
        }
        let remaining = self.remaining(inspection, current);
        for one in remaining.filter(|one| one.deleted_by == DeletedBy::Command) {
            let message = format!("{} is in the plan, and would stay", one.object.sentence_name());
            add(PlanChangeKind::Kept, &one.object, true, message);
        }
        drift
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
        let is_own = self.own_filter();
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
        PlannedObject {
            object,
            resource_version: None,
            deleted_by,
            stays: false,
            kept_by: None,
            id: None,
        }
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
            let drift = plan(before()).drift(&Inspection::default(), &plan(more), &[]);
            assert_eq!(drift.others, []);
            drift.changes.into_iter().map(|one| (one.change, one.object.name)).collect::<Vec<_>>()
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
        let drift = before.drift(&Inspection::default(), &after, &[]);
        assert_eq!(drift.others, []);
        let messages: Vec<String> = drift.changes.into_iter().map(|one| one.message).collect();
        assert_eq!(
            messages,
            ["volume new would be destroyed as well", "Pod shop/new needs Secret shop/a (spec)"]
        );
    }

    #[test]
    fn h203_changes_in_other_namespaces_stop_only_if_they_lose_data_or_are_deleted() {
        use DeletedBy::{Command, GarbageCollector};
        fn in_tenant(resource: &str, name: &str, uid: &str) -> Object {
            Object { namespace: "tenant".to_owned(), ..object(resource, name, uid) }
        }
        let lose = |user: &str, lost: Object| PlannedBreak {
            object: in_tenant("pods", user, ""),
            loses: lost,
            field_path: "spec".to_owned(),
        };
        let volume = PlannedLoss {
            what: "Volume".to_owned(),
            name: "v".to_owned(),
            by: in_tenant("persistentvolumeclaims", "data", "2"),
            size: String::new(),
        };
        let before = plan(vec![planned(object("secrets", "a", "1"), Command)]);
        let after = DeletionPlan {
            broken: vec![
                lose("user", object("secrets", "a", "1")),
                lose("copy", object("persistentvolumeclaims", "data", "")),
            ],
            destroyed: vec![volume],
            ..plan(vec![
                planned(object("secrets", "a", "1"), Command),
                planned(in_tenant("persistentvolumeclaims", "data", "2"), GarbageCollector),
                planned(in_tenant("secrets", "sent", "3"), Command),
            ])
        };
        let names = |ignored: &[&str]| {
            let ignored: Vec<String> = ignored.iter().map(|name| (*name).to_owned()).collect();
            let Drift { changes, others } = before.drift(&Inspection::default(), &after, &ignored);
            [changes, others].map(|list| {
                let name = |one: PlanChange| format!("{:?} {}", one.change, one.object.name);
                list.into_iter().map(name).collect::<Vec<_>>()
            })
        };
        let (user, copy, sent) = ("NewUser user", "NewUser copy", "Added sent");
        let (data, loss) = ("Added data", "NewLoss data");
        assert_eq!(names(&[]), [vec![data, sent, loss, copy], vec![user]]);
        assert_eq!(names(&["shop"]), names(&[]));
        assert_eq!(names(&["tenant"]), [vec![sent, copy], vec![data, loss, user]]);
    }
}
