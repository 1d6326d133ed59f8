//! Executes an undo. Each step reads the cluster first and changes only what is not done yet, so
//! that an undo that was interrupted anywhere can continue with its file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use json_patch::PatchOperation;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::REASON;
use super::manifest::{RESTORED_BY, manifest, without_allocated};
use super::record::{DetachedDependent, LostObject, SavedObject, SavedVolume, UndoRecord};
use crate::command::CommandError;
use crate::command::approve::approve_release;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::command::session::UserSession;
use crate::command::target::TargetObject;
use crate::command::wait::{Waiter, awaited};
use crate::objects::{ApiError, KindInfo, KindNames, ObjectRef, operations, split_api_version};

/// The time between two reads of a claim that is not bound yet.
const POLL: Duration = Duration::from_millis(500);

/// The path of the reclaim policy of a volume.
const RECLAIM_POLICY: &[&str] = &["spec", "persistentVolumeReclaimPolicy"];

pub struct Undo<'u> {
    pub session: Arc<UserSession>,
    pub names: &'u KindNames,
    pub record: &'u UndoRecord,
    pub waiter: Waiter,
    pub deadline: Instant,
}

/// How an undo ends.
pub enum UndoOutcome {
    /// Everything was restored but these objects, each with the reason.
    Restored { not_restored: Vec<LostObject> },
    /// Another object has the name of the target.
    Taken,
    /// The old object still existed at the end of the time limit.
    TimedOut,
}

impl Undo<'_> {
    pub async fn run(mut self) -> Result<UndoOutcome, CommandError> {
        let record = self.record;
        if self.old_target().await?.is_some() {
            self.require_unchanged().await?;
            self.retain_volumes().await?;
            self.detach().await?;
            for workload in &record.workloads {
                self.scale(&workload.object, 0).await?;
            }
            if !self.end_deletion().await? {
                return Ok(UndoOutcome::TimedOut);
            }
        }
        let (mut uids, mut failed) = (HashMap::new(), Vec::new());
        // Without them, workloads would begin with empty volumes, or not at all.
        let mut lacks_data = false;
        for saved in &record.objects {
            if saved.is_last && lacks_data {
                failed.push(lost(&saved.object, "it is created after the data above"));
                continue;
            }
            let is_claim = saved.object.resource == "persistentvolumeclaims";
            let is_data = is_claim || ["secrets", "configmaps"].contains(&&*saved.object.resource);
            match self.restore(saved).await {
                Ok(Some(uid)) => drop(uids.insert(saved.object.uid.as_str(), uid)),
                // Nothing is restored into a Namespace of other users.
                Ok(None) if saved.object.uid == record.target.uid => return Ok(UndoOutcome::Taken),
                Err(error) if saved.object.uid == record.target.uid => return Err(error),
                Ok(None) => {
                    lacks_data |= is_claim;
                    failed.push(lost(&saved.object, "another object has its name"));
                }
                Err(error) => {
                    lacks_data |= is_data;
                    failed.push(lost(&saved.object, &error.to_string()));
                }
            }
        }
        for (object, uid, owner) in self.owner_references(&uids) {
            if let Err(error) = self.attach(object, uid, owner).await {
                failed.push(lost(object, &error.to_string()));
            }
        }
        for saved in &record.objects {
            let uid = saved.object.uid.as_str();
            if uids.contains_key(uid) && record.volumes.iter().any(|one| one.claim_uid == uid) {
                self.wait_until_bound(&saved.object).await?;
            }
        }
        for workload in &record.workloads {
            self.scale(&workload.object, workload.replicas).await?;
        }
        for volume in &record.volumes {
            // The claim of another object uses another volume; this one keeps its data.
            if uids.contains_key(volume.claim_uid.as_str()) {
                self.set_reclaim_policy(volume, &volume.reclaim_policy).await?;
            }
        }
        Ok(UndoOutcome::Restored { not_restored: failed })
    }

    /// The owner references to restored objects, each with its object and the uid of that object.
    fn owner_references<'r>(
        &'r self,
        uids: &'r HashMap<&str, String>,
    ) -> Vec<(&'r Object, &'r str, Value)> {
        let renewed = |reference: &Value| {
            let new = uids.get(reference["uid"].as_str()?)?;
            let mut reference = reference.clone();
            reference["uid"] = new.as_str().into();
            Some(reference)
        };
        let dependents = self.record.dependents.iter().filter_map(|dependent| {
            let object = &dependent.object;
            Some((object, object.uid.as_str(), renewed(&dependent.reference)?))
        });
        let saved = self
            .record
            .objects
            .iter()
            .filter_map(|saved| Some((saved, uids.get(saved.object.uid.as_str())?.as_str())));
        let saved = saved.flat_map(|(saved, uid)| {
            let owners = saved.owners.iter().filter_map(renewed);
            owners.map(move |owner| (&saved.object, uid, owner))
        });
        dependents.chain(saved).collect()
    }

    /// The target with the old uid, while it exists.
    async fn old_target(&self) -> Result<Option<Value>, CommandError> {
        let target = &self.record.target;
        let read = self.read(target).await?;
        Ok(read.filter(|object| object["metadata"]["uid"] == target.uid.as_str()))
    }

    /// Refuses to replace an object by an older state of it.
    async fn require_unchanged(&self) -> Result<(), CommandError> {
        for SavedObject { object, manifest: saved, .. } in &self.record.objects {
            let Some(current) = self.read(object).await? else { continue };
            if current["metadata"]["uid"] != object.uid.as_str() {
                continue;
            }
            // Owners are checked when the object is created.
            let mut saved = saved.clone();
            if let Some(metadata) = saved["metadata"].as_object_mut() {
                metadata.remove("ownerReferences");
            }
            if manifest(current, &self.record.marker, |_| false) != saved {
                return Err(CommandError::Refused(format!(
                    "{} has changed since it was saved; start a new undo with another --out",
                    object.typed
                )));
            }
        }
        Ok(())
    }

    /// Keeps the data of all volumes. A volume that can't be changed delays no other.
    async fn retain_volumes(&self) -> Result<(), CommandError> {
        let mut failed = Vec::new();
        for volume in &self.record.volumes {
            if let Err(error) = self.set_reclaim_policy(volume, "Retain").await {
                failed.push(error.to_string());
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(CommandError::Remote(failed.join("; "))),
        }
    }

    /// Sets the reclaim policy of a volume. A volume that does not exist is reported with its claim.
    async fn set_reclaim_policy(
        &self,
        volume: &SavedVolume,
        policy: &str,
    ) -> Result<(), CommandError> {
        let object = volume_object(&volume.name);
        let Some(current) = self.read(&object).await? else { return Ok(()) };
        let now = &current["spec"]["persistentVolumeReclaimPolicy"];
        if *now == policy {
            return Ok(());
        }
        let patch = vec![
            operations::test(&["metadata", "uid"], current["metadata"]["uid"].clone()),
            operations::test(RECLAIM_POLICY, now.clone()),
            operations::replace(RECLAIM_POLICY, policy),
        ];
        self.patch(&object, patch).await?;
        progress(&format!("set the reclaim policy of volume {} to {policy}", volume.name));
        Ok(())
    }

    /// Removes the owner references to the target. An object that can't be changed delays no other.
    async fn detach(&self) -> Result<(), CommandError> {
        let mut failed = Vec::new();
        for DetachedDependent { object, .. } in &self.record.dependents {
            if let Err(error) = self.detach_one(object).await {
                failed.push(error.to_string());
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(CommandError::Remote(format!(
                "{}; the garbage collector would delete these dependents; if this happens again, remove \
                 their owner references, or delete them",
                failed.join("; ")
            ))),
        }
    }

    async fn detach_one(&self, dependent: &Object) -> Result<(), CommandError> {
        let old = &self.record.target.uid;
        let Some(object) = self.read(dependent).await? else { return Ok(()) };
        let Some(index) = owner_index(&object, old) else { return Ok(()) };
        let index = index.to_string();
        let patch = vec![
            operations::test(&["metadata", "ownerReferences", &index, "uid"], old.as_str()),
            operations::remove(&["metadata", "ownerReferences", &index]),
        ];
        self.patch(dependent, patch).await?;
        progress(&format!("removed the owner reference from {}", dependent.typed));
        Ok(())
    }

    /// Adds an owner reference to the object with this uid.
    async fn attach(
        &self,
        dependent: &Object,
        uid: &str,
        reference: Value,
    ) -> Result<(), CommandError> {
        let Some(object) = self.read(dependent).await? else { return Ok(()) };
        let owner = reference["uid"].as_str().unwrap_or_default();
        if object["metadata"]["uid"] != uid || owner_index(&object, owner).is_some() {
            return Ok(());
        }
        let version = &object["metadata"]["resourceVersion"];
        let mut owners = object["metadata"]["ownerReferences"].clone();
        match owners.as_array_mut() {
            Some(owners) => owners.push(reference),
            None => owners = json!([reference]),
        }
        let patch = vec![
            operations::test(&["metadata", "resourceVersion"], version.clone()),
            operations::add(&["metadata", "ownerReferences"], owners),
        ];
        self.patch(dependent, patch).await?;
        progress(&format!("added the owner reference to {}", dependent.typed));
        Ok(())
    }

    async fn scale(&self, workload: &Object, replicas: i64) -> Result<(), CommandError> {
        let Some(object) = self.read(workload).await? else { return Ok(()) };
        let now = object["spec"]["replicas"].as_i64().unwrap_or(1);
        let is_same = object["metadata"]["uid"] == workload.uid.as_str();
        // A workload that a user has scaled since is left alone.
        let is_open = if replicas == 0 { now > 0 } else { now == 0 };
        if !is_same || !is_open {
            return Ok(());
        }
        let patch = vec![
            operations::test(&["metadata", "uid"], workload.uid.as_str()),
            operations::replace(&["spec", "replicas"], replicas),
        ];
        self.patch(workload, patch).await?;
        progress(&format!("scaled {} to {replicas}", workload.typed));
        Ok(())
    }

    /// Ends the deletion of the old object, and waits for that. Returns whether it has ended.
    async fn end_deletion(&mut self) -> Result<bool, CommandError> {
        let target = &self.record.target;
        let info = self.info(target)?;
        let awaited = awaited(info.clone(), target);
        self.waiter.watch(std::slice::from_ref(&awaited)).await?;
        if self.record.is_held {
            let object_ref = ObjectRef::of_kind(&info, &target.namespace, &target.name);
            if let Some(json) = self.old_target().await? {
                let session = self.session.clone();
                let target = TargetObject { session, info, object_ref, json };
                for line in approve_release(&target, REASON).await? {
                    progress(&line);
                }
            }
        }
        progress(&format!("waiting until {} is deleted", target.typed));
        let remaining = self.waiter.wait(vec![(target, awaited)], &mut Vec::new()).await;
        Ok(remaining.is_empty())
    }

    /// Creates an object again, and returns its uid. `None`: another object has its name.
    async fn restore(&self, saved: &SavedObject) -> Result<Option<String>, CommandError> {
        let SavedObject { object, manifest, .. } = saved;
        let volume = self.record.volumes.iter().find(|volume| volume.claim_uid == object.uid);
        if self.read(object).await?.is_none() {
            if let Some(volume) = volume {
                self.reserve(volume, object, None).await?;
            }
            match self.create(object, manifest).await {
                Ok(created) => {
                    progress(&format!("created {}", object.typed));
                    return Ok(created["metadata"]["uid"].as_str().map(str::to_owned));
                }
                // A controller was faster, or the answer to an earlier request was lost.
                Err(ApiError::Status { code: 409, .. }) => {}
                Err(why) => return Err(failed("create", object, &why)),
            }
        }
        let existing = self.read(object).await?.unwrap_or_default();
        let marker = &existing["metadata"]["annotations"][RESTORED_BY];
        if *marker != self.record.marker.as_str() {
            return Ok(None);
        }
        if existing["metadata"]["deletionTimestamp"].is_string() {
            return Err(CommandError::Refused(format!("{} is deleted again", object.typed)));
        }
        if let Some(volume) = volume {
            self.reserve(volume, object, existing["metadata"]["uid"].as_str()).await?;
        }
        Ok(existing["metadata"]["uid"].as_str().map(str::to_owned))
    }

    async fn create(&self, object: &Object, manifest: &Value) -> Result<Value, ApiError> {
        let info = self.info(object).map_err(|error| ApiError::Other(error.to_string()))?;
        let caller = &self.session.caller;
        let mut manifest = manifest.clone();
        self.keep_living_owners(&mut manifest, &object.namespace).await?;
        let created = caller.create(&info, &object.namespace, &manifest).await;
        let is_service = object.group.is_empty() && object.resource == "services";
        match created {
            // Another Service has the address or the port by now.
            Err(ApiError::Status { code: 422, .. })
                if is_service && without_allocated(&mut manifest) =>
            {
                let created = caller.create(&info, &object.namespace, &manifest).await?;
                progress(&format!("{} gets another address or port", object.typed));
                Ok(created)
            }
            other => other,
        }
    }

    /// Removes owner references to deleted owners: the garbage collector would delete the object.
    async fn keep_living_owners(
        &self,
        manifest: &mut Value,
        namespace: &str,
    ) -> Result<(), ApiError> {
        let Some(owners) = manifest["metadata"]["ownerReferences"].as_array_mut() else {
            return Ok(());
        };
        let mut living = Vec::new();
        for owner in std::mem::take(owners) {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let group = split_api_version(text("apiVersion")).0;
            let Some(info) = self.names.of_object(group, text("kind")) else { continue };
            let namespace = if info.namespaced { namespace } else { "" };
            let read = self.session.caller.object(info, namespace, text("name")).await?;
            let lives = read.is_some_and(|read| {
                let metadata = &read["metadata"];
                metadata["uid"] == text("uid") && metadata["deletionTimestamp"].is_null()
            });
            living.extend(lives.then_some(owner));
        }
        *owners = living;
        Ok(())
    }

    /// Reserves a volume of the old claim for a new one of its name: a volume without uid in its
    /// claimRef is bound to the claim that names it.
    async fn reserve(
        &self,
        volume: &SavedVolume,
        claim: &Object,
        new_uid: Option<&str>,
    ) -> Result<(), CommandError> {
        let object = volume_object(&volume.name);
        let Some(current) = self.read(&object).await? else {
            return Err(CommandError::Remote(format!(
                "volume {} of {} does not exist any longer; the manifest is in the file",
                volume.name, claim.typed
            )));
        };
        let claim_ref = &current["spec"]["claimRef"];
        let is_same = |field: &str, value: &str| claim_ref[field] == value;
        if !is_same("namespace", &claim.namespace) || !is_same("name", &claim.name) {
            return Err(CommandError::Refused(format!(
                "volume {} is reserved for another claim",
                volume.name
            )));
        }
        if current["metadata"]["deletionTimestamp"].is_string() {
            let text = format!("volume {} is deleted already", volume.name);
            return Err(CommandError::Refused(text));
        }
        // Without a uid it is reserved, and with that of the new claim bound.
        let Some(uid) = claim_ref["uid"].as_str().filter(|uid| Some(*uid) != new_uid) else {
            return Ok(());
        };
        let mut patch = vec![
            operations::test(&["spec", "claimRef", "uid"], uid),
            operations::remove(&["spec", "claimRef", "uid"]),
            operations::replace(RECLAIM_POLICY, "Retain"),
        ];
        if claim_ref.get("resourceVersion").is_some() {
            patch.push(operations::remove(&["spec", "claimRef", "resourceVersion"]));
        }
        self.patch(&object, patch).await?;
        progress(&format!("reserved volume {} for {}", volume.name, claim.typed));
        Ok(())
    }

    async fn wait_until_bound(&self, claim: &Object) -> Result<(), CommandError> {
        loop {
            let read = self.read(claim).await?;
            match read.as_ref().and_then(|claim| claim["status"]["phase"].as_str()) {
                Some("Bound") => return Ok(()),
                phase if Instant::now() >= self.deadline => {
                    let phase = phase.unwrap_or("gone").to_owned();
                    return Err(CommandError::Remote(format!(
                        "{} is {phase} and not Bound at the end of the time limit",
                        claim.typed
                    )));
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    async fn read(&self, object: &Object) -> Result<Option<Value>, CommandError> {
        let info = self.info(object)?;
        let read = self.session.caller.object(&info, &object.namespace, &object.name).await;
        read.map_err(|why| failed("read", object, &why))
    }

    async fn patch(&self, object: &Object, patch: Vec<PatchOperation>) -> Result<(), CommandError> {
        let info = self.info(object)?;
        let key = (object.namespace.as_str(), object.name.as_str());
        let patched = self.session.caller.patch(&info, key, patch).await;
        patched.map_err(|why| failed("patch", object, &why))
    }

    /// The kind of an object, in the version of its manifest.
    fn info(&self, object: &Object) -> Result<KindInfo, CommandError> {
        let known = self.names.of_object(&object.group, &object.kind);
        let Some(info) = known else {
            return Err(CommandError::Remote(format!(
                "the API server does not serve the kind of {}",
                object.typed
            )));
        };
        let saved = self.record.objects.iter().find(|saved| saved.object.uid == object.uid);
        let version = saved.and_then(|saved| saved.manifest["apiVersion"].as_str());
        let versions = match version {
            Some(version) => vec![split_api_version(version).1.to_owned()],
            None => info.versions.clone(),
        };
        Ok(KindInfo { versions, ..info.clone() })
    }
}

fn volume_object(name: &str) -> Object {
    Object {
        kind: "PersistentVolume".to_owned(),
        resource: "persistentvolumes".to_owned(),
        name: name.to_owned(),
        typed: format!("persistentvolumes/{name}"),
        ..Object::default()
    }
}

/// The place of the owner reference with this uid.
fn owner_index(object: &Value, uid: &str) -> Option<usize> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().position(|owner| owner["uid"] == uid)
}

fn lost(object: &Object, why: &str) -> LostObject {
    LostObject { object: object.clone(), why: why.to_owned() }
}

fn failed(verb: &str, object: &Object, why: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot {verb} {}: {why}", object.typed))
}
