//! Connections that send nothing, as any Pod can open them.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::Belay;
use crate::harness::client::Client;
use crate::{belay, program, sample};

/// The API server waits for a webhook for 5 s, its handshake included.
const LIMIT: Duration = Duration::from_secs(2);

/// What the test itself may open, and leaves for the rest of it.
fn most_open() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).unwrap();
    limit.maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap() / 2).min(10_000)
}

/// Opens connections until it is told to stop. The newest stay open.
struct Flood {
    stop: std::sync::Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Flood {
    /// Returns when so many were opened.
    fn start(address: SocketAddr, open: usize) -> Self {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let connect = move || TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let mut silent: VecDeque<TcpStream> = (0..open).filter_map(|_| connect().ok()).collect();
        let stopped = stop.clone();
        let thread = spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                silent.extend((0..2).filter_map(|_| connect().ok()));
                silent.drain(..silent.len().saturating_sub(open));
                sleep(Duration::from_millis(1));
            }
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn answered(client: &Client) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let begun = Instant::now();
    let answer = client.try_post("/validate", sample("delete-denied.json"))?;
    assert_eq!(answer.code, 200, "{answer:?}");
    Ok(begun.elapsed())
}

#[test]
fn h19_silent_connections_keep_no_other_client_out() {
    let (belay, _folder) = belay(&["--workers=2"]);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let flood = Flood::start(belay.listen, most_open());
    let took: Vec<Duration> = (0..20).map(|_| answered(&client).unwrap()).collect();
    flood.end();
    let longest = took.iter().max().unwrap();
    eprintln!("h19: at most {longest:?}, {} KiB", belay.process.peak().unwrap());
    assert!(*longest < LIMIT, "{took:?}");
}

#[test]
fn h19_with_few_file_descriptors_belay_answers_during_a_flood() {
    let folder = tempfile::tempdir().unwrap();
    let limited = folder.path().join("belay");
    let script = format!("#!/bin/sh\nulimit -n 200\nexec {} \"$@\"\n", program().display());
    std::fs::write(&limited, script).unwrap();
    std::fs::set_permissions(&limited, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut belay = Belay::start("belay", &limited, &["--workers=2"], folder.path()).unwrap();
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let flood = Flood::start(belay.listen, 1_000);
    let took = answered(&client);
    eprintln!("h19: with 200 file descriptors {took:?}");
    flood.end();
    assert!(took.unwrap() < 2 * LIMIT);
    assert!(belay.process.is_running());
}
