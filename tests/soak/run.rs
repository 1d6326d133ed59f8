//! Runs a soak from start to end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::checks::{self, is_ours};
use crate::harness::random::Random;
use crate::harness::{Result, kubectl};
use crate::memory;
use crate::people;
use crate::policies;
use crate::referee::{Finding, Key, Referee, Watches};
use crate::report::Report;
use crate::stage::{BELAY, REPLICAS, Stage};
use crate::trouble::trouble;

/// How often the attacker acts.
const ATTACK: Duration = Duration::from_secs(1);

/// The options of a soak.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of all actions.
    pub seed: u64,
    /// For how long people act.
    pub length: Duration,
    /// Actions a second, of all people together.
    pub rate: f64,
    /// The belay under test.
    pub program: PathBuf,
}

/// Runs the soak and returns its report.
pub async fn run(settings: &Settings) -> Result<Report> {
    let stage = Stage::set(&settings.program).await?;
    let log = stage.plane.logs().join("audit.log");
    let before: BTreeSet<String> =
        Watches::read(reader(&log)?)?.open().into_keys().map(str::to_owned).collect();
    stage.protect().await?;

    let (end, ended) = tokio::sync::watch::channel(false);
    let operating = tokio::spawn(people::operate(stage.operator.clone(), ended));
    let mut report = act(&stage, settings).await?;

    // Longer than a Lease: without a leader, waiting objects do not change.
    checks::quiet(&stage.admin, Duration::from_secs(20), Duration::from_secs(90)).await?;
    let content = checks::content(&stage.admin).await?;
    let uid = |object: &serde_json::Value| object["metadata"]["uid"].as_str().map(str::to_owned);
    let there: BTreeSet<String> = content.iter().filter_map(uid).collect();
    let listed = |key: &Key| {
        let root = if key.0.is_empty() { "/api".to_owned() } else { format!("/apis/{}", key.0) };
        is_ours(&key.2) && checks::COLLECTIONS.contains(&format!("{root}/v1/{}", key.1).as_str())
    };
    let referee = Referee::read(reader(&log)?)?;
    report.open_watches(&referee, REPLICAS);
    let mut sentence = referee.judge(BELAY, &there, &listed);
    for finding in &mut sentence.findings {
        // What belay says, while the objects still exist.
        if let Finding::Stuck { target, why } = finding {
            why.push_str(&explain(&stage, &settings.program, target)?);
        }
    }
    report.judged(sentence);
    let probes: Vec<_> = stage.installed().replicas.iter().map(|belay| belay.probes).collect();
    let reviewed = r#"belay_admission_requests_total{webhook="validate",operation="delete""#;
    let live = r#"belay_live_reviews_total{operation="delete""#;
    report.deletes = [reviewed, live].map(|name| stage.installed().metric(name)).into();
    for (number, probes) in probes.into_iter().enumerate() {
        report.graph(number, checks::graph(&stage.admin, probes).await?);
    }

    policies::withdraw(&stage.admin).await;
    report.left = checks::wait_until_empty(&stage.admin, Duration::from_secs(90)).await?;
    // The operator continues while objects may wait for it.
    end.send_replace(true);
    operating.await?;
    report.watches = watches_left(&log, &before, report.watches).await?;
    Ok(report)
}

/// What `belay why` prints about an object with this title.
fn explain(stage: &Stage, program: &Path, title: &str) -> Result<String> {
    let mut words = title.split([' ', '/']);
    let [kind, namespace, name] = [(); 3].map(|()| words.next().unwrap_or_default());
    let args = ["why", &format!("{kind}/{name}"), "-n", namespace];
    let said = kubectl::run(program, stage.plane.kubeconfig(), &args, None)?;
    Ok(format!("; belay why: {}{}", said.stdout, said.stderr))
}

/// A log, from its beginning.
pub fn reader(log: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(log)?))
}

/// Waits until only the watches from before the first policy are open. The leader watches
/// kinds until it has seen that no object of them is held. Adds the remaining watches to
/// the report.
async fn watches_left(
    log: &Path,
    before: &BTreeSet<String>,
    mut found: Vec<String>,
) -> Result<Vec<String>> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let watches = Watches::read(reader(log)?)?;
        let mut left = watches.open();
        left.retain(|path, _| !before.contains(*path));
        if left.is_empty() || Instant::now() > limit {
            let text = |(path, count)| format!("{count} watches of {path}, which no policy needs");
            found.extend(left.into_iter().map(text));
            return Ok(found);
        }
        crate::harness::pause_async(Duration::from_secs(1)).await;
    }
}

/// Users act, policies change, leaders are killed; then all of them stop.
async fn act(stage: &Stage, settings: &Settings) -> Result<Report> {
    let until = Instant::now() + settings.length;
    let stop = Arc::new(AtomicBool::new(false));
    let (belay, proxy) = (stage.belay.clone(), stage.plane.proxy.clone());
    let service = stage.admin.get("/api/v1/namespaces/belay/services/belay").await;
    let service = service.map_err(|refusal| refusal.message)?;
    let address = format!("{}:443", service["spec"]["clusterIP"].as_str().unwrap_or_default());
    let random = Random::new(settings.seed, 1001);
    let stopped = stop.clone();
    let troubled = tokio::task::spawn_blocking(move || {
        trouble(&belay, &proxy, &address, random, &stopped).map_err(|error| error.to_string())
    });
    let (belay, stopped) = (stage.belay.clone(), stop.clone());
    let memory = tokio::task::spawn_blocking(move || memory::watch(&belay, &stopped));
    let changing = policies::change(stage.admin.clone(), Random::new(settings.seed, 1000), until);
    let changing = tokio::spawn(changing);

    let pause = Duration::from_secs_f64(stage.people.len() as f64 / settings.rate);
    let lives = stage
        .people
        .iter()
        .zip(0..)
        .map(|(person, number)| person.live(Random::new(settings.seed, number), pause, until));
    // One attack a second leaves time for the requests of the users.
    let attack = stage.attacker.attack(Random::new(settings.seed, 1002), ATTACK, until);
    let (lives, mut tally) =
        futures_util::future::join(futures_util::future::join_all(lives), attack).await;
    for of_one in lives {
        for (what, count) in of_one {
            *tally.entry(what).or_default() += count;
        }
    }
    // The other threads end even after an error.
    let changes = changing.await;
    stop.store(true, Ordering::Relaxed);
    let changes = changes?;
    let (killed, paused) = troubled.await??;
    let samples = memory.await?;
    Ok(Report { seed: settings.seed, tally, changes, killed, paused, samples, ..Report::default() })
}
