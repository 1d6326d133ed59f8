//! Executes an undo. Each step reads the cluster first and changes only what is not done yet, so
//! that an undo that was interrupted anywhere can continue with its file.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use json_patch::PatchOperation;
use kube::api::PatchParams;
use serde_json::Value;
use tokio::time::Instant;

use super::manifest::{
    ACCOUNT_NAME, RESTORED_BY, is_token_secret, manifest, without_allocated, without_token,
};
use super::read::read_record;
use super::record::{LostObject, SavedObject, SavedVolume, UndoRecord};
use super::{REASON, check_release_by_belay};
use crate::command::CommandError;
use crate::command::approve::approve_release;
use crate::command::document::Object;
use crate::command::place::ClusterArguments;
use crate::command::screen::progress;
use crate::command::session::UserSession;
use crate::command::target::TargetObject;
use crate::command::wait::{Waiter, awaited};
use crate::objects::{
    ApiError, CLAIMS, KindInfo, KindNames, ObjectRef, is_hold, operations, split_api_version,
};

/// The time between two reads of an object that is not ready yet.
pub(super) const POLL: Duration = Duration::from_millis(500);

/// The time limit of the wait for the ServiceAccount of one token, and for the end of one dependent.
const SHORT_WAIT: Duration = Duration::from_secs(10);

/// The time between two searches for new dependents, while the old object exists.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

pub struct Undo<'u> {
    pub session: Arc<UserSession>,
    pub names: &'u KindNames,
    pub cluster: ClusterArguments,
    pub record: UndoRecord,
    /// The file with the record.
    pub path: &'u Path,
    pub deadline: Instant,
    /// Why dependents of others could not be kept, by uid.
    pub not_kept: HashMap<String, String>,
    /// Why the last search for new dependents failed.
    pub search_error: Option<String>,
}

/// How an undo ends.
pub enum UndoOutcome {
    /// Everything was restored but these objects, each with the reason.
    Restored { not_restored: Vec<LostObject> },
    /// Another object has the name of the target.
    Taken,
    /// These old objects still existed at the end of the time limit.
    TimedOut { remaining: Vec<Object> },
}

impl Undo<'_> {
    /// Refuses to begin if belay or the API server would refuse a change.
    pub async fn check(&self) -> Result<(), CommandError> {
        self.check_holds("; nothing was changed").await?;
        for dependent in &self.record.dependents {
            match self.detach_one(dependent, true).await {
                Err(error) if !self.is_of_others(&dependent.object) => {
                    return Err(CommandError::Refused(format!("{error}; nothing was changed")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the cluster is still as it was when the file was made.
    pub async fn is_current(&self) -> Result<bool, CommandError> {
        let UndoRecord { target, marker, .. } = &self.record;
        let now = read_record(target.clone(), self.cluster.clone(), marker).await?;
        Ok(now == self.record)
    }

    pub async fn run(&mut self) -> Result<UndoOutcome, CommandError> {
        if self.is_waiting().await? {
            self.retain_volumes().await?;
            self.save_changes().await?;
            // If one of these fails, the workloads keep running.
            self.detach().await?;
            self.check_holds("").await?;
            for workload in &self.record.workloads {
                self.scale(&workload.object, 0).await?;
            }
            let remaining = self.end_deletion().await?;
            // Another user can delay the end of a claim for ever.
            if remaining.iter().any(|object| object.uid == self.record.target.uid) {
                return Ok(UndoOutcome::TimedOut { remaining });
            }
            self.retain_volumes().await?;
        }
        self.restore_all().await
    }

    /// Creates the saved objects again, and restores what the undo has changed.
    async fn restore_all(&self) -> Result<UndoOutcome, CommandError> {
        let record = &self.record;
        if self.is_taken(&record.target).await? {
            return Ok(UndoOutcome::Taken);
        }
        let (mut uids, mut failed) = (HashMap::new(), Vec::new());
        // Without the claims, workloads would begin with empty volumes. Pods wait for other objects.
        let mut lacks_data = false;
        for claim in &record.missing_claims {
            if self.read(claim).await?.is_none() {
                lacks_data = true;
                let why = "it is deleted already; next: create it, so that its workloads can start";
                failed.push(lost(claim, why));
            }
        }
        if let Some(error) = &self.search_error {
            let typed = format!("new dependents of {}", record.target.typed);
            failed.push(lost(&Object { typed, ..Object::default() }, error));
        }
        for object in record.dependents.iter().map(|one| &one.object) {
            let is_saved = record.objects.iter().any(|saved| saved.object.uid == object.uid);
            if let Some(why) = self.not_kept.get(&object.uid) {
                failed.push(lost(object, why));
            } else if is_data(object) && !is_saved && !self.is_alive(object).await? {
                let volume = record.volumes.iter().find(|volume| volume.claim_uid == object.uid);
                failed.push(lost(object, &match volume {
                    Some(SavedVolume { name, .. }) => format!(
                        "it was deleted meanwhile; its volume {name} has the data, and the policy \
                         Retain"
                    ),
                    None => "it was deleted meanwhile, and is not in the file".to_owned(),
                }));
                lacks_data |= volume.is_some();
            }
        }
        for saved in &record.objects {
            if saved.is_last && lacks_data {
                failed.push(lost(&saved.object, "it is created after the data above"));
                continue;
            }
            let is_claim = saved.object.is_of(CLAIMS);
            match self.restore(saved).await {
                Ok(Some(uid)) => drop(uids.insert(saved.object.uid.as_str(), uid)),
                // Nothing is restored into a Namespace of other users.
                Ok(None) if saved.object.resource == "namespaces" => return Ok(UndoOutcome::Taken),
                Err(error) if saved.object.uid == record.target.uid => return Err(error),
                Ok(None) => {
                    lacks_data |= is_claim;
                    failed.push(lost(&saved.object, "another object has its name"));
                }
                Err(error) => {
                    lacks_data |= is_claim;
                    failed.push(lost(&saved.object, &error.to_string()));
                }
            }
        }
        for (object, uid, owner) in self.owner_references(&uids) {
            match self.attach(object, uid, owner).await {
                Ok(()) => {}
                Err(_) if self.not_kept.contains_key(&object.uid) => {}
                Err(error) if record.is_of_namespace() && self.is_of_others(object) => {
                    progress(&format!("warning: {error}"));
                }
                Err(error) => failed.push(lost(object, &error.to_string())),
            }
        }
        for saved in &record.objects {
            let uid = saved.object.uid.as_str();
            if uids.contains_key(uid) && record.volumes.iter().any(|one| one.claim_uid == uid) {
                self.wait_until_bound(&saved.object).await?;
            }
        }
        for volume in &record.volumes {
            let saved = record.objects.iter().map(|saved| &saved.object);
            let dependents = record.dependents.iter().map(|one| &one.object);
            let mut claims = saved.chain(dependents);
            let Some(claim) = claims.find(|claim| claim.uid == volume.claim_uid) else { continue };
            let uid = match uids.get(claim.uid.as_str()) {
                Some(uid) => uid,
                None if self.is_alive(claim).await? => &claim.uid,
                // The volume keeps the data.
                None => continue,
            };
            let given = self.set_reclaim_policy(volume, &volume.reclaim_policy, Some(uid)).await;
            if let Err(error) = given {
                lacks_data = true;
                failed.push(lost(claim, &error.to_string()));
            }
        }
        for workload in &record.workloads {
            match lacks_data {
                true => failed.push(lost(&workload.object, "it is scaled up after the data above")),
                false => self.scale(&workload.object, workload.replicas).await?,
            }
        }
        Ok(UndoOutcome::Restored { not_restored: failed })
    }

    /// Whether an object of the deletion still exists.
    async fn is_waiting(&self) -> Result<bool, CommandError> {
        for object in self.record.awaited() {
            if self.old(&object).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The object with the old uid, while it exists.
    async fn old(&self, object: &Object) -> Result<Option<Value>, CommandError> {
        let read = self.read(object).await?;
        Ok(read.filter(|read| read["metadata"]["uid"] == object.uid.as_str()))
    }

    /// Whether the old object exists and is not Terminating.
    async fn is_alive(&self, object: &Object) -> Result<bool, CommandError> {
        let old = self.old(object).await?;
        Ok(old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_null()))
    }

    /// Whether an object of others has the name.
    async fn is_taken(&self, object: &Object) -> Result<bool, CommandError> {
        let read = self.read(object).await?;
        Ok(read.is_some_and(|read| {
            read["metadata"]["annotations"][RESTORED_BY] != self.record.marker.as_str()
                && read["metadata"]["uid"] != object.uid.as_str()
        }))
    }

    /// Saves the objects again that have changed since. Some controllers write all the time.
    async fn save_changes(&mut self) -> Result<(), CommandError> {
        let record = &self.record;
        let ids = record.objects.iter().map(|saved| saved.object.uid.clone()).collect();
        let mut changed = Vec::new();
        for (index, saved) in record.objects.iter().enumerate() {
            let current = match self.read(&saved.object).await {
                Ok(Some(current)) => current,
                Ok(None) => continue,
                Err(error) => {
                    progress(&format!("warning: {error}; its saved state is used"));
                    continue;
                }
            };
            if current["metadata"]["uid"] != saved.object.uid.as_str() {
                continue;
            }
            let (mut manifest, mut owners) = manifest(current, &record.marker, &ids);
            if record.dependents.iter().any(|one| one.object.uid == saved.object.uid) {
                // It has lost its owner reference meanwhile.
                owners.clone_from(&saved.owners);
            }
            let volume = |manifest: &Value| manifest["spec"]["volumeName"].clone();
            if volume(&manifest) != volume(&saved.manifest) {
                return Err(CommandError::Refused(format!(
                    "{} has another volume since it was saved; start a new undo with another --out",
                    saved.object.typed
                )));
            }
            // Controllers remove their finalizers during the deletion.
            let finalizers = saved.manifest["metadata"].get("finalizers").cloned();
            if let Some(metadata) = manifest["metadata"].as_object_mut() {
                metadata.remove("finalizers");
                metadata.extend(finalizers.map(|list| ("finalizers".to_owned(), list)));
            }
            if manifest != saved.manifest || owners != saved.owners {
                changed.push((index, (manifest, owners)));
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        for (index, (manifest, owners)) in changed {
            let saved = &mut self.record.objects[index];
            (saved.manifest, saved.owners) = (manifest, owners);
            progress(&format!("saved {} again, which has changed", saved.object.typed));
        }
        self.record.replace(self.path)
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

    /// Ends the deletion of the old object, and waits for that. Returns what still exists at the end of
    /// the time limit.
    async fn end_deletion(&mut self) -> Result<Vec<Object>, CommandError> {
        let mut waiter =
            Waiter::new(self.session.caller.client.clone(), self.cluster.clone(), self.deadline);
        self.detach().await?;
        let objects = self.record.awaited();
        let waiting = objects.iter().map(|object| Ok(awaited(self.info(object)?, object)));
        let waiting = waiting.collect::<Result<Vec<_>, CommandError>>()?;
        waiter.watch(&waiting).await?;
        for held in self.held_objects().await? {
            for line in approve_release(&held, REASON).await? {
                progress(&line);
            }
        }
        progress(&format!("waiting for the end of {}", all_typed(&objects)));
        let mut deleted = Vec::new();
        tokio::select! {
            remaining = waiter.wait(waiting, &mut deleted) => Ok(remaining),
            never = self.keep_detaching() => match never {}
        }
    }

    /// Refuses to continue if a hold of belay would stay. `state`: what the undo has changed.
    pub async fn check_holds(&self, state: &str) -> Result<(), CommandError> {
        for held in self.held_objects().await? {
            check_release_by_belay(&held, &self.cluster, state).await?;
        }
        Ok(())
    }

    /// The old objects that belay holds. Of a Namespace, it may hold the content.
    async fn held_objects(&self) -> Result<Vec<TargetObject>, CommandError> {
        let mut held = Vec::new();
        for object in self.record.awaited() {
            let Some(json) = self.old(&object).await? else { continue };
            let finalizers = json["metadata"]["finalizers"].as_array().into_iter().flatten();
            let is_held = finalizers.filter_map(Value::as_str).any(is_hold);
            if is_held || self.record.is_held && self.record.is_of_namespace() {
                let info = self.info(&object)?;
                let object_ref = ObjectRef::of_kind(&info, &object.namespace, &object.name);
                held.push(TargetObject { session: self.session.clone(), info, object_ref, json });
            }
        }
        Ok(held)
    }

    /// Detaches the dependents that are created during the wait.
    async fn keep_detaching(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(SEARCH_INTERVAL).await;
            let searched = match self.save_changes().await {
                Ok(()) => self.detach().await,
                failed => self.detach().await.and(failed),
            };
            self.search_error = searched.err().map(|error| error.to_string());
            if let Some(error) = &self.search_error {
                progress(&format!("warning: {error}"));
            }
        }
    }

    /// Creates an object again, and returns its uid. `None`: another object has its name.
    async fn restore(&self, saved: &SavedObject) -> Result<Option<String>, CommandError> {
        let SavedObject { object, manifest, .. } = saved;
        let began = Instant::now();
        while self.old(object).await?.is_some() {
            if Instant::now() >= began + SHORT_WAIT {
                return Err(CommandError::Refused(format!("{} still exists", object.typed)));
            }
            tokio::time::sleep(POLL).await;
        }
        if self.read(object).await?.is_none() {
            let mut volumes = self.record.volumes.iter();
            let volume = volumes.find(|volume| volume.claim_uid == object.uid);
            if let Some(volume) = volume {
                self.reserve(volume, object).await?;
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
        Ok(existing["metadata"]["uid"].as_str().map(str::to_owned))
    }

    async fn create(&self, object: &Object, manifest: &Value) -> Result<Value, ApiError> {
        let info = self.info(object).map_err(|error| ApiError::Other(error.to_string()))?;
        let caller = &self.session.caller;
        let mut manifest = manifest.clone();
        self.keep_living_owners(&mut manifest, &object.namespace).await?;
        // The account of the target alone still exists.
        if is_token_secret(&manifest) && object.uid != self.record.target.uid {
            self.wait_for_account(&manifest, &object.namespace).await?;
            without_token(&mut manifest);
            progress(&format!("{} gets a new token, for the new ServiceAccount", object.typed));
        }
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

    /// Waits until the ServiceAccount of a token exists: without it, the token controller deletes the
    /// Secret.
    async fn wait_for_account(&self, secret: &Value, namespace: &str) -> Result<(), ApiError> {
        let Some(info) = self.names.of_object("", "ServiceAccount") else { return Ok(()) };
        let name = secret["metadata"]["annotations"][ACCOUNT_NAME].as_str().unwrap_or_default();
        let (caller, began) = (&self.session.caller, Instant::now());
        while caller.object(info, namespace, name).await?.is_none() {
            // Any user may write the name of an account that is never created.
            if Instant::now() >= self.deadline.min(began + SHORT_WAIT) {
                return Err(ApiError::Other(format!("its ServiceAccount {name} does not exist")));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
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

    pub(super) async fn read(&self, object: &Object) -> Result<Option<Value>, CommandError> {
        let info = self.info(object)?;
        let read = self.session.caller.object(&info, &object.namespace, &object.name).await;
        read.map_err(|why| failed("read", object, &why))
    }

    pub(super) async fn patch(
        &self,
        object: &Object,
        patch: Vec<PatchOperation>,
    ) -> Result<(), CommandError> {
        self.send_patch(object, patch, &PatchParams::default()).await
    }

    pub(super) async fn send_patch(
        &self,
        object: &Object,
        patch: Vec<PatchOperation>,
        params: &PatchParams,
    ) -> Result<(), CommandError> {
        let info = self.info(object)?;
        let key = (object.namespace.as_str(), object.name.as_str());
        let patched = self.session.caller.patch(&info, key, patch, params).await;
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

/// Whether an object of this kind holds data that no controller creates again.
fn is_data(object: &Object) -> bool {
    [CLAIMS, ("", "secrets"), ("", "configmaps")].into_iter().any(|kind| object.is_of(kind))
}

/// The objects as a user types them.
pub fn all_typed(objects: &[Object]) -> String {
    objects.iter().map(|object| object.typed.as_str()).collect::<Vec<_>>().join(", ")
}

/// An error with all failures, before this advice, if there are any.
pub(super) fn all_done(failures: &[CommandError], advice: &str) -> Result<(), CommandError> {
    if failures.is_empty() {
        return Ok(());
    }
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Err(CommandError::Remote(failures.join("; ") + advice))
}

fn lost(object: &Object, why: &str) -> LostObject {
    LostObject { object: object.clone(), why: why.to_owned() }
}

fn failed(verb: &str, object: &Object, why: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot {verb} {}: {why}", object.typed))
}
