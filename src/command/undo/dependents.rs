//! The dependents of the deleted object. Without an owner reference to it, the garbage collector
//! leaves them.

use std::collections::HashMap;

use kube::api::PatchParams;
use serde_json::{Value, json};

use super::read::read_new;
use super::record::{DetachedDependent, LostObject};
use super::restore::{Undo, all_done};
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::objects::operations;

/// The limit of attempts to change an object that others change at the same time.
const MAX_ATTEMPTS: u32 = 5;

impl Undo<'_> {
    /// Removes the owner references to the saved objects, also from dependents that did not exist when
    /// the file was written. An object that can't be changed delays no other.
    pub(super) async fn detach(&mut self) -> Result<(), CommandError> {
        self.save_new().await?;
        // An earlier attempt may have failed.
        let mut failures = Vec::from_iter(self.retain_volumes().await.err());
        for dependent in self.record.dependents.clone() {
            match self.detach_one(&dependent, false).await {
                Err(error) if self.is_of_others(&dependent.object) => {
                    progress(&format!("warning: {error}"));
                    // Any tenant can make a Namespace the owner of objects.
                    if !self.record.is_of_namespace() {
                        self.not_kept.insert(dependent.object.uid.clone(), error.to_string());
                    }
                }
                Err(error) => failures.push(error),
                Ok(()) => drop(self.not_kept.remove(&dependent.object.uid)),
            }
        }
        all_done(
            &failures,
            "; the garbage collector would delete these dependents; if this happens again, remove \
             their owner references, or delete them",
        )
    }

    /// Adds new dependents to the file, before they lose their owner reference, and dependents that
    /// have become Terminating since.
    async fn save_new(&mut self) -> Result<(), CommandError> {
        let new = read_new(&self.record, self.cluster.clone()).await?;
        if new.objects.is_empty() && new.dependents.is_empty() {
            return Ok(());
        }
        let mut record = self.record.clone();
        record.dependents.extend(new.dependents);
        record.volumes.extend(new.volumes);
        record.add(new.objects);
        let is_known = |new: &LostObject| record.lost.iter().any(|one| one.object == new.object);
        let lost: Vec<_> = new.lost.into_iter().filter(|new| !is_known(new)).collect();
        record.lost.extend(lost);
        record.replace(self.path)?;
        self.record = record;
        Ok(())
    }

    /// Whether a user of another namespace may have made this dependent of a cluster-scoped object. It
    /// must not stop the undo.
    pub(super) fn is_of_others(&self, dependent: &Object) -> bool {
        let target = &self.record.target;
        let own = if target.resource == "namespaces" { &target.name } else { &target.namespace };
        !dependent.namespace.is_empty() && dependent.namespace != *own
    }

    /// Removes one owner reference; with `dry_run`, only asks whether that is allowed.
    pub(super) async fn detach_one(
        &self,
        dependent: &DetachedDependent,
        dry_run: bool,
    ) -> Result<(), CommandError> {
        let DetachedDependent { object, reference } = dependent;
        let Some(current) = self.read(object).await? else { return Ok(()) };
        let uid = reference["uid"].as_str().unwrap_or_default();
        let mut patch = Vec::new();
        // From the end, because each removal changes the later places.
        for index in owner_indexes(&current, uid).into_iter().rev() {
            let place = ["metadata", "ownerReferences", &index.to_string()];
            patch.push(operations::test(&[&place[..], &["uid"]].concat(), uid));
            patch.push(operations::remove(&place));
        }
        if patch.is_empty() {
            return Ok(());
        }
        self.send_patch(object, patch, &PatchParams { dry_run, ..PatchParams::default() }).await?;
        if !dry_run {
            progress(&format!("removed the owner reference from {}", object.typed));
        }
        Ok(())
    }

    /// Adds an owner reference to the dependent, if it still has this uid.
    pub(super) async fn attach(
        &self,
        dependent: &Object,
        uid: &str,
        reference: Value,
    ) -> Result<(), CommandError> {
        let owner = reference["uid"].as_str().unwrap_or_default();
        for attempt in 1.. {
            let Some(object) = self.read(dependent).await? else { return Ok(()) };
            if object["metadata"]["uid"] != uid || !owner_indexes(&object, owner).is_empty() {
                return Ok(());
            }
            let version = &object["metadata"]["resourceVersion"];
            let mut owners = object["metadata"]["ownerReferences"].clone();
            match owners.as_array_mut() {
                Some(owners) => owners.push(reference.clone()),
                None => owners = json!([reference]),
            }
            let patch = vec![
                operations::test(&["metadata", "resourceVersion"], version.clone()),
                operations::add(&["metadata", "ownerReferences"], owners),
            ];
            match self.patch(dependent, patch).await {
                Ok(()) => break,
                // The controller of the new object adopts it at the same time.
                Err(_) if attempt < MAX_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
        progress(&format!("added the owner reference to {}", dependent.typed));
        Ok(())
    }

    /// The owner references to restored objects, each with its object and the uid of that object.
    pub(super) fn owner_references<'r>(
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
}

/// The places of the owner references with this uid.
fn owner_indexes(object: &Value, uid: &str) -> Vec<usize> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let indexes = owners.enumerate().filter(|(_, owner)| owner["uid"] == uid);
    indexes.map(|(index, _)| index).collect()
}
