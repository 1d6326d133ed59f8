//! Creates the saved objects again after the deletion, and restores what the undo has changed.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::live::{ObjectState, Restorer};
use super::manifest::{ACCOUNT_NAME, is_token_secret, owners, without_allocated, without_token};
use super::record::{LostObject, SavedObject, SavedVolume, StoppedWorkload, ignore_option};
use super::requests::request_error;
use super::restore::{ByAnotherUndo, POLL, Undo, UndoOutcome};
use super::volumes::is_retained;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::command::wait::Waiter;
use crate::objects::{ApiError, CLAIMS, split_api_version};

/// The time limit of all waits for ServiceAccounts.
const SHORT_WAIT: Duration = Duration::from_secs(10);

/// The reason if the deletion of an object has not ended.
const STILL_EXISTS: &str = "it still exists; next: wait for its deletion";

/// What is restored so far.
#[derive(Default)]
struct RestoredObjects {
    /// The uids of the restored objects, and of the dependents that exist, by their old uids.
    uids: HashMap<String, String>,
    /// The objects that are not restored or not kept, each with the reason.
    failed: Vec<LostObject>,
    /// Whether a claim is missing or not Bound. Its workloads would begin with empty volumes. If
    /// other objects are missing, Pods just wait.
    lacks_data: bool,
    /// Whether the Namespace belongs to other users: nothing is restored into it.
    is_taken: bool,
    by_another_undo: ByAnotherUndo,
}

/// The state of an object after the attempt to restore it.
enum Restoration {
    /// It exists, with this uid. `None` if it is the old object.
    Exists(String, Option<Restorer>),
    /// Its old object is still Terminating.
    Late,
    /// Another object has its name.
    Taken,
    /// It is left alone: a controller or a user creates it.
    Left,
}

impl Undo<'_> {
    /// Creates the saved objects again, and restores what the undo has changed: first the claims and
    /// their workloads, then the objects that end late, and last the objects of other users, because
    /// any tenant can add many (H207).
    pub(super) async fn restore_all(
        &mut self,
        waiter: &Waiter,
    ) -> Result<UndoOutcome, CommandError> {
        if let Some(outcome) = self.outcome_of_others().await? {
            return Ok(outcome);
        }
        let mut restored = RestoredObjects::default();
        self.find_losses(&mut restored).await?;
        let is_first = |saved: &SavedObject| self.is_own(saved) && !saved.is_last;
        let late = self.restore_objects(&mut restored, is_first).await?;
        if restored.is_taken {
            let advice = self.advice(&self.record.target).await?;
            let taken = UndoOutcome::Taken { advice };
            return Ok(self.outcome_of_others().await?.unwrap_or(taken));
        }
        let (claims, mut late): (Vec<_>, Vec<_>) =
            late.into_iter().partition(|object| self.is_own_claim(object));
        self.restore_late(&mut restored, waiter, &claims).await?;
        // Before LimitRanges exist: these could refuse the updates that bind the claims.
        self.restore_reclaim_policies(&mut restored, false).await;
        let is_last = |saved: &SavedObject| self.is_own(saved) && saved.is_last;
        if restored.lacks_data {
            for saved in self.record.objects_to_recreate().filter(|saved| is_last(saved)) {
                let why = "not created, because a claim above is missing or not Bound";
                self.fail(&mut restored, &saved.object, why);
            }
        } else {
            late.extend(self.restore_objects(&mut restored, is_last).await?);
        }
        self.attach_all(&mut restored).await;
        self.scale_up(&mut restored).await;
        self.restore_late(&mut restored, waiter, &late).await?;
        if !self.record.objects.iter().all(|saved| self.is_own(saved)) {
            let is_of_others = |saved: &SavedObject| !self.is_own(saved);
            for object in self.restore_objects(&mut restored, is_of_others).await? {
                self.fail(&mut restored, &object, STILL_EXISTS);
            }
            self.attach_all(&mut restored).await;
        }
        self.restore_reclaim_policies(&mut restored, true).await;
        let RestoredObjects { failed, by_another_undo, .. } = restored;
        Ok(UndoOutcome::Finished { not_restored: failed, by_another_undo })
    }

    /// Starts the stopped workloads again if they have all their claims.
    async fn scale_up(&self, restored: &mut RestoredObjects) {
        for StoppedWorkload { object, replicas } in &self.record.workloads {
            let why = match restored.lacks_data {
                true => {
                    let (typed, options) = (&object.arguments, self.cluster.kubectl_options());
                    format!(
                        "not scaled up, because a claim above is missing or not Bound; next: \
                         kubectl scale {typed} --replicas={replicas}{options} starts it nevertheless"
                    )
                }
                false => match self.start(object, *replicas).await {
                    Ok(()) => continue,
                    Err(error) => error.to_string(),
                },
            };
            self.fail(restored, object, &why);
        }
    }

    fn is_own(&self, saved: &SavedObject) -> bool {
        !self.record.is_of_others(&saved.object)
    }

    fn is_own_claim(&self, object: &Object) -> bool {
        object.is_of(CLAIMS) && !self.record.is_of_others(object)
    }

    /// Records that an object is not restored. Claims of others don't matter for the workloads.
    fn fail(&self, restored: &mut RestoredObjects, object: &Object, why: &str) {
        restored.lacks_data |= self.is_own_claim(object);
        let why = format!("{why}{}", ignore_option(&self.record.target, object));
        restored.failed.push(LostObject::new(object, &why));
    }

    /// Adds the losses that are known before the restore.
    async fn find_losses(&self, restored: &mut RestoredObjects) -> Result<(), CommandError> {
        let record = &self.record;
        for claim in &record.missing_claims {
            if self.read(claim).await?.is_none() {
                let why = "it does not exist; next: create it, so that its workloads can start";
                self.fail(restored, claim, why);
            }
        }
        if let Some(error) = &self.search_error {
            let typed = format!("new dependents of {}", record.target.arguments);
            self.fail(restored, &Object { arguments: typed, ..Object::default() }, error);
        }
        for SavedObject { object, .. } in record.dependents() {
            if let Some(why) = self.not_kept.get(&object.uid) {
                self.fail(restored, object, why);
            }
        }
        Ok(())
    }

    /// Restores the wanted saved objects, in their order. Returns the objects that are still
    /// Terminating.
    async fn restore_objects(
        &self,
        restored: &mut RestoredObjects,
        is_wanted: impl Fn(&SavedObject) -> bool,
    ) -> Result<Vec<Object>, CommandError> {
        let mut late = Vec::new();
        for saved in self.record.objects.iter().filter(|saved| is_wanted(saved)) {
            let object = &saved.object;
            let why = match self.restore(saved).await {
                Ok(Restoration::Exists(uid, by)) => {
                    if by == Some(Restorer::AnotherUndo) {
                        let others = &mut restored.by_another_undo;
                        others.target |= object.uid == self.record.target.uid;
                        others.unproven |= self.record.volume_of(object).is_none();
                    }
                    restored.uids.insert(object.uid.clone(), uid);
                    continue;
                }
                Ok(Restoration::Left) => continue,
                Ok(Restoration::Late) => {
                    late.push(object.clone());
                    continue;
                }
                Ok(Restoration::Taken) if object.is_namespace() => {
                    restored.is_taken = true;
                    break;
                }
                Ok(Restoration::Taken) => {
                    self.advice(object).await.unwrap_or_else(|error| error.to_string())
                }
                Err(error) if object.uid == self.record.target.uid => return Err(error),
                Err(error) => error.to_string(),
            };
            self.fail(restored, object, &why);
        }
        Ok(late)
    }

    /// Waits until these objects are deleted, and restores them.
    async fn restore_late(
        &mut self,
        restored: &mut RestoredObjects,
        waiter: &Waiter,
        objects: &[Object],
    ) -> Result<(), CommandError> {
        let remaining = self.wait_for_end(waiter, objects).await?;
        let is_ended = |saved: &SavedObject| {
            objects.contains(&saved.object) && !remaining.contains(&saved.object)
        };
        self.restore_objects(restored, is_ended).await?;
        for object in &remaining {
            self.fail(restored, object, STILL_EXISTS);
        }
        if !objects.is_empty() {
            self.attach_all(restored).await;
        }
        Ok(())
    }

    /// Adds the owner references to the restored objects.
    async fn attach_all(&self, restored: &mut RestoredObjects) {
        for saved in &self.record.objects {
            let object = &saved.object;
            let Some(uid) = restored.uids.get(&object.uid).cloned() else { continue };
            let owners = saved.owners.iter().filter_map(|owner| {
                let new = restored.uids.get(owner["uid"].as_str()?)?;
                let mut owner = owner.clone();
                owner["uid"] = new.as_str().into();
                Some(owner)
            });
            let mut owners: Vec<Value> = owners.collect();
            let mut failures = Vec::new();
            if uid != object.uid {
                // An owner may not have been readable when the object was created.
                let (living, unread) = self.living_owners(&saved.manifest, object).await;
                owners.extend(living);
                failures = unread;
            }
            for owner in owners {
                failures.extend(self.attach(object, &uid, owner).await.err());
            }
            for error in failures {
                match self.record.is_of_others(object) {
                    true => progress(&format!("warning: {error}")),
                    false => {
                        restored.failed.push(LostObject::new(object, &error.to_string()));
                    }
                }
            }
        }
    }

    /// Waits until the restored claims are bound, and restores the reclaim policies of their
    /// volumes. `of_others`: whether to do so for claims of other namespaces, which must not delay
    /// the target.
    async fn restore_reclaim_policies(&self, restored: &mut RestoredObjects, of_others: bool) {
        let record = &self.record;
        for volume in &record.volumes {
            let mut claims = record.objects.iter().map(|saved| &saved.object);
            let Some(claim) = claims.find(|claim| claim.uid == volume.claim_uid) else { continue };
            if record.is_of_others(claim) != of_others {
                continue;
            }
            if let Err(error) = self.restore_reclaim_policy(restored, volume, claim).await {
                self.fail(restored, claim, &error.to_string());
            }
        }
    }

    async fn restore_reclaim_policy(
        &self,
        restored: &RestoredObjects,
        volume: &SavedVolume,
        claim: &Object,
    ) -> Result<(), CommandError> {
        let SavedVolume { name, reclaim_policy, .. } = volume;
        let Some(uid) = restored.uids.get(&claim.uid) else {
            let is_kept =
                self.read_volume(volume).await?.is_some_and(|volume| is_retained(&volume));
            if reclaim_policy != "Retain" && is_kept {
                progress(&format!("volume {name} keeps the reclaim policy Retain"));
            }
            return Ok(());
        };
        if *uid != claim.uid {
            self.wait_until_bound(claim).await?;
        }
        self.set_reclaim_policy(volume, reclaim_policy, Some(uid)).await
    }

    /// Creates an object again if it does not exist.
    async fn restore(&self, saved: &SavedObject) -> Result<Restoration, CommandError> {
        let SavedObject { object, manifest, stays, .. } = saved;
        let mut current = self.read(object).await?;
        if current.is_none() && manifest.is_null() {
            if !stays || is_data(object) {
                let why = "it was deleted meanwhile, and is not in the file";
                return Err(CommandError::Refused(why.to_owned()));
            }
            return Ok(Restoration::Left);
        }
        if current.is_none() {
            if let Some(volume) = self.record.volume_of(object) {
                self.reserve(volume, object).await?;
            }
            current = match self.create(object, manifest).await {
                Ok(created) => {
                    progress(&format!("created {}", object.arguments));
                    Some(created)
                }
                // A controller was faster, or the answer to an earlier request was lost.
                Err(ApiError::Status { code: 409, .. }) => self.read(object).await?,
                Err(why) => return Err(request_error("create", object, &why)),
            }
        }
        let state = self.wait_for_state(object, current.as_ref()).await?;
        let current = current.unwrap_or_default();
        let uid = current["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        match state {
            ObjectState::Old { is_terminating: true } => Ok(Restoration::Late),
            ObjectState::Old { .. } => Ok(Restoration::Exists(uid, None)),
            // The object existed only for a moment.
            ObjectState::Absent => Err(CommandError::Remote(format!(
                "others create and delete {} at the same time",
                object.arguments
            ))),
            ObjectState::Recreated { by, is_terminating: true }
                if !stays || by == Restorer::ThisUndo =>
            {
                self.retain_volume_of(object).await?;
                Err(self.deleted_again(object, by))
            }
            ObjectState::Recreated { by, is_terminating: false } => {
                if by == Restorer::ThisUndo {
                    self.restore_status(saved, &current).await?;
                }
                Ok(Restoration::Exists(uid, Some(by)))
            }
            _ if *stays => Ok(Restoration::Left),
            _ => Ok(Restoration::Taken),
        }
    }

    async fn create(&self, object: &Object, manifest: &Value) -> Result<Value, ApiError> {
        let info = self.info(object).map_err(|error| ApiError::Other(error.to_string()))?;
        let caller = &self.session.caller;
        let mut manifest = manifest.clone();
        if !owners(&manifest).is_empty() {
            let (living, _) = self.living_owners(&manifest, object).await;
            manifest["metadata"]["ownerReferences"] = living.into();
        }
        // If the target is the token itself, its account still exists.
        if is_token_secret(&manifest) && object.uid != self.record.target.uid {
            self.wait_for_account(&manifest, &object.namespace).await?;
            without_token(&mut manifest);
            progress(&format!("{} gets a new token, for the new ServiceAccount", object.arguments));
        }
        let created = caller.create(&info, &object.namespace, &manifest).await;
        let is_service = object.group.is_empty() && object.resource == "services";
        match created {
            // Another Service has the address or the port by now.
            Err(ApiError::Status { code: 422, .. })
                if is_service && without_allocated(&mut manifest) =>
            {
                let created = caller.create(&info, &object.namespace, &manifest).await?;
                progress(&format!("{} gets another address or port", object.arguments));
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
        // Any user may write the names of accounts that are never created.
        let limit = *self.account_limit.get_or_init(|| Instant::now() + SHORT_WAIT);
        while self.session.caller.object(info, namespace, name).await?.is_none() {
            if Instant::now() >= self.deadline.min(limit) {
                return Err(ApiError::Other(format!("its ServiceAccount {name} does not exist")));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The owner references whose owners exist, and the errors about owners that can't be read.
    /// With a reference to an absent owner, the garbage collector would delete the object.
    async fn living_owners(
        &self,
        manifest: &Value,
        object: &Object,
    ) -> (Vec<Value>, Vec<CommandError>) {
        let (mut living, mut unread) = (Vec::new(), Vec::new());
        for owner in owners(manifest) {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let group = split_api_version(text("apiVersion")).0;
            let Some(info) = self.names.of_object(group, text("kind")) else { continue };
            let namespace = info.namespace_or_empty(&object.namespace);
            let named = Object::of_kind(info, namespace, text("name"));
            match self.session.caller.object(info, namespace, text("name")).await {
                Ok(Some(read)) => {
                    let metadata = &read["metadata"];
                    let lives =
                        metadata["uid"] == owner["uid"] && metadata["deletionTimestamp"].is_null();
                    living.extend(lives.then(|| owner.clone()));
                }
                Ok(None) => {}
                Err(why) => unread.push(CommandError::Remote(format!(
                    "restored without its owner {}, which can't be read: {why}",
                    named.arguments
                ))),
            }
        }
        (living, unread)
    }
}

/// Whether an object of this kind holds data that no controller creates again.
fn is_data(object: &Object) -> bool {
    [CLAIMS, ("", "secrets"), ("", "configmaps")].into_iter().any(|kind| object.is_of(kind))
}
