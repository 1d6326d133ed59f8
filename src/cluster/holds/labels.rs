//! Objects that have lost their label, and with it what they had the hold for.
//!
//! Of a kind whose labelled objects alone are watched nobody sees the others.
//! Those that leave the watch are looked at one by one, and now and then all
//! are read.

use std::collections::{BTreeSet, HashMap};

use tokio::time::{Instant, Interval};

use super::survey::take_turns;
use super::{Holds, ROUND};
use crate::cluster::api::Detail;
use crate::cluster::feed::plan::labelled;
use crate::cluster::list::{Buffers, ListQuery, ListReader};
use crate::cluster::pace::within;
use crate::cluster::world::{Place, Seen, World};
use crate::hold::TargetState;
use crate::objects::{ApiError, KindId, KindInfo, Object, read_shallow};

/// So many objects of a namespace a sweep finds at the most. The next one finds the
/// others.
const MOST_SWEPT: usize = 1_000;

impl Holds {
    /// Looks at some of the objects that have lost their label, seen by a watch or,
    /// now and then, not.
    pub(super) async fn look_after_labels(&mut self, pace: &mut Interval) {
        self.sweep_all().await;
        let left: Vec<Place> = self.context.world.read().left.iter().cloned().collect();
        let mut again = BTreeSet::new();
        for place in take_turns(left, ROUND, |(_, namespace, _)| namespace) {
            if !self.is_clear() {
                break;
            }
            self.context.world.write().left.remove(&place);
            pace.tick().await;
            match self.look(place.0, &place.1, &place.2).await {
                Ok(_) => {}
                // The next sweep comes by.
                Err(ApiError::Forbidden(_)) => {}
                Err(_) => drop(again.insert(place)),
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
                    "objects without the label could not be read; it is tried again"
                ),
            }
        }
    }

    /// Reads all objects of a kind once, page by page, and keeps where those are
    /// that have a hold and no watch shows.
    async fn sweep(&self, kind: KindId, info: &KindInfo) -> Result<(), ApiError> {
        let mut found: HashMap<String, usize> = HashMap::new();
        let query = ListQuery { info, namespace: "", detail: Detail::Metadata, labels: "" };
        let mut list = ListReader::new(&self.context.client, query, Buffers::new(1));
        loop {
            let page = match within(list.next_page(is_held)).await {
                Ok(Some(page)) => page,
                // What cannot be read any more has no holds of ours to take off
                // that we could; a list that expired is read the next time.
                Ok(None) | Err(ApiError::NotFound | ApiError::Forbidden(_) | ApiError::Expired) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let mut world = self.context.world.write();
            let World { graph, left, .. } = &mut *world;
            for json in &page {
                let Ok(Object { metadata, .. }) = serde_json::from_str(json) else { continue };
                let (namespace, name) = (metadata.namespace.to_string(), metadata.name.to_string());
                let found = found.entry(namespace.clone()).or_default();
                if *found < MOST_SWEPT && graph.object(kind, &namespace, &name).is_none() {
                    *found += 1;
                    left.insert((kind, namespace, name));
                }
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
fn waits(json: &str) -> Option<(TargetState, String, String)> {
    let sight = TargetState::read(&read_shallow(json).ok()?)?;
    let Object { metadata, .. } = serde_json::from_str(json).ok()?;
    let waits = sight.deleted.is_some() && sight.hold.is_some();
    waits.then(|| (sight, metadata.namespace.to_string(), metadata.name.to_string()))
}

fn is_held(json: &str) -> bool {
    serde_json::from_str::<Object<'_>>(json).is_ok_and(|object| object.is_held())
}
