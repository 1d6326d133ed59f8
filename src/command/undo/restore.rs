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

use super::manifest::{RESTORED_BY, manifest};
use super::read::build_record;
use super::record::{LostObject, UndoRecord};
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
    ApiError, KindInfo, KindNames, ObjectRef, is_hold, operations, split_api_version,
};

/// The time between two reads of an object that is not ready yet.
pub(super) const POLL: Duration = Duration::from_millis(500);

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
        let now = build_record(target.clone(), self.cluster.clone(), marker).await?;
        Ok(now == self.record)
    }

    pub async fn run(&mut self) -> Result<UndoOutcome, CommandError> {
        if self.has_old_objects().await? {
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

    /// Whether an object of the deletion still exists.
    async fn has_old_objects(&self) -> Result<bool, CommandError> {
        for object in self.record.awaited() {
            if self.old(&object).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The object with the old uid, while it exists.
    pub(super) async fn old(&self, object: &Object) -> Result<Option<Value>, CommandError> {
        let read = self.read(object).await?;
        Ok(read.filter(|read| read["metadata"]["uid"] == object.uid.as_str()))
    }

    /// Whether the old object exists and is not Terminating.
    pub(super) async fn is_alive(&self, object: &Object) -> Result<bool, CommandError> {
        let old = self.old(object).await?;
        Ok(old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_null()))
    }

    /// Whether another user's object has the name.
    pub(super) async fn is_taken(&self, object: &Object) -> Result<bool, CommandError> {
        let read = self.read(object).await?;
        Ok(read.is_some_and(|read| {
            read["metadata"]["annotations"][RESTORED_BY] != self.record.marker.as_str()
                && read["metadata"]["uid"] != object.uid.as_str()
        }))
    }

    /// Saves again the objects that have changed. Some controllers write all the time.
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

    pub(super) async fn scale(&self, workload: &Object, replicas: i64) -> Result<(), CommandError> {
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
    pub(super) fn info(&self, object: &Object) -> Result<KindInfo, CommandError> {
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

pub(super) fn failed(verb: &str, object: &Object, why: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot {verb} {}: {why}", object.typed))
}
