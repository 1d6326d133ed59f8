//! The volumes of the saved claims. They keep their data until the new claims are bound to them.

use std::future::ready;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use json_patch::PatchOperation;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::manifest::{OLD_RECLAIM_POLICY, annotate};
use super::read::{MAX_CONCURRENT, UndoReader};
use super::record::{SavedVolume, is_of_others};
use super::restore::{POLL, Undo, fail_if_any};
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::objects::{CLAIMS, operations};

/// The time limit of the wait until a claim of others is bound to a reserved volume.
const BINDING_LIMIT: Duration = Duration::from_secs(10);

/// The path of the reclaim policy of a volume.
const RECLAIM_POLICY: &[&str] = &["spec", "persistentVolumeReclaimPolicy"];

impl UndoReader<'_> {
    /// The volume of a claim with this manifest.
    pub(super) async fn volume(
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
        let volume =
            volume.filter(|volume| volume["spec"]["claimRef"]["uid"] == object.uid.as_str());
        let is_deleted = |volume: &Value| volume["metadata"]["deletionTimestamp"].is_string();
        let is_own = !self.is_namespace() && !is_of_others(self.object, &object.namespace);
        if is_own && volume.as_ref().is_some_and(is_deleted) {
            return Err(CommandError::Refused(format!(
                "volume {name} of {} is Terminating too: Kubernetes deletes it after the claim, and \
                 the undo could not bind a new claim to it; next: copy the data to another volume \
                 before you delete the Pods that use the claim",
                object.arguments
            )));
        }
        Ok(volume.map(|volume| {
            let now = reclaim_policy(&volume).as_str().unwrap_or("Retain");
            let old = volume["metadata"]["annotations"][OLD_RECLAIM_POLICY].as_str();
            SavedVolume {
                name: name.to_owned(),
                claim_uid: object.uid.clone(),
                // An interrupted undo may have set it to Retain.
                reclaim_policy: old.filter(|_| now == "Retain").unwrap_or(now).to_owned(),
            }
        }))
    }
}

impl Undo<'_> {
    /// Keeps the data of all volumes. A volume that can't be changed delays no other.
    pub(super) async fn retain_volumes(&self) -> Result<(), CommandError> {
        let volumes = self.record.volumes.iter();
        let changes = volumes.map(|volume| self.set_reclaim_policy(volume, "Retain", None));
        let changes = stream::iter(changes.collect::<Vec<_>>()).buffered(MAX_CONCURRENT);
        let failures: Vec<_> = changes.filter_map(|changed| ready(changed.err())).collect().await;
        fail_if_any(&failures, "")
    }

    /// Keeps the data of this object, if it is a claim.
    pub(super) async fn retain_volume_of(&self, object: &Object) -> Result<(), CommandError> {
        match self.record.volume_of(object) {
            Some(volume) => self.set_reclaim_policy(volume, "Retain", None).await,
            None => Ok(()),
        }
    }

    /// Sets the reclaim policy of a volume. A volume that does not exist is reported with its
    /// claim. With `claim_uid`, restores the policy, if the volume is bound to this claim. Without,
    /// notes the old policy in an annotation.
    pub(super) async fn set_reclaim_policy(
        &self,
        volume: &SavedVolume,
        policy: &str,
        claim_uid: Option<&str>,
    ) -> Result<(), CommandError> {
        let object = volume_object(&volume.name);
        let changed = self.change(&object, false, |current| {
            let now = reclaim_policy(current);
            // Others can create a claim with the annotations of a restored one.
            if claim_uid.is_some_and(|uid| current["spec"]["claimRef"]["uid"] != uid) {
                return Err(CommandError::Refused(format!(
                    "volume {} is not bound to the restored claim, and keeps the reclaim policy {}",
                    volume.name,
                    now.as_str().unwrap_or_default()
                )));
            }
            let is_set = *now == policy;
            let noted = match claim_uid {
                None if is_set => Vec::new(),
                None => annotate(current, OLD_RECLAIM_POLICY, now.as_str()),
                Some(_) => annotate(current, OLD_RECLAIM_POLICY, None),
            };
            // To retain: the policy is Retain already. To restore: without the annotation, undo has
            // not changed the policy, or others have removed the annotation since.
            if noted.is_empty() && (is_set || claim_uid.is_some()) {
                return Ok(Vec::new());
            }
            let bound = claim_uid.map(|uid| operations::test(&["spec", "claimRef", "uid"], uid));
            let patch = [
                operations::test(RECLAIM_POLICY, now.clone()),
                operations::replace(RECLAIM_POLICY, policy),
            ];
            Ok(bound.into_iter().chain(patch).chain(noted).collect())
        });
        let changed = changed.await?;
        if changed.is_some_and(|old| *reclaim_policy(&old) != policy) {
            progress(&format!("set the reclaim policy of volume {} to {policy}", volume.name));
        }
        Ok(())
    }

    /// Reserves the volume of the old claim for a new claim of the same name: without a uid in the
    /// claimRef, the volume is bound to the claim with the name in the claimRef.
    pub(super) async fn reserve(
        &self,
        volume: &SavedVolume,
        claim: &Object,
    ) -> Result<(), CommandError> {
        let object = volume_object(&volume.name);
        let Some(current) = self.read(&object).await? else {
            return Err(CommandError::Remote(format!(
                "volume {} of {} does not exist any longer; the manifest is in the file",
                volume.name, claim.arguments
            )));
        };
        // The uid of a later claim of others. While that claim exists, a reservation would make it
        // Lost.
        let other = current["spec"]["claimRef"]["uid"].as_str();
        let other = other.filter(|uid| *uid != volume.claim_uid);
        if other.is_some() && self.read(claim).await?.is_some() {
            return Ok(());
        }
        let deleted = [volume.claim_uid.as_str(), other.unwrap_or_default()];
        let changed =
            self.change(&object, false, |current| Self::reservation(current, claim, &deleted));
        if changed.await?.is_some() {
            progress(&format!("reserved volume {} for {}", volume.name, claim.arguments));
        }
        Ok(())
    }

    /// The operations that reserve this volume for the claim. `deleted`: the uids of its deleted claims.
    fn reservation(
        current: &Value,
        claim: &Object,
        deleted: &[&str],
    ) -> Result<Vec<PatchOperation>, CommandError> {
        let claim_ref = &current["spec"]["claimRef"];
        let name = current["metadata"]["name"].as_str().unwrap_or_default();
        // An administrator may have cleared the claimRef.
        let is_free = claim_ref.is_null();
        let reserved_for = (claim_ref["namespace"].as_str(), claim_ref["name"].as_str());
        if !is_free && reserved_for != (Some(&claim.namespace), Some(&claim.name)) {
            let text = format!("volume {name} is reserved for another claim");
            return Err(CommandError::Refused(text));
        }
        if current["metadata"]["deletionTimestamp"].is_string() {
            let text = format!("volume {name} is deleted already");
            return Err(CommandError::Refused(text));
        }
        let mut patch = match claim_ref["uid"].as_str() {
            // A claim of others is bound already.
            Some(uid) if !deleted.contains(&uid) => return Ok(Vec::new()),
            Some(uid) => vec![
                operations::test(&["spec", "claimRef", "uid"], uid),
                operations::remove(&["spec", "claimRef", "uid"]),
            ],
            None if is_free => {
                let version = &current["metadata"]["resourceVersion"];
                let reserved = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace, "name": claim.name});
                vec![
                    operations::test(&["metadata", "resourceVersion"], version.clone()),
                    operations::add(&["spec", "claimRef"], reserved),
                ]
            }
            // The volume is reserved already.
            None => return Ok(Vec::new()),
        };
        let now = reclaim_policy(current);
        if *now != "Retain" {
            patch.push(operations::replace(RECLAIM_POLICY, "Retain"));
            patch.extend(annotate(current, OLD_RECLAIM_POLICY, now.as_str()));
        }
        Ok(patch)
    }

    pub(super) async fn read_volume(
        &self,
        volume: &SavedVolume,
    ) -> Result<Option<Value>, CommandError> {
        self.read(&volume_object(&volume.name)).await
    }

    /// The volume with this name, if the object is a claim.
    pub(super) async fn volume_of_claim(
        &self,
        object: &Object,
        name: &str,
    ) -> Result<Option<Value>, CommandError> {
        if !object.is_of(CLAIMS) || name.is_empty() {
            return Ok(None);
        }
        self.read(&volume_object(name)).await
    }

    /// Whether a claim that others have created is bound to the volume of the old claim: another
    /// undo, or the controller of a StatefulSet, was faster. Waits until a reserved volume is
    /// bound. Also true if the volume is deleted: the undo then accepts any claim, because the data
    /// is lost.
    pub(super) async fn wait_for_its_volume(
        &self,
        object: &Object,
        claim: &Value,
    ) -> Result<bool, CommandError> {
        let Some(volume) = self.record.volume_of(object) else { return Ok(false) };
        let uid = &claim["metadata"]["uid"];
        let limit = self.deadline.min(Instant::now() + BINDING_LIMIT);
        loop {
            let Some(current) = self.read_volume(volume).await? else { return Ok(true) };
            let claim_ref = &current["spec"]["claimRef"];
            // The volume is reserved for the name, and the claim is not bound yet.
            let is_reserved = claim_ref["uid"].is_null()
                && claim_ref["name"] == object.name.as_str()
                && claim_ref["namespace"] == object.namespace.as_str();
            if claim_ref["uid"] == *uid || !is_reserved || Instant::now() >= limit {
                return Ok(claim_ref["uid"] == *uid);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) async fn wait_until_bound(&self, claim: &Object) -> Result<(), CommandError> {
        let mut is_silent = true;
        loop {
            let read = self.read(claim).await?;
            match read.as_ref().and_then(|claim| claim["status"]["phase"].as_str()) {
                Some("Bound") => return Ok(()),
                phase if Instant::now() >= self.deadline => {
                    let phase = phase.unwrap_or("deleted").to_owned();
                    return Err(CommandError::Remote(format!(
                        "{} is {phase} and not Bound at the end of the time limit",
                        claim.arguments
                    )));
                }
                _ => {
                    if std::mem::take(&mut is_silent) {
                        progress(&format!("waiting until {} is Bound", claim.arguments));
                    }
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }
}

/// The reclaim policy of a volume.
fn reclaim_policy(volume: &Value) -> &Value {
    RECLAIM_POLICY.iter().fold(volume, |value, field| &value[*field])
}

pub(super) fn is_retained(volume: &Value) -> bool {
    *reclaim_policy(volume) == "Retain"
}

fn volume_object(name: &str) -> Object {
    Object {
        kind: "PersistentVolume".to_owned(),
        resource: "persistentvolumes".to_owned(),
        name: name.to_owned(),
        arguments: format!("persistentvolumes/{name}"),
        ..Object::default()
    }
}
