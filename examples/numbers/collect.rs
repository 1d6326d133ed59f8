//! Measures the garbage collection of many dependents of one owner, with holds and without.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::{ControlPlane, Install, Result, eventually};
use crate::policies::{enforce, only, protecting};
use crate::reviews::Reviews;
use crate::watch::Watch;
use crate::writer::{Writer, config_map, core};
use crate::{crowd, program};

/// The number of rounds. Each round measures without and with holds.
const ROUNDS: usize = 3;

const LIMIT: Duration = Duration::from_secs(300);

pub fn run(objects: usize) -> Result<()> {
    let plane = ControlPlane::start()?;
    let installed =
        Install { production_timing: true, ..Install::of_everything(2) }.on(&plane, &program()?)?;
    let (held, bare) = (plane.namespace("held")?, plane.namespace("bare")?);
    let protect = "whileUsed: {onDelete: Hold}";
    enforce(&plane, "held", &protecting("held", &only(&held), "configmaps", protect))?;
    let runtime = Runtime::new()?;
    let writer = runtime.block_on(Writer::of(&plane))?;
    let watch = Watch::default();
    for ns in [&held, &bare] {
        watch.add(&runtime, &plane, &core(ns, "configmaps"))?;
    }
    let collect = |ns: &str, round: usize| -> Result<Duration> {
        let path = core(ns, "configmaps");
        let owner = format!("{ns}-owner-{round}");
        let made = runtime.block_on(writer.create(&path, &config_map(&owner, 100)))?;
        let made: Value = serde_json::from_str(&made)?;
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner,
            "uid": made["metadata"]["uid"]}]);
        let names: Vec<String> = (0..objects).map(|n| format!("{ns}-{round}-{n}")).collect();
        let maps = names.iter().map(|name| {
            let mut map = config_map(name, 500);
            map["metadata"]["ownerReferences"] = reference.clone();
            map
        });
        runtime.block_on(crowd::create(&writer, &path, maps))?;
        let started = Instant::now();
        runtime.block_on(crowd::delete(&writer, &path, &[owner]))?;
        let mut last = started;
        for name in &names {
            let gone = eventually(&format!("the end of {name}"), LIMIT, || {
                let events = watch.events_of(name);
                events.and_then(|events| events.deleted).ok_or_else(|| "it is there".into())
            })?;
            last = last.max(gone);
        }
        Ok(last - started)
    };
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let bare = collect(&bare, round)?;
        let before = Reviews::of(&installed)?;
        let held = collect(&held, round)?;
        let reviews = Reviews::of(&installed)?.since(&before);
        println!("{objects} dependents: without holds {bare:.2?}, with holds {held:.2?}");
        println!("  {} reviews, p99 {}", reviews.count(), reviews.quantile(0.99));
        times.push(held.as_secs_f64() / bare.as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    println!("ratio, median of {ROUNDS} rounds: {:.2}", times[ROUNDS / 2]);
    Ok(())
}
