//! Measures how belay grows with the cluster: start, memory, delay of events, verdicts and
//! releases beside a thousand objects, ten thousand, and so on. Then many objects change every
//! second while a replica answers reviews.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;

use crate::crowd::{self, ObjectTemplates};
use crate::growth_plot;
use crate::harness::client::{receive, send};
use crate::harness::direct::{client, delete_review, registered_path, review};
use crate::harness::{ControlPlane, Install, Installed, Options, Result, eventually};
use crate::lag::LagProbe;
use crate::policies::while_used;
use crate::program;
use crate::release::ReleaseProbe;
use crate::samples::Samples;
use crate::start::{StartMeasurement, read_lists};
use crate::writer::{Writer, config_map, core, pod};

/// The numbers of objects. With a million, the API server alone needs more than 20 GB.
const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 300_000];

/// The number of objects at which many change.
const CHURNED: usize = 100_000;

/// The number of writes, and of denied DELETEs.
const EVENTS: usize = 300;

/// The number of objects that are released together.
const RELEASED: usize = 500;

/// The number of changes each second, and in how many transactions.
const CHANGES: usize = 2_000;
const TRANSACTIONS: usize = 20;

/// The number of reviews each second, and of clients that send them.
const REVIEWS: usize = 500;
const CLIENTS: usize = 20;

/// How long a replica answers reviews while objects change.
const CHURN: Duration = Duration::from_secs(60);

const LIMIT: Duration = Duration::from_secs(60);

/// What was measured beside this number of objects.
pub struct GrowthPoint {
    pub objects: usize,
    pub start: StartMeasurement,
    /// The time in which a client reads the same lists.
    pub lists: Duration,
    /// From the answer to a write until a verdict sees the object.
    pub lag: Samples,
    /// Of a DELETE that belay denies.
    pub denial: Samples,
    /// Releases in a second.
    pub releases: f64,
}

pub fn run(largest: usize) -> Result<()> {
    let plane = ControlPlane::start_with(&Options { controllers: false, ..Options::default() })?;
    let runtime = Runtime::new()?;
    let templates = runtime.block_on(ObjectTemplates::of(&plane))?;
    let mut installed =
        Install { production_timing: true, ..Install::of_everything(1) }.on(&plane, &program()?)?;
    plane.apply(&while_used("crowd", crowd::LABEL, "configmaps, secrets"))?;
    let mut points = Vec::new();
    let mut namespaces = 0;
    for objects in SIZES.into_iter().filter(|size| *size <= largest) {
        let started = Instant::now();
        let target = objects / crowd::EACH;
        for number in namespaces..target {
            runtime.block_on(templates.put(&templates.namespace(number)))?;
        }
        namespaces = target;
        println!("{objects} objects; written in {:.1?}", started.elapsed());
        let point = measure(&plane, &mut installed, &runtime, objects)?;
        println!(
            "  start {:.2?} (plain lists {:.2?}), {:.0} MiB a minute later, at most {:.0} MiB\n  \
             write → visible    {}\n  denied DELETE      {}\n  releases a second  {:.0}",
            point.start.ready,
            point.lists,
            point.start.steady,
            point.start.peak,
            point.lag.row(),
            point.denial.row(),
            point.releases
        );
        points.push(point);
        if objects == CHURNED {
            churn(&plane, &installed, &runtime, (&templates, namespaces))?;
        }
    }
    std::fs::write("docs/growth.svg", growth_plot::svg(&points))?;
    Ok(())
}

fn measure(
    plane: &ControlPlane,
    installed: &mut Installed,
    runtime: &Runtime,
    objects: usize,
) -> Result<GrowthPoint> {
    let lists = runtime.block_on(read_lists(plane))?;
    let belay = installed.replicas.first_mut().ok_or("nothing was installed")?;
    let start = StartMeasurement::measure(belay, objects)?;
    let (denied, held) = (namespace(plane, runtime, true)?, namespace(plane, runtime, false)?);
    let denial = deny(plane, runtime, &denied)?;
    let run = ReleaseProbe::start(plane, installed)?;
    run.hold(plane, &held)?;
    let releases = RELEASED as f64 / run.together(&held, RELEASED)?.as_secs_f64();
    let lag = LagProbe::start(plane, denied)?.write("configmaps", "lag", EVENTS)?.visible;
    Ok(GrowthPoint { objects, start, lists, lag, denial, releases })
}

/// A new namespace in which Pods can be created: no controller creates its account. The policy of
/// the crowd covers it or not.
fn namespace(plane: &ControlPlane, runtime: &Runtime, covered: bool) -> Result<String> {
    let ns = plane.namespace("growth")?;
    runtime.block_on(async {
        let writer = Writer::of(plane).await?;
        crowd::create_account(&writer, &ns).await?;
        let label = json!({"metadata": {"labels": {"crowd": covered.to_string()}}});
        writer.merge(&format!("/api/v1/namespaces/{ns}"), &label).await
    })?;
    Ok(ns)
}

/// Deletes a ConfigMap that a Pod uses, one time after another.
fn deny(plane: &ControlPlane, runtime: &Runtime, ns: &str) -> Result<Samples> {
    let writer = runtime.block_on(Writer::of(plane))?;
    let maps = core(ns, "configmaps");
    runtime.block_on(async {
        writer.create(&maps, &config_map("used", 500)).await?;
        writer.create(&core(ns, "pods"), &pod("user", &["used".to_owned()], "tls")).await
    })?;
    let path = format!("{maps}/used");
    let dry = format!("{path}?dryRun=All");
    eventually("the policy to count", LIMIT, || {
        if runtime.block_on(writer.delete(&dry))? { Err("it is accepted".into()) } else { Ok(()) }
    })?;
    let mut samples = Samples::default();
    for _ in 0..EVENTS {
        let started = Instant::now();
        if runtime.block_on(writer.delete(&path))? {
            return Err("belay allowed the DELETE of a used ConfigMap".into());
        }
        samples.push(started.elapsed());
    }
    Ok(samples)
}

/// Changes many objects every second: first while one client writes, then while clients send
/// reviews to the replica.
fn churn(
    plane: &ControlPlane,
    installed: &Installed,
    runtime: &Runtime,
    (templates, namespaces): (&ObjectTemplates, usize),
) -> Result<()> {
    let ns = namespace(plane, runtime, true)?;
    let _denied = deny(plane, runtime, &ns)?;
    let measure = LagProbe::start(plane, ns.clone())?;
    let belay = installed.replicas.first().ok_or("nothing was installed")?;
    let changes = Changes::default();
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| changes.make(runtime, templates, namespaces));
        let result = (|| {
            let before = changes.now();
            let lag = measure.write("configmaps", "churn", EVENTS)?;
            println!("  {:.0} changes a second:", changes.rate_since(before));
            println!("    write → visible  {}", lag.visible.row());
            println!("    plain watch      {}", lag.bare.row());
            drop(measure);
            let (before, cpu) = (changes.now(), belay.process.cpu());
            let answers = send_reviews(plane, belay.listen, &ns)?;
            let cpu = belay.process.cpu().zip(cpu).map(|(after, before)| after - before);
            println!(
                "  {:.0} changes and {REVIEWS} reviews a second for {CHURN:?}; belay used {:.1?} of CPU",
                changes.rate_since(before),
                cpu.ok_or("the system does not report the CPU time")?
            );
            println!("    review → answer  {}", answers.row());
            Ok(())
        })();
        changes.stop.store(true, Ordering::Relaxed);
        let changed = changing.join().map_err(|_| "the writer of changes panicked")?;
        result.and(changed)
    })
}

/// The changes of objects.
#[derive(Default)]
struct Changes {
    stop: AtomicBool,
    made: AtomicUsize,
}

impl Changes {
    /// Gives Pods and ConfigMaps a new annotation until `stop` is set.
    fn make(
        &self,
        runtime: &Runtime,
        templates: &ObjectTemplates,
        namespaces: usize,
    ) -> Result<()> {
        let pause = Duration::from_secs(1) / u32::try_from(TRANSACTIONS)?;
        let mut next = Instant::now();
        for round in 0.. {
            let mut objects = templates.namespace(round % namespaces);
            objects.retain(|(key, _)| key.contains("/pods/") || key.contains("/configmaps/"));
            for objects in objects.chunks_mut(CHANGES / TRANSACTIONS) {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                for (_, object) in &mut *objects {
                    object["metadata"]["annotations"]["example.com/round"] =
                        json!(round.to_string());
                }
                runtime.block_on(templates.put(objects))?;
                self.made.fetch_add(objects.len(), Ordering::Relaxed);
                next += pause;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }

    fn now(&self) -> (usize, Instant) {
        (self.made.load(Ordering::Relaxed), Instant::now())
    }

    /// Changes in a second.
    fn rate_since(&self, (made, then): (usize, Instant)) -> f64 {
        (self.made.load(Ordering::Relaxed) - made) as f64 / then.elapsed().as_secs_f64()
    }
}

/// Sends reviews from many clients, at fixed times: four changes of a label, which belay allows,
/// then a DELETE, which it denies. Returns the time from when a review is due until its answer.
fn send_reviews(plane: &ControlPlane, address: SocketAddr, ns: &str) -> Result<Samples> {
    let path = registered_path(plane, "validatingwebhookconfiguration")?;
    let client = client(plane, address)?;
    let object = plane.api().get("configmap/used", ns)?.ok_or("the ConfigMap is gone")?;
    let mut labelled = object.clone();
    labelled["metadata"]["labels"]["changed"] = json!("true");
    let (resource, groups) = (("", "configmaps"), ["system:authenticated"]);
    let denied = delete_review(resource, "alice", &groups, &object);
    let allowed = review(resource, "UPDATE", "alice", &groups, (&object, &labelled));
    let interval = Duration::from_secs(1) * u32::try_from(CLIENTS)? / u32::try_from(REVIEWS)?;
    let begin = Instant::now();
    let send_all = |number: usize| -> Result<Vec<Duration>> {
        let mut connection = client.connect()?;
        let mut due = begin + interval * u32::try_from(number)? / u32::try_from(CLIENTS)?;
        let mut times = Vec::new();
        while begin.elapsed() < CHURN {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let denies = times.len() % 5 == 4;
            let body = if denies { &denied } else { &allowed };
            send(&mut connection, &path, "application/json", body.as_bytes())?;
            let answer = receive(&mut connection)?;
            if answer.code != 200 || answer.json()["response"]["allowed"] == denies {
                return Err(format!("a wrong answer: {answer:?}").into());
            }
            times.push(due.elapsed());
            due += interval;
        }
        Ok(times)
    };
    let mut samples = Samples::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || send_all(number))).collect();
        for client in clients {
            let times = client.join().map_err(|_| "a client panicked")??;
            times.into_iter().for_each(|time| samples.push(time));
        }
        Ok(samples)
    })
}
