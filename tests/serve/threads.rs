//! Large bodies that keep threads, and decisions that need other threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belay::certs::{CertificateFiles, PairFiles, Serving};
use belay::decide::{FailurePolicy, Review, Verdict};
use belay::telemetry::{Metrics, Readiness};
use belay::webhook::{Certificates, Decider, Limits, ServerSettings, Shared, bind};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{Barrier, oneshot};

use crate::client::{Client, receive, send};
use crate::harness::belay::make_certificates;
use crate::{program, sample};

/// Bodies over 128 KiB, more than actix's default of 512 threads on two cores admits.
const BODIES: usize = 300;

/// Decides on another thread, as a decision does that waits for its turn, after all bodies have
/// arrived.
struct Queued(Barrier);

impl Decider for Queued {
    fn decide<'a>(&'a self, review: &'a Review<'a>, _: Instant) -> LocalBoxFuture<'a, Verdict> {
        Box::pin(async move {
            self.0.wait().await;
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            Verdict::allow(review.target())
        })
    }
}

#[test]
fn h199_large_bodies_leave_threads_for_their_decisions() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(program(), folder.path()).unwrap();
    let file = |name: &str| folder.path().join(name);
    let pair = PairFiles { tls_cert: file("tls.crt"), tls_key: file("tls.key") };
    let settings = ServerSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        probes: "127.0.0.1:0".parse().unwrap(),
        certificates: Certificates {
            serving: Arc::new(Serving::default()),
            files: CertificateFiles { pair: Some(pair), client_ca: None },
            poll_interval: Duration::from_secs(60),
        },
        workers: 1,
    };
    let limits = Limits {
        small_body_memory: 64 << 20,
        answer_timeout: Duration::from_secs(60),
        ..Limits::default()
    };
    let shared = Shared {
        decider: Arc::new(Queued(Barrier::new(BODIES))),
        failure_policy: FailurePolicy::Fail,
        limits,
        metrics: Metrics::default(),
        readiness: Readiness::default(),
        secret_paths: None,
        print_graph: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, address) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async {
            let bound = bind(settings, shared).unwrap();
            ready.send(bound.listen).unwrap();
            bound.serve_until(async { drop(stopped.await) }).await.unwrap();
        });
    });
    let client = Client::new(address.recv().unwrap(), &file("ca.crt"));
    let mut review = sample("delete-denied.json").into_bytes();
    review.resize(130 << 10, b' ');
    let sent = (0..BODIES).map(|_| {
        let mut connection = client.connect().unwrap();
        send(&mut connection, "/validate", "application/json", &review).unwrap();
        connection
    });
    for mut connection in sent.collect::<Vec<_>>() {
        connection.sock.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(receive(&mut connection).unwrap().code, 200);
    }
    stop.send(()).unwrap();
    serving.join().unwrap();
}
