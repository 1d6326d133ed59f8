//! Measures the time from the deletion of the last user to the deletion of a held
//! object.
//!
//! The policy protects ConfigMaps while they are in use, with `onDelete: Hold` and
//! without settle time. Each ConfigMap is deleted while a Pod uses it, so belay
//! holds it. Then the Pod is deleted. A plain watch of both kinds records when the
//! Pod and the ConfigMap are deleted, and when belay starts its last pass over the
//! ConfigMap. First each ConfigMap has its own Pod, and the Pods are deleted one by
//! one. Then many ConfigMaps share one Pod, once in an empty namespace and once among 400
//! Pods. Before and after, a plain client releases as many objects.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::harness::{ControlPlane, Install, Installed, Result, eventually};
use crate::lag::threads;
use crate::policies::{enforce, only, protecting};
use crate::samples::Samples;
use crate::watch::{ObjectEvents, Watch};
use crate::writer::{Writer, config_map, core, pod};
use crate::{crowd, plain, program};

/// The maximum number of ConfigMaps with their own user.
const OWN: usize = 200;

/// The number of Pods in the crowded namespace.
const PODS: usize = 400;

/// belay checks a held object again after 1 s, 2 s, 4 s and so on. After this time
/// at least 30 s pass between two checks, as for any object that waits long.
const REST: Duration = Duration::from_secs(60);

/// The time between a release and the next DELETE, in the second series. The first series has no
/// pause. The API server may make a consistent list wait for up to 100 ms after the previous list
/// of the same kind.
const GAP: Duration = Duration::from_millis(300);

const LIMIT: Duration = Duration::from_secs(300);

pub fn run(objects: usize) -> Result<()> {
    let plane = ControlPlane::start()?;
    let installed =
        Install { production_timing: true, ..Install::of_everything(2) }.on(&plane, &program()?)?;
    let [ns, crowded, plain] = ["release", "crowded", "plain"].map(|name| plane.namespace(name));
    let (ns, crowded, plain) = (ns?, crowded?, plain?);
    let run = ReleaseProbe::start(&plane, &installed)?;
    for ns in [&ns, &crowded] {
        run.hold(&plane, ns)?;
    }
    let pods =
        (0..PODS).map(|number| pod(&format!("crowd-{number}"), &["other".to_owned()], "tls"));
    run.runtime.block_on(crowd::create(&run.writer, &core(&crowded, "pods"), pods))?;
    let own = objects.min(OWN);
    run.one_by_one(&ns, "fast", own, Duration::ZERO)?;
    run.one_by_one(&ns, "slow", own, GAP)?;
    let alone = || plain::release(&run.runtime, &run.writer, &plain, objects);
    let mut before = alone()?;
    for (place, ns) in [("an empty namespace", &ns), ("a namespace of 400 Pods", &crowded)] {
        let took = run.together(ns, objects)?;
        let after = alone()?;
        let bare = (before + after) / 2;
        let rate = |took: Duration| objects as f64 / took.as_secs_f64();
        println!(
            "{place}: belay {:.0}, the plain client {:.0} releases a second: {:.2}",
            rate(took),
            rate(bare),
            rate(took) / rate(bare)
        );
        before = after;
    }
    Ok(())
}

/// A client that deletes objects, and a watch of them.
pub struct ReleaseProbe<'i> {
    installed: &'i Installed,
    runtime: Runtime,
    writer: Writer,
    watch: Watch,
    // The watch has its own thread, so that it records the time at once.
    watching: Runtime,
}

impl<'i> ReleaseProbe<'i> {
    pub fn start(plane: &ControlPlane, installed: &'i Installed) -> Result<Self> {
        let runtime = threads("writer", 1)?;
        let writer = runtime.block_on(Writer::of(plane))?;
        let (watch, watching) = (Watch::default(), threads("watch", 1)?);
        Ok(Self { installed, runtime, writer, watch, watching })
    }

    /// Holds the ConfigMaps of a namespace while they are in use.
    pub fn hold(&self, plane: &ControlPlane, ns: &str) -> Result<()> {
        let policy = protecting(ns, &only(ns), "configmaps", "whileUsed: {onDelete: Hold}");
        enforce(plane, ns, &policy)?;
        for kind in ["configmaps", "pods"] {
            self.watch.add(&self.watching, plane, &core(ns, kind))?;
        }
        Ok(())
    }

    fn one_by_one(&self, ns: &str, prefix: &str, objects: usize, gap: Duration) -> Result<()> {
        let names: Vec<String> = (0..objects).map(|number| format!("{prefix}-{number}")).collect();
        let user = |name: &String| format!("user-of-{name}");
        let pods = names.iter().map(|name| pod(&user(name), std::slice::from_ref(name), "tls"));
        self.wait_for(ns, &names, pods.collect())?;

        let (mut begun, mut pass) = (Samples::default(), Samples::default());
        let (mut released, mut sent_to_gone) = (Samples::default(), Samples::default());
        let [reads, before] = [READS, UNUSED].map(|metric| self.installed.metric(metric));
        let started = Instant::now();
        for name in &names {
            std::thread::sleep(gap);
            let sent = Instant::now();
            self.delete_pod(ns, &user(name))?;
            let (user_gone, _) = self.deletion(&user(name))?;
            let (gone, events) = self.deletion(name)?;
            let pass_begun = events.pass.ok_or("belay released it without a pass")?;
            begun.push(pass_begun.saturating_duration_since(user_gone));
            pass.push(gone.saturating_duration_since(pass_begun));
            released.push(gone.saturating_duration_since(user_gone));
            sent_to_gone.push(gone - sent);
        }
        let rate = (self.installed.metric(READS) - reads) / started.elapsed().as_secs_f64();
        println!("{objects} ConfigMaps with a Pod each; {gap:?} between release and next DELETE:");
        println!("  Pod gone → ConfigMap gone  {}", released.row());
        println!("    Pod gone → pass begun    {}", begun.row());
        println!("    pass begun → gone        {}", pass.row());
        println!("  DELETE sent → gone         {}", sent_to_gone.row());
        println!(
            "  belay waited for {rate:.0} live reads a second, also for the remaining ConfigMaps"
        );
        self.check(before as usize + objects)
    }

    /// Returns how long it takes to release ConfigMaps that wait for one Pod.
    pub fn together(&self, ns: &str, objects: usize) -> Result<Duration> {
        let user = format!("user-in-{ns}");
        let names: Vec<String> = (0..objects).map(|number| format!("{ns}-{number}")).collect();
        self.wait_for(ns, &names, vec![pod(&user, &names, "tls")])?;
        let before = self.installed.metric(UNUSED);
        self.delete_pod(ns, &user)?;
        let (user_gone, _) = self.deletion(&user)?;
        let mut since = Samples::default();
        for name in &names {
            since.push(self.deletion(name)?.0.saturating_duration_since(user_gone));
        }
        println!("{objects} ConfigMaps that all wait for one Pod, which is deleted:");
        println!("  Pod gone → ConfigMap gone  {}", since.row());
        self.check(before as usize + objects)?;
        Ok(since.quantile(1.0))
    }

    /// Creates ConfigMaps and the Pods that use them, deletes the ConfigMaps, and
    /// waits until belay has checked and kept each of them.
    fn wait_for(&self, ns: &str, names: &[String], pods: Vec<serde_json::Value>) -> Result<()> {
        let (writer, config_maps) = (&self.writer, core(ns, "configmaps"));
        self.runtime.block_on(async {
            let maps = names.iter().map(|name| config_map(name, 500));
            crowd::create(writer, &config_maps, maps).await?;
            crowd::create(writer, &core(ns, "pods"), pods.into_iter()).await?;
            crowd::delete(writer, &config_maps, names).await
        })?;
        let deleted = Instant::now();
        eventually("all to wait", LIMIT, || {
            let (waiting, known) = (self.watch.waiting(names), self.installed.metric(WAITING));
            if (waiting, known as usize) == (names.len(), names.len()) {
                return Ok(());
            }
            Err(format!("{waiting} have been looked at, and belay knows {known}").into())
        })?;
        let took = deleted.elapsed();
        // There is no event to wait for.
        std::thread::sleep(REST);
        let waiting = self.watch.waiting(names);
        println!("{waiting} wait; belay had looked at each {took:.1?} after the last DELETE");
        if waiting == names.len() { Ok(()) } else { Err("some did not wait".into()) }
    }

    fn delete_pod(&self, ns: &str, name: &str) -> Result<()> {
        let path = format!("{}/{name}?gracePeriodSeconds=0", core(ns, "pods"));
        let done = self.runtime.block_on(self.writer.delete(&path))?;
        if done { Ok(()) } else { Err(format!("{path}: refused").into()) }
    }

    /// When the watch reported the deletion, and its other reports.
    fn deletion(&self, name: &str) -> Result<(Instant, ObjectEvents)> {
        eventually(&format!("the end of {name}"), LIMIT, || {
            let events = self.watch.events_of(name);
            let gone = events.and_then(|events| Some((events.deleted?, events)));
            gone.ok_or_else(|| "it is there".into())
        })
    }

    /// Waits until belay reports this number of releases and no held objects.
    fn check(&self, released: usize) -> Result<()> {
        eventually("belay to have counted", LIMIT, || {
            let counted = [UNUSED, WAITING].map(|metric| self.installed.metric(metric) as usize);
            if counted == [released, 0] {
                return Ok(());
            }
            Err(format!("released and waiting: {counted:?}, and not {:?}", [released, 0]).into())
        })
    }
}

const READS: &str = "belay_live_reads_total";
const UNUSED: &str = "belay_releases_total{why=\"unused\"}";
const WAITING: &str = "belay_releasing ";
