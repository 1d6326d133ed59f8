//! Reads what an undo needs, and refuses what can't be undone.

use std::collections::HashSet;

use serde_json::Value;

use super::kinds::is_last;
use super::manifest::{ACCOUNT_UID, is_token_secret, manifest};
use super::record::{DetachedDependent, LostObject, SavedObject, SavedVolume, UndoRecord};
use crate::cluster::Caller;
use crate::command::CommandError;
use crate::command::diagnosis::why_irreversible;
use crate::command::document::Object;
use crate::command::inspect::{
    ClusterIdentity, Inspection, SearchArguments, TargetQuery, read_inspection,
};
use crate::command::place::{ClusterArguments, SourceArguments};
use crate::graph::Node;
use crate::objects::{ApiError, CLAIMS, ObjectRef, Uid, full_name, is_hold};

/// Builds the record of the undo of one object, with this marker.
pub async fn build_record(
    target: Object,
    cluster: ClusterArguments,
    marker: &str,
) -> Result<UndoRecord, CommandError> {
    let options = cluster.kubectl_options();
    let inspection = inspect(&target, cluster).await?;
    let reading = Reading::new(&inspection, &target)?.ok_or_else(|| just_deleted(&target))?;
    reading.record(target, marker, &options).await
}

/// Reads what the file does not contain yet: new dependents of the saved objects, and dependents that
/// have become Terminating since. Nothing if the target is deleted.
pub async fn read_new(
    record: &UndoRecord,
    cluster: ClusterArguments,
) -> Result<Found, CommandError> {
    let inspection = inspect(&record.target, cluster).await?;
    let Some(reading) = Reading::new(&inspection, &record.target)? else {
        return Ok(Found::default());
    };
    reading.require_complete()?;
    let mut found = reading.find(&record.marker, &record.dependents).await?;
    let saved = |uid: &str| record.objects.iter().any(|known| known.object.uid == uid);
    found.objects.retain(|new| !saved(&new.object.uid));
    found.volumes.retain(|new| record.volumes.iter().all(|known| known.name != new.name));
    found.dependents.retain(|new| !record.dependents.contains(new));
    Ok(found)
}

/// What an undo restores and keeps.
#[derive(Default)]
pub struct Found {
    /// The objects to create again.
    pub objects: Vec<SavedObject>,
    /// The volumes of the claims among them.
    pub volumes: Vec<SavedVolume>,
    /// The dependents of these objects that are not Terminating.
    pub dependents: Vec<DetachedDependent>,
    /// The Terminating objects that nothing restores.
    pub lost: Vec<LostObject>,
}

async fn inspect(target: &Object, cluster: ClusterArguments) -> Result<Inspection, CommandError> {
    let query = TargetQuery::of_objects(std::slice::from_ref(target));
    let namespace = Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let search = SearchArguments { namespace, from: SourceArguments::default(), cluster };
    read_inspection(&query, search, false).await
}

pub(super) struct Reading<'i> {
    pub(super) caller: Caller,
    pub(super) inspection: &'i Inspection,
    pub(super) target: Node<'i>,
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

    /// `options`: kubectl options for the command to suggest.
    async fn record(
        &self,
        target: Object,
        marker: &str,
        options: &str,
    ) -> Result<UndoRecord, CommandError> {
        self.refuse_irreversible(&target)?;
        self.require_complete()?;
        let cluster = ClusterIdentity::read(self.inspection).await;
        let cluster = cluster.ok_or_else(|| CommandError::usage("undo needs a cluster"))?;
        let mut found = self.find(marker, &[]).await?;
        if found.objects.first().is_none_or(|first| first.object.uid != target.uid) {
            return Err(just_deleted(&target));
        }
        let (workloads, pods) = match self.is_namespace() {
            // They are saved themselves.
            true => (Vec::new(), Vec::new()),
            false => self.workloads(&found.objects, options).await?,
        };
        let mut missing_claims = self.claims_of_templates(&found);
        if self.is_namespace() {
            let missing = self.missing(&found);
            let (claims, others): (Vec<_>, Vec<_>) =
                missing.into_iter().partition(|lost| lost.object.is_of(CLAIMS));
            missing_claims.extend(claims.into_iter().map(|lost| lost.object));
            found.lost.extend(others);
        }
        if self.is_namespace() || !missing_claims.is_empty() {
            self.add_released_claims(marker, &mut missing_claims, &mut found).await?;
        }
        let Found { objects, volumes, dependents, lost } = found;
        let mut nodes = objects.iter().filter_map(|saved| self.node(&saved.object));
        let is_held = nodes.any(|node| node.finalizers().iter().any(is_hold));
        let mut record = UndoRecord {
            cluster,
            target,
            marker: marker.to_owned(),
            objects,
            dependents,
            volumes,
            workloads,
            pods,
            lost,
            missing_claims,
            is_held,
        };
        record.sort();
        self.require_rights(&record).await?;
        Ok(record)
    }

    fn refuse_irreversible(&self, target: &Object) -> Result<(), CommandError> {
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
        let namespace = self.target.namespace_node();
        let namespace = namespace.and_then(|id| self.inspection.graph.get(id));
        if let Some(namespace) = namespace.filter(|namespace| namespace.is_terminating()) {
            let namespace = namespace.name();
            return refused(format!(
                "its Namespace is Terminating; next: kubectl belay undo namespaces/{namespace}"
            ));
        }
        let Some(controller) = self.target.controller() else { return Ok(()) };
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

    pub(super) fn is_namespace(&self) -> bool {
        self.target.object_ref().is_namespace()
    }

    /// The object in the graph, if its uid is the same.
    pub(super) fn node(&self, object: &Object) -> Option<Node<'i>> {
        let Object { group, resource, namespace, name, .. } = object;
        let reference = ObjectRef::new((group, resource), namespace, name);
        let node = self.inspection.graph.object_by_ref(&reference)?;
        (node.uid().to_string() == object.uid).then_some(node)
    }

    /// Finds what to restore and what to keep. `known`: the dependents in the file; those that
    /// have become Terminating since have lost their owner reference.
    async fn find(&self, marker: &str, known: &[DetachedDependent]) -> Result<Found, CommandError> {
        let mut deleted = match self.is_namespace() {
            true => self.content(),
            false => self.deleted_with_target(known),
        };
        let mut found = Found { lost: std::mem::take(&mut deleted.lost), ..Found::default() };
        let ids: HashSet<String> =
            deleted.saved.iter().map(|node| node.uid().to_string()).collect();
        for node in &deleted.saved {
            match self.whole(*node).await? {
                Some(whole) if self.is_saved(&whole) => {
                    let mut saved = self.saved(*node, whole, &ids, marker);
                    let detached = known.iter().filter(|one| one.object.uid == saved.object.uid);
                    saved.owners.extend(detached.map(|one| one.reference.clone()));
                    found.volumes.extend(self.volume(&saved.object, &saved.manifest).await?);
                    found.objects.push(saved);
                }
                Some(_) => {}
                None => {
                    found.lost.push(self.lost(*node, "it was deleted while the command read it"))
                }
            }
        }
        for (node, owners) in deleted.dependents {
            let Some(whole) = self.whole(node).await? else { continue };
            let object = self.object(node);
            // It may become Terminating before it loses its owner.
            found.volumes.extend(self.volume(&object, &whole).await?);
            let references = whole["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            for owner in owners.iter().map(Uid::to_string) {
                let reference = references.clone().find(|one| one["uid"] == owner.as_str());
                found.dependents.extend(reference.map(|reference| DetachedDependent {
                    object: object.clone(),
                    reference: reference.clone(),
                }));
            }
        }
        Ok(found)
    }

    pub(super) fn is_account(&self) -> bool {
        self.target.object_ref().is_of(("", "serviceaccounts"))
    }

    /// Whether to save an object. Of the Secrets that name a ServiceAccount, the token controller
    /// deletes only its tokens.
    fn is_saved(&self, whole: &Value) -> bool {
        let uid = self.target.uid().to_string();
        let metadata = &whole["metadata"];
        let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        !self.is_account()
            || whole["kind"] != "Secret"
            || is_token_secret(whole) && metadata["annotations"][ACCOUNT_UID] == uid.as_str()
            || owners.any(|owner| owner["uid"] == uid.as_str())
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

    pub(super) async fn whole(&self, node: Node<'_>) -> Result<Option<Value>, CommandError> {
        let read = self.caller.object(node.info(), node.namespace(), node.name()).await;
        let whole = read.map_err(|why| unread(&self.object(node), &why))?;
        let uid = node.uid().to_string();
        Ok(whole.filter(|whole| whole["metadata"]["uid"] == uid.as_str()))
    }

    /// The volume of a claim with this manifest.
    async fn volume(
        &self,
        object: &Object,
        manifest: &Value,
    ) -> Result<Option<SavedVolume>, CommandError> {
        let name = manifest["spec"]["volumeName"].as_str().unwrap_or_default();
        if !object.is_of(CLAIMS) || name.is_empty() {
            return Ok(None);
        }
        let kinds = &self.inspection.graph.kinds;
        let Some(kind) = kinds.find("", "PersistentVolume") else { return Ok(None) };
        let volume = self.caller.object(kinds.info(kind), "", name).await;
        let volume = volume.map_err(|why| {
            CommandError::Remote(format!(
                "cannot read volume {name}: {why}; without it, the data would be lost; next: have an \
                 administrator run the undo"
            ))
        })?;
        let volume = volume.filter(|of| of["spec"]["claimRef"]["uid"] == object.uid.as_str());
        let is_deleted = |of: &Value| of["metadata"]["deletionTimestamp"].is_string();
        if !self.is_namespace() && volume.as_ref().is_some_and(is_deleted) {
            return Err(CommandError::Refused(format!(
                "volume {name} of {} is Terminating too: Kubernetes deletes it after the claim, and \
                 the undo could not bind a new claim to it; next: keep the claim, and copy the data \
                 to another volume",
                object.typed
            )));
        }
        Ok(volume.map(|volume| SavedVolume {
            name: name.to_owned(),
            claim_uid: object.uid.clone(),
            reclaim_policy: volume["spec"]["persistentVolumeReclaimPolicy"]
                .as_str()
                .unwrap_or("Retain")
                .to_owned(),
        }))
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

    pub(super) fn object(&self, node: Node<'_>) -> Object {
        Object::at(&self.inspection.graph, node.id()).with_uid(&node.uid().to_string())
    }

    pub(super) fn lost(&self, node: Node<'_>, why: &str) -> LostObject {
        LostObject::new(&self.object(node), why)
    }
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
