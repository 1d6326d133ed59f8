//! Creates the saved objects again after the deletion, and restores what the undo has changed.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::manifest::{
    ACCOUNT_NAME, RESTORED_BY, is_token_secret, without_allocated, without_token,
};
use super::record::{LostObject, SavedObject, SavedVolume};
use super::restore::{POLL, Undo, UndoOutcome, failed};
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::objects::{ApiError, CLAIMS, split_api_version};

/// The time limit of the wait for the ServiceAccount of one token, and for the end of one dependent.
const SHORT_WAIT: Duration = Duration::from_secs(10);

/// What is restored so far.
#[derive(Default)]
struct Restored<'r> {
    /// The new uids of the restored objects, by their old ones.
    uids: HashMap<&'r str, String>,
    /// The objects that are not restored or not kept, each with the reason.
    failed: Vec<LostObject>,
    /// Whether a claim is missing. Its workloads would begin with empty volumes. If other objects
    /// are missing, Pods just wait.
    lacks_data: bool,
}

impl Restored<'_> {
    fn fail(&mut self, object: &Object, why: &str) {
        self.failed.push(LostObject::new(object, why));
    }

    /// A failure that concerns a claim.
    fn lose(&mut self, claim: &Object, why: &str) {
        self.lacks_data = true;
        self.fail(claim, why);
    }
}

impl Undo<'_> {
    /// Creates the saved objects again, and restores what the undo has changed.
    pub(super) async fn restore_all(&self) -> Result<UndoOutcome, CommandError> {
        if self.is_taken(&self.record.target).await? {
            return Ok(UndoOutcome::Taken);
        }
        let mut restored = Restored::default();
        self.find_losses(&mut restored).await?;
        if !self.restore_objects(&mut restored).await? {
            return Ok(UndoOutcome::Taken);
        }
        self.attach_all(&mut restored).await;
        self.restore_reclaim_policies(&mut restored).await?;
        for workload in &self.record.workloads {
            match restored.lacks_data {
                true => restored
                    .fail(&workload.object, "not scaled up, because a claim above is missing"),
                false => self.scale(&workload.object, workload.replicas).await?,
            }
        }
        Ok(UndoOutcome::Restored { not_restored: restored.failed })
    }

    /// Adds what is lost although the undo was to keep it.
    async fn find_losses(&self, restored: &mut Restored<'_>) -> Result<(), CommandError> {
        let record = &self.record;
        for claim in &record.missing_claims {
            if self.read(claim).await?.is_none() {
                let why = "it is deleted already; next: create it, so that its workloads can start";
                restored.lose(claim, why);
            }
        }
        if let Some(error) = &self.search_error {
            let typed = format!("new dependents of {}", record.target.typed);
            restored.fail(&Object { typed, ..Object::default() }, error);
        }
        for object in record.dependents.iter().map(|one| &one.object) {
            let is_saved = record.objects.iter().any(|saved| saved.object.uid == object.uid);
            if let Some(why) = self.not_kept.get(&object.uid) {
                restored.fail(object, why);
            } else if is_data(object) && !is_saved && !self.is_alive(object).await? {
                let volume = record.volumes.iter().find(|volume| volume.claim_uid == object.uid);
                match volume {
                    Some(SavedVolume { name, .. }) => restored.lose(
                        object,
                        &format!(
                            "it was deleted meanwhile; its volume {name} has the data, and the \
                             policy Retain"
                        ),
                    ),
                    None => {
                        restored.fail(object, "it was deleted meanwhile, and is not in the file");
                    }
                }
            }
        }
        Ok(())
    }

    /// Restores the saved objects in their order. Returns false if the Namespace belongs to other
    /// users: nothing is restored into it.
    async fn restore_objects<'r>(
        &'r self,
        restored: &mut Restored<'r>,
    ) -> Result<bool, CommandError> {
        let record = &self.record;
        for saved in &record.objects {
            let object = &saved.object;
            if saved.is_last && restored.lacks_data {
                restored.fail(object, "not created, because a claim above is missing");
                continue;
            }
            let why = match self.restore(saved).await {
                Ok(Some(uid)) => {
                    restored.uids.insert(object.uid.as_str(), uid);
                    continue;
                }
                Ok(None) if object.resource == "namespaces" => return Ok(false),
                Err(error) if object.uid == record.target.uid => return Err(error),
                Ok(None) => "another object has its name".to_owned(),
                Err(error) => error.to_string(),
            };
            match object.is_of(CLAIMS) {
                true => restored.lose(object, &why),
                false => restored.fail(object, &why),
            }
        }
        Ok(true)
    }

    /// Adds the owner references to the restored objects.
    async fn attach_all(&self, restored: &mut Restored<'_>) {
        let mut failed = Vec::new();
        for (object, uid, owner) in self.owner_references(&restored.uids) {
            match self.attach(object, uid, owner).await {
                Ok(()) => {}
                Err(_) if self.not_kept.contains_key(&object.uid) => {}
                Err(error) if self.record.is_of_namespace() && self.is_of_others(object) => {
                    progress(&format!("warning: {error}"));
                }
                Err(error) => failed.push(LostObject::new(object, &error.to_string())),
            }
        }
        restored.failed.extend(failed);
    }

    /// Waits until the restored claims are bound, and restores the reclaim policies of the volumes.
    async fn restore_reclaim_policies(
        &self,
        restored: &mut Restored<'_>,
    ) -> Result<(), CommandError> {
        let record = &self.record;
        for saved in &record.objects {
            let uid = saved.object.uid.as_str();
            let has_volume = record.volumes.iter().any(|one| one.claim_uid == uid);
            if has_volume && restored.uids.contains_key(uid) {
                self.wait_until_bound(&saved.object).await?;
            }
        }
        for volume in &record.volumes {
            let saved = record.objects.iter().map(|saved| &saved.object);
            let dependents = record.dependents.iter().map(|one| &one.object);
            let mut claims = saved.chain(dependents);
            let Some(claim) = claims.find(|claim| claim.uid == volume.claim_uid) else { continue };
            let uid = match restored.uids.get(claim.uid.as_str()) {
                Some(uid) => uid,
                None if self.is_alive(claim).await? => &claim.uid,
                // The volume keeps the data.
                None => continue,
            };
            let given = self.set_reclaim_policy(volume, &volume.reclaim_policy, Some(uid)).await;
            if let Err(error) = given {
                restored.lose(claim, &error.to_string());
            }
        }
        Ok(())
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
        // If the target is the token itself, its account still exists.
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
}

/// Whether an object of this kind holds data that no controller creates again.
fn is_data(object: &Object) -> bool {
    [CLAIMS, ("", "secrets"), ("", "configmaps")].into_iter().any(|kind| object.is_of(kind))
}
