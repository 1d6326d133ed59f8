//! Reads what an undo needs, and refuses what can't be undone.

use std::collections::HashSet;

use serde_json::Value;

use super::kinds::{is_last, is_recreated, is_scalable};
use super::manifest::{ACCOUNT_UID, is_token_secret, manifest};
use super::record::{
    DetachedDependent, LostObject, SavedObject, SavedVolume, StoppedWorkload, UndoRecord,
};
use crate::cluster::Caller;
use crate::command::CommandError;
use crate::command::diagnosis::why_irreversible;
use crate::command::document::Object;
use crate::command::inspect::{
    ClusterIdentity, Inspection, SearchArguments, TargetQuery, read_inspection,
};
use crate::command::place::{ClusterArguments, SourceArguments};
use crate::graph::{Node, ObjectPhase};
use crate::objects::{ApiError, KindInfo, ObjectRef, full_name, is_hold};

/// Reads the record of the undo of one object, with this marker.
pub async fn read_record(
    target: Object,
    cluster: ClusterArguments,
    marker: &str,
) -> Result<UndoRecord, CommandError> {
    let options = cluster.kubectl_options();
    let inspection = inspect(&target, cluster).await?;
    let reading = Reading::new(&inspection, &target)?.ok_or_else(|| just_deleted(&target))?;
    reading.record(target, marker, &options).await
}

/// Reads the dependents of the old object that are not Terminating. None if it is deleted.
pub async fn read_dependents(
    record: &UndoRecord,
    cluster: ClusterArguments,
) -> Result<Vec<DetachedDependent>, CommandError> {
    let inspection = inspect(&record.target, cluster).await?;
    let Some(reading) = Reading::new(&inspection, &record.target)? else { return Ok(Vec::new()) };
    reading.require_complete()?;
    let saved = record.objects.iter().map(|saved| saved.object.uid.clone()).collect();
    let (dependents, _) = reading.dependents(&saved).await?;
    Ok(dependents)
}

async fn inspect(target: &Object, cluster: ClusterArguments) -> Result<Inspection, CommandError> {
    let query = TargetQuery::of_objects(std::slice::from_ref(target));
    let namespace = Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let search = SearchArguments { namespace, from: SourceArguments::default(), cluster };
    read_inspection(&query, search, false).await
}

struct Reading<'i> {
    caller: Caller,
    inspection: &'i Inspection,
    target: Node<'i>,
}

impl<'i> Reading<'i> {
    /// `None` if the target does not exist any longer.
    fn new(inspection: &'i Inspection, target: &Object) -> Result<Option<Self>, CommandError> {
        let no_cluster = || CommandError::usage("undo needs a cluster");
        let (caller, _) = inspection.caller.clone().ok_or_else(no_cluster)?;
        let node = inspection.targets.first().and_then(|id| inspection.graph.get(*id));
        let node = node.filter(|node| node.uid().to_string() == target.uid);
        Ok(node.map(|target| Self { caller, inspection, target }))
    }

    /// `options`: those of the next kubectl command.
    async fn record(
        &self,
        target: Object,
        marker: &str,
        options: &str,
    ) -> Result<UndoRecord, CommandError> {
        self.refuse_final(&target)?;
        self.require_complete()?;
        let cluster = ClusterIdentity::read(self.inspection).await;
        let cluster = cluster.ok_or_else(|| CommandError::usage("undo needs a cluster"))?;
        let (saved, mut lost) = self.to_save();
        let ids: HashSet<String> = saved.iter().map(|node| node.uid().to_string()).collect();
        let mut objects = Vec::new();
        for node in &saved {
            match self.whole(*node).await? {
                Some(whole) if self.is_saved(&whole) => {
                    objects.push(self.saved(*node, whole, &ids, marker));
                }
                Some(_) => {}
                None => lost.push(self.lost(*node, "it was deleted while the command read it")),
            }
        }
        if objects.first().is_none_or(|first| first.object.uid != target.uid) {
            return Err(just_deleted(&target));
        }
        let mut volumes = Vec::new();
        for saved in &objects {
            volumes.extend(self.volume(saved).await?);
        }
        let (workloads, pods) = match is_claim(&self.target.object_ref()) {
            true => self.workloads(options).await?,
            false => (Vec::new(), Vec::new()),
        };
        let (dependents, lost_dependents) = self.dependents(&ids).await?;
        lost.extend(lost_dependents);
        let is_held = saved.iter().any(|node| node.finalizers().iter().any(is_hold));
        let record = UndoRecord {
            cluster,
            target,
            marker: marker.to_owned(),
            objects: in_order(objects),
            dependents,
            volumes,
            workloads,
            pods,
            lost,
            is_held,
        };
        self.require_rights(&record).await?;
        Ok(record)
    }

    fn refuse_final(&self, target: &Object) -> Result<(), CommandError> {
        let refused = |why: String| {
            Err(CommandError::Refused(format!(
                "the deletion of {} can't be undone: {why}",
                target.typed
            )))
        };
        if !self.target.is_terminating() {
            return Err(CommandError::Refused(format!(
                "{} is not Terminating, so there is nothing to undo",
                target.typed
            )));
        }
        if let Some(why) = why_irreversible(self.target.info()) {
            return refused(why.to_owned());
        }
        let controller = self.target.owners().iter().find(|owner| owner.controller);
        let Some(controller) = controller.and_then(|owner| self.target.existing_owner(owner))
        else {
            return Ok(());
        };
        // An editor can write any other object into owner references.
        let mut users = self.inspection.graph.users(self.target.id());
        if users
            .any(|user| user.node.id() == controller.id() && user.path().ends_with(".ephemeral"))
        {
            let name = controller.name();
            return refused(format!("it belongs to Pod {name}, and is deleted with it"));
        }
        if controller.info().creates(self.target.info()) && !controller.is_terminating() {
            let controller = self.object(controller).typed;
            return refused(format!("its controller {controller} creates it again"));
        }
        Ok(())
    }

    /// Refuses to continue without all objects that the undo must save or detach.
    fn require_complete(&self) -> Result<(), CommandError> {
        let Inspection { graph, complete_in_namespace, not_read, .. } = self.inspection;
        let target = self.target.object_ref();
        let namespace = target.own_namespace();
        let unread = graph.kinds.iter().filter(|(kind, info)| {
            let concerns = info.namespaced || namespace.is_empty();
            let in_namespace = (*kind, namespace.to_owned());
            concerns
                && !info.versions.is_empty()
                && not_read.iter().any(|unread| unread.resource == info.full_name())
                && !graph.is_complete(*kind)
                && !complete_in_namespace.contains(&in_namespace)
        });
        let unread: Vec<String> = unread.map(|(_, info)| info.full_name()).collect();
        if unread.is_empty() {
            return Ok(());
        }
        Err(CommandError::Remote(format!(
            "cannot read {}, and such objects could be lost; next: have an administrator bind the \
             RBAC verbs get and list on them, or run the undo",
            unread.join(", ")
        )))
    }

    /// The objects to create again, and those that nothing restores.
    fn to_save(&self) -> (Vec<Node<'_>>, Vec<LostObject>) {
        let graph = &self.inspection.graph;
        if !self.target.object_ref().is_namespace() {
            let is_token = |user: &Node<'_>| user.info().resource == "secrets";
            let tokens = match self.is_account() {
                true => {
                    graph.users(self.target.id()).map(|user| user.node).filter(is_token).collect()
                }
                false => Vec::new(),
            };
            return ([vec![self.target], tokens].concat(), Vec::new());
        }
        let content = graph.kinds.iter().flat_map(|(kind, _)| graph.objects_of_kind(kind));
        let content = content.filter_map(|id| graph.get(id));
        let content = content.filter(|node| node.namespace() == self.target.name());
        let (mut saved, mut lost) = (vec![self.target], Vec::new());
        for node in content {
            if is_recreated(node.info(), node.name()) {
                continue;
            }
            match why_irreversible(node.info()) {
                Some(why) => lost.push(self.lost(node, why)),
                None => saved.push(node),
            }
        }
        (saved, lost)
    }

    fn is_account(&self) -> bool {
        self.target.object_ref().is_of(("", "serviceaccounts"))
    }

    /// Whether to save an object. Of the Secrets that name a ServiceAccount, the token controller
    /// deletes only its tokens.
    fn is_saved(&self, whole: &Value) -> bool {
        let of = &whole["metadata"]["annotations"][ACCOUNT_UID];
        !self.is_account()
            || whole["kind"] == "ServiceAccount"
            || is_token_secret(whole) && *of == self.target.uid().to_string().as_str()
    }

    fn saved(
        &self,
        node: Node<'_>,
        whole: Value,
        ids: &HashSet<String>,
        marker: &str,
    ) -> SavedObject {
        let (manifest, owners) = manifest(whole, marker, ids);
        let is_last = is_last(node.info());
        SavedObject { object: self.object(node), manifest, owners, is_last }
    }

    async fn whole(&self, node: Node<'_>) -> Result<Option<Value>, CommandError> {
        let read = self.caller.object(node.info(), node.namespace(), node.name()).await;
        let whole = read.map_err(|why| unread(&self.object(node), &why))?;
        let uid = node.uid().to_string();
        Ok(whole.filter(|whole| whole["metadata"]["uid"] == uid.as_str()))
    }

    /// The volume of a saved claim.
    async fn volume(&self, saved: &SavedObject) -> Result<Option<SavedVolume>, CommandError> {
        let SavedObject { object, manifest, .. } = saved;
        let name = manifest["spec"]["volumeName"].as_str().unwrap_or_default();
        if object.resource != "persistentvolumeclaims" || name.is_empty() {
            return Ok(None);
        }
        let kinds = &self.inspection.graph.kinds;
        let Some(kind) = kinds.find("", "PersistentVolume") else { return Ok(None) };
        let volume = self.caller.object(kinds.info(kind), "", name).await;
        let volume = volume.map_err(|why| {
            CommandError::Remote(format!(
                "cannot read volume {name}: {why}; without it, the data would be lost; nothing was \
                 changed; next: have an administrator run the undo"
            ))
        })?;
        Ok(volume.filter(|volume| volume["spec"]["claimRef"]["uid"] == object.uid.as_str()).map(
            |volume| SavedVolume {
                name: name.to_owned(),
                claim_uid: object.uid.clone(),
                reclaim_policy: volume["spec"]["persistentVolumeReclaimPolicy"]
                    .as_str()
                    .unwrap_or("Retain")
                    .to_owned(),
            },
        ))
    }

    /// The workloads whose Pods use the claim, or that create it again, and the other Pods that use
    /// it.
    async fn workloads(
        &self,
        options: &str,
    ) -> Result<(Vec<StoppedWorkload>, Vec<Object>), CommandError> {
        let graph = &self.inspection.graph;
        let mut pods = Vec::new();
        let mut workloads: Vec<Node<'_>> = Vec::new();
        let users: Vec<Node<'_>> = graph.users(self.target.id()).map(|user| user.node).collect();
        let is_user = |node: Node<'_>| users.iter().any(|user| user.id() == node.id());
        for user in users.iter().copied() {
            let KindInfo { resource, .. } = user.info();
            let workload = match (resource.as_str(), user.phase()) {
                ("pods", ObjectPhase::Active) => controller_of(controller_of(user)),
                ("statefulsets", _) => user,
                _ => continue,
            };
            // An editor can write a workload that does not use the claim into owner references.
            if !is_scalable(workload.info()) || !is_user(workload) {
                pods.push(self.object(user));
                continue;
            }
            if workloads.iter().all(|known| known.id() != workload.id()) {
                workloads.push(workload);
            }
        }
        let mut stopped = Vec::new();
        for workload in workloads {
            let Some(whole) = self.whole(workload).await? else { continue };
            let retention = &whole["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"];
            if retention == "Delete" {
                let typed = self.object(workload).typed;
                return Err(CommandError::Refused(format!(
                    "the undo must scale {typed} to 0, which would delete its claims (whenScaled); \
                     nothing was changed; next: kubectl patch {typed} --type=merge -p \
                     '{{\"spec\":{{\"persistentVolumeClaimRetentionPolicy\":{{\"whenScaled\":\
                     \"Retain\"}}}}}}'{options}, and run the command again"
                )));
            }
            let replicas = whole["spec"]["replicas"].as_i64().unwrap_or(1);
            if replicas > 0 {
                stopped.push(StoppedWorkload { object: self.object(workload), replicas });
            }
        }
        Ok((stopped, pods))
    }

    /// The dependents that are not saved themselves, and those that are already Terminating.
    async fn dependents(
        &self,
        saved: &HashSet<String>,
    ) -> Result<(Vec<DetachedDependent>, Vec<LostObject>), CommandError> {
        let (mut dependents, mut lost) = (Vec::new(), Vec::new());
        for node in self.inspection.graph.dependents(self.target) {
            // An editor of another namespace can write such a reference.
            let namespace = self.target.namespace();
            let is_foreign = !namespace.is_empty() && node.namespace() != namespace;
            if is_foreign || saved.contains(&node.uid().to_string()) {
                continue;
            }
            if node.is_terminating() {
                lost.push(self.lost(node, "it is deleted already, as a dependent"));
                continue;
            }
            let Some(whole) = self.whole(node).await? else { continue };
            let uid = self.target.uid().to_string();
            let references = whole["metadata"]["ownerReferences"].as_array();
            let reference = references.into_iter().flatten().find(|one| one["uid"] == uid.as_str());
            let object = self.object(node);
            dependents.extend(
                reference
                    .map(|reference| DetachedDependent { object, reference: reference.clone() }),
            );
        }
        Ok((dependents, lost))
    }

    /// Refuses to begin without the rights to finish.
    async fn require_rights(&self, record: &UndoRecord) -> Result<(), CommandError> {
        let mut needed: Vec<(&str, &Object)> = Vec::new();
        let objects = record.objects.iter().map(|saved| ("create", &saved.object));
        let dependents = record.dependents.iter().map(|dependent| ("patch", &dependent.object));
        let workloads = record.workloads.iter().map(|workload| ("patch", &workload.object));
        needed.extend(objects.chain(dependents).chain(workloads));
        let volume = Object { resource: "persistentvolumes".to_owned(), ..Object::default() };
        needed.extend(record.volumes.first().map(|_| ("patch", &volume)));
        let mut asked = HashSet::new();
        for (verb, Object { group, resource, namespace, .. }) in needed {
            // Rights in a Namespace that is created again end with it.
            let namespace = match self.target.object_ref().is_namespace() {
                true => "",
                false => namespace.as_str(),
            };
            if !asked.insert((verb, group, resource, namespace)) {
                continue;
            }
            let kind = (group.as_str(), resource.as_str());
            if self.caller.may(verb, kind, (namespace, "")).await == Some(false) {
                let kind = full_name(group, resource);
                return Err(CommandError::Refused(format!(
                    "you may not {verb} {kind}, which the undo needs; nothing was changed; next: \
                     have an administrator bind the RBAC verb {verb} on {kind}, or run the undo"
                )));
            }
        }
        Ok(())
    }

    fn object(&self, node: Node<'_>) -> Object {
        Object::at(&self.inspection.graph, node.id()).with_uid(&node.uid().to_string())
    }

    fn lost(&self, node: Node<'_>, why: &str) -> LostObject {
        LostObject { object: self.object(node), why: why.to_owned() }
    }
}

fn is_claim(object: &ObjectRef) -> bool {
    object.is_of(("", "persistentvolumeclaims"))
}

fn just_deleted(target: &Object) -> CommandError {
    CommandError::Refused(format!("{} has just been deleted", target.typed))
}

fn unread(object: &Object, why: &ApiError) -> CommandError {
    CommandError::Remote(format!(
        "cannot read {}: {why}; next: have an administrator run the undo",
        object.typed
    ))
}

/// The controller of a Pod or ReplicaSet, if it is a workload; otherwise the object. An editor can
/// write any other object into owner references.
fn controller_of(node: Node<'_>) -> Node<'_> {
    let controller = node.owners().iter().find(|owner| owner.controller);
    let controller = controller.and_then(|owner| node.existing_owner(owner));
    controller.filter(|owner| is_scalable(owner.info())).unwrap_or(node)
}

/// The target first, and ServiceAccounts before their tokens.
fn in_order(mut objects: Vec<SavedObject>) -> Vec<SavedObject> {
    let order = |saved: &SavedObject| (saved.is_last, saved.object.resource != "serviceaccounts");
    objects.get_mut(1..).unwrap_or_default().sort_by_key(order);
    objects
}
