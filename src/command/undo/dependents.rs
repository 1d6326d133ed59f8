//! The dependents of the deleted object. Without an owner reference to it, the garbage collector
//! leaves them.

use std::collections::HashSet;

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::manifest::owners;
use super::read::{Found, MAX_CONCURRENT, read_new};
use super::record::{LostObject, SavedObject};
use super::restore::{Undo, fail_if_any};
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::objects::operations;

impl Undo<'_> {
    /// The uids of the saved objects in these namespaces that the undo has detached, or that no longer
    /// exist. Without the file, they are lost.
    pub(super) async fn changed_in(
        &self,
        namespaces: &[String],
    ) -> Result<HashSet<String>, CommandError> {
        let deleted = self.record.deleted_uids();
        let mut changed = HashSet::new();
        for saved in &self.record.objects {
            let uid = &saved.object.uid;
            if !namespaces.contains(&saved.object.namespace) {
                continue;
            }
            let is_unchanged = self.old(&saved.object).await?.is_some_and(|current| {
                let mut uids = owners(&current).iter().filter_map(|owner| owner["uid"].as_str());
                !saved.stays || uids.any(|owner| deleted.contains(owner))
            });
            if !is_unchanged {
                changed.insert(uid.clone());
            }
        }
        Ok(changed)
    }

    /// Removes the owner references to the saved objects, also from dependents that did not exist when
    /// the file was written. An object that can't be changed delays no other.
    pub(super) async fn detach(&mut self) -> Result<(), CommandError> {
        self.save_new().await?;
        // An earlier attempt may have failed.
        let mut failures = Vec::from_iter(self.retain_volumes().await.err());
        // Dependents of other users come last.
        let mut dependents: Vec<&SavedObject> = self.record.dependents().collect();
        dependents.sort_by_key(|dependent| self.record.is_of_others(&dependent.object));
        for (dependent, detached) in self.detach_all(&dependents, false).await {
            match detached {
                Err(error) if self.record.is_of_others(&dependent) => {
                    progress(&format!("warning: {error}"));
                    self.not_kept.insert(dependent.uid, error.to_string());
                }
                Err(error) => failures.push(error),
                Ok(()) => drop(self.not_kept.remove(&dependent.uid)),
            }
        }
        fail_if_any(
            &failures,
            "; the garbage collector would delete these dependents; if this happens again, remove \
             their owner references, or delete them",
        )
    }

    /// Adds to the file:
    /// - new dependents, before they lose their owner reference
    /// - dependents that have become Terminating since
    /// - new losses
    async fn save_new(&mut self) -> Result<(), CommandError> {
        let Found { objects, volumes, lost } = read_new(&self.record, self.cluster.clone()).await?;
        if objects.is_empty() && volumes.is_empty() && lost.is_empty() {
            return Ok(());
        }
        let mut record = self.record.clone();
        record.volumes.extend(volumes);
        record.add(objects);
        record.lost.extend(lost.iter().cloned());
        record.replace(self.path)?;
        self.record = record;
        for LostObject { object, why } in &lost {
            progress(&format!("not restored: {}: {why}", object.arguments));
        }
        Ok(())
    }

    /// Removes the owner references of these dependents to deleted objects; with `dry_run`, only asks
    /// whether that is allowed. Sends several requests at a time, because any user can create many
    /// dependents of a cluster-scoped object.
    pub(super) async fn detach_all(
        &self,
        dependents: &[&SavedObject],
        dry_run: bool,
    ) -> Vec<(Object, Result<(), CommandError>)> {
        let detached = dependents.iter().map(|dependent| async move {
            (dependent.object.clone(), self.detach_one(dependent, dry_run).await)
        });
        stream::iter(detached).buffered(MAX_CONCURRENT).collect().await
    }

    async fn detach_one(&self, dependent: &SavedObject, dry_run: bool) -> Result<(), CommandError> {
        let object = &dependent.object;
        let changed = self.change(object, dry_run, |current| {
            let mut patch = Vec::new();
            // From the end, because each removal changes the later places.
            for (index, owner) in owners(current).iter().enumerate().rev() {
                if dependent.owners.iter().any(|lost| lost["uid"] == owner["uid"]) {
                    let place = ["metadata", "ownerReferences", &index.to_string()];
                    let uid = [&place[..], &["uid"]].concat();
                    patch.push(operations::test(&uid, owner["uid"].clone()));
                    patch.push(operations::remove(&place));
                }
            }
            Ok(patch)
        });
        if changed.await?.is_some() && !dry_run {
            progress(&format!("removed the owner reference from {}", object.arguments));
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
        // The controller of the new object may adopt the dependent at the same time.
        let changed = self.change(dependent, false, |object| {
            let has_owner = owners(object).iter().any(|owner| owner["uid"] == reference["uid"]);
            if object["metadata"]["uid"] != uid || has_owner {
                return Ok(Vec::new());
            }
            let version = &object["metadata"]["resourceVersion"];
            let owners = [owners(object), std::slice::from_ref(&reference)].concat();
            Ok(vec![
                operations::test(&["metadata", "resourceVersion"], version.clone()),
                operations::add(&["metadata", "ownerReferences"], owners),
            ])
        });
        if changed.await?.is_some() {
            progress(&format!("added the owner reference to {}", dependent.arguments));
        }
        Ok(())
    }
}
