//! Starts and stops watches according to the plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::crds::{CrdSink, Crds};
use super::objects::{Health, ObjectSink, resource};
use super::plan::{self, WatchScope, plan};
use super::watcher::{WatchServer, WatchSink, WatchTarget, watch};
use crate::cluster::context::Context;
use crate::cluster::world::{World, is_owner_kind};
use crate::objects::KindId;
use crate::telemetry::FeedState;

/// The number of objects between two releases of the lock, so that verdicts are not
/// delayed.
const SLICE: usize = 1_000;

/// All watches of objects.
pub struct Watches {
    context: Context,
    server: WatchServer,
    running: HashMap<KindId, RunningWatch>,
    /// Kinds that have to be read again, because something else is read of
    /// their objects now.
    outdated: HashSet<KindId>,
    /// The kinds that CRDs define, as the watch of CRDs has them.
    pub crds: Crds,
}

/// A watch that is under way.
struct RunningWatch {
    source: WatchTarget,
    task: JoinHandle<()>,
    health: Arc<Health>,
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How the watches are doing.
pub struct State {
    /// Watches whose first list has neither ended nor failed.
    pub waiting: Vec<String>,
    /// In numbers.
    pub fed: FeedState,
    /// How many objects can't be read, by resource.
    pub unreadable: Vec<(String, usize)>,
}

impl Watches {
    /// None yet.
    pub fn new(context: Context, server: WatchServer) -> Self {
        Self {
            context,
            server,
            running: HashMap::new(),
            outdated: HashSet::new(),
            crds: Crds::default(),
        }
    }

    /// Whether one of the kinds is not served any more.
    pub fn any_is_gone(&self) -> bool {
        self.running.values().any(|watched| watched.health.is_gone())
    }

    /// These have to be read again.
    pub fn outdate(&mut self, is_outdated: impl Fn(KindId) -> bool) {
        self.outdated.extend(self.running.keys().copied().filter(|kind| is_outdated(*kind)));
    }

    /// Starts and stops watches according to the plan.
    pub async fn follow(&mut self) {
        self.notice_dead();
        let after = self.context.settings.timing.feed.owners;
        self.context.world.write().forget_owners(after);
        let wanted = self.wanted();
        let kinds: HashSet<KindId> = wanted.iter().map(|(kind, ..)| *kind).collect();
        let unwanted: Vec<KindId> =
            self.running.keys().filter(|kind| !kinds.contains(kind)).copied().collect();
        for kind in unwanted {
            self.stop(kind).await;
        }
        for (kind, source, want) in wanted {
            let same = self.running.get(&kind).is_some_and(|watched| watched.source == source);
            if !same || self.outdated.contains(&kind) {
                self.start(kind, source, want).await;
            }
        }
        self.outdated.clear();
    }

    /// Finds tasks that ended, which only happens after a panic. Their state grows old,
    /// and they are started again with the next change. Returns whether there is a new
    /// one.
    pub fn notice_dead(&mut self) -> bool {
        let ended = self.running.iter().filter(|(_, watched)| watched.task.is_finished());
        let new = |kind: &KindId| self.outdated.insert(*kind);
        let dead: Vec<KindId> = ended.map(|(kind, _)| *kind).filter(new).collect();
        for kind in &dead {
            let mut world = self.context.world.write();
            world.graph.set_incomplete(*kind, "the watch of them ended by a bug of belay");
            let resource = resource(&world, *kind);
            drop(world);
            tracing::error!(resource, "a watch ended unexpectedly; it begins again");
        }
        !dead.is_empty()
    }

    /// The watches that the plan wants, and the kinds of owners of protected objects.
    fn wanted(&self) -> Vec<(KindId, WatchTarget, WatchScope)> {
        let settings = &self.context.settings;
        let (wanted, owners) = {
            let world = self.context.world.read();
            let source = |(kind, want): (KindId, WatchScope)| {
                let info = world.graph.kinds.info(kind).clone();
                let source =
                    WatchTarget { info, detail: world.detail(kind), labels: want.labels() };
                (kind, source, want)
            };
            let wanted = plan(&world, settings).into_iter().map(source).collect();
            let targets = plan::policies(&world).flat_map(|policy| plan::targets(&world, policy));
            let labelled = plan::labelled(&world, settings);
            (wanted, world.owners_of(targets.chain(labelled).collect::<Vec<_>>()))
        };
        let mut world = self.context.world.write();
        if world.owners != owners {
            world.owners = owners;
            drop(world);
            self.context.signals.change();
        }
        wanted
    }

    async fn start(&mut self, kind: KindId, source: WatchTarget, want: WatchScope) {
        // An old watch must not write beside the new one.
        if let Some(mut old) = self.running.remove(&kind) {
            old.end().await;
        }
        let name = resource(&self.context.world.read(), kind);
        tracing::info!(resource = name, detail = ?source.detail, labels = source.labels, "watching");
        {
            // Other relations read these objects, so a missing user proves nothing.
            let graph = &mut self.context.world.write().graph;
            if want == WatchScope::Labelled {
                graph.set_incomplete(kind, "belay watches those with the label alone");
            } else if self.outdated.contains(&kind) {
                let why = "they are being read again";
                graph.set_incomplete(kind, why);
            }
        }
        let (world, signals) = (self.context.world.clone(), self.context.signals.clone());
        let grace = self.context.settings.timing.feed.grace;
        let objects = ObjectSink::new(world, kind, want == WatchScope::All, signals.clone(), grace);
        let health = objects.health.clone();
        let is_definitions = source.info.resource == "customresourcedefinitions"
            && source.info.group == "apiextensions.k8s.io";
        let task = if is_definitions {
            let crds = self.crds.clone();
            self.spawn(&source, CrdSink::new(objects, crds, signals.plan.clone()))
        } else {
            self.spawn(&source, objects)
        };
        self.running.insert(kind, RunningWatch { source, task, health });
    }

    fn spawn(&self, source: &WatchTarget, sink: impl WatchSink + 'static) -> JoinHandle<()> {
        tokio::spawn(watch(self.server.clone(), source.clone(), sink))
    }

    async fn stop(&mut self, kind: KindId) {
        let Some(mut watched) = self.running.remove(&kind) else { return };
        watched.end().await;
        // Before the first object is forgotten, so that missing objects do not count as
        // deleted.
        self.context.world.write().graph.set_incomplete(kind, "belay does not watch them");
        while self.context.world.write().graph.remove_some(kind, SLICE) == SLICE {}
        let mut world = self.context.world.write();
        world.owned.retain(|(dependent, _), _| *dependent != kind);
        world.waiting.seen.retain(|(of, ..), _| *of != kind);
        world.watched.remove(&kind);
        tracing::info!(resource = resource(&world, kind), "watching has ended");
    }

    /// Updates the kinds of owners: a kind may be served now that was not when an object
    /// was stored.
    pub fn learn_owners(&self) {
        let mut world = self.context.world.write();
        let World { graph, owned, .. } = &mut *world;
        let served = graph.owner_kinds().filter(|(_, owner)| is_owner_kind(&graph.kinds, *owner));
        owned.extend(served.map(|pair| (pair, Instant::now())));
    }

    /// How they are doing.
    pub fn state(&self) -> State {
        let world = self.context.world.read();
        let waiting = self.running.iter().filter(|(_, watched)| !watched.health.is_settled());
        let is_failed = |(kind, watched): &(&KindId, &RunningWatch)| {
            watched.source.labels.is_empty() && !world.graph.is_complete(**kind)
        };
        let lag = self.running.values().map(|watched| watched.health.behind()).max();
        let unreadable = world.graph.unreadable_counts();
        let mut unreadable: Vec<_> =
            unreadable.map(|(kind, count)| (resource(&world, kind), count)).collect();
        unreadable.sort();
        State {
            unreadable,
            waiting: waiting.map(|(kind, _)| resource(&world, *kind)).collect(),
            fed: FeedState {
                objects: world.graph.objects(),
                edges: world.graph.edges(),
                lag: lag.unwrap_or_default(),
                unknown: 0,
                watched: self.running.len(),
                failed: self.running.iter().filter(is_failed).count(),
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
