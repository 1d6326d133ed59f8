//! Certificates that change while the API server asks all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio::sync::RwLock;

use crate::World;
use crate::faulty::{LIMIT, faulty};
use crate::harness::eventually;

/// Clients that ask one after the other, side by side.
const CLIENTS: usize = 6;

/// What the clients have in common.
struct Load {
    configmaps: Api<ConfigMap>,
    kept: ConfigMap,
    ends: AtomicBool,
    answered: AtomicUsize,
    /// Whether a client has met with what should not be.
    failed: AtomicBool,
    /// Taken to read for each request, and to write while connections are
    /// ended: no request is under way on one of them then.
    connections: RwLock<()>,
}

impl Load {
    /// Asks until the end; says what did not come out as it should.
    async fn ask(self: Arc<Self>) -> Result<(), String> {
        let asked = self.ask_on().await;
        self.failed.fetch_or(asked.is_err(), Ordering::Relaxed);
        asked
    }

    async fn ask_on(&self) -> Result<(), String> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let mut new = self.kept.clone();
        new.metadata.name = None;
        new.metadata.generate_name = Some("new-".to_owned());
        while !self.ends.load(Ordering::Relaxed) {
            let _asking = self.connections.read().await;
            // The mutating one is asked under Ignore: a failure shows in what
            // it has not done.
            let made = self.configmaps.create(&dry, &new).await.map_err(|e| e.to_string())?;
            if made.metadata.finalizers.iter().flatten().all(|f| f != "belay.dev/hold") {
                return Err("an object was made without the hold".to_owned());
            }
            match self.configmaps.delete("kept", &delete).await {
                Err(kube::Error::Api(no)) if no.message.contains("is protected; label") => {}
                other => return Err(format!("{other:?}")),
            }
            self.answered.fetch_add(2, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Load {
    /// Waits for some more answers, or for a client that gave up: it says why
    /// in the end.
    fn goes_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually("more answers", LIMIT, || {
            let more = self.answered.load(Ordering::Relaxed) - before;
            let failed = self.failed.load(Ordering::Relaxed);
            if more >= 60 || failed { Ok(()) } else { Err(format!("{more} more").into()) }
        })
        .unwrap();
    }
}

impl World {
    /// The authorities that every entry of a configuration trusts.
    fn bundle(&self, kind: &str) -> String {
        let path = "jsonpath={range .webhooks[*]}{.clientConfig.caBundle}{\"\\n\"}{end}";
        let bundles = self.kubectl(&["get", kind, "belay", "-o", path]);
        let mut bundles: Vec<&str> = bundles.lines().collect();
        bundles.dedup();
        assert_eq!(bundles.len(), 1, "the entries differ: {bundles:?}");
        bundles[0].to_owned()
    }

    fn tls(&self, key: &str) -> String {
        let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
        self.kubectl(&["get", "secret", "belay-tls", "-n", "belay", "-o", &path])
    }

    /// The serial numbers of what the replicas say that they serve.
    fn served(&self) -> Vec<String> {
        let path = "jsonpath={.items[*].metadata.annotations.belay\\.dev/certificate}";
        let args = ["get", "lease", "-n", "belay", "-l", "belay.dev/replica=belay", "-o", path];
        self.kubectl(&args).split(' ').map(str::to_owned).collect()
    }
}

#[test]
fn s27_certificates_are_rotated_under_load_and_no_review_fails() {
    let world = faulty();
    let ns = world.plane.namespace("s27").unwrap();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let kept: ConfigMap = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "kept", "labels": {"belay.dev/protect": "Always"}},
    }))
    .unwrap();
    let load = runtime.block_on(async {
        let client = world.plane.client().await.unwrap();
        let configmaps: Api<ConfigMap> = Api::namespaced(client, &ns);
        configmaps.create(&PostParams::default(), &kept).await.unwrap();
        Arc::new(Load {
            configmaps,
            kept,
            ends: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            connections: RwLock::new(()),
        })
    });
    let (certificate, authority) =
        (world.tls("tls.crt"), world.bundle("validatingwebhookconfiguration"));
    let serials = world.served();
    let clients: Vec<_> = (0..CLIENTS).map(|_| runtime.spawn(load.clone().ask())).collect();

    load.goes_on();
    let ask = ["annotate", "secret", "belay-tls", "-n", "belay", "belay.dev/rotate-requested=yes"];
    world.kubectl(&ask);
    let mut phases = vec![authority.clone()];
    eventually("another certificate, trusted alone", LIMIT, || {
        if load.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Each look is followed by handshakes with both replicas, whatever the
        // rotation has come to.
        {
            let _nobody = runtime.block_on(load.connections.write());
            world.reconnect();
        }
        let bundle = world.bundle("validatingwebhookconfiguration");
        if phases.last() != Some(&bundle) {
            phases.push(bundle.clone());
        }
        let done = world.tls("tls.crt") != certificate
            && world.tls("old-ca.crt").is_empty()
            && bundle != authority
            && bundle == world.bundle("mutatingwebhookconfiguration")
            && bundle == world.tls("ca.crt");
        if done { Ok(()) } else { Err(format!("{} phases so far", phases.len()).into()) }
    })
    .unwrap();
    // The last one has to carry some load as well.
    load.goes_on();
    load.ends.store(true, Ordering::Relaxed);
    for client in clients {
        runtime.block_on(client).unwrap().unwrap();
    }
    // Old alone, old and new together, new alone.
    assert_eq!(phases.len(), 3, "{phases:#?}");
    // Replicas that were killed have left their last report behind, and it is
    // not waited for.
    let now = world.served();
    let new: Vec<_> = now.iter().filter(|serial| !serials.contains(*serial)).collect();
    assert!(new.len() == 2 && new[0] == new[1], "{serials:?} {now:?}");
}
