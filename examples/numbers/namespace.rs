//! Measures the deletion of a very large Namespace whose objects are all protected
//! `always` and held. First belay refuses the DELETE. Then an approval of scope
//! Content allows it, and belay checks and releases each object.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::manifest::approval;
use crate::harness::{Belay, ControlPlane, Install, Installed, Result, eventually};
use crate::policies::{enforce, only, protecting};
use crate::reviews::Reviews;
use crate::samples::{Samples, milliseconds};
use crate::watch::Watch;
use crate::writer::{Writer, config_map, core};
use crate::{crowd, program};

/// The number of DELETEs before the approval.
const REFUSALS: usize = 20;

const SOON: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(1800);

pub fn run(objects: usize) -> Result<()> {
    let plane = ControlPlane::start()?;
    let installed =
        Install { production_timing: true, ..Install::of_everything(2) }.on(&plane, &program()?)?;
    let (ns, bare) = (plane.namespace("large")?, plane.namespace("bare")?);
    enforce(&plane, "large", &protecting("large", &only(&ns), "configmaps", "always: {}"))?;
    let runtime = Runtime::new()?;
    let writer = runtime.block_on(Writer::of(&plane))?;
    let bare = Run { plane, installed, runtime, writer, ns: bare };
    bare.create(objects)?;
    let (without_holds, _) = bare.delete_until_gone()?;
    println!("without holds the Namespace is gone after {without_holds:.1?}");
    let run = Run { ns, ..bare };
    run.fill(objects)?;
    println!("before its DELETE: {}", run.memory()?);
    run.measure_refusals()?;
    let with_holds = run.delete_approved()?;
    println!("ratio: {:.2}", with_holds.as_secs_f64() / without_holds.as_secs_f64());
    println!("after it: {}", run.memory()?);
    Ok(())
}

struct Run {
    // The watch runs on this runtime, and ends before the control plane.
    runtime: Runtime,
    plane: ControlPlane,
    installed: Installed,
    writer: Writer,
    ns: String,
}

impl Run {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}", self.ns)
    }

    fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.runtime.block_on(self.writer.get(path))?)?)
    }

    /// Returns the time of the DELETE, and whether the API server accepted it.
    fn delete(&self) -> Result<(Duration, bool)> {
        let started = Instant::now();
        let is_accepted = self.runtime.block_on(self.writer.delete(&self.path()))?;
        Ok((started.elapsed(), is_accepted))
    }

    fn create(&self, objects: usize) -> Result<Duration> {
        let path = core(&self.ns, "configmaps");
        let maps = (0..objects).map(|number| config_map(&format!("settings-{number}"), 500));
        let started = Instant::now();
        self.runtime.block_on(crowd::create(&self.writer, &path, maps))?;
        Ok(started.elapsed())
    }

    /// Creates ConfigMaps and waits until belay reports the hold on all of them.
    /// belay adds no hold to the CA ConfigMap that each Namespace has.
    fn fill(&self, objects: usize) -> Result<()> {
        let took = self.create(objects)?;
        eventually("all to be held", SOON, || {
            let held = self.installed.metric("belay_holds ");
            if held == objects as f64 { Ok(()) } else { Err(format!("{held} are held").into()) }
        })?;
        println!("2 replicas; {objects} ConfigMaps, all held, were made in {took:.0?}");
        Ok(())
    }

    fn measure_refusals(&self) -> Result<()> {
        let (mut samples, before) = (Samples::default(), Reviews::of(&self.installed)?);
        for _ in 0..REFUSALS {
            let (took, is_accepted) = self.delete()?;
            if is_accepted {
                return Err("the DELETE of the Namespace was not refused".into());
            }
            samples.push(took);
        }
        println!("DELETE of the Namespace, refused: {}", samples.row());
        self.print(Reviews::of(&self.installed)?.since(&before));
        Ok(())
    }

    /// Returns how long the Namespace takes to be deleted.
    fn delete_approved(&self) -> Result<Duration> {
        let uid = self.get(&self.path())?;
        let uid = uid.pointer("/metadata/uid").and_then(Value::as_str).ok_or("it has no uid")?;
        let target = json!({"resource": "namespaces", "name": self.ns, "uid": uid});
        self.plane.apply(&approval("large", target, "Content"))?;
        let before = Reviews::of(&self.installed)?;
        let (gone, took) = self.delete_until_gone()?;
        println!("DELETE of the Namespace, approved: {} ms", milliseconds(took));
        println!("  gone {gone:.1?} after the DELETE was sent");
        self.print(Reviews::of(&self.installed)?.since(&before));
        let released = self.installed.metric("belay_releases_total{why=\"approved\"}");
        println!("  belay released {released} objects because of the approval");
        Ok(gone)
    }

    /// Returns how long the Namespace and its DELETE take.
    fn delete_until_gone(&self) -> Result<(Duration, Duration)> {
        let watch = Watch::default();
        watch.add(&self.runtime, &self.plane, "/api/v1/namespaces")?;
        eventually("a watch", SOON, || watch.events_of(&self.ns).ok_or_else(|| "silent".into()))?;
        let (started, took) = eventually("a DELETE that passes", SOON, || {
            let started = Instant::now();
            let (took, is_accepted) = self.delete()?;
            if is_accepted { Ok((started, took)) } else { Err("it is refused".into()) }
        })?;
        let gone = eventually("the end of the Namespace", LIMIT, || {
            let events = watch.events_of(&self.ns);
            events.and_then(|events| events.deleted).ok_or_else(|| "it is there".into())
        })?;
        Ok((gone - started, took))
    }

    fn print(&self, reviews: Reviews) {
        println!("  meanwhile belay answered {} reviews", reviews.count());
        let [half, most] = [0.5, 0.99].map(|part| reviews.quantile(part));
        println!("    in its own time, by the buckets of its histogram: p50 {half}, p99 {most}");
        print!("{}", reviews.verdicts());
    }

    /// The current and the highest memory of each replica.
    fn memory(&self) -> Result<String> {
        let memory = |belay: &Belay| -> Result<String> {
            let all = belay.process.resident().zip(belay.process.peak());
            let (now, most) = all.ok_or("the system does not say its memory")?;
            Ok(format!("{} MiB resident, {} MiB at the highest", now / 1024, most / 1024))
        };
        let all: Result<Vec<String>> = self.installed.replicas.iter().map(memory).collect();
        Ok(format!("the replicas have {}", all?.join("; ")))
    }
}
