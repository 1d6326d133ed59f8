//! Stores the watched objects of a kind in the graph.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::waiting;
use super::watcher::WatchSink;
use crate::cluster::context::Signals;
use crate::cluster::world::{self, SharedWorld, World};
use crate::graph::Listing;
use crate::objects::{ApiError, HoldAge, KindId, Object, Unreadable};
use crate::telemetry::NamespaceLines;

/// The maximum number of remembered objects that left a watch by label. For others the
/// next full list decides.
const MAX_LEFT: usize = 10_000;

/// The state of a watch, for other tasks.
#[derive(Debug, Default)]
pub struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether a list was read to its end, or is known not to be readable.
    settled: bool,
    broken: Option<Instant>,
    gone: bool,
}

impl Health {
    /// Whether the first list has ended, with or without success.
    pub fn is_settled(&self) -> bool {
        self.0.lock().settled
    }

    /// Whether the API server does not serve the kind.
    pub fn is_gone(&self) -> bool {
        self.0.lock().gone
    }

    /// How long the cached state may have been out of date.
    pub fn behind(&self) -> Duration {
        self.0.lock().broken.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Receives the watch events of one kind.
pub struct ObjectSink {
    pub world: SharedWorld,
    pub kind: KindId,
    /// Whether all objects of the kind are watched, and not those with a label
    /// alone: only then is absence a fact.
    pub all: bool,
    pub health: Arc<Health>,
    /// Notified about new owner kinds and waiting objects.
    pub signals: Arc<Signals>,
    listing: Option<Listing>,
    /// Whether a list was read to its end.
    synced: bool,
    /// How long the watch may be broken before the kind is incomplete.
    grace: Duration,
}

impl ObjectSink {
    /// Nothing is known yet.
    pub fn new(
        world: SharedWorld,
        kind: KindId,
        all: bool,
        signals: Arc<Signals>,
        grace: Duration,
    ) -> Self {
        let (health, listing, synced) = (Arc::default(), None, false);
        Self { world, kind, all, health, signals, listing, synced, grace }
    }

    fn apply(&mut self, json: &str) -> Result<(), Unreadable> {
        let taken = self.try_apply(json);
        if let Err(unreadable) = &taken {
            self.skip_object(unreadable);
        }
        taken
    }

    /// An object can't be read: it may use anything, until it can be read or is
    /// deleted.
    fn skip_object(&mut self, unreadable: &Unreadable) {
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
        let sighting = waiting::waiting_state(&parsed.object, json);
        let mut world = self.world.write();
        if !Arc::ptr_eq(&catalogue, &world.catalogue) {
            parsed = world.catalogue.parse(self.kind, json)?;
        }
        let used = waiting::used_by(&world, self.kind, &parsed.object);
        let World { graph, catalogue, .. } = &mut *world;
        let listing = self.listing.as_mut();
        let many = parsed.has_too_many_references().then(|| Unreadable::of_many_references(json));
        let new = many.filter(|_| !world::is_unreadable(graph, self.kind, &parsed.object));
        let node = world::apply(graph, catalogue, self.kind, &parsed, listing);
        if let Some(node) = node {
            graph.date_hold(node, jiff::Timestamp::now().as_second());
        }
        let owners = node.is_some_and(|node| world.learn_owners(node));
        let waits = waiting::taken(&mut world, node, sighting) | waiting::freed(&mut world, &used);
        let new = new.map(|unreadable| (resource(&world, self.kind), unreadable));
        drop(world);
        if let Some((resource, unreadable)) = new {
            report(&resource, &unreadable);
        }
        self.notify(owners, waits);
        Ok(())
    }

    fn try_remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let object: Object<'_> =
            serde_json::from_str(json).map_err(|error| Unreadable::new(json, &error))?;
        let mut world = self.world.write();
        let used = waiting::used_by(&world, self.kind, &object);
        let node = world::find(&world.graph, self.kind, &object);
        let held = node
            .and_then(|node| world.graph.get(node))
            .is_some_and(|node| node.hold() != HoldAge::NotHeld);
        world::forget(&mut world.graph, self.kind, &object);
        let (namespace, name) = (object.metadata.namespace.as_str(), object.metadata.name.as_str());
        let waits = waiting::gone(&mut world, self.kind, namespace, name)
            | waiting::freed(&mut world, &used);
        // A new leader reads all of them, so the other replicas keep none.
        let leads = *self.signals.leading.borrow();
        if !self.all && held && leads && world.left.len() < MAX_LEFT {
            world.left.insert((self.kind, namespace.to_owned(), name.to_owned()));
        }
        drop(world);
        self.notify(false, waits);
        Ok(())
    }

    fn notify(&self, plan: bool, waits: bool) {
        if plan {
            self.signals.plan.notify_one();
        }
        if waits {
            self.signals.waiting.notify_one();
        }
    }

    fn incomplete(&self, why: &ApiError) {
        self.world.write().graph.set_incomplete(self.kind, why.clone());
        self.health.0.lock().settled = true;
    }
}

fn report(resource: &str, unreadable: &Unreadable) {
    let (namespace, name) = unreadable.name.as_ref().map_or(("", ""), |(at, name)| (at, name));
    static LINES: LazyLock<NamespaceLines> = LazyLock::new(NamespaceLines::default);
    let Some(left_out) = LINES.admit(namespace, Instant::now().into_std()) else { return };
    tracing::warn!(
        resource,
        namespace,
        name,
        left_out = (left_out > 0).then_some(left_out),
        why = %unreadable,
        "an object can't be read, so it may use anything that objects of its kind can use"
    );
}

impl WatchSink for ObjectSink {
    fn begin(&mut self) {
        self.listing = Some(Listing::new(self.kind));
    }

    fn list(&mut self, json: &str) -> Result<(), Unreadable> {
        self.apply(json)
    }

    fn end(&mut self) {
        let mut world = self.world.write();
        let gone = self.listing.take().map(|listing| world.graph.end_listing(listing));
        let waits = gone.is_some_and(|gone| gone > 0) && waiting::relisted(&mut world, self.kind);
        drop(world);
        self.synced = true;
        self.notify(false, waits);
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        self.apply(json)
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let removed = self.try_remove(json);
        match removed.as_ref().map_err(|unreadable| unreadable.name.as_ref()) {
            Ok(()) => {}
            Err(None) => self.skip_object(&Unreadable::of_unknown_place()),
            Err(Some((namespace, name))) => {
                let mut world = self.world.write();
                world.graph.delete(self.kind, namespace, name, None);
                let waits = waiting::gone(&mut world, self.kind, namespace, name);
                drop(world);
                self.notify(false, waits);
            }
        }
        removed
    }

    fn skip(&mut self) {
        self.skip_object(&Unreadable::of_unknown_place());
    }

    fn current(&mut self) {
        let mut world = self.world.write();
        world.watched.insert(self.kind);
        if self.all {
            world.graph.set_complete(self.kind, true);
        }
        drop(world);
        *self.health.0.lock() = State { settled: true, ..State::default() };
    }

    fn disconnected(&mut self) {
        self.world.write().graph.set_stale(self.kind);
    }

    fn broken(&mut self, error: &ApiError, since: Duration) {
        let first = {
            let mut state = self.health.0.lock();
            let first = state.broken.is_none();
            state.broken.get_or_insert_with(|| Instant::now() - since);
            state.gone = *error == ApiError::NotFound;
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
        if !self.synced || since >= self.grace || forbidden {
            self.incomplete(error);
        }
    }
}

/// A kind as it is named in logs and metrics.
pub fn resource(world: &World, kind: KindId) -> String {
    world.graph.kinds.info(kind).full_name()
}
