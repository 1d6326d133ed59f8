//! The objects to delete, as they are now.

use std::collections::{BTreeSet, HashSet};

use kube::api::PropagationPolicy;

use crate::cluster::{Caller, UserIdentity};
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::inspect::{
    Cascade, DeletedBy, DeletionPlan, Drift, Impact, Inspection, PlannedObject, SearchArguments,
    TargetQuery, ask_hold_reason, assess, plan_order, read_inspection,
};
use crate::command::place::{ClusterArguments, SourceArguments};
use crate::command::wait::{Awaited, awaited};
use crate::decide::Verdict;
use crate::graph::{Node, NodeId};
use crate::objects::{KindInfo, Uid};

/// The objects that the user selects.
pub struct Selection {
    pub query: TargetQuery,
    pub namespace: Option<String>,
    pub cascade: Cascade,
    /// The namespaces whose new dependents do not stop the deletion.
    pub ignored_namespaces: Vec<String>,
    pub cluster: ClusterArguments,
}

async fn inspect(selection: &Selection) -> Result<Inspection, CommandError> {
    let search = SearchArguments {
        namespace: selection.namespace.clone(),
        from: SourceArguments::default(),
        cluster: selection.cluster.clone(),
    };
    read_inspection(&selection.query, search, false).await
}

/// The objects whose deletion began before the deletion of the selected objects.
pub struct Leftovers {
    /// The objects to wait for before the next DELETE.
    pub awaited: Vec<PlannedObject>,
    /// The users in namespaces in which the command deletes nothing. It does not wait for them.
    pub not_awaited: Vec<PlannedObject>,
}

/// The deletion of the selected objects, from one read of the cluster.
pub struct DeletionState {
    pub inspection: Inspection,
    pub impact: Impact,
    pub plan: DeletionPlan,
    pub caller: Caller,
    pub me: UserIdentity,
    /// Whether the DELETEs are foreground deletions.
    is_foreground: bool,
}

impl DeletionState {
    /// Reads the cluster, with the verdict on the deletion.
    pub async fn read(selection: &Selection) -> Result<Self, CommandError> {
        let inspection = inspect(selection).await?;
        let (impact, verdict, _) = assess(&inspection, selection.cascade).await;
        Self::new(inspection, impact, verdict, selection.cascade).await
    }

    /// Reads the cluster before a later wave. It computes no verdict, because the API server
    /// decides about each DELETE.
    /// `denies_content_deletes`: as in the first impact.
    pub async fn read_again(
        selection: &Selection,
        denies_content_deletes: bool,
    ) -> Result<Self, CommandError> {
        let inspection = inspect(selection).await?;
        // Without this, a target that its hold keeps could look like a change since the plan.
        let held = ask_hold_reason(&inspection).await;
        let cascade = selection.cascade.into();
        let impact =
            Impact::new(&inspection, None, cascade, held.as_deref(), denies_content_deletes);
        Self::new(inspection, impact, None, selection.cascade).await
    }

    async fn new(
        inspection: Inspection,
        mut impact: Impact,
        mut verdict: Option<Verdict>,
        cascade: Cascade,
    ) -> Result<Self, CommandError> {
        let order = plan_order(&inspection, &mut impact, &mut verdict, cascade).await;
        let plan = DeletionPlan::new(&inspection, &impact, verdict.as_ref(), order, cascade).await;
        let no_cluster = || CommandError::Usage("delete needs a cluster".to_owned());
        let (caller, me) = inspection.caller.clone().ok_or_else(no_cluster)?;
        let plan = plan.ok_or_else(no_cluster)?;
        let is_foreground = cascade == Cascade::Foreground;
        Ok(Self { inspection, impact, plan, caller, me, is_foreground })
    }

    /// The kind of a planned object; `None` if it is not served.
    pub fn info(&self, planned: &PlannedObject) -> Option<&KindInfo> {
        let kinds = &self.inspection.graph.kinds;
        let kind = kinds.find_resource(&planned.object.group, &planned.object.resource)?;
        Some(kinds.info(kind)).filter(|info| !info.versions.is_empty())
    }

    /// Planned objects of served kinds, as objects to wait for.
    pub fn to_awaited<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o PlannedObject>,
    ) -> Vec<Awaited<'o>> {
        let objects = objects.into_iter();
        objects
            .filter_map(|planned| Some(awaited(self.info(planned)?.clone(), &planned.object)))
            .collect()
    }

    /// Whether the object is Terminating, so that another DELETE has no effect. Only a foreground
    /// deletion is different: a DELETE without the option Foreground ends its wait.
    pub fn needs_no_delete(&self, planned: &PlannedObject) -> bool {
        let waits = |node: Node<'_>| node.waits_in_foreground() && !self.is_foreground;
        self.node(planned).is_some_and(|node| node.is_terminating() && !waits(node))
    }

    pub fn is_held(&self, planned: &PlannedObject) -> bool {
        self.node(planned).is_some_and(|node| node.is_held())
    }

    fn node(&self, planned: &PlannedObject) -> Option<Node<'_>> {
        planned.id.and_then(|id| self.inspection.graph.get(id))
    }

    /// The changes since this plan.
    pub fn drift(&self, plan: &DeletionPlan, selection: &Selection) -> Drift {
        plan.drift(&self.inspection, &self.plan, &selection.ignored_namespaces)
    }

    /// The objects whose deletion began before: objects of the plan that a controller is still
    /// deleting, and users of an object to delete. Admission may deny the DELETE of the objects that
    /// they use.
    pub fn leftovers(&self, first_plan: &DeletionPlan) -> Leftovers {
        let graph = &self.inspection.graph;
        let planned: HashSet<Uid> = first_plan
            .objects()
            .chain(self.plan.objects())
            .map(|planned| Uid::new(&planned.object.uid))
            .collect();
        let deleted =
            self.plan.objects().filter(|planned| planned.deleted_by == DeletedBy::Command);
        let users = deleted.filter_map(|planned| planned.id).flat_map(|id| graph.users(id));
        let users = users.filter(|user| user.needs() && user.node.is_terminating());
        let users: BTreeSet<NodeId> = users
            .map(|user| user.node)
            .filter(|user| !planned.contains(&user.uid()))
            .map(|user| user.id())
            .collect();
        let user = |id| {
            Some(PlannedObject {
                object: Object::at(graph, id).with_uid(&graph.get(id)?.uid().to_string()),
                resource_version: None,
                deleted_by: DeletedBy::EarlierDelete,
                stays: false,
                kept_by: None,
                id: Some(id),
            })
        };
        let leftovers = first_plan.leftovers(&self.inspection, &self.plan).into_iter().cloned();
        let is_awaited = first_plan.own_filter();
        let leftovers = leftovers.chain(users.into_iter().filter_map(user));
        let (awaited, not_awaited) = leftovers.partition(|one| is_awaited(&one.object));
        Leftovers { awaited, not_awaited }
    }

    /// The propagation of the DELETE of an object, as the impact assumes it: the namespace
    /// controller deletes content with Background, and the API server deletes custom resources
    /// with their default.
    pub fn propagation(&self, id: NodeId, cascade: Cascade) -> Option<PropagationPolicy> {
        if self.inspection.targets.contains(&id) {
            return Some(cascade.into());
        }
        let graph = &self.inspection.graph;
        let namespace = graph.get(id).and_then(|node| node.namespace_node());
        let is_content = namespace.is_some_and(|namespace| {
            self.plan.objects().any(|planned| planned.id == Some(namespace))
        });
        is_content.then_some(PropagationPolicy::Background)
    }
}
