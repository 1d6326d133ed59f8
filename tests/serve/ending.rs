//! SIGTERM: every request gets an answer, and belay exits soon.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::{receive, send};
use crate::harness::{belay::http_get, eventually};
use crate::{belay, client, sample};

#[test]
fn a_request_under_way_is_answered_and_idle_connections_do_not_delay_the_end() {
    let (mut belay, _folder) = belay(&["--drain=3", "--deadline=20"]);
    let client = client(&belay);
    let review = sample("delete-denied.json");

    // An idle connection that has been used, as the API server keeps them.
    let mut idle = client.connect().unwrap();
    send(&mut idle, "/validate", "application/json", review.as_bytes()).unwrap();
    assert_eq!(receive(&mut idle).unwrap().code, 200);

    // A request that is half sent.
    let mut half = client.connect().unwrap();
    let (first, second) = review.split_at(400);
    write!(half, "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{first}", review.len()).unwrap();
    half.flush().unwrap();

    let start = Instant::now();
    belay.process.signal(Signal::TERM).unwrap();
    eventually("not ready", Duration::from_secs(5), || match http_get(belay.probes, "/readyz")? {
        (503, body) if body.contains("[-]serving") => Ok(()),
        other => Err(format!("{other:?}").into()),
    })
    .unwrap();

    // While it drains, it answers new requests and closes their connections.
    let late = client.post("/validate", &review);
    assert_eq!(late.code, 200);
    assert!(late.head.contains("connection: close"), "{}", late.head);

    eventually(
        "no new connections",
        Duration::from_secs(20),
        || match std::net::TcpStream::connect(belay.listen) {
            Err(_) => Ok(()),
            Ok(_) => Err("it still listens".into()),
        },
    )
    .unwrap();
    half.write_all(second.as_bytes()).unwrap();
    half.flush().unwrap();
    assert_eq!(receive(&mut half).unwrap().code, 200, "the request under way was lost");

    // Without SIGTERM the idle connection would be kept for two minutes.
    assert_eq!(belay.process.wait_for_exit(Duration::from_secs(20)).unwrap(), 0);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn a_second_signal_aborts_whatever_is_under_way() {
    for drain in ["--drain=60", "--drain=0"] {
        let (mut belay, _folder) = belay(&[drain, "--deadline=30"]);
        let mut half = client(&belay).connect().unwrap();
        write!(
            half,
            "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\
             Expect: 100-continue\r\n\r\n"
        )
        .unwrap();
        half.flush().unwrap();
        // The answer 100 shows that the request is in progress.
        assert_eq!(receive(&mut half).unwrap().code, 100);
        belay.process.signal(Signal::TERM).unwrap();
        eventually("draining", Duration::from_secs(5), || {
            if belay.process.log().contains("draining") { Ok(()) } else { Err("not yet".into()) }
        })
        .unwrap();
        belay.process.signal(Signal::INT).unwrap();
        let start = Instant::now();
        assert_eq!(belay.process.wait_for_exit(Duration::from_secs(10)).unwrap(), 3, "{drain}");
        assert!(start.elapsed() < Duration::from_secs(4), "{drain} {:?}", start.elapsed());
    }
}
