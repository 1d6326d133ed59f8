//! Measures the start of a replica in a large cluster: the time until it is ready,
//! and its highest memory compared with its memory afterwards.
//!
//! The objects and the policies exist before the start. The replica is started
//! several times, so that the API server has all objects in its cache, as it has
//! when belay restarts. To measure the API server and the network alone, a client
//! reads the same lists and discards them.

use std::time::{Duration, Instant};

use futures_util::AsyncReadExt as _;
use http::Request;
use tokio::runtime::Runtime;

use crate::harness::belay::http_get;
use crate::harness::install::print;
use crate::harness::{Belay, ControlPlane, Install, Options, Result, eventually};
use crate::policies::while_used;
use crate::{crowd, program};

/// The number of starts.
const STARTS: usize = 3;

/// The time until the memory is stable.
const SETTLED: Duration = Duration::from_secs(60);

const LIMIT: Duration = Duration::from_secs(300);

pub fn run(objects: usize) -> Result<()> {
    let options = Options { controllers: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options)?;
    let program = program()?;
    plane.apply(&print(&program, &["admin", "crds"])?)?;
    let runtime = Runtime::new()?;
    let started = Instant::now();
    let objects = runtime.block_on(crowd::make(&plane, objects.div_ceil(crowd::EACH)))?;
    println!("{objects} objects were made in {:.0?}", started.elapsed());
    plane.apply(&while_used("crowd", crowd::LABEL, "configmaps, secrets"))?;

    let mut installed =
        Install { production_timing: true, ..Install::of_everything(1) }.on(&plane, &program)?;
    let belay = installed.replicas.first_mut().ok_or("nothing was installed")?;
    for number in 1..=STARTS {
        let read = runtime.block_on(read_lists(&plane))?;
        let start = StartMeasurement::measure(belay, objects)?;
        println!(
            "start {number}: the bare lists take {read:.2?}; ready in {:.2?}; resident then {:.0} \
             MiB, {SETTLED:?} later {:.0} MiB, at its highest {:.0} MiB: {:.2} × later; {} edges",
            start.ready,
            start.at_ready,
            start.steady,
            start.peak,
            start.peak / start.steady,
            gauge(belay, "belay_graph_edges ")?
        );
    }
    Ok(())
}

/// The time and the memory of a start. Memory is in MiB.
pub struct StartMeasurement {
    /// From the start of the process until it is ready.
    pub ready: Duration,
    at_ready: f64,
    /// A minute later.
    pub steady: f64,
    /// The maximum.
    pub peak: f64,
}

impl StartMeasurement {
    /// Restarts a replica, which has to know this number of objects when it is ready.
    pub fn measure(belay: &mut Belay, objects: usize) -> Result<Self> {
        belay.process.kill();
        let started = Instant::now();
        belay.process.restart()?;
        let probes = belay.probes;
        let ready = eventually("belay", LIMIT, || match http_get(probes, "/readyz")? {
            (200, _) => Ok(started.elapsed()),
            (_, body) => Err(body.into()),
        })?;
        let memory = |kib: Option<u64>| -> Result<f64> {
            Ok(kib.ok_or("the system does not report the memory")? as f64 / 1024.0)
        };
        let at_ready = memory(belay.process.resident())?;
        let known = gauge(belay, "belay_graph_objects ")?;
        if known < objects as f64 {
            return Err(format!("it was ready and knew {known} objects of {objects}").into());
        }
        // There is no event to wait for.
        std::thread::sleep(SETTLED);
        let (steady, peak) = (memory(belay.process.resident())?, memory(belay.process.peak())?);
        Ok(Self { ready, at_ready, steady, peak })
    }
}

fn gauge(belay: &Belay, prefix: &str) -> Result<f64> {
    let metrics = belay.metrics()?;
    let line = metrics.lines().find_map(|line| line.strip_prefix(prefix));
    Ok(line.ok_or_else(|| format!("there is no {prefix}"))?.trim().parse()?)
}

/// Reads the large lists as belay does, one by one, and discards them.
pub async fn read_lists(plane: &ControlPlane) -> Result<Duration> {
    let client = plane.client().await?;
    let started = Instant::now();
    for (path, whole) in [
        ("/api/v1/pods", true),
        ("/apis/apps/v1/replicasets", true),
        ("/api/v1/configmaps", false),
        ("/api/v1/secrets", false),
    ] {
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let accept = if whole { "application/json" } else { metadata };
        let request = Request::get(path).header("accept", accept).body(Vec::new())?;
        let mut answer = Box::pin(client.request_stream(request).await?);
        let mut buffer = vec![0; 64 << 10];
        while answer.read(&mut buffer).await? > 0 {}
    }
    Ok(started.elapsed())
}
