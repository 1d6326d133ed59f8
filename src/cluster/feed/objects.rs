//! Stores the watched objects of a kind in the graph.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::waiting;
use super::watcher::WatchSink;
use crate::cluster::context::Signals;
use crate::cluster::list::is_too_deep;
use crate::cluster::world::{self, SharedWorld, World};
use crate::graph::{Listing, Node};
use crate::objects::{ApiError, KindId, Object, Unreadable};
use crate::telemetry::NamespaceLineLimit;

/// The maximum number of recorded objects that left a watch with a label selector: they lost the
/// label or were deleted, and may still have a hold. Beyond it, the next full list finds their
/// holds.
const MAX_OBJECTS_LEFT_WATCH: usize = 10_000;

/// The maximum number of recorded objects that the API server can't send as an event. After
/// `cluster::deep_objects` has repaired these, the next list finds further such objects.
const MAX_TOO_DEEP: usize = 1_000;

/// The state of a watch, for other tasks.
#[derive(Debug, Default)]
pub struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the first list has ended, with or without success.
    first_list_ended: bool,
    /// Since when the watch fails.
    failing_since: Option<Instant>,
    /// Whether the API server does not serve the kind.
    is_unserved: bool,
}

impl Health {
    pub fn first_list_ended(&self) -> bool {
        self.0.lock().first_list_ended
    }

    pub fn is_unserved(&self) -> bool {
        self.0.lock().is_unserved
    }

    /// How long the cached state may have been out of date.
    pub fn lag(&self) -> Duration {
        self.0.lock().failing_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Receives the watch events of one kind.
pub struct ObjectSink {
    pub world: SharedWorld,
    pub kind: KindId,
    /// Whether the watch covers all objects of the kind, not only those with a label. If it
    /// covers all, an object that the graph lacks does not exist.
    pub covers_all: bool,
    pub health: Arc<Health>,
    /// Notified about new owner kinds and waiting objects.
    pub signals: Arc<Signals>,
    listing: Option<Listing>,
    /// Whether a list was read to its end.
    synced: bool,
    /// How long the watch may fail before the kind counts as incomplete.
    grace: Duration,
}

impl ObjectSink {
    pub fn new(
        world: SharedWorld,
        kind: KindId,
        covers_all: bool,
        signals: Arc<Signals>,
        grace: Duration,
    ) -> Self {
        let (health, listing, synced) = (Arc::default(), None, false);
        Self { world, kind, covers_all, health, signals, listing, synced, grace }
    }

    fn apply(&mut self, json: &str) -> Result<(), Unreadable> {
        let applied = self.try_apply(json);
        if let Err(unreadable) = &applied {
            self.record_unreadable(unreadable);
        }
        applied
    }

    /// Records an object that can't be parsed. It may use any object, until it can be parsed
    /// or is deleted.
    fn record_unreadable(&mut self, unreadable: &Unreadable) {
        let mut world = self.world.write();
        if let Some(listing) = &mut self.listing {
            world.graph.add_unreadable_to_listing(listing, unreadable);
        }
        if world.graph.set_unreadable(self.kind, unreadable) {
            let resource = resource(&world, self.kind);
            drop(world);
            report(&resource, unreadable);
        }
    }

    fn try_apply(&mut self, json: &str) -> Result<(), Unreadable> {
        // Large objects are parsed before the lock is taken.
        let catalogue = self.world.read().catalogue.clone();
        let mut parsed = catalogue.parse(self.kind, json)?;
        let waiting_state = waiting::waiting_state(&parsed.object, json)?;
        // The API server sends a too deep object only in a list.
        let is_too_deep = self.listing.is_some() && is_too_deep(json, 0);
        let mut world = self.world.write();
        if !Arc::ptr_eq(&catalogue, &world.catalogue) {
            parsed = world.catalogue.parse(self.kind, json)?;
        }
        let used = waiting::find_used_waiting_objects(&world, self.kind, &parsed.object);
        let World { graph, catalogue, .. } = &mut *world;
        let listing = self.listing.as_mut();
        let too_many =
            parsed.has_too_many_references().then(|| Unreadable::of_many_references(json));
        let newly_unreadable =
            too_many.filter(|_| !world::is_unreadable(graph, self.kind, &parsed.object));
        let node = world::store_parsed(graph, catalogue, self.kind, &parsed, listing);
        if let Some(node) = node {
            graph.date_hold(node, jiff::Timestamp::now().as_second());
        }
        let has_new_owner_kind = node.is_some_and(|node| world.learn_owner_kinds(node));
        if is_too_deep || !world.too_deep.is_empty() {
            let metadata = &parsed.object.metadata;
            let key = (self.kind, metadata.namespace.to_string(), metadata.name.to_string());
            if !is_too_deep {
                world.too_deep.remove(&key);
            } else if world.too_deep.len() < MAX_TOO_DEEP {
                world.too_deep.insert(key);
            }
        }
        let must_check = waiting::record_stored(&mut world, node, waiting_state)
            | waiting::record_user_change(&mut world, &used);
        let newly_unreadable =
            newly_unreadable.map(|unreadable| (resource(&world, self.kind), unreadable));
        drop(world);
        if let Some((resource, unreadable)) = newly_unreadable {
            report(&resource, &unreadable);
        }
        self.notify(has_new_owner_kind, must_check);
        Ok(())
    }

    fn try_remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let object: Object<'_> =
            serde_json::from_str(json).map_err(|error| Unreadable::new(json, &error))?;
        let mut world = self.world.write();
        let used = waiting::find_used_waiting_objects(&world, self.kind, &object);
        let node = world::find(&world.graph, self.kind, &object);
        let held = node.and_then(|node| world.graph.get(node)).is_some_and(Node::is_held);
        world::remove(&mut world.graph, self.kind, &object);
        let (namespace, name) = (object.metadata.namespace.as_str(), object.metadata.name.as_str());
        let must_check = waiting::record_deleted(&mut world, self.kind, namespace, name)
            | waiting::record_user_change(&mut world, &used);
        // Only the leader records these objects: a new leader lists all objects first.
        let is_leader = *self.signals.leading.borrow();
        if !self.covers_all && held && is_leader && world.left_watch.len() < MAX_OBJECTS_LEFT_WATCH
        {
            world.left_watch.insert((self.kind, namespace.to_owned(), name.to_owned()));
        }
        drop(world);
        self.notify(false, must_check);
        Ok(())
    }

    fn notify(&self, has_new_owner_kind: bool, must_check: bool) {
        if has_new_owner_kind {
            self.signals.plan.notify_one();
        }
        if must_check {
            self.signals.waiting.notify_one();
        }
    }

    fn set_incomplete(&self, why: &ApiError) {
        self.world.write().graph.set_incomplete(self.kind, why.clone());
        self.health.0.lock().first_list_ended = true;
    }
}

fn report(resource: &str, unreadable: &Unreadable) {
    let (namespace, name) = unreadable.name.as_ref().map_or(("", ""), |(at, name)| (at, name));
    static LINES: LazyLock<NamespaceLineLimit> = LazyLock::new(NamespaceLineLimit::default);
    let Some(suppressed) = LINES.admit_log_line(namespace, Instant::now().into_std()) else {
        return;
    };
    tracing::warn!(
        resource,
        namespace,
        name,
        left_out = (suppressed > 0).then_some(suppressed),
        why = %unreadable,
        "an object can't be read, so it may use anything that objects of its kind can use"
    );
}

impl WatchSink for ObjectSink {
    fn begin(&mut self) {
        self.listing = Some(Listing::new(self.kind));
        self.world.write().too_deep.retain(|(kind, ..)| *kind != self.kind);
    }

    fn add_listed(&mut self, json: &str) -> Result<(), Unreadable> {
        self.apply(json)
    }

    fn end(&mut self) {
        let mut world = self.world.write();
        let deleted = self.listing.take().map(|listing| world.graph.end_listing(listing));
        let must_check = deleted.is_some_and(|count| count > 0)
            && waiting::record_list_end(&mut world, self.kind);
        drop(world);
        self.synced = true;
        self.notify(false, must_check);
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        self.apply(json)
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let removed = self.try_remove(json);
        match removed.as_ref().map_err(|unreadable| unreadable.name.as_ref()) {
            Ok(()) => {}
            Err(None) => self.record_unreadable(&Unreadable::of_unknown_name()),
            Err(Some((namespace, name))) => {
                let mut world = self.world.write();
                world.graph.delete(self.kind, namespace, name, None);
                let must_check = waiting::record_deleted(&mut world, self.kind, namespace, name);
                drop(world);
                self.notify(false, must_check);
            }
        }
        removed
    }

    fn skip(&mut self) {
        self.record_unreadable(&Unreadable::of_unknown_name());
    }

    fn current(&mut self) {
        let mut world = self.world.write();
        world.watched.insert(self.kind);
        if self.covers_all {
            world.graph.set_complete(self.kind, true);
        }
        drop(world);
        *self.health.0.lock() = State { first_list_ended: true, ..State::default() };
    }

    fn disconnected(&mut self) {
        self.world.write().graph.set_stale(self.kind);
    }

    fn failed(&mut self, error: &ApiError, outdated_for: Duration) {
        let first = {
            let mut state = self.health.0.lock();
            let first = state.failing_since.is_none();
            state.failing_since.get_or_insert_with(|| Instant::now() - outdated_for);
            state.is_unserved = *error == ApiError::NotFound;
            first
        };
        let resource = resource(&self.world.read(), self.kind);
        if first {
            tracing::warn!(
                resource,
                %error,
                "a watch has failed; belay retries"
            );
        }
        let forbidden = matches!(error, ApiError::Forbidden(_));
        if forbidden {
            self.world.write().watched.remove(&self.kind);
        }
        if !self.synced || outdated_for >= self.grace || forbidden {
            self.set_incomplete(error);
        }
    }
}

/// The name of a kind in logs and metrics.
pub fn resource(world: &World, kind: KindId) -> String {
    world.graph.kinds.info(kind).full_name()
}
