//! Starts and stops watches according to the plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::crds::{CrdSink, Crds};
use super::objects::{Health, ObjectSink, resource};
use super::plan::{self, WatchScope, plan};
use super::watcher::{WatchClient, WatchSink, WatchTarget, watch};
use crate::cluster::context::Context;
use crate::cluster::world::{World, is_owner_kind};
use crate::objects::{CRDS, KindId};
use crate::telemetry::FeedState;

/// The number of objects between two releases of the lock, so that verdicts are not
/// delayed.
const SLICE: usize = 1_000;

pub struct Watches {
    context: Context,
    client: WatchClient,
    running: HashMap<KindId, RunningWatch>,
    /// Kinds to list again, because belay now reads other fields of their objects.
    outdated: HashSet<KindId>,
    /// The kinds that CRDs define. The watch of CRDs updates them.
    pub crds: Crds,
}

struct RunningWatch {
    target: WatchTarget,
    task: JoinHandle<()>,
    health: Arc<Health>,
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub struct State {
    /// Watches whose first list has neither ended nor failed.
    pub waiting: Vec<String>,
    /// The numbers for metrics.
    pub fed: FeedState,
    /// How many objects can't be read, by resource.
    pub unreadable: Vec<(String, usize)>,
}

impl Watches {
    pub fn new(context: Context, client: WatchClient) -> Self {
        Self {
            context,
            client,
            running: HashMap::new(),
            outdated: HashSet::new(),
            crds: Crds::default(),
        }
    }

    /// Whether the API server no longer serves a watched kind.
    pub fn any_is_unserved(&self) -> bool {
        self.running.values().any(|watched| watched.health.is_unserved())
    }

    /// Marks watched kinds that must be listed again.
    pub fn outdate(&mut self, is_outdated: impl Fn(KindId) -> bool) {
        self.outdated.extend(self.running.keys().copied().filter(|kind| is_outdated(*kind)));
    }

    /// Starts and stops watches according to the plan.
    pub async fn apply_plan(&mut self) {
        self.mark_panicked();
        let after = self.context.settings.timing.feed.owners;
        self.context.world.write().forget_owner_kinds(after);
        let wanted = self.update_owner_kinds_and_plan();
        let kinds: HashSet<KindId> = wanted.iter().map(|(kind, ..)| *kind).collect();
        let unwanted: Vec<KindId> =
            self.running.keys().filter(|kind| !kinds.contains(kind)).copied().collect();
        for kind in unwanted {
            self.stop(kind).await;
        }
        for (kind, target, scope) in wanted {
            let same = self.running.get(&kind).is_some_and(|watched| watched.target == target);
            if !same || self.outdated.contains(&kind) {
                self.start(kind, target, scope).await;
            }
        }
        self.outdated.clear();
    }

    /// Finds tasks that ended, which only happens after a panic. Marks their kinds as incomplete
    /// and outdated, so that [`Self::apply_plan`] restarts the watches. Returns whether a task
    /// has newly panicked.
    pub fn mark_panicked(&mut self) -> bool {
        let ended = self.running.iter().filter(|(_, watched)| watched.task.is_finished());
        let new = |kind: &KindId| self.outdated.insert(*kind);
        let panicked: Vec<KindId> = ended.map(|(kind, _)| *kind).filter(new).collect();
        for kind in &panicked {
            let mut world = self.context.world.write();
            world.graph.set_incomplete(*kind, "their watch ended because of a bug in belay");
            let resource = resource(&world, *kind);
            drop(world);
            tracing::error!(resource, "a watch ended unexpectedly; it begins again");
        }
        !panicked.is_empty()
    }

    /// Updates the kinds of owners of protected objects, and returns the watches of the plan.
    fn update_owner_kinds_and_plan(&self) -> Vec<(KindId, WatchTarget, WatchScope)> {
        let settings = &self.context.settings;
        let (wanted, owners) = {
            let world = self.context.world.read();
            let target = |(kind, scope): (KindId, WatchScope)| {
                let info = world.graph.kinds.info(kind).clone();
                let target = WatchTarget {
                    info,
                    detail: world.detail(kind),
                    labels: scope.labels(),
                    namespace: String::new(),
                };
                (kind, target, scope)
            };
            let wanted = plan(&world, settings).into_iter().map(target).collect();
            let protected = plan::protected_kinds(&world, &settings.labelled);
            let owners_of = |kind: KindId| {
                world.owner_kinds_of([kind]).into_iter().map(move |owner| (kind, owner))
            };
            (wanted, protected.into_iter().flat_map(owners_of).collect())
        };
        let mut world = self.context.world.write();
        if world.protected_owner_kinds != owners {
            world.protected_owner_kinds = owners;
            drop(world);
            self.context.signals.change();
        }
        wanted
    }

    async fn start(&mut self, kind: KindId, target: WatchTarget, scope: WatchScope) {
        // An old watch must not write beside the new one.
        if let Some(mut old) = self.running.remove(&kind) {
            old.end().await;
        }
        let name = resource(&self.context.world.read(), kind);
        tracing::info!(resource = name, detail = ?target.detail, labels = target.labels, "watching");
        {
            // Until the list ends, the graph may lack users that the new relations find.
            let graph = &mut self.context.world.write().graph;
            if scope == WatchScope::Labelled {
                graph.set_incomplete(kind, "belay watches only those with the label");
            } else if self.outdated.contains(&kind) {
                let why = "they are being read again";
                graph.set_incomplete(kind, why);
            }
        }
        let (world, signals) = (self.context.world.clone(), self.context.signals.clone());
        let grace = self.context.settings.timing.feed.grace;
        let objects =
            ObjectSink::new(world, kind, scope == WatchScope::All, signals.clone(), grace);
        let health = objects.health.clone();
        let is_crds = (&*target.info.group, &*target.info.resource) == CRDS;
        let task = if is_crds {
            let crds = self.crds.clone();
            self.spawn(&target, CrdSink::new(objects, crds, signals.plan.clone()))
        } else {
            self.spawn(&target, objects)
        };
        self.running.insert(kind, RunningWatch { target, task, health });
    }

    fn spawn(&self, target: &WatchTarget, sink: impl WatchSink + 'static) -> JoinHandle<()> {
        tokio::spawn(watch(self.client.clone(), target.clone(), sink))
    }

    async fn stop(&mut self, kind: KindId) {
        let Some(mut watched) = self.running.remove(&kind) else { return };
        watched.end().await;
        // The kind becomes incomplete before its objects are removed, so that removed objects do
        // not count as deleted.
        self.context.world.write().graph.set_incomplete(kind, "belay does not watch them");
        while self.context.world.write().graph.remove_some(kind, SLICE) == SLICE {}
        let mut world = self.context.world.write();
        world.owner_kinds.retain(|(dependent, _), _| *dependent != kind);
        world.waiting.objects.retain(|(other, ..), _| *other != kind);
        world.watched.remove(&kind);
        tracing::info!(resource = resource(&world, kind), "watching has ended");
    }

    /// Updates the kinds of owners. The kind of an owner may have become served after the
    /// object was stored.
    pub fn learn_owner_kinds(&self) {
        let mut world = self.context.world.write();
        let World { graph, owner_kinds, .. } = &mut *world;
        let served = graph.owner_kinds().filter(|(_, owner)| is_owner_kind(&graph.kinds, *owner));
        owner_kinds.extend(served.map(|pair| (pair, Instant::now())));
    }

    pub fn state(&self) -> State {
        let world = self.context.world.read();
        let waiting = self.running.iter().filter(|(_, watched)| !watched.health.first_list_ended());
        let is_incomplete = |(kind, watched): &(&KindId, &RunningWatch)| {
            watched.target.labels.is_empty() && !world.graph.is_complete(**kind)
        };
        let lag = self.running.values().map(|watched| watched.health.lag()).max();
        let unreadable = world.graph.unreadable_counts();
        let mut unreadable: Vec<_> =
            unreadable.map(|(kind, count)| (resource(&world, kind), count)).collect();
        unreadable.sort();
        State {
            unreadable,
            waiting: waiting.map(|(kind, _)| resource(&world, *kind)).collect(),
            fed: FeedState {
                objects: world.graph.object_count(),
                edges: world.graph.edge_count(),
                lag: lag.unwrap_or_default(),
                unknown: 0,
                watched: self.running.len(),
                incomplete: self.running.iter().filter(is_incomplete).count(),
            },
        }
    }
}

impl RunningWatch {
    /// Stops the watch and waits until it no longer writes.
    async fn end(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}
