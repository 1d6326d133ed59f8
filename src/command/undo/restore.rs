//! Executes an undo. Each step reads the cluster first and changes only what is not done yet, so
//! that an undo that was interrupted anywhere can continue with its file.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::manifest::manifest;
use super::read::{build_record, bytes_left_for_others, size};
use super::record::{LostObject, SavedObject, UndoRecord, all_typed, is_of_others};
use crate::command::CommandError;
use crate::command::approve::{approve_release, check_release};
use crate::command::document::Object;
use crate::command::place::ClusterArguments;
use crate::command::screen::progress;
use crate::command::session::UserSession;
use crate::command::target::TargetObject;
use crate::command::wait::{Awaited, Waiter, awaited};
use crate::decide::approve_command_with;
use crate::objects::{KindNames, ObjectRef, is_hold};

/// The reason in the approval of a release.
const REASON: &str = "kubectl belay undo";

/// The time between two reads of an object that is not ready yet.
pub(super) const POLL: Duration = Duration::from_millis(500);

/// The time between two searches for new dependents, while the old object exists.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

pub struct Undo<'u> {
    pub(super) session: Arc<UserSession>,
    pub(super) names: &'u KindNames,
    pub(super) cluster: ClusterArguments,
    pub(super) record: UndoRecord,
    /// The file with the record.
    pub(super) path: &'u Path,
    pub(super) deadline: Instant,
    /// Why dependents of others could not be kept, by uid.
    pub(super) not_kept: HashMap<String, String>,
    /// Why the last search for new dependents failed.
    pub(super) search_error: Option<String>,
    /// The uids of the objects that have changed since they were saved.
    changed: HashSet<String>,
    /// Whether the file lacks saved states, because it could not be written.
    is_unsaved: bool,
    /// When the undo stops waiting for ServiceAccounts.
    pub(super) account_limit: OnceCell<Instant>,
}

/// How an undo ends.
pub enum UndoOutcome {
    /// All objects were restored except these, each with the reason.
    Finished { not_restored: Vec<LostObject>, by_another_undo: ByAnotherUndo },
    /// Another object has the name of the target.
    Taken { advice: String },
    /// These old objects still existed at the end of the time limit.
    TimedOut { remaining: Vec<Object> },
}

/// What another undo of the same deletion has restored.
#[derive(Default, Clone, Copy)]
pub struct ByAnotherUndo {
    /// Whether it has restored the target.
    pub target: bool,
    /// Whether only an annotation with the old uid shows that it has restored an object. Others can
    /// write this annotation too.
    pub unproven: bool,
}

impl UndoOutcome {
    /// Whether all saved objects are restored.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Finished { not_restored, .. } if not_restored.is_empty())
    }

    /// Whether the user needs the file, to continue or to compare.
    pub fn needs_file(&self) -> bool {
        let is_unproven =
            matches!(self, Self::Finished { by_another_undo, .. } if by_another_undo.unproven);
        is_unproven || !self.is_complete()
    }
}

impl<'u> Undo<'u> {
    /// An undo of this record and its file.
    pub fn new(
        session: Arc<UserSession>,
        names: &'u KindNames,
        cluster: ClusterArguments,
        (record, path): (UndoRecord, &'u Path),
        timeout: Duration,
    ) -> Self {
        Self {
            session,
            names,
            cluster,
            record,
            path,
            deadline: Instant::now() + timeout,
            not_kept: HashMap::new(),
            search_error: None,
            changed: HashSet::new(),
            is_unsaved: false,
            account_limit: OnceCell::new(),
        }
    }

    /// Begins the time limit of all waits now.
    pub fn begin_timeout(&mut self, timeout: Duration) {
        self.deadline = Instant::now() + timeout;
    }
}

impl Undo<'_> {
    /// Refuses to begin if belay or the API server would refuse a change.
    pub async fn check(&self) -> Result<(), CommandError> {
        self.check_holds("; nothing was changed").await?;
        let dependents: Vec<&SavedObject> = self.record.dependents().collect();
        let detached = self.detach_all(&dependents, true).await.into_iter();
        let failed =
            detached.filter_map(|(dependent, detached)| Some((dependent, detached.err()?)));
        let (failed, failures): (Vec<_>, Vec<_>) = failed.unzip();
        let options = self.record.ignore_options(failed.iter());
        let ignore = match options.is_empty() {
            true => String::new(),
            false => format!("; next: have this repaired, or add{options}"),
        };
        fail_if_any(&failures, &format!("; nothing was changed{ignore}"))
            .map_err(|error| CommandError::Refused(error.to_string()))
    }

    /// Whether the cluster is still as it was when the record was built. The manifests may change:
    /// they are saved again.
    pub async fn is_current(&self) -> Result<bool, CommandError> {
        let UndoRecord { target, secret, ignored_namespaces, .. } = &self.record;
        let now = build_record(target, self.cluster.clone(), secret, ignored_namespaces).await?;
        Ok(now.comparable_part() == self.record.comparable_part())
    }

    pub async fn run(&mut self) -> Result<UndoOutcome, CommandError> {
        let client = self.session.caller.client.clone();
        let waiter = Waiter::with_states(client, self.cluster.clone(), self.deadline);
        if self.has_old_objects().await? {
            self.retain_volumes().await?;
            // The watches begin before the objects are saved again, so that no change is lost.
            self.watch_old_objects(&waiter).await?;
            self.save_changes(&waiter)?;
            // If one of these fails, the workloads keep running.
            self.detach().await?;
            self.check_holds("").await?;
            for workload in &self.record.workloads {
                self.stop(&workload.object).await?;
            }
            let remaining = self.end_deletion(&waiter).await?;
            // Another user can delay the deletion of a claim for ever.
            if remaining.iter().any(|object| object.uid == self.record.target.uid) {
                return Ok(UndoOutcome::TimedOut { remaining });
            }
            self.retain_volumes().await?;
        }
        self.restore_all(&waiter).await
    }

    /// Whether one of the objects that undo awaits still exists ([`UndoRecord::awaited`]).
    pub(super) async fn has_old_objects(&self) -> Result<bool, CommandError> {
        for object in self.record.awaited() {
            if self.old(&object).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Saves the last states of the objects that have changed. Reports each object only once,
    /// because some controllers write all the time.
    fn save_changes(&mut self, waiter: &Waiter) -> Result<(), CommandError> {
        let states = waiter.take_states();
        let ids = self.record.deleted_uids();
        let mut is_changed = false;
        let mut left = match states.is_empty() {
            true => 0,
            false => bytes_left_for_others(&self.record.target, &self.record.objects),
        };
        for mut current in states {
            let uid = current["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let objects = &mut self.record.objects;
            let saved = objects.iter_mut().find(|saved| saved.object.uid == uid);
            let Some(saved) = saved.filter(|saved| saved.manifest.is_object()) else { continue };
            let mut old = saved.clone();
            for field in ["apiVersion", "kind"] {
                current[field] = saved.manifest[field].clone();
            }
            (saved.manifest, saved.owners) = manifest(current, &self.record.secret, &ids);
            // The object may have lost an owner reference meanwhile.
            saved.add_owners(&old.owners);
            // Controllers remove their finalizers during the deletion.
            let finalizers = old.manifest["metadata"].get("finalizers").cloned();
            if let Some(metadata) = saved.manifest["metadata"].as_object_mut() {
                metadata.remove("finalizers");
                metadata.extend(finalizers.map(|list| ("finalizers".to_owned(), list)));
            }
            old.owners.clone_from(&saved.owners);
            // Other users could let the file grow beyond its limit (H206). The old state is better
            // than none.
            if is_of_others(&self.record.target, &saved.object.namespace) {
                match (left + size(&old.manifest)).checked_sub(size(&saved.manifest)) {
                    Some(rest) => left = rest,
                    None => saved.manifest.clone_from(&old.manifest),
                }
            }
            if *saved != old {
                is_changed = true;
                if self.changed.insert(uid) {
                    progress(&format!("saved {} again, which has changed", saved.object.arguments));
                }
            }
        }
        if is_changed || self.is_unsaved {
            self.is_unsaved = true;
            self.record.replace(self.path)?;
            self.is_unsaved = false;
        }
        Ok(())
    }

    /// These objects as the waiter needs them. Objects of kinds that the API server does not serve
    /// are left out, because they don't exist.
    fn awaited<'o>(&self, objects: &'o [Object]) -> Vec<Awaited<'o>> {
        objects.iter().filter_map(|object| Some(awaited(self.info(object).ok()?, object))).collect()
    }

    /// Watches all old objects that are deleted, and keeps their states.
    async fn watch_old_objects(&self, waiter: &Waiter) -> Result<(), CommandError> {
        let objects: Vec<_> =
            self.record.objects_to_recreate().map(|saved| saved.object.clone()).collect();
        self.watch(waiter, &objects).await
    }

    /// Watches these objects. If the time limit ends first, their later states are not saved.
    async fn watch(&self, waiter: &Waiter, objects: &[Object]) -> Result<(), CommandError> {
        let waiting = self.awaited(objects);
        timeout_at(self.deadline, waiter.watch(&waiting)).await.unwrap_or(Ok(()))
    }

    /// Ends the deletion of the old object, and waits for that. Returns what still exists at the end of
    /// the time limit.
    async fn end_deletion(&mut self, waiter: &Waiter) -> Result<Vec<Object>, CommandError> {
        self.detach().await?;
        let objects = self.record.awaited();
        self.watch_old_objects(waiter).await?;
        for held in self.held_objects().await? {
            for line in approve_release(&held, REASON).await? {
                progress(&line);
            }
        }
        progress(&format!("waiting for the deletion of {}", all_typed(&objects)));
        let waiting = self.awaited(&objects);
        let remaining = tokio::select! {
            remaining = waiter.wait(waiting) => remaining,
            never = self.keep_saving(waiter) => match never {}
        };
        if self.record.is_of_namespace() && remaining.is_empty() {
            // The watches receive the last states of its content a moment later.
            let content = self.record.objects_to_recreate().map(|saved| saved.object.clone());
            let content: Vec<Object> = content.filter(|object| !objects.contains(object)).collect();
            let waiting = waiter.wait(self.awaited(&content));
            // A watch may have failed, for example if the server of its kind ran in the Namespace.
            let _elapsed = timeout(SEARCH_INTERVAL, waiting).await;
        }
        self.save_last_states(waiter);
        Ok(remaining)
    }

    /// Saves the last states. Without them in the file, this run still restores them.
    fn save_last_states(&mut self, waiter: &Waiter) {
        if let Err(error) = self.save_changes(waiter) {
            progress(&format!("warning: {error}; an interruption now would lose the last changes"));
        }
    }

    /// Waits for these objects, and saves their last states. Returns what still exists at the end of the
    /// time limit.
    pub(super) async fn wait_for_end(
        &mut self,
        waiter: &Waiter,
        objects: &[Object],
    ) -> Result<Vec<Object>, CommandError> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        self.watch(waiter, objects).await?;
        progress(&format!("waiting for the deletion of {}", all_typed(objects)));
        let remaining = waiter.wait(self.awaited(objects)).await;
        self.save_last_states(waiter);
        Ok(remaining)
    }

    /// Refuses to continue if a hold of belay would stay. `state`: what the undo has changed.
    pub async fn check_holds(&self, state: &str) -> Result<(), CommandError> {
        for held in self.held_objects().await? {
            check_release_by_belay(&held, &self.cluster, state).await?;
        }
        Ok(())
    }

    /// The old objects that belay holds. A Namespace counts also if belay holds its content.
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

    /// Saves changes, and detaches the dependents that are created during the wait.
    async fn keep_saving(&mut self, waiter: &Waiter) -> Infallible {
        let mut search_at = Instant::now() + SEARCH_INTERVAL;
        loop {
            tokio::time::sleep(POLL).await;
            let saved = self.save_changes(waiter);
            if Instant::now() < search_at && saved.is_ok() {
                continue;
            }
            let searched = self.detach().await.and(saved);
            let searched = searched.and(self.watch_old_objects(waiter).await);
            search_at = Instant::now() + SEARCH_INTERVAL;
            self.search_error = searched.err().map(|error| error.to_string());
            if let Some(error) = &self.search_error {
                progress(&format!("warning: {error}"));
            }
        }
    }
}

/// Refuses an undo that would wait for belay or for approvals while workloads are stopped. `state`: a
/// suffix of the message with what the undo has changed.
async fn check_release_by_belay(
    target: &TargetObject,
    cluster: &ClusterArguments,
    state: &str,
) -> Result<(), CommandError> {
    let typed = target.object_ref.arguments();
    let refused = |why: String| CommandError::Refused(format!("belay holds {typed}, and {why}"));
    if target.session.lacks_leader().await {
        return Err(refused(format!(
            "has no leader that could release it{state}; next: kubectl belay status{}",
            cluster.options()
        )));
    }
    match check_release(target, REASON).await? {
        None => Ok(()),
        Some(missing) => Err(refused(format!(
            "{missing}{state}; next: have others run: {}",
            approve_command_with(&typed)
        ))),
    }
}

/// Returns an error with all failures and this advice, if there are failures.
pub(super) fn fail_if_any(failures: &[CommandError], advice: &str) -> Result<(), CommandError> {
    if failures.is_empty() {
        return Ok(());
    }
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Err(CommandError::Remote(failures.join("; ") + advice))
}
