//! Measures the time from a write until a verdict can see the object.
//!
//! A client creates objects one by one and records when the API server answers each
//! request. Then this process queries the graph of a feed, as a verdict does, every
//! 50 µs until the graph contains the object. An object that arrives before the answer
//! counts as zero. A plain watch of the same kind records when its line with the object
//! arrives. The difference is the delay that belay adds to the delay of the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use belay::cluster::{Certificates, Context, Settings, SharedWorld, Signals, feed};
use belay::policy::Identities;
use belay::telemetry::{Metrics, Readiness};
use belay::timing::Timing;
use tokio::runtime::Runtime;

use crate::harness::install::print;
use crate::harness::{ControlPlane, Result, eventually};
use crate::policies::{only, while_used};
use crate::program;
use crate::samples::Samples;
use crate::watch::Watch;
use crate::writer::{Writer, config_map, core, pod};

/// The number of writes of each kind in each mode.
const EVENTS: usize = 500;

/// The number of clients that write at the same time in the busy mode.
const OTHERS: usize = 4;

const LIMIT: Duration = Duration::from_secs(300);

pub fn run() -> Result<()> {
    let plane = ControlPlane::start()?;
    plane.apply(&print(&program()?, &["admin", "crds"])?)?;
    let (ns, elsewhere) = (plane.namespace("lag")?, plane.namespace("elsewhere")?);
    plane.apply(&while_used("lag", &only(&ns), "configmaps, secrets"))?;
    let measure = LagProbe::start(&plane, ns)?;
    for kind in ["configmaps", "pods"] {
        println!("{kind}, no other client writes:");
        measure.write(kind, "quiet", EVENTS)?.print();
    }
    let busy = Busy::begin(&plane, &elsewhere)?;
    for kind in ["configmaps", "pods"] {
        let (before, started) = (busy.writes(), Instant::now());
        println!("{kind}, {OTHERS} others write ConfigMaps as fast as they can:");
        measure.write(kind, "busy", EVENTS)?.print();
        let rate = (busy.writes() - before) as f64 / started.elapsed().as_secs_f64();
        println!("  the others made {rate:.0} writes a second");
    }
    Ok(())
}

pub fn threads(name: &str, threads: usize) -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()?)
}

/// Starts a feed as `belay serve` does, and returns its graph.
async fn start_feed(plane: &ControlPlane) -> Result<SharedWorld> {
    let settings = Settings {
        timeout_seconds: 5,
        certificates: Certificates::Files { authorities: None },
        backfill: 0,
        namespace: "belay".to_owned(),
        name: "belay".to_owned(),
        replica: "numbers".to_owned(),
        instance: "numbers".to_owned(),
        labelled: Vec::new(),
        timing: Timing::default(),
    };
    let (world, readiness) = (SharedWorld::default(), Readiness::default());
    let context = Context {
        client: plane.client().await?,
        world: world.clone(),
        settings: Arc::new(settings),
        metrics: Metrics::default(),
        readiness: readiness.clone(),
        signals: Arc::new(Signals::default()),
    };
    let written = tokio::sync::watch::Sender::new(Arc::default());
    let _detached = tokio::spawn(feed::run(context, Identities::default(), written));
    eventually("the feed", LIMIT, || {
        if readiness.is_ready() { Ok(()) } else { Err(readiness.describe().into()) }
    })?;
    Ok(world)
}

/// A feed in this process, a plain watch, and a client that writes.
pub struct LagProbe {
    world: SharedWorld,
    watch: Watch,
    ns: String,
    writer: Writer,
    writing: Runtime,
    _feed: Runtime,
    _bare: Runtime,
}

impl LagProbe {
    /// Starts to watch, and waits until the feed and the plain watches report new objects of this
    /// namespace.
    pub fn start(plane: &ControlPlane, ns: String) -> Result<Self> {
        // As many threads as the runtime of `belay serve`.
        let feed = threads("feed", 2)?;
        let world = feed.block_on(start_feed(plane))?;
        let bare = threads("bare", 1)?;
        let watch = Watch::default();
        for kind in ["configmaps", "pods"] {
            watch.add(&bare, plane, &core(&ns, kind))?;
        }
        let writing = threads("writer", 1)?;
        let writer = writing.block_on(Writer::of(plane))?;
        let measure = Self { world, watch, ns, writer, writing, _feed: feed, _bare: bare };
        measure.wait_until_all_listen()?;
        Ok(measure)
    }

    fn sees(&self, resource: &str, name: &str) -> bool {
        let world = self.world.read();
        let kind = world.graph.kinds.find_resource("", resource);
        kind.is_some_and(|kind| world.graph.object(kind, &self.ns, name).is_some())
    }

    /// Creates objects until the watches have reported one of each kind.
    fn wait_until_all_listen(&self) -> Result<()> {
        for kind in ["configmaps", "pods"] {
            let mut number = 0;
            eventually("all watches", LIMIT, || {
                number += 1;
                let name = format!("first-{kind}-{number}");
                self.create(kind, &name)?;
                eventually("an object", Duration::from_secs(2), || {
                    let seen = self.watch.events_of(&name).is_some() && self.sees(kind, &name);
                    if seen { Ok(()) } else { Err("no watch reports it".into()) }
                })
            })?;
        }
        Ok(())
    }

    fn create(&self, kind: &str, name: &str) -> Result<()> {
        let object = match kind {
            "pods" => pod(name, &["settings".to_owned()], "tls"),
            _ => config_map(name, 500),
        };
        let collection = core(&self.ns, kind);
        self.writing.block_on(self.writer.create(&collection, &object)).map(drop)
    }

    /// Creates this number of objects one by one. Each name starts with the prefix.
    pub fn write(&self, kind: &str, prefix: &str, events: usize) -> Result<Lag> {
        let mut lag = Lag::default();
        for number in 0..events {
            let name = format!("{prefix}-{kind}-{number}");
            let sent = Instant::now();
            self.create(kind, &name)?;
            let answered = Instant::now();
            let mut first = true;
            let seen = loop {
                if self.sees(kind, &name) {
                    break if first { answered } else { Instant::now() };
                }
                first = false;
                if answered.elapsed() > LIMIT {
                    return Err(format!("{kind} {name} was never seen").into());
                }
                std::thread::sleep(Duration::from_micros(50));
            };
            lag.early += usize::from(first);
            let line = eventually("the bare watch", LIMIT, || {
                self.watch.events_of(&name).ok_or_else(|| "no event arrived".into())
            })?;
            let line = line.first;
            lag.visible.push(seen - answered);
            lag.bare.push(line.saturating_duration_since(answered));
            lag.added.push(seen.saturating_duration_since(line.max(answered)));
            lag.whole.push(seen - sent);
        }
        Ok(lag)
    }
}

/// The times of some writes.
#[derive(Default)]
pub struct Lag {
    /// From the answer of the API server until the graph contains the object.
    pub visible: Samples,
    /// From the answer until the plain watch reports the object.
    pub bare: Samples,
    added: Samples,
    whole: Samples,
    /// The number of objects that the graph contained before the answer.
    early: usize,
}

impl Lag {
    fn print(&self) {
        println!(
            "  answered → visible     {}; before the answer: {}",
            self.visible.row(),
            self.early
        );
        println!("  answered → bare watch  {}", self.bare.row());
        println!("  bare watch → visible   {}", self.added.row());
        println!("  sent → visible         {}", self.whole.row());
    }
}

/// Clients that create and delete objects without a pause until this is dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Busy {
    fn begin(plane: &ControlPlane, ns: &str) -> Result<Self> {
        let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let runtime = threads("busy", 1)?;
        for number in 0..OTHERS {
            let writer = runtime.block_on(Writer::of(plane))?;
            let (stop, writes) = (stop.clone(), writes.clone());
            let (collection, name) = (core(ns, "configmaps"), format!("busy-{number}"));
            let _detached = runtime.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let made = writer.create(&collection, &config_map(&name, 500)).await;
                    let gone = writer.delete(&format!("{collection}/{name}")).await;
                    if let Err(error) = made.and(gone) {
                        eprintln!("a busy client stopped: {error}");
                        return;
                    }
                    writes.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        Ok(Self { stop, writes, _runtime: runtime })
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
