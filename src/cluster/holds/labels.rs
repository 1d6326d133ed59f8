//! Objects that lost the label for which they have the hold.
//!
//! If belay watches only the labelled objects of a kind, it does not see the others. It reads
//! each object that leaves the watch, and reads all objects from time to time.

use std::collections::{BTreeSet, HashMap};

use tokio::time::{Instant, Interval};

use super::pages::{HeldObject, HeldPages};
use super::survey::take_turns;
use super::write::HoldWriteResult;
use super::{Holds, MAX_TASKS_PER_ROUND};
use crate::cluster::feed::plan::labelled_kinds;
use crate::cluster::world::{ObjectKey, WaitingObject, World};
use crate::hold::TargetState;
use crate::objects::{ApiError, KindId, KindInfo};

/// The maximum number of objects that a relist records for each namespace. Later relists find the
/// others.
const MAX_RELISTED: usize = 1_000;

impl Holds {
    /// Updates the holds of some objects that lost their label. A watch reported these objects, or
    /// a relist found them.
    pub(super) async fn handle_lost_labels(&mut self, pace: &mut Interval) {
        self.relist_all().await;
        let keys: Vec<ObjectKey> = self.context.world.read().left_watch.iter().cloned().collect();
        let mut retry = BTreeSet::new();
        for key in take_turns(keys, MAX_TASKS_PER_ROUND, |(_, namespace, _)| namespace) {
            if !self.may_write() {
                break;
            }
            self.context.world.write().left_watch.remove(&key);
            pace.tick().await;
            // After a lasting failure, the next relist finds the object again.
            if let HoldWriteResult::Failed(error) = self.update_hold(&key).await
                && !error.is_lasting()
            {
                retry.insert(key);
            }
        }
        let mut world = self.context.world.write();
        self.unfinished |= !world.left_watch.is_empty();
        world.left_watch.append(&mut retry);
    }

    async fn relist_all(&mut self) {
        let kinds: Vec<(KindId, KindInfo)> = {
            let world = self.context.world.read();
            // The survey covers kinds whose objects are all watched.
            let (relisted_at, interval) = (&mut self.relisted_at, self.timing.relist_interval);
            relisted_at
                .retain(|kind, time| time.elapsed() < interval && !world.graph.is_complete(*kind));
            let kinds = labelled_kinds(&world, &self.context.settings.labelled)
                .into_iter()
                .filter(|kind| !world.graph.is_complete(*kind) && !relisted_at.contains_key(kind));
            kinds.map(|kind| (kind, world.graph.kinds.info(kind).clone())).collect()
        };
        for (kind, info) in kinds {
            match self.relist(kind, &info).await {
                Ok(()) => drop(self.relisted_at.insert(kind, Instant::now())),
                Err(error) => tracing::warn!(
                    resource = info.full_name(),
                    %error,
                    "cannot read the objects without the label; belay retries"
                ),
            }
        }
    }

    /// Reads all objects of a kind once, page by page, and records the objects with a hold that no
    /// watch covers.
    async fn relist(&self, kind: KindId, info: &KindInfo) -> Result<(), ApiError> {
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut pages = HeldPages::new(&self.context.client, info);
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => {
                    if let Some(error) = pages.first_unreadable() {
                        tracing::warn!(
                            resource = info.full_name(),
                            %error,
                            "belay does not know whether this object has a hold"
                        );
                    }
                    return Ok(());
                }
                // belay could not remove the holds of a kind that it can't read. The next relist
                // reads an expired list again.
                Err(ApiError::NotFound | ApiError::Forbidden(_) | ApiError::Expired) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let mut world = self.context.world.write();
            let World { graph, left_watch, .. } = &mut *world;
            for HeldObject { namespace, name, .. } in page {
                let count = counts.entry(namespace.clone()).or_default();
                if *count < MAX_RELISTED && graph.object(kind, &namespace, &name).is_none() {
                    *count += 1;
                    left_watch.insert((kind, namespace, name));
                }
            }
        }
    }

    /// Adds a Terminating object with the hold to the waiting objects, if no watch covers it
    /// because it lost its label.
    pub(super) fn add_waiting(&self, key: &ObjectKey, observed: TargetState) {
        let mut world = self.context.world.write();
        let World { graph, waiting, .. } = &mut *world;
        if graph.object(key.0, &key.1, &key.2).is_some() {
            return;
        }
        let object =
            WaitingObject { observed, requested: None, unused: true, changes: 0, unwatched: true };
        waiting.objects.insert(key.clone(), object);
        waiting.changed.insert(key.clone());
        self.context.signals.waiting.notify_one();
    }
}
