//! Leader election, and the certificates that the leader manages: the library on the real
//! API server, with several replicas in one process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay::certs::{Serving, server_config};
use belay::cluster::election;
use belay::cluster::{Certificates, Context, Registered, Settings, Signals, certificates};
use belay::telemetry::{Metrics, Readiness};
use belay::timing::{self, Timing};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::harness::manifest::{Manifest as _, object};
use crate::harness::{ControlPlane, Options, eventually, intervals};
use crate::world;

const MARGIN: Duration = Duration::from_millis(300);
const ASK: Duration = Duration::from_millis(300);

fn runtime() -> Runtime {
    // The first test installs it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn replica(runtime: &Runtime, plane: &ControlPlane, namespace: &str, name: &str) -> Context {
    let mut timing = short();
    // A silent replica is waited for in these tests as well.
    let production = Timing::default().certificates;
    timing.certificates = timing::Certificates { margin: MARGIN, ask: ASK, ..production };
    let settings = Settings {
        namespace: namespace.to_owned(),
        name: "belay".to_owned(),
        replica: name.to_owned(),
        instance: name.to_owned(),
        labelled: Vec::new(),
        certificates: Certificates::Own { names: vec![host(namespace)], days: 90 },
        backfill: 0,
        timeout_seconds: 5,
        timing,
    };
    Context {
        client: runtime.block_on(plane.client()).unwrap(),
        world: Arc::default(),
        settings: Arc::new(settings),
        metrics: Metrics::default(),
        readiness: Readiness::default(),
        signals: Arc::new(Signals::default()),
    }
}

fn short() -> Timing {
    intervals().parse().unwrap()
}

fn host(namespace: &str) -> String {
    format!("belay.{namespace}.svc")
}

fn is_leader(context: &Context) -> bool {
    *context.signals.leading.borrow()
}

/// Waits until exactly this replica is the leader. Fails if two replicas ever are.
fn wait_for_leader(
    what: &str,
    limit: Duration,
    all: &[&Context],
    who: impl Fn(usize) -> bool,
) -> usize {
    eventually(what, limit, || {
        let leaders: Vec<_> = (0..all.len()).filter(|i| is_leader(all[*i])).collect();
        assert!(leaders.len() < 2, "two lead: {leaders:?}");
        let found = leaders.first().copied().filter(|i| who(*i));
        found.ok_or_else(|| format!("{leaders:?} leads").into())
    })
    .unwrap()
}

fn lease(plane: &ControlPlane, namespace: &str, path: &str) -> String {
    plane.api().field("lease/belay", namespace, path).unwrap()
}

#[test]
fn one_replica_is_the_leader_and_after_its_end_the_other_at_once() {
    let (runtime, plane) = (runtime(), &world().plane);
    let ns = plane.namespace("election").unwrap();
    let [a, b] = ["a", "b"].map(|name| replica(&runtime, plane, &ns, name));
    let tasks = [&a, &b].map(|context| runtime.spawn(election::run(context.clone())));
    let first = wait_for_leader("a leader", Duration::from_secs(5), &[&a, &b], |_| true);
    let (leader, other) = if first == 0 { (&a, &b) } else { (&b, &a) };
    let said = ".spec.holderIdentity .spec.leaseDurationSeconds .spec.leaseTransitions";
    assert_eq!(lease(plane, &ns, said), format!("{} 4 1", leader.settings.replica));
    assert!(leader.metrics.encode().contains("belay_leader 1\n"));
    assert!(other.metrics.encode().contains("belay_leader 0\n"));

    leader.signals.ending.send_replace(true);
    let limit = Duration::from_secs(3);
    let second = wait_for_leader("the other one", limit, &[&a, &b], |i| i != first);
    assert_ne!(first, second);
    assert_eq!(lease(plane, &ns, said), format!("{} 4 2", other.settings.replica));
    assert!(leader.metrics.encode().contains("belay_leader 0\n"));
    assert!(leader.metrics.encode().contains("belay_leader_changes_total 2\n"));

    // The last leader leaves a Lease without a holder.
    other.signals.ending.send_replace(true);
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(lease(plane, &ns, ".spec.holderIdentity"), "");
    assert!(!is_leader(other));
}

#[test]
fn a_leader_that_has_stopped_is_replaced_when_its_lease_expires() {
    let (runtime, plane) = (runtime(), &world().plane);
    let ns = plane.namespace("election").unwrap();
    let [a, b] = ["a", "b"].map(|name| replica(&runtime, plane, &ns, name));
    let tasks = [&a, &b].map(|context| runtime.spawn(election::run(context.clone())));
    let first = wait_for_leader("a leader", Duration::from_secs(5), &[&a, &b], |_| true);
    let mut renewals = BTreeSet::new();
    eventually("renewals by the same leader", Duration::from_secs(20), || {
        wait_for_leader("the same leader", Duration::ZERO, &[&a, &b], |i| i == first);
        renewals.insert(lease(plane, &ns, ".spec.renewTime"));
        if renewals.len() > 4 { Ok(()) } else { Err(format!("{renewals:?}").into()) }
    })
    .unwrap();
    tasks[first].abort();
    let timing::Lease { duration, skew, look, .. } = short().lease;
    let limit = duration + skew + look;
    wait_for_leader("the other one", limit, &[&a, &b], |i| i != first);

    // A deleted Lease is re-created, and a replica becomes the leader.
    plane.kubectl(&["delete", "lease", "belay", "-n", &ns]).unwrap().success().unwrap();
    let again = ("lease/belay", &*ns);
    let again = plane.api().wait_field(again, limit, ".spec.holderIdentity", |_| true);
    let left = if first == 0 { &b } else { &a };
    assert_eq!(again.unwrap(), left.settings.replica);
    assert!(is_leader(left));
}

/// A separate control plane, because its API server is stopped.
#[test]
fn a_leader_that_gets_no_answer_ceases_in_time() {
    use rustix::process::Signal;
    let options = Options { controllers: false, ..Options::default() };
    let (runtime, plane) = (runtime(), ControlPlane::start_with(&options).unwrap());
    let ns = plane.namespace("election").unwrap();
    let a = replica(&runtime, &plane, &ns, "a");
    runtime.spawn(election::run(a.clone()));
    wait_for_leader("a leader", Duration::from_secs(5), &[&a], |_| true);
    plane.api_server().signal(Signal::STOP).unwrap();
    let timing::Lease { duration, skew, .. } = short().lease;
    let began = Instant::now();
    let ceased = eventually("no leader", duration - skew + Duration::from_millis(200), || {
        if is_leader(&a) { Err("it leads".into()) } else { Ok(began.elapsed()) }
    });
    // It was good for a moment yet: requests hang for less than that.
    assert!(ceased.unwrap() > Duration::from_millis(800));
    plane.api_server().signal(Signal::CONT).unwrap();
    wait_for_leader("a leader", Duration::from_secs(8), &[&a], |_| true);
}

/// A replica that serves the certificate in the Secret.
struct Server {
    context: Context,
    serving: Arc<Serving>,
    task: JoinHandle<()>,
}

impl Server {
    fn start(runtime: &Runtime, plane: &ControlPlane, namespace: &str, name: &str) -> Self {
        let context = replica(runtime, plane, namespace, name);
        let serving = Arc::new(Serving::default());
        let keeping = certificates::run(context.clone(), serving.clone());
        assert_eq!(context.readiness.describe(), "[-]certificate not ready\n");
        Self { task: runtime.spawn(keeping), context, serving }
    }

    fn bundle(&self) -> Option<Arc<str>> {
        self.context.signals.bundle.borrow().clone()
    }

    /// Acts as the registration after it has written this bundle.
    fn registered(&self, bundle: &str) {
        let registered = Registered { bundle: Some(bundle.into()), ..Registered::default() };
        self.context.signals.registered.send_replace(registered);
    }

    /// A handshake with a client that trusts this bundle.
    fn convinces(&self, bundle: &str) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(host(&self.context.settings.namespace)).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let config = server_config(&self.serving, false).unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().map_err(|error| error.to_string())?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Waits until it publishes this number of CAs, and returns them.
    fn trusts(&self, count: usize) -> Arc<str> {
        let what = format!("{count} authorities");
        eventually(&what, Duration::from_secs(5), || {
            let bundle = self.bundle().ok_or("nothing")?;
            let found = bundle.matches("BEGIN CERTIFICATE").count();
            if found == count { Ok(bundle) } else { Err(format!("{found}").into()) }
        })
        .unwrap()
    }
}

fn secret(plane: &ControlPlane, namespace: &str, key: &str) -> String {
    let path = format!(".data.{}", key.replace('.', "\\."));
    plane.api().field("secret/belay-tls", namespace, &path).unwrap()
}

fn reports(plane: &ControlPlane, namespace: &str) -> Vec<String> {
    let (label, path) =
        ("belay.dev/replica=belay", ".metadata.annotations.belay\\.dev/certificate");
    let mut reports = plane.api().fields("lease", namespace, label, path).unwrap();
    reports.retain(|report| !report.is_empty());
    reports
}

/// A third replica, which still serves its certificate.
fn straggler(plane: &ControlPlane, namespace: &str, serial: &str) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = object("coordination.k8s.io/v1", "Lease", "belay-replica-c");
    let lease = lease.with_namespace(namespace).with_labels(json!({"belay.dev/replica": "belay"}));
    let annotations = json!({"belay.dev/certificate": serial});
    let fields = json!({"metadata": {"annotations": annotations}, "spec": {"renewTime": now}});
    plane.apply(&lease.with(fields)).unwrap();
}

#[test]
fn a_certificate_is_created_and_rotated_with_overlap_by_the_leader() {
    let (runtime, plane) = (runtime(), &world().plane);
    let ns = plane.namespace("rotation").unwrap();
    let [a, b] = ["a", "b"].map(|name| Server::start(&runtime, plane, &ns, name));
    assert!(!a.serving.has_pair());
    a.context.signals.leading.send_replace(true);
    let first = a.trusts(1);
    assert_eq!(b.trusts(1), first);
    assert_eq!((a.convinces(&first), b.convinces(&first)), (Ok(()), Ok(())));
    assert_eq!(a.context.readiness.describe(), "[+]certificate ok\n");
    let none = Server {
        serving: Arc::default(),
        task: runtime.spawn(async {}),
        context: a.context.clone(),
    };
    assert!(none.convinces(&first).is_err(), "without a pair there is no handshake");
    let serials = eventually("two reports", Duration::from_secs(5), || {
        let serials = reports(plane, &ns);
        if serials.len() == 2 { Ok(serials) } else { Err(format!("{serials:?}").into()) }
    })
    .unwrap();
    assert_eq!(serials[0], serials[1]);
    straggler(plane, &ns, &serials[0]);

    // A requested rotation: the next certificate is staged, and waits for the webhook
    // configurations, which contain only the first CA.
    let ask = json!({"metadata": {"annotations": {"belay.dev/rotate-requested": "now"}}});
    plane.patch("secret/belay-tls", &ns, &ask);
    let both = a.trusts(2);
    assert_eq!(b.trusts(2), both);
    for server in [&a, &b] {
        server.registered(&first);
    }
    crate::harness::pause(MARGIN * 3);
    assert_ne!(secret(plane, &ns, "next-tls.crt"), "");
    assert_eq!((a.convinces(&first), b.convinces(&first)), (Ok(()), Ok(())));

    // Another replica becomes the leader and continues.
    a.context.signals.leading.send_replace(false);
    b.context.signals.leading.send_replace(true);
    let staged = secret(plane, &ns, "next-tls.crt");
    let began = Instant::now();
    for server in [&a, &b] {
        server.registered(&both);
    }
    eventually("the new pair", Duration::from_secs(5), || {
        [&a, &b].map(|server| server.convinces(&both)).into_iter().collect::<Result<(), _>>()?;
        match (a.convinces(&first), b.convinces(&first)) {
            (Err(_), Err(_)) => Ok(()),
            _ => Err("the first pair is served".into()),
        }
    })
    .unwrap();
    assert!(began.elapsed() >= MARGIN);
    assert_eq!(secret(plane, &ns, "tls.crt"), staged);
    assert_eq!(secret(plane, &ns, "next-tls.crt"), "");
    // Both serve it; the third one does not, and is trusted on.
    eventually("two new reports", Duration::from_secs(5), || {
        let old = reports(plane, &ns).iter().filter(|serial| **serial == serials[0]).count();
        if old == 1 { Ok(()) } else { Err(format!("{old} old ones").into()) }
    })
    .unwrap();
    crate::harness::pause(ASK * 3);
    assert_eq!(b.bundle(), Some(both.clone()));
    assert_ne!(secret(plane, &ns, "old-ca.crt"), "");
    let gone = ["delete", "lease", "belay-replica-c", "-n", &ns];
    plane.kubectl(&gone).unwrap().success().unwrap();
    let second = b.trusts(1);
    assert_ne!(second, first);
    assert_eq!(a.trusts(1), second);
    assert_eq!((a.convinces(&second), b.convinces(&second)), (Ok(()), Ok(())));
    assert_eq!(secret(plane, &ns, "old-ca.crt"), "");

    // A replica that ends is not waited for.
    a.context.signals.ending.send_replace(true);
    runtime.block_on(a.task).unwrap();
    assert_eq!(reports(plane, &ns).len(), 1);
}

#[test]
fn serves_no_invalid_certificate_and_changes_no_foreign_secret() {
    let (runtime, plane) = (runtime(), &world().plane);
    let ns = plane.namespace("broken").unwrap();
    let a = Server::start(&runtime, plane, &ns, "a");
    a.context.signals.leading.send_replace(true);
    let first = a.trusts(1);
    a.context.signals.leading.send_replace(false);
    let patch = json!({"data": {"tls.key": "bm9uc2Vuc2U="}});
    plane.patch("secret/belay-tls", &ns, &patch);
    eventually("a counted failure", Duration::from_secs(5), || {
        let metrics = a.context.metrics.encode();
        let counted = metrics.contains("belay_certificate_reload_failures_total 1\n");
        counted.then_some(()).ok_or_else(|| "none".into())
    })
    .unwrap();
    assert_eq!(a.convinces(&first), Ok(()), "the last good pair stays");

    // The next leader creates a new one. The CA of the served certificate is trusted until
    // it is no longer served.
    let repaired = |from: &str| {
        eventually("another pair", Duration::from_secs(8), || {
            let bundle = a.bundle().ok_or("nothing")?;
            a.convinces(&bundle)?;
            match a.convinces(from) {
                Err(_) if bundle.matches("BEGIN").count() == 1 => Ok(bundle),
                _ => Err("the one before".into()),
            }
        })
        .unwrap()
    };
    a.context.signals.leading.send_replace(true);
    let second = repaired(&first);
    // The same happens after a user deletes the Secret.
    plane.kubectl(&["delete", "secret", "belay-tls", "-n", &ns]).unwrap().success().unwrap();
    repaired(&second);

    let unmark = json!({"metadata": {"annotations": {"belay.dev/made-by": null, "by": "me"}}});
    plane.patch("secret/belay-tls", &ns, &unmark);
    plane.patch("secret/belay-tls", &ns, &patch);
    crate::harness::pause(Duration::from_secs(1));
    assert_eq!(secret(plane, &ns, "tls.key"), "bm9uc2Vuc2U=");
    assert!(a.convinces(&a.bundle().unwrap()).is_ok());
    assert!(!a.task.is_finished());
}

#[test]
fn with_certificate_files_only_their_cas_are_published() {
    let (runtime, plane) = (runtime(), &world().plane);
    let ns = plane.namespace("files").unwrap();
    let folder = plane.folder().join("files-certs");
    let made = belay::certs::make_files(&folder, &[host(&ns)], 1).unwrap();
    let mut context = replica(&runtime, plane, &ns, "a");
    let mut settings = (*context.settings).clone();
    settings.certificates = Certificates::Files { authorities: Some(made.ca_cert.clone()) };
    context.settings = Arc::new(settings);
    let serving = Arc::new(Serving::default());
    let task = runtime.spawn(certificates::run(context.clone(), serving.clone()));
    context.signals.leading.send_replace(true);
    let bundle = eventually("a bundle", Duration::from_secs(5), || {
        context.signals.bundle.borrow().clone().ok_or_else(|| "none".into())
    });
    let text = std::fs::read_to_string(&made.ca_cert).unwrap();
    assert_eq!(bundle.unwrap().lines().collect::<Vec<_>>(), text.lines().collect::<Vec<_>>());
    assert!(!serving.has_pair());
    assert_eq!(context.readiness.describe(), "");
    context.signals.ending.send_replace(true);
    runtime.block_on(task).unwrap();
    for kind in ["secret", "lease"] {
        assert_eq!(plane.api().list(kind, &ns, "").unwrap(), Vec::<Value>::new());
    }
}
