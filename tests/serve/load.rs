//! Connections that send nothing, or parts of requests, as any Pod can open them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::client::{Answer, Client, Connection};
use crate::harness::{Belay, eventually};
use crate::{belay, program, sample};

/// The API server waits for a webhook for 5 s, its handshake included.
pub const LIMIT: Duration = Duration::from_secs(2);

/// The limit of open connections of the test, without a reserve for the test itself.
fn most_open() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).unwrap();
    limit.maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap() / 2).min(10_000)
}

/// Opens connections until it is stopped. The newest stay open.
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
                crate::harness::pause(Duration::from_millis(1));
            }
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

pub fn answered(client: &Client) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    let begun = Instant::now();
    // As the API server asks: a later answer is too late.
    let answer = client.try_post("/validate?timeout=5s", sample("delete-denied.json"))?;
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

/// A connection from another address of this machine.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    net::connect(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn h91_a_handshake_of_another_address_waits_for_none_of_a_flood() {
    let (belay, _folder) = belay(&["--workers=1"]);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let hello = client.hello();
    let mut flood: Vec<_> = (0..500).map(|_| connect_from(2, belay.listen)).collect();
    flood.iter_mut().for_each(|connection| connection.write_all(&hello).unwrap());
    answered(&client).unwrap();
    let is_answered = |connection: &&TcpStream| {
        connection.set_nonblocking(true).unwrap();
        connection.peek(&mut [0]).is_ok()
    };
    let answered = flood.iter().filter(is_answered).count();
    assert!(answered < 400, "{answered} of 500 were answered first");
}

/// A belay that may have so many file descriptors.
fn limited_belay(descriptors: usize) -> (Belay, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let limited = folder.path().join("belay");
    let program = program().display();
    let script = format!("#!/bin/sh\nulimit -n {descriptors}\nexec {program} \"$@\"\n");
    std::fs::write(&limited, script).unwrap();
    std::fs::set_permissions(&limited, std::fs::Permissions::from_mode(0o755)).unwrap();
    let belay = Belay::start("belay", &limited, &["--workers=2"], folder.path()).unwrap();
    (belay, folder)
}

#[test]
fn h19_with_few_file_descriptors_belay_answers_during_a_flood() {
    let (mut belay, _folder) = limited_belay(200);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let flood = Flood::start(belay.listen, 1_000);
    // A handshake has a moment only before so many newer connections need its place.
    eventually("an answer during the flood", 10 * LIMIT, || answered(&client)).unwrap();
    flood.end();
    assert!(belay.process.is_running());
}

/// The first requests of an API server after a restart of belay come together.
#[test]
fn h126_silent_connections_of_many_addresses_end_before_many_of_a_client_that_sends() {
    let (belay, _folder) = limited_belay(2_560);
    let client = crate::client(&belay);
    let mut addresses = (2..41).cycle();
    let mut connect = || connect_from(addresses.next().unwrap(), belay.listen);
    // Fewer than the slots, so that only their age ends them.
    let mut silent: Vec<_> = (0..240).map(|_| connect()).collect();
    silent[0].set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let is_open = |connection: &TcpStream| {
        let error = connection.peek(&mut [0]).err().map(|error| error.kind());
        matches!(error, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    while is_open(&silent[0]) {
        silent.push(connect());
    }
    let together = Barrier::new(150);
    let ask = || {
        together.wait();
        answered(&client).map(drop).map_err(|error| error.to_string())
    };
    let refused: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..150).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().filter_map(|asked| asked.join().unwrap().err()).collect()
    });
    // On a busy machine this client may wait for its own CPU as long as the silent ones. If
    // belay counted alone, it would refuse over a hundred.
    assert!(refused.len() < 30, "{} of 150: {}", refused.len(), refused[0]);
    drop(silent);
}

#[test]
fn h134_silent_connections_of_one_address_end_no_handshake_of_another() {
    let (belay, _folder) = limited_belay(2_560);
    let mut server = connect_from(3, belay.listen);
    let mut flood: Vec<_> = (0..1_000).map(|_| connect_from(2, belay.listen)).collect();
    // Of each thread's 128 slots, the newest ones remain.
    wait_for_end(&mut flood[500]).unwrap();
    server.write_all(&crate::client(&belay).hello()).unwrap();
    assert!(server.read(&mut [0]).is_ok_and(|length| length == 1));
}

#[test]
fn h135_connections_of_another_address_end_no_probe() {
    let (belay, _folder) = belay(&["--deadline=30"]);
    let mut probe = TcpStream::connect(belay.probes).unwrap();
    let mut flood: Vec<_> = (0..300).map(|_| connect_from(2, belay.probes)).collect();
    for connection in &mut flood {
        // It may be closed already.
        let _ = connection.write_all(HEAD.as_bytes());
    }
    wait_for_end(&mut flood[200]).unwrap();
    probe.write_all(format!("{HEAD}\r\n").as_bytes()).unwrap();
    assert_eq!(crate::client::receive(&mut probe).unwrap().code, 200);
}

const HEAD: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\n";

/// Waits for the end of a connection. An error: it stays open.
fn wait_for_end(connection: &mut impl Read) -> std::io::Result<()> {
    match connection.read_to_end(&mut Vec::new()) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Heads that stall on the probes' port: the first one, or one behind an answer. Returns
/// how long the probe and a review took meanwhile.
fn stall_probes(belay: &Belay) -> Duration {
    let client = crate::client(belay);
    answered(&client).unwrap();
    let stalled: Vec<TcpStream> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(belay.probes).unwrap();
            stream.set_read_timeout(Some(4 * LIMIT)).unwrap();
            if number % 2 == 0 {
                stream.write_all(format!("{HEAD}\r\n").as_bytes()).unwrap();
                assert_eq!(crate::client::receive(&mut stream).unwrap().code, 200);
            }
            // It may be closed already.
            let _ = stream.write_all(HEAD.as_bytes());
            stream
        })
        .collect();
    let begun = Instant::now();
    let metrics = belay.metrics().unwrap();
    assert!(metrics.contains("belay_"), "{metrics}");
    answered(&client).unwrap();
    let took = begun.elapsed();
    for (number, mut stream) in stalled.into_iter().enumerate() {
        wait_for_end(&mut stream).unwrap_or_else(|error| panic!("{number} stays open: {error}"));
    }
    took
}

#[test]
fn h31_requests_that_stall_on_the_probes_port_end_and_keep_no_probe_out() {
    let (belay, _folder) = belay(&["--workers=2"]);
    let took = stall_probes(&belay);
    assert!(took < LIMIT, "{took:?}");
}

#[test]
fn h31_with_few_file_descriptors_belay_answers_probes_and_reviews() {
    let (belay, _folder) = limited_belay(200);
    let took = stall_probes(&belay);
    assert!(took < 2 * LIMIT, "{took:?}");
}

#[test]
fn h78_requests_that_are_sent_together_are_not_all_answered() {
    let (belay, _folder) = belay(&["--workers=1"]);
    let client = crate::client(&belay);
    let mut kept = client.connect().unwrap();
    let mut ask = || {
        let review = sample("delete-denied.json");
        crate::client::send(&mut kept, "/validate", "application/json", review.as_bytes())?;
        crate::client::receive(&mut kept)
    };
    assert_eq!(ask().unwrap().code, 200);
    let (old, new) = ("GET /metrics HTTP/1.0\n\n", "GET /metrics HTTP/1.1\nHost: a\n\n");
    let probe = TcpStream::connect(belay.probes).unwrap();
    assert!(answers_to(old, probe) <= 1);
    for get in [new, old] {
        assert!(answers_to(get, client.connect().unwrap()) <= 1, "{get:?}");
    }
    belay.metrics().unwrap();
    // Other connections go on.
    for _ in 0..3 {
        assert_eq!(ask().unwrap().code, 200);
    }
}

/// The answer to a review that sends this many bytes between 20 changes of the TLS keys
/// each.
fn answer_between_keys(belay: &Belay, bytes: usize) -> std::io::Result<Answer> {
    let mut connection = crate::client(belay).connect()?;
    let review = sample("delete-denied.json");
    let mut request = Vec::new();
    crate::client::send(&mut request, "/validate", "application/json", review.as_bytes())?;
    let (first, rest) = request.split_at(bytes);
    for byte in first {
        for _ in 0..20 {
            connection.conn.refresh_traffic_keys().unwrap();
        }
        connection.write_all(&[*byte])?;
        connection.flush()?;
    }
    connection.write_all(rest)?;
    connection.flush()?;
    crate::client::receive(&mut connection)
}

#[test]
fn h98_records_that_carry_nothing_end_a_connection() {
    let (belay, _folder) = belay(&["--workers=1"]);
    assert_eq!(answer_between_keys(&belay, 2).unwrap().code, 200);
    assert!(answer_between_keys(&belay, 10).is_err());
}

#[test]
fn h99_answers_of_the_probes_that_are_not_read_are_kept_for_few() {
    let (belay, _folder) = belay(&["--workers=1"]);
    let connect = || TcpStream::connect(belay.probes).unwrap();
    let mut clients: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    for client in &mut clients {
        let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut clients {
        // It was answered, or closed in favour of a newer one.
        let _ = client.read(&mut [0]);
    }
    let port = format!(":{:04X}", belay.probes.port());
    let ended = eventually("no answer is kept", Duration::from_secs(20), || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // The states FIN_WAIT1 and FIN_WAIT2.
        let is_left =
            |line: &Vec<&str>| line[1].ends_with(&port) && ["04", "05"].contains(&line[3]);
        match lines.filter(is_left).count() {
            0 => Ok(()),
            left => Err(format!("{left} connections").into()),
        }
    });
    ended.unwrap();
    // A client that reads gets the whole answer.
    belay.metrics().unwrap();
    drop(clients);
}

/// How many answers a connection gets to 400 requests that are sent together.
fn answers_to(get: &str, mut connection: impl Read + Write) -> usize {
    // It may be closed meanwhile.
    let _ = connection.write_all(get.repeat(400).as_bytes());
    let mut answers = Vec::new();
    let _ = connection.read_to_end(&mut answers);
    String::from_utf8_lossy(&answers).matches("HTTP/1.").count()
}

#[test]
fn h32_a_head_without_end_ends_the_connection() {
    let (belay, _folder) = belay(&["--deadline=30"]);
    let client = crate::client(&belay);
    for answered in [false, true] {
        let mut connection = client.connect().unwrap();
        if answered {
            let review = sample("delete-denied.json");
            let json = "application/json";
            crate::client::send(&mut connection, "/validate", json, review.as_bytes()).unwrap();
            assert_eq!(crate::client::receive(&mut connection).unwrap().code, 200);
        }
        // It may be closed before all of it was sent.
        let _ = connection
            .write_all(format!("{HEAD}A: {}", "a".repeat(64 << 10)).as_bytes())
            .and_then(|()| connection.flush());
        wait_for_end(&mut connection).unwrap();
    }
    // The longest heads that are read, and a body behind one.
    let review = sample("delete-denied.json");
    let request = format!(
        "POST /validate HTTP/1.1\r\nHost: a\r\nA: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{review}",
        "a".repeat(15 << 10),
        review.len(),
    );
    assert_eq!(client.raw(request.as_bytes()).unwrap().code, 200);
}

#[test]
fn h32_connections_of_strangers_end_for_newer_ones() {
    let (belay, _folder) = belay(&["--workers=1", "--deadline=30"]);
    let client = crate::client(&belay);
    let mut known = client.connect().unwrap();
    let review = sample("delete-denied.json");
    let mut ask = || {
        crate::client::send(&mut known, "/validate", "application/json", review.as_bytes())?;
        crate::client::receive(&mut known)
    };
    assert_eq!(ask().unwrap().code, 200);
    let mut first = client.connect().unwrap();
    first.write_all(HEAD.as_bytes()).unwrap();
    first.flush().unwrap();
    let newer: Vec<_> = (0..1_024).map(|_| client.connect().unwrap()).collect();
    let begun = Instant::now();
    wait_for_end(&mut first).unwrap();
    eprintln!("h32: ended after {:?}", begun.elapsed());
    answered(&client).unwrap();
    // The connection of the caller who knows the path is not closed.
    assert_eq!(ask().unwrap().code, 200);
    drop(newer);
}

#[test]
fn h61_garbage_writes_no_line() {
    let (belay, _folder) = belay(&[]);
    let client = crate::client(&belay);
    let mut probe = TcpStream::connect(belay.probes).unwrap();
    probe.write_all(b"\0\r\n\r\n").unwrap();
    wait_for_end(&mut probe).unwrap();
    let mut review = client.connect().unwrap();
    review.write_all(b"\0\r\n\r\n").unwrap();
    wait_for_end(&mut review).unwrap();
    answered(&client).unwrap();
    let log = belay.process.log();
    assert!(!log.contains("parse error"), "{log}");
}

/// Whether nothing has arrived on a connection, not even its close.
pub fn is_silent(connection: &mut Connection) -> bool {
    connection.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let read = connection.read(&mut [0]);
    matches!(read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn h52_connections_of_known_callers_end_for_newer_ones() {
    let (belay, _folder) = belay(&["--workers=1", "--deadline=30"]);
    let client = crate::client(&belay);
    let review = sample("delete-denied.json");
    let ask = |connection: &mut Connection| {
        crate::client::send(connection, "/validate", "application/json", review.as_bytes())?;
        crate::client::receive(connection)
    };
    let open = || {
        let mut connection = client.connect().unwrap();
        assert_eq!(ask(&mut connection).unwrap().code, 200);
        connection
    };
    let mut unused = open();
    let mut used = open();
    let mut newer = Vec::new();
    for number in 0..1_600 {
        newer.push(open());
        // The API server keeps its own connections recent by use.
        if number % 200 == 0 {
            assert_eq!(ask(&mut used).unwrap().code, 200);
        }
    }
    wait_for_end(&mut unused).unwrap();
    assert!(is_silent(newer.last_mut().unwrap()));
    answered(&client).unwrap();
}
