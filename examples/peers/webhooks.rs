//! Starts the servers and sends them the same reviews, in interleaved rounds.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::process::Process;
use crate::harness::{Result, eventually, folder, ports};
use crate::load::LoadGenerator;
use crate::reviews::{self, Review};

/// The rounds. In each one, every server answers every review.
const ROUNDS: usize = 7;

/// The seconds of one measurement.
const SECONDS: u32 = 2;

const LIMIT: Duration = Duration::from_secs(30);

/// The names of the servers. The others are compared with the first.
pub const SERVERS: [&str; 4] = ["constant", "belay", "kube types", "controller-runtime"];

/// One measurement.
#[derive(Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    /// CPU seconds of the server for 10,000 reviews.
    pub cpu: f64,
}

/// The results of one server.
pub struct ServerResult {
    pub name: &'static str,
    /// For each review, the sample of each round.
    pub samples: Vec<Vec<Sample>>,
    /// Resident memory before the first review, at the end, and its peak, in MiB.
    pub memory: [f64; 3],
}

/// The results of one run.
pub struct Results {
    pub reviews: Vec<&'static str>,
    pub servers: Vec<ServerResult>,
}

struct Server {
    port: u16,
    process: Process,
}

/// Measures the servers. `webhook` is the program in tests/controlplane/webhook.
pub fn measure(oha: &Path, webhook: &Path) -> Result<Results> {
    let folder = folder::create()?;
    let servers = start(webhook, &folder)?;
    let load = LoadGenerator { oha: oha.to_owned(), ca: folder.join("ca.crt") };
    let reviews = reviews::all();
    let bodies = write_bodies(&reviews, &folder)?;
    let url = |server: &Server, review: &Review| {
        format!("https://127.0.0.1:{}/{}", server.port, review.path)
    };
    let mib = |kib: Option<u64>| kib.unwrap_or_default() as f64 / 1024.0;
    let mut results: Vec<ServerResult> = (SERVERS.iter().zip(&servers))
        .map(|(name, server)| ServerResult {
            name,
            samples: vec![Vec::new(); reviews.len()],
            memory: [mib(server.process.resident()), 0.0, 0.0],
        })
        .collect();
    for (review, body) in reviews.iter().zip(&bodies) {
        for (server, name) in servers.iter().zip(SERVERS) {
            let url = url(server, review);
            if name != SERVERS[0] {
                check(name, review, &load.answer(&url, body)?)?;
            }
            load.run(&url, body, 1)?;
        }
    }
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for (index, (review, body)) in reviews.iter().zip(&bodies).enumerate() {
            for (server, result) in servers.iter().zip(&mut results) {
                let cpu = || server.process.cpu().ok_or("the CPU time is unknown");
                let before = cpu()?;
                let (answers, seconds) = load.run(&url(server, review), body, SECONDS)?;
                let cpu = (cpu()? - before).as_secs_f64() / answers * 10_000.0;
                result.samples[index].push(Sample { per_second: answers / seconds, cpu });
            }
        }
    }
    for (server, result) in servers.iter().zip(&mut results) {
        result.memory[1] = mib(server.process.resident());
        result.memory[2] = mib(server.process.peak());
    }
    Ok(Results { reviews: reviews.iter().map(|review| review.name).collect(), servers: results })
}

/// Starts belay first, because it creates the certificate that all servers use.
fn start(webhook: &Path, folder: &Path) -> Result<Vec<Server>> {
    let own = std::env::current_exe()?;
    let [constant, belay, probes, typed, runtime] = ports::free()?;
    let certificates = folder.to_string_lossy().into_owned();
    let (policy, objects) = (folder.join("policy.yaml"), folder.join("objects.json"));
    std::fs::write(&policy, reviews::POLICY)?;
    std::fs::write(&objects, reviews::objects())?;
    let [policy, objects] = [policy, objects].map(|path| path.to_string_lossy().into_owned());
    let arguments = format!(
        "serve --standalone --listen 127.0.0.1:{belay} --probes 127.0.0.1:{probes} --files-poll 3600"
    );
    let mut belay_arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    belay_arguments.extend(
        ["--policies", &policy, "--objects", &objects, "--cert-dir", &certificates]
            .map(str::to_owned),
    );
    let server = |name: &str, program: &Path, port: u16, arguments: &[String]| -> Result<Server> {
        let process = Process::start(name, program, arguments, folder)?;
        eventually(name, LIMIT, || {
            TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(Into::into)
        })?;
        Ok(Server { port, process })
    };
    let belay = server("belay", &own, belay, &belay_arguments)?;
    let peer = |mode: &str, port: u16| {
        server(mode, &own, port, &[mode.to_owned(), port.to_string(), certificates.clone()])
    };
    let constant = peer("constant", constant)?;
    let typed = peer("typed", typed)?;
    let runtime =
        server("webhook", webhook, runtime, &[runtime.to_string(), certificates.clone()])?;
    Ok(vec![constant, belay, typed, runtime])
}

fn write_bodies(reviews: &[Review], folder: &Path) -> Result<Vec<PathBuf>> {
    let write = |(number, review): (usize, &Review)| {
        let path = folder.join(format!("review-{number}.json"));
        std::fs::write(&path, &review.body)?;
        Ok(path)
    };
    reviews.iter().enumerate().map(write).collect()
}

/// Checks that a server decides as expected.
fn check(server: &str, review: &Review, answer: &str) -> Result<()> {
    let is_allowed = answer.contains("\"allowed\":true");
    let has_patch = answer.contains("\"patch\":");
    if (is_allowed, has_patch) != (review.is_allowed, review.has_patch) {
        return Err(format!("{server} answers {}: {answer}", review.name).into());
    }
    Ok(())
}
