//! Measures the time that belay adds to requests. Rounds with policies and rounds
//! without policies alternate. Only the webhook rules of the policies change; belay
//! and the webhooks for the label run all the time.
//!
//! The proxy of the test harness is between the API server and belay. It adds one
//! hop that a cluster does not have.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::audit;
use crate::harness::{ControlPlane, Install, Options, Result, eventually};
use crate::policies::{only, while_used};
use crate::program;
use crate::samples::{Samples, milliseconds};
use crate::writer::{Writer, config_map, core, pod};

/// The number of pairs of rounds.
const ROUNDS: usize = 10;

/// The number of requests of each kind in a round.
const EACH: usize = 60;

/// The number of requests in a round that follow a pause.
const SPACED: usize = 10;

/// The pause. It is longer than the API server's interval of 100 ms for progress of its caches.
const PAUSE: Duration = Duration::from_millis(350);

const LIMIT: Duration = Duration::from_secs(60);

/// The samples of one kind of request, with and without belay's rules.
#[derive(Default)]
struct Pair {
    with: Samples,
    without: Samples,
}

impl Pair {
    fn samples(&mut self, with: bool) -> &mut Samples {
        if with { &mut self.with } else { &mut self.without }
    }

    fn print(&self, what: &str) {
        println!("{what}:");
        println!("  without  {}", self.without.row());
        println!("  with     {}", self.with.row());
        let [half, most] = [0.5, 0.99].map(|part| {
            let (with, without) = (self.with.quantile(part), self.without.quantile(part));
            let sign = if with < without { "-" } else { "+" };
            let ratio = with.as_secs_f64() / without.as_secs_f64();
            format!("{sign}{} ms (× {ratio:.2})", milliseconds(with.abs_diff(without)))
        });
        println!("  added    p50 {half}, p99 {most}");
    }
}

struct Run {
    plane: ControlPlane,
    runtime: Runtime,
    writer: Writer,
    ns: String,
    policies: String,
    unused: Pair,
    spaced: Pair,
    used: Pair,
    update: Pair,
    list: Samples,
    spaced_list: Samples,
    /// The begin and the end of each DELETE after a pause, with belay's rules.
    spaced_deletes: Vec<(Timestamp, Timestamp)>,
}

pub fn run() -> Result<()> {
    let plane = ControlPlane::start_with(&Options::default())?;
    let _installed =
        Install { production_timing: true, ..Install::of_everything(2) }.on(&plane, &program()?)?;
    let ns = plane.namespace("added")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let writer = runtime.block_on(Writer::of(&plane))?;
    // The updated object has the hold, so that its updates match all webhooks.
    let held = format!(
        "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {{name: kept}}\nspec:\n  \
         targets: [{{apiGroups: [\"\"], resources: [configmaps], names: [kept], namespaceSelector: {{{}}}}}]\n  \
         protect: {{always: {{}}}}\n",
        only(&ns)
    );
    let policies = format!("{}---\n{held}", while_used("while-used", &only(&ns), "configmaps"));
    let mut run = Run {
        plane,
        runtime,
        writer,
        ns,
        policies,
        unused: Pair::default(),
        spaced: Pair::default(),
        used: Pair::default(),
        update: Pair::default(),
        list: Samples::default(),
        spaced_list: Samples::default(),
        spaced_deletes: Vec::new(),
    };
    run.create(&config_map("kept", 500), "configmaps")?;
    for round in 0..ROUNDS {
        run.round(round, false)?;
        run.round(round, true)?;
    }
    println!("2 replicas, one request at a time");
    run.unused.print("DELETE of a ConfigMap that nothing needs, protected while used");
    run.spaced.print("the same, after a pause of 350 ms");
    run.used.print("DELETE of a ConfigMap that a Pod needs: denied with, done without");
    run.update.print("UPDATE of the data of a ConfigMap that is protected and has the hold");
    println!(
        "for comparison, a client's own LIST of CronJobs with limit=1 after a write of another kind:"
    );
    println!("  without  {}", run.list.row());
    println!("one such LIST after a pause of 350 ms:");
    println!("  without  {}", run.spaced_list.row());
    let parts = run.parts()?;
    println!("the parts of a DELETE after a pause, with belay's rules:");
    println!("  until belay's first LIST  {}", parts.until_first_list.row());
    println!("  all LISTs                 {}", parts.lists.row());
    println!("  the slowest LIST          {}", parts.slowest_list.row());
    println!("  after the last LIST       {}", parts.after_lists.row());
    Ok(())
}

/// The time in which the API server answered a request, by the audit log.
#[derive(Clone, Copy)]
struct Answered {
    received: Timestamp,
    ended: Timestamp,
}

impl Answered {
    fn of(event: &Value) -> Option<Self> {
        let time = |field: &str| event[field].as_str()?.parse::<Timestamp>().ok();
        Some(Self { received: time("requestReceivedTimestamp")?, ended: time("stageTimestamp")? })
    }

    fn took(self) -> Result<Duration> {
        between(self.received, self.ended)
    }
}

fn between(from: Timestamp, to: Timestamp) -> Result<Duration> {
    Ok(to.duration_since(from).try_into()?)
}

/// The parts of a DELETE after a pause, in the API server.
#[derive(Default)]
struct DeleteParts {
    until_first_list: Samples,
    lists: Samples,
    slowest_list: Samples,
    after_lists: Samples,
}

impl Run {
    /// The parts of each DELETE after a pause with belay, by the audit log.
    fn parts(&self) -> Result<DeleteParts> {
        let events = audit::events(&self.plane);
        let of = |verb: &str| -> Vec<Answered> {
            events.iter().filter(|event| event["verb"] == verb).filter_map(Answered::of).collect()
        };
        let (deletes, lists) = (of("delete"), of("list"));
        let mut parts = DeleteParts::default();
        for (begin, end) in &self.spaced_deletes {
            let is_during = |answered: &&Answered| (begin..=end).contains(&&answered.received);
            let delete = deletes.iter().find(is_during).ok_or("a DELETE that is not in the log")?;
            let during: Vec<Answered> = lists.iter().filter(is_during).copied().collect();
            let first = during.iter().map(|list| list.received).min();
            let last = during.iter().map(|list| list.ended).max();
            let (Some(first), Some(last)) = (first, last) else {
                return Err("a DELETE without a list of belay".into());
            };
            let took: Vec<Duration> =
                during.into_iter().map(Answered::took).collect::<Result<_>>()?;
            parts.until_first_list.push(between(delete.received, first)?);
            parts.lists.push(between(first, last)?);
            parts.slowest_list.push(took.into_iter().max().unwrap_or_default());
            parts.after_lists.push(between(last, delete.ended)?);
        }
        Ok(parts)
    }

    fn create(&self, object: &serde_json::Value, resource: &str) -> Result<()> {
        self.runtime.block_on(self.writer.create(&core(&self.ns, resource), object)).map(drop)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", core(&self.ns, "configmaps"))
    }

    /// Returns the time of the DELETE, and whether the API server accepted it.
    fn delete(&self, name: &str) -> Result<(Duration, bool)> {
        let path = self.path(name);
        let started = Instant::now();
        let is_accepted = self.runtime.block_on(self.writer.delete(&path))?;
        Ok((started.elapsed(), is_accepted))
    }

    /// The time of a LIST of CronJobs.
    fn list_one(&self) -> Result<Duration> {
        let path = format!("/apis/batch/v1/namespaces/{}/cronjobs?limit=1", self.ns);
        let started = Instant::now();
        self.runtime.block_on(self.writer.get(&path))?;
        Ok(started.elapsed())
    }

    fn round(&mut self, round: usize, with: bool) -> Result<()> {
        let mode = if with { "with" } else { "without" };
        let name = |prefix: &str, number: usize| format!("{prefix}-{mode}-{round}-{number}");
        let used: Vec<String> = (0..EACH).map(|number| name("used", number)).collect();
        for (number, used) in used.iter().enumerate() {
            self.create(&config_map(&name("unused", number), 500), "configmaps")?;
            self.create(&config_map(used, 500), "configmaps")?;
        }
        let probe = name("probe", 0);
        self.create(&config_map(&probe, 500), "configmaps")?;
        let all: Vec<String> = used.iter().chain([&probe]).cloned().collect();
        self.create(&pod(&format!("user-{mode}-{round}"), &all, "tls"), "pods")?;
        for number in 0..SPACED {
            self.create(&config_map(&name("spaced", number), 500), "configmaps")?;
        }
        self.settle(with, &probe)?;

        for number in 0..SPACED {
            std::thread::sleep(PAUSE);
            let begin = Timestamp::now();
            let (took, done) = self.delete(&name("spaced", number))?;
            if !done {
                return Err(format!("in a round {mode} belay: a DELETE was refused").into());
            }
            self.spaced.samples(with).push(took);
            if with {
                self.spaced_deletes.push((begin, Timestamp::now()));
            } else {
                std::thread::sleep(PAUSE);
                let took = self.list_one()?;
                self.spaced_list.push(took);
            }
        }
        for (number, used) in used.iter().enumerate() {
            let (took, done) = self.delete(&name("unused", number))?;
            self.unused.samples(with).push(took);
            let (took, used_done) = self.delete(used)?;
            self.used.samples(with).push(took);
            if !done || used_done == with {
                return Err(format!(
                    "in a round {mode} belay: unused deleted: {done}, used deleted: {used_done}"
                )
                .into());
            }
            let path = self.path("kept");
            let data = json!({"data": {"round": format!("{mode}-{round}-{number}")}});
            let started = Instant::now();
            self.runtime.block_on(self.writer.merge(&path, &data))?;
            self.update.samples(with).push(started.elapsed());
            // To confirm that an object has no users, belay reads each kind that
            // could use it.
            if !with {
                let took = self.list_one()?;
                self.list.push(took);
            }
        }
        Ok(())
    }

    /// Creates or deletes the policies, and waits until this takes effect.
    fn settle(&self, with: bool, probe: &str) -> Result<()> {
        let mode = if with { "apply" } else { "delete" };
        let mut arguments = vec![mode, "-f", "-"];
        arguments.extend((!with).then_some("--ignore-not-found"));
        self.plane.apply_to(&arguments, &self.policies)?.success()?;
        let (path, client) = (format!("{}?dryRun=All", self.path(probe)), &self.writer);
        eventually("what follows from the policies", LIMIT, || {
            let done = self.runtime.block_on(client.delete(&path))?;
            let kept = [
                "get",
                "configmap",
                "kept",
                "-n",
                &self.ns,
                "-o",
                "jsonpath={.metadata.finalizers}",
            ];
            let held = !self.plane.kubectl(&kept)?.success()?.is_empty();
            if done == with || held != with {
                return Err(format!("deleted: {done}, held: {held}").into());
            }
            Ok(())
        })
    }
}
