//! Clients that send requests all the time, and notice the first wrong answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio::runtime::Runtime;
use tokio::sync::RwLock;
use tokio::task::JoinHandle;

use super::{ControlPlane, Result, eventually};

/// The number of concurrent clients. Each sends one request at a time.
const CLIENTS: usize = 6;

/// The load: dry runs of a CREATE that has to get the hold, and of a DELETE
/// that has to be refused by the label.
pub struct Load {
    shared: Arc<Shared>,
    runtime: Runtime,
    clients: Vec<JoinHandle<std::result::Result<(), String>>>,
}

struct Shared {
    configmaps: Api<ConfigMap>,
    kept: ConfigMap,
    stop: AtomicBool,
    /// The number of answers so far.
    answered: AtomicUsize,
    /// Whether a client has received a wrong answer.
    failed: AtomicBool,
    /// Locked for reading by each request, and for writing while connections are closed, so
    /// that no request is in progress on one of them.
    asking: RwLock<()>,
}

impl Load {
    /// Starts, in a namespace with the ConfigMap `kept` for the requests.
    pub fn start(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let runtime = Runtime::new()?;
        let kept: ConfigMap = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "kept", "labels": {"belay.dev/protect": "Always"}},
        }))?;
        let configmaps = runtime.block_on(async {
            let configmaps: Api<ConfigMap> = Api::namespaced(plane.client().await?, namespace);
            configmaps.create(&PostParams::default(), &kept).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(configmaps)
        })?;
        let shared = Arc::new(Shared {
            configmaps,
            kept,
            stop: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            asking: RwLock::new(()),
        });
        let clients = (0..CLIENTS).map(|_| runtime.spawn(shared.clone().run_client())).collect();
        Ok(Self { shared, runtime, clients })
    }

    /// Whether a client has stopped after an error. The error is returned at the end.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Waits for some more answers, or for a client that gave up.
    pub fn wait_for_answers(&self) -> Result<()> {
        let before = self.shared.answered.load(Ordering::Relaxed);
        eventually("more answers", Duration::from_secs(60), || {
            let more = self.shared.answered.load(Ordering::Relaxed) - before;
            if more >= 60 || self.has_failed() {
                Ok(())
            } else {
                Err(format!("{more} more").into())
            }
        })
    }

    /// Does something while no request is under way.
    pub fn while_idle<T>(&self, act: impl FnOnce() -> T) -> T {
        let _no_request = self.runtime.block_on(self.shared.asking.write());
        act()
    }

    /// Ends the load and returns the number of answers, or the first wrong answer.
    pub fn end(self) -> Result<usize> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            self.runtime.block_on(client)??;
        }
        Ok(self.shared.answered.load(Ordering::Relaxed))
    }
}

impl Shared {
    async fn run_client(self: Arc<Self>) -> std::result::Result<(), String> {
        let result = self.send_requests().await;
        self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    }

    async fn send_requests(&self) -> std::result::Result<(), String> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let mut new = self.kept.clone();
        new.metadata.name = None;
        new.metadata.generate_name = Some("new-".to_owned());
        while !self.stop.load(Ordering::Relaxed) {
            let _asking = self.asking.read().await;
            // The mutating webhook has failurePolicy Ignore: a failure shows in the missing
            // hold.
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
