//! Objects that have lost their label, and with it what they had the hold for.
//!
//! Of a kind whose labelled objects alone are watched nobody sees the others.
//! Those that leave the watch are looked at one by one, and now and then all
//! are read.

use std::collections::BTreeSet;

use tokio::time::{Instant, Interval};

use super::Holds;
use crate::cluster::api::Trouble;
use crate::cluster::feed::plan::labelled;
use crate::cluster::list::{Buffers, ListQuery, ListReader};
use crate::cluster::pace::within;
use crate::cluster::world::{Detail, Seen, World};
use crate::hold::Sight;
use crate::objects::{KindId, KindInfo, Object, read_shallow};

impl Holds {
    /// Objects that have lost their label, seen by a watch or, now and then,
    /// not.
    pub(super) async fn look_after_labels(&mut self, pace: &mut Interval) {
        let mut again = BTreeSet::new();
        while self.is_clear() {
            let Some(place) = self.context.world.write().left.pop_first() else { break };
            pace.tick().await;
            match self.look(place.0, &place.1, &place.2).await {
                Ok(_) => {}
                // The next sweep comes by.
                Err(Trouble::Forbidden(_)) => {}
                Err(_) => drop(again.insert(place)),
            }
        }
        self.context.world.write().left.append(&mut again);
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
            match self.sweep(kind, &info, pace).await {
                Ok(()) => drop(self.swept.insert(kind, Instant::now())),
                Err(trouble) => tracing::warn!(
                    resource = info.full_name(),
                    trouble = trouble.words(),
                    "objects without the label could not be read; it is tried again"
                ),
            }
        }
    }

    /// Reads all objects of a kind once, page by page, and keeps none.
    async fn sweep(
        &self,
        kind: KindId,
        info: &KindInfo,
        pace: &mut Interval,
    ) -> Result<(), Trouble> {
        let query = ListQuery { info, namespace: "", detail: Detail::Metadata, labels: "" };
        let mut list = ListReader::new(&self.context.client, query, Buffers::new(1));
        loop {
            let page = match within(list.next_page(is_held)).await {
                Ok(Some(page)) => page,
                // What cannot be read any more has no holds of ours to take off
                // that we could; a list that expired is read the next time.
                Ok(None) | Err(Trouble::NotFound | Trouble::Forbidden(_) | Trouble::Expired) => {
                    return Ok(());
                }
                Err(trouble) => return Err(trouble),
            };
            for json in &page {
                pace.tick().await;
                self.carry_out(kind, info, json).await;
            }
        }
    }

    /// Hands an object that is Terminating under the hold to whoever lets go,
    /// if no watch does: it lost its label while it was Terminating.
    pub(super) fn hand_over(&self, kind: KindId, json: &str) -> bool {
        let Some((sight, namespace, name)) = waits(json) else { return false };
        let mut world = self.context.world.write();
        let World { graph, waiting, .. } = &mut *world;
        let place = (kind, namespace, name);
        if graph.object(place.0, &place.1, &place.2).is_some() {
            return true;
        }
        let seen = Seen { sight, requested: None, unused: true, changes: 0, unwatched: true };
        waiting.seen.insert(place.clone(), seen);
        waiting.news.insert(place);
        self.context.signals.waiting.notify_one();
        true
    }
}

/// What a release has to know of an object that is Terminating under the hold.
/// And where it stands.
fn waits(json: &str) -> Option<(Sight, String, String)> {
    let sight = Sight::of(&read_shallow(json).ok()?)?;
    let Object { metadata, .. } = serde_json::from_str(json).ok()?;
    let waits = sight.deleted.is_some() && sight.hold.is_some();
    waits.then(|| (sight, metadata.namespace.to_string(), metadata.name.to_string()))
}

fn is_held(json: &str) -> bool {
    serde_json::from_str::<Object<'_>>(json).is_ok_and(|object| object.is_held())
}
