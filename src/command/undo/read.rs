//! Reads what an undo needs, and refuses what can't be undone.

use std::collections::HashSet;

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::kinds::is_last;
use super::manifest::{ACCOUNT_UID, is_secret, is_token_secret, manifest, owners};
use super::record::{
    ACCOUNTS, LostObject, SavedObject, SavedVolume, UndoRecord, ignore_option, is_of_others,
};
use crate::cluster::Caller;
use crate::command::CommandError;
use crate::command::diagnosis::{terminating_crd, why_irreversible};
use crate::command::document::Object;
use crate::command::inspect::{
    ClusterIdentity, Inspection, PolicyState, SearchArguments, TargetQuery, read_inspection,
};
use crate::command::place::{ClusterArguments, SourceArguments};
use crate::graph::Node;
use crate::hold::{HoldForecast, forecast};
use crate::objects::{CLAIMS, ObjectRef, full_name, is_hold, split_api_version};

/// The limit of objects that are read or changed at the same time.
pub(super) const MAX_CONCURRENT: usize = 16;

/// The limit in bytes of the saved manifests of objects that stay or belong to other users. Any
/// tenant can create many.
const MAX_OTHERS: usize = 16 << 20;

/// The reason if the volume of a claim is lost.
const LOST_VOLUME: &str = "its volume does not exist any longer, or belongs to another claim";

/// The reason if the manifest of an object can't be read exactly.
const INEXACT: &str =
    "its JSON is nested too deeply, or has a text or number that belay can't read";

/// Builds the record of the undo of one object, with this secret.
pub async fn build_record(
    target: &Object,
    cluster: ClusterArguments,
    secret: &str,
    ignored_namespaces: &[String],
) -> Result<UndoRecord, CommandError> {
    let inspection = inspect(target, cluster.clone()).await?;
    let reader = UndoReader::new(&inspection, target, ignored_namespaces)?;
    reader.ok_or_else(|| just_deleted(target))?.record(secret, &cluster).await
}

/// Reads what the file does not contain yet: new objects and losses, dependents that have changed, and
/// dependents that have become Terminating since. Nothing if the target is deleted.
pub async fn read_new(
    record: &UndoRecord,
    cluster: ClusterArguments,
) -> Result<Found, CommandError> {
    let inspection = inspect(&record.target, cluster).await?;
    let reader = UndoReader::new(&inspection, &record.target, &record.ignored_namespaces)?;
    let Some(reader) = reader else { return Ok(Found::default()) };
    reader.require_complete()?;
    let mut found = reader.find(&record.secret, Some(record)).await?;
    found.objects.retain(|new| {
        let mut known = record.objects.iter().filter(|known| known.object.uid == new.object.uid);
        known.all(|known| known.stays && known != new)
    });
    found.volumes.retain(|new| record.volumes.iter().all(|known| known.name != new.name));
    found.lost.retain(|new| record.lost.iter().all(|known| known.object != new.object));
    Ok(found)
}

/// What an undo restores and keeps.
#[derive(Default)]
pub struct Found {
    /// The objects to create again, and their dependents that are not Terminating.
    pub objects: Vec<SavedObject>,
    /// The volumes of the claims among them.
    pub volumes: Vec<SavedVolume>,
    /// The Terminating objects that nothing restores.
    pub lost: Vec<LostObject>,
}

async fn inspect(target: &Object, cluster: ClusterArguments) -> Result<Inspection, CommandError> {
    let query = TargetQuery::of_objects(std::slice::from_ref(target));
    let namespace = Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let search = SearchArguments { namespace, from: SourceArguments::default(), cluster };
    read_inspection(&query, search, false).await
}

/// Finds in one read of the cluster what an undo of the target restores and keeps.
pub(super) struct UndoReader<'i> {
    pub(super) caller: Caller,
    pub(super) inspection: &'i Inspection,
    pub(super) target: Node<'i>,
    /// The target as an object of the report.
    pub(super) object: &'i Object,
    pub(super) ignored_namespaces: &'i [String],
}

impl<'i> UndoReader<'i> {
    /// `None` if the target does not exist any longer.
    fn new(
        inspection: &'i Inspection,
        object: &'i Object,
        ignored_namespaces: &'i [String],
    ) -> Result<Option<Self>, CommandError> {
        let no_cluster = || CommandError::usage("undo needs a cluster");
        let (caller, _) = inspection.caller.clone().ok_or_else(no_cluster)?;
        let node = inspection.targets.first().and_then(|id| inspection.graph.get(*id));
        let node = node.filter(|node| node.uid().to_string() == object.uid);
        Ok(node.map(|target| Self { caller, inspection, target, object, ignored_namespaces }))
    }

    /// Whether belay denies the DELETE of this object by the namespace controller until it is
    /// approved.
    fn is_denied(&self, node: Node<'_>) -> bool {
        let situation = self.inspection.situation();
        let is_known = self.inspection.policy_state == PolicyState::Known;
        !node.is_terminating() && forecast(&situation, is_known, node) == HoldForecast::Approval
    }

    async fn record(
        &self,
        secret: &str,
        cluster: &ClusterArguments,
    ) -> Result<UndoRecord, CommandError> {
        let target = self.object;
        self.refuse_irreversible(target)?;
        self.refuse_terminating_crd(target).await?;
        self.require_complete()?;
        let identity = ClusterIdentity::read(self.inspection).await;
        let identity = identity.ok_or_else(|| CommandError::usage("undo needs a cluster"))?;
        let mut found = self.find(secret, None).await?;
        for why in [LOST_VOLUME, INEXACT] {
            if found.lost.iter().any(|lost| lost.object == *target && lost.why == why) {
                return Err(irreversible(target, why));
            }
        }
        if found.objects.first().is_none_or(|first| first.object.uid != target.uid) {
            return Err(just_deleted(target));
        }
        self.require_saved(&found.objects)?;
        let lost_status = self.lost_status(&found.objects).await;
        found.lost.extend(lost_status);
        let (workloads, pods) = match target.namespace.is_empty() {
            // The workloads in a Namespace are deleted with it. Other cluster-scoped objects have
            // only workloads of other users.
            true => (Vec::new(), Vec::new()),
            false => self.workloads(&found.objects, cluster).await?,
        };
        self.save_other_claims(&workloads, secret, &mut found).await?;
        let template_claims = self.absent_template_claims(&found);
        let mut missing_claims: Vec<Object> =
            template_claims.iter().map(|(claim, _)| claim.clone()).collect();
        let lost = found.lost.iter().map(|lost| &lost.object);
        missing_claims.extend(lost.filter(|object| object.is_of(CLAIMS)).cloned());
        if self.is_namespace() {
            let missing = self.missing(&found);
            let (claims, others): (Vec<_>, Vec<_>) =
                missing.into_iter().partition(|lost| lost.object.is_of(CLAIMS));
            missing_claims.extend(claims.into_iter().map(|lost| lost.object));
            found.lost.extend(others);
        }
        if self.is_namespace() || !missing_claims.is_empty() {
            self.add_released_claims(secret, &mut missing_claims, &mut found).await?;
        }
        // The controller of a StatefulSet still has to create the claims that have never existed.
        missing_claims.retain(|claim| !template_claims.contains(&(claim.clone(), false)));
        let Found { objects, volumes, lost } = found;
        let recreated = objects.iter().filter(|saved| !saved.stays);
        let mut nodes = recreated.filter_map(|saved| self.node(&saved.object));
        let is_kept = |node: Node<'_>| {
            node.finalizers().iter().any(is_hold) || self.is_namespace() && self.is_denied(node)
        };
        let is_held = nodes.any(is_kept);
        let mut record = UndoRecord {
            cluster: identity,
            target: target.clone(),
            secret: secret.to_owned(),
            ignored_namespaces: self.ignored_namespaces.to_vec(),
            objects,
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
        let refused = |why: String| Err(irreversible(target, &why));
        if !self.target.is_terminating() {
            return Err(CommandError::Refused(format!(
                "{} is not Terminating, so there is nothing to undo",
                target.quoted()
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
            let controller = self.object(controller).arguments;
            return refused(format!("its controller {controller} creates it again"));
        }
        Ok(())
    }

    /// Refuses to undo the deletion of a custom resource whose CRD is Terminating. The API server
    /// would not create the resource again.
    async fn refuse_terminating_crd(&self, target: &Object) -> Result<(), CommandError> {
        match terminating_crd(&self.caller, &target.group, &target.resource).await {
            None => Ok(()),
            Some(crd) => Err(irreversible(
                target,
                &format!(
                    "CustomResourceDefinition {crd} is Terminating; next: save the manifest, let this \
                     deletion end, and create both again"
                ),
            )),
        }
    }

    /// Refuses to continue if a kind is unread whose objects the undo may have to save or detach.
    fn require_complete(&self) -> Result<(), CommandError> {
        let Inspection { graph, not_read, .. } = self.inspection;
        let target = self.target.object_ref();
        let namespace = target.own_namespace();
        let unread = graph.kinds.iter().filter(|(kind, info)| {
            let is_relevant = info.namespaced || namespace.is_empty();
            is_relevant
                && !info.versions.is_empty()
                && not_read.iter().any(|unread| unread.resource == info.full_name())
                && !self.inspection.has_read(*kind, namespace)
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

    /// Refuses to begin without the manifests of all objects that end.
    fn require_saved(&self, objects: &[SavedObject]) -> Result<(), CommandError> {
        let too_large = objects.iter().find(|saved| !saved.stays && saved.manifest.is_null());
        let Some(SavedObject { object, .. }) = too_large else { return Ok(()) };
        Err(CommandError::Refused(format!(
            "cannot save {}: the dependents in other namespaces have more than {} MiB; nothing was \
             changed; next: wait for their end{}",
            object.arguments,
            MAX_OTHERS >> 20,
            ignore_option(self.object, object)
        )))
    }

    /// Finds what to restore and what to keep. `record`: the file, if there is one. Dependents in
    /// it that have become Terminating since are found only by their uid, because the undo has
    /// removed their owner references. Objects that the file contains completely are not read
    /// again.
    async fn find(&self, secret: &str, record: Option<&UndoRecord>) -> Result<Found, CommandError> {
        let known = record.map_or(&[][..], |record| &record.objects);
        let mut terminating = match self.is_namespace() {
            true => self.content(),
            false => self.terminating_with_target(known),
        };
        let ids = terminating.uids();
        let mut found = Found { lost: std::mem::take(&mut terminating.lost), ..Found::default() };
        let is_others = |object: &Object| is_of_others(self.object, &object.namespace);
        let mut left = bytes_left_for_others(self.object, known);
        let mut is_small = |manifest: &Value| {
            left.checked_sub(size(manifest)).inspect(|rest| left = *rest).is_some()
        };
        // Dependents of other users come last, so that they don't use up the limit.
        terminating
            .dependents
            .sort_by_key(|dependent| is_of_others(self.object, dependent.node.namespace()));
        let dependents =
            terminating.dependents.iter().map(|dependent| (dependent.node, Some(dependent)));
        let nodes = terminating.saved.iter().map(|node| (*node, None)).chain(dependents);
        let saved_before = record.map(UndoRecord::completely_saved_uids).unwrap_or_default();
        let is_saved_before =
            |node: Node<'_>| saved_before.contains(node.uid().to_string().as_str());
        let new = nodes.filter(|(node, dependent)| dependent.is_some() || !is_saved_before(*node));
        let reads = new.map(|(node, dependent)| async move {
            let whole = self.manifest(node).await?;
            let volume = match &whole {
                Some((whole, _)) => self.volume(&self.object(node), whole).await?,
                None => None,
            };
            Ok::<_, CommandError>((node, dependent, whole, volume))
        });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(MAX_CONCURRENT);
        while let Some(read) = reads.next().await {
            let (node, dependent, whole, volume) = read?;
            let stays = dependent.is_some();
            let object = self.object(node);
            let known = known.iter().find(|saved| saved.object.uid == object.uid);
            let Some((whole, is_exact)) = whole else {
                let lost = LostObject::new(&object, "it was deleted while the command read it");
                found.lost.extend((!stays && known.is_none()).then_some(lost));
                continue;
            };
            if !stays && !self.is_deleted_with_target(&whole) {
                continue;
            }
            let is_saved = known.is_some_and(|known| known.manifest.is_object());
            if !is_exact && !stays && !is_saved {
                found.lost.push(LostObject::new(&object, INEXACT));
                continue;
            }
            let has_volume =
                ["Bound", "Lost"].iter().any(|phase| whole["status"]["phase"] == *phase);
            let (manifest, owners) =
                manifest(whole, secret, dependent.map_or(&ids, |dependent| &dependent.owners));
            let is_last = is_last(node.info());
            let mut saved = SavedObject { object, manifest, owners, is_last, stays };
            if !stays && volume.is_none() && has_volume && saved.object.is_of(CLAIMS) {
                found.lost.push(LostObject::new(&saved.object, LOST_VOLUME));
                continue;
            }
            saved.add_owners(known.map_or(&[], |known| &known.owners));
            // Also the volume of a dependent: the dependent may become Terminating before it loses
            // its owner reference.
            found.volumes.extend(volume);
            let needs_no_manifest = dependent.is_some_and(|dependent| {
                dependent.is_left_out || why_irreversible(node.info()).is_some()
            });
            let is_limited = stays || is_others(&saved.object);
            if needs_no_manifest || !is_exact || is_limited && !is_small(&saved.manifest) {
                saved.manifest = known.map_or(Value::Null, |known| known.manifest.clone());
            }
            found.objects.push(saved);
        }
        Ok(found)
    }

    pub(super) fn is_account(&self) -> bool {
        self.target.object_ref().is_of(ACCOUNTS)
    }

    /// Whether the object is deleted with the target. Of the Secrets that name a ServiceAccount, the
    /// token controller deletes only its tokens.
    fn is_deleted_with_target(&self, whole: &Value) -> bool {
        let uid = self.target.uid().to_string();
        let account = &whole["metadata"]["annotations"][ACCOUNT_UID];
        !self.is_account()
            || !is_secret(whole)
            || is_token_secret(whole) && *account == uid.as_str()
            || owners(whole).iter().any(|owner| owner["uid"] == uid.as_str())
    }

    pub(super) async fn whole(&self, node: Node<'_>) -> Result<Option<Value>, CommandError> {
        Ok(self.manifest(node).await?.map(|(whole, _)| whole))
    }

    /// The whole object, and whether belay could read all its values exactly.
    async fn manifest(&self, node: Node<'_>) -> Result<Option<(Value, bool)>, CommandError> {
        let read = self.caller.manifest(node.info(), node.namespace(), node.name()).await;
        let whole = read.map_err(|why| {
            let object = self.object(node);
            CommandError::Remote(format!(
                "cannot read {}: {why}; next: have an administrator run the undo{}",
                object.arguments,
                ignore_option(self.object, &object)
            ))
        })?;
        let uid = node.uid().to_string();
        Ok(whole.filter(|(whole, _)| whole["metadata"]["uid"] == uid.as_str()))
    }

    /// Refuses to begin without the rights to finish.
    async fn require_rights(&self, record: &UndoRecord) -> Result<(), CommandError> {
        let kinds = &self.inspection.graph.kinds;
        let owners = record.objects_to_recreate().flat_map(|saved| {
            owners(&saved.manifest).iter().filter_map(|owner| {
                let group = split_api_version(owner["apiVersion"].as_str()?).0;
                let info = kinds.info(kinds.find(group, owner["kind"].as_str()?)?);
                let namespace = info.namespace_or_empty(&saved.object.namespace);
                Some(Object::of_kind(info, namespace, owner["name"].as_str()?))
            })
        });
        let owners: Vec<Object> = owners.collect();
        let mut needed: Vec<(&str, &Object)> = Vec::new();
        let objects = record.objects_to_recreate().map(|saved| ("create", &saved.object));
        let dependents = record.dependents().map(|saved| ("patch", &saved.object));
        let workloads = record.workloads.iter().map(|workload| ("patch", &workload.object));
        needed.extend(objects.chain(dependents).chain(workloads));
        needed.extend(owners.iter().map(|owner| ("get", owner)));
        let volume = Object { resource: "persistentvolumes".to_owned(), ..Object::default() };
        needed.extend(record.volumes.first().map(|_| ("patch", &volume)));
        let mut asked = HashSet::new();
        for (verb, object) in needed {
            let Object { group, resource, namespace, .. } = object;
            // Roles in the Namespace are deleted with it, so the rights must be cluster-wide.
            let namespace = match self.is_namespace() {
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
                     have an administrator bind the RBAC verb {verb} on {kind}, or run the undo{}",
                    ignore_option(self.object, object)
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

fn irreversible(target: &Object, why: &str) -> CommandError {
    CommandError::Refused(format!(
        "the deletion of {} can't be undone: {why}",
        target.sentence_name()
    ))
}

fn just_deleted(target: &Object) -> CommandError {
    CommandError::Refused(format!("{} has just been deleted", target.quoted()))
}

/// The rest of the limit for the manifests of objects that stay or belong to other users.
pub fn bytes_left_for_others(target: &Object, saved: &[SavedObject]) -> usize {
    let limited =
        saved.iter().filter(|saved| saved.stays || is_of_others(target, &saved.object.namespace));
    MAX_OTHERS.saturating_sub(limited.map(|saved| size(&saved.manifest)).sum())
}

/// The length of a manifest in the file, without line breaks.
pub fn size(manifest: &Value) -> usize {
    serde_json::to_vec(manifest).map_or(usize::MAX >> 1, |json| json.len())
}
