//! Objects that lost the label for which they have the hold.
//!
//! If belay watches only the labelled objects of a kind, it does not see the others. It reads
//! each object that leaves the watch, and reads all objects from time to time.

use std::collections::{BTreeSet, HashMap};

use tokio::time::{Instant, Interval};

use super::pages::{HeldObject, HeldPages};
use super::survey::take_turns;
use super::write::HoldWriteResult;
use super::{Holds, ROUND};
use crate::cluster::feed::plan::labelled;
use crate::cluster::world::{ObjectKey, WaitingObject, World};
use crate::hold::TargetState;
use crate::objects::{ApiError, KindId, KindInfo};

/// So many objects of a namespace a sweep finds at the most. The next one finds the
/// others.
const MAX_SWEPT: usize = 1_000;

impl Holds {
    /// Looks at some of the objects that have lost their label, seen by a watch or,
    /// now and then, not.
    pub(super) async fn look_after_labels(&mut self, pace: &mut Interval) {
        self.sweep_all().await;
        let left: Vec<ObjectKey> = self.context.world.read().left.iter().cloned().collect();
        let mut again = BTreeSet::new();
        for place in take_turns(left, ROUND, |(_, namespace, _)| namespace) {
            if !self.is_clear() {
                break;
            }
            self.context.world.write().left.remove(&place);
            pace.tick().await;
            // What fails for long, the next sweep finds.
            if let HoldWriteResult::Failed(error) = self.look(&place).await
                && !error.is_lasting()
            {
                again.insert(place);
            }
        }
        let mut world = self.context.world.write();
        self.unfinished |= !world.left.is_empty();
        world.left.append(&mut again);
    }

    async fn sweep_all(&mut self) {
        let kinds: Vec<(KindId, KindInfo)> = {
            let world = self.context.world.read();
            // Those that are watched as a whole are surveyed.
            let (swept, every) = (&mut self.swept, self.timing.sweep);
            swept.retain(|kind, swept| swept.elapsed() < every && !world.graph.is_complete(*kind));
            let kinds = labelled(&world, &self.context.settings)
                .into_iter()
                .filter(|kind| !world.graph.is_complete(*kind) && !swept.contains_key(kind));
            kinds.map(|kind| (kind, world.graph.kinds.info(kind).clone())).collect()
        };
        for (kind, info) in kinds {
            match self.sweep(kind, &info).await {
                Ok(()) => drop(self.swept.insert(kind, Instant::now())),
                Err(error) => tracing::warn!(
                    resource = info.full_name(),
                    %error,
                    "cannot read the objects without the label; belay retries"
                ),
            }
        }
    }

    /// Reads all objects of a kind once, page by page, and keeps where those are
    /// that have a hold and no watch shows.
    async fn sweep(&self, kind: KindId, info: &KindInfo) -> Result<(), ApiError> {
        let mut found: HashMap<String, usize> = HashMap::new();
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
                // belay could not remove the holds of a kind that it can't read. A list
                // that expired is read the next time.
                Err(ApiError::NotFound | ApiError::Forbidden(_) | ApiError::Expired) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let mut world = self.context.world.write();
            let World { graph, left, .. } = &mut *world;
            for HeldObject { namespace, name, .. } in page {
                let found = found.entry(namespace.clone()).or_default();
                if *found < MAX_SWEPT && graph.object(kind, &namespace, &name).is_none() {
                    *found += 1;
                    left.insert((kind, namespace, name));
                }
            }
        }
    }

    /// Hands an object that is Terminating under the hold to its release, if no watch
    /// does: it lost its label while it was Terminating.
    pub(super) fn hand_over(&self, place: &ObjectKey, observed: TargetState) {
        let mut world = self.context.world.write();
        let World { graph, waiting, .. } = &mut *world;
        if graph.object(place.0, &place.1, &place.2).is_some() {
            return;
        }
        let seen =
            WaitingObject { observed, requested: None, unused: true, changes: 0, unwatched: true };
        waiting.seen.insert(place.clone(), seen);
        waiting.changed.insert(place.clone());
        self.context.signals.waiting.notify_one();
    }
}
