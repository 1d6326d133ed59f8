//! What the cluster shows now of the objects of an undo. All steps and messages follow from it, and
//! not from what the undo was about to do.

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::manifest::{OLD_REPLICAS, RESTORED_BY, RESTORED_FROM, owners};
use super::read::MAX_CONCURRENT;
use super::record::{CompletedSteps, SavedObject, SavedVolume};
use super::restore::Undo;
use super::volumes::is_retained;
use crate::command::CommandError;
use crate::command::document::Object;

/// The state of a saved object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectState {
    /// No object has its name.
    Absent,
    /// It still exists.
    Old { is_terminating: bool },
    /// It was created again.
    Recreated { by: Restorer, is_terminating: bool },
    /// Another object has its name.
    Foreign,
}

/// Who has created an object again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restorer {
    ThisUndo,
    AnotherUndo,
    /// A user or a controller. Only for a claim that has the volume of the old claim.
    Others,
}

impl Undo<'_> {
    /// The state of a saved object. `current`: the object that has its name now. Waits up to 10 s
    /// until a claim of others is bound.
    pub(super) async fn wait_for_state(
        &self,
        object: &Object,
        current: Option<&Value>,
    ) -> Result<ObjectState, CommandError> {
        let Some(current) = current else { return Ok(ObjectState::Absent) };
        let state = self.state_by_metadata(object, &current["metadata"]);
        let is_terminating = current["metadata"]["deletionTimestamp"].is_string();
        let from = &current["metadata"]["annotations"][RESTORED_FROM];
        match state {
            ObjectState::Old { .. } | ObjectState::Recreated { by: Restorer::ThisUndo, .. } => {
                Ok(state)
            }
            // The annotation proves nothing, because other users know the uid. The volume is a
            // proof.
            _ if self.record.volume_of(object).is_some() => {
                let by = if from.is_string() { Restorer::AnotherUndo } else { Restorer::Others };
                match self.wait_for_its_volume(object, current).await? {
                    true => Ok(ObjectState::Recreated { by, is_terminating }),
                    false => Ok(ObjectState::Foreign),
                }
            }
            _ => Ok(state),
        }
    }

    fn state_by_metadata(&self, object: &Object, metadata: &Value) -> ObjectState {
        let is_terminating = metadata["deletionTimestamp"].is_string();
        let annotations = &metadata["annotations"];
        // In the file of an earlier version, all manifests have the same marker.
        let saved = self.record.objects.iter().find(|saved| saved.object.uid == object.uid);
        let marker =
            saved.and_then(|saved| saved.manifest["metadata"]["annotations"][RESTORED_BY].as_str());
        let by = if metadata["uid"] == object.uid.as_str() {
            return ObjectState::Old { is_terminating };
        } else if marker.is_some_and(|marker| annotations[RESTORED_BY] == marker) {
            Restorer::ThisUndo
        } else if annotations[RESTORED_FROM] == object.uid.as_str() {
            Restorer::AnotherUndo
        } else {
            return ObjectState::Foreign;
        };
        ObjectState::Recreated { by, is_terminating }
    }

    /// Reads which steps are done. A failed read is ignored here: the step itself reports it.
    pub async fn completed_steps(&self) -> CompletedSteps {
        let is_waiting = self.has_old_objects().await.unwrap_or(true);
        let mut done = CompletedSteps { is_waiting, ..CompletedSteps::none() };
        for volume in &self.record.volumes {
            if let Ok(Some(current)) = self.read_volume(volume).await
                && is_retained(&current)
            {
                done.retained.insert(volume.name.clone());
            }
        }
        for workload in &self.record.workloads {
            if let Ok(Some(current)) = self.read(&workload.object).await
                && is_stopped(&current)
            {
                done.stopped.insert(workload.object.uid.clone());
            }
        }
        for (saved, current) in self.read_all(self.record.objects.iter()).await {
            let Ok(Some(current)) = current else { continue };
            let uid = &saved.object.uid;
            if saved.stays && is_detached(saved, &current) {
                done.detached.insert(uid.clone());
            }
            let state = self.state_by_metadata(&saved.object, &current["metadata"]);
            if matches!(state, ObjectState::Recreated { .. }) {
                done.recreated.insert(uid.clone());
            }
        }
        done
    }

    /// What is different while the undo waits to be continued; empty if nothing is.
    pub async fn left_changed(&self) -> String {
        let mut left = Vec::new();
        let workloads = self.record.workloads.iter().map(|workload| &workload.object);
        for workload in workloads {
            let text = format!("{} is at 0 replicas", workload.arguments);
            left.extend(describe(&workload.arguments, self.read(workload).await, is_stopped, text));
        }
        for volume in self.record.volumes.iter().filter(|saved| saved.reclaim_policy != "Retain") {
            let SavedVolume { name, .. } = volume;
            let text = format!("volume {name} has the reclaim policy Retain");
            let read = self.read_volume(volume).await;
            left.extend(describe(&format!("volume {name}"), read, is_retained, text));
        }
        for (saved, read) in self.read_all(self.record.dependents()).await {
            let typed = &saved.object.arguments;
            let text = format!("{typed} lacks an owner reference");
            left.extend(describe(typed, read, |current| is_detached(saved, current), text));
        }
        match left.is_empty() {
            true => String::new(),
            false => format!("; until then, {}", left.join(", ")),
        }
    }

    /// Reads these objects, several at a time: any tenant can create many dependents of a
    /// cluster-scoped object.
    async fn read_all<'s>(
        &self,
        objects: impl Iterator<Item = &'s SavedObject>,
    ) -> Vec<(&'s SavedObject, Result<Option<Value>, CommandError>)> {
        let reads: Vec<_> =
            objects.map(|saved| async move { (saved, self.read(&saved.object).await) }).collect();
        stream::iter(reads).buffered(MAX_CONCURRENT).collect().await
    }
}

/// The text, if the current object is changed; or that the object can't be read.
fn describe(
    typed: &str,
    read: Result<Option<Value>, CommandError>,
    is_changed: impl Fn(&Value) -> bool,
    text: String,
) -> Option<String> {
    match read {
        Ok(current) => current.is_some_and(|current| is_changed(&current)).then_some(text),
        Err(_) => Some(format!("{typed} is unknown, because it could not be read")),
    }
}

/// Whether an undo has scaled the workload to 0.
fn is_stopped(workload: &Value) -> bool {
    workload["spec"]["replicas"] == 0
        && workload["metadata"]["annotations"][OLD_REPLICAS].is_string()
}

/// Whether a dependent lacks one of its owners. A new owner with the same name counts.
fn is_detached(saved: &SavedObject, current: &Value) -> bool {
    saved.owners.iter().any(|owner| {
        let is_same = |other: &Value| ["kind", "name"].iter().all(|key| other[*key] == owner[*key]);
        !owners(current).iter().any(is_same)
    })
}
