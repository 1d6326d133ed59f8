//! A kubelet for belay's own Pods, with a kube-proxy.
//!
//! The real controllers create the Pods of a chart, and the real scheduler assigns them to
//! a node. kwok simulates all Pods but these. Their one container runs here as a process of
//! this machine, with its arguments, its environment, its volumes, and a token of its
//! ServiceAccount, so it has the rights of the chart's roles. Its probes decide whether it
//! is Ready, and the API server calls the endpoints in EndpointSlices.

mod container;
mod pod;
mod services;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{Store, store};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use self::pod::Local;
use super::belay::http_get;
use super::plane::Endpoint;
use super::proxy::EgressProxy;
use super::shared::lock;
use super::{ControlPlane, Result};

/// The repository of belay's images. kwok does not simulate Pods of these images.
pub const IMAGE: &str = "belay.dev/belay";

/// The pause between two passes over its Pods.
const PAUSE: Duration = Duration::from_millis(100);

/// The kubelet. Its processes end with it.
pub struct Kubelet {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    images: Mutex<HashMap<String, PathBuf>>,
    running: Mutex<Vec<Replica>>,
    stop: AtomicBool,
    /// Whether Pods use the intervals of production instead of those of tests.
    production_timing: AtomicBool,
}

/// A Pod that serves.
#[derive(Debug, Clone)]
pub struct Replica {
    /// The Pod's name.
    pub name: String,
    /// The address for reviews.
    pub listen: SocketAddr,
    /// The address of its probes and metrics.
    pub probes: SocketAddr,
    /// Whether its readiness probe succeeds.
    pub ready: bool,
}

impl Replica {
    /// The content of /metrics.
    pub fn metrics(&self) -> Result<String> {
        Ok(http_get(self.probes, "/metrics")?.1)
    }
}

/// The state that all passes share.
struct Node {
    client: Client,
    watched: Watched,
    endpoint: Endpoint,
    folder: PathBuf,
    logs: PathBuf,
    proxy: EgressProxy,
    shared: Arc<Shared>,
    pods: HashMap<String, Local>,
    /// The number of addresses given to Pods so far.
    addresses: u16,
    /// The last problem of each Pod, so that it is printed once.
    troubles: HashMap<String, String>,
}

/// The objects that the kubelet and the kube-proxy follow, as their watches have them.
struct Watched {
    pods: Store<Pod>,
    services: Store<Service>,
    slices: Store<EndpointSlice>,
}

impl Watched {
    fn start(client: &Client) -> Self {
        Self { pods: watch(client), services: watch(client), slices: watch(client) }
    }

    async fn wait_until_read(&self) -> Result<()> {
        self.pods.wait_until_ready().await?;
        self.services.wait_until_ready().await?;
        Ok(self.slices.wait_until_ready().await?)
    }
}

/// The same pause after each failure, because the API server is back soon.
struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

/// Watches all objects of a kind on the current runtime.
fn watch<K>(client: &Client) -> Store<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (objects, writer) = store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default());
    let events = events.backoff(Steady).reflect(writer);
    tokio::spawn(events.for_each(|event| {
        if let Err(error) = event {
            eprintln!("kubelet: the API server: {error}");
        }
        std::future::ready(())
    }));
    objects
}

impl Kubelet {
    /// Starts it on a control plane with nodes. It runs an image after `pull` has set its
    /// program.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (admin, endpoint) = (plane.kubeconfig().to_owned(), plane.endpoint());
        let (folder, logs) = (plane.folder().join("pods"), plane.logs());
        let (proxy, inner) = (plane.proxy.clone(), shared.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("kubelet".to_owned()).spawn(move || {
            runtime.block_on(async {
                let client = match client(&admin).await {
                    Ok(client) => client,
                    Err(error) => return eprintln!("kubelet: {error}"),
                };
                let (pods, troubles) = (HashMap::new(), HashMap::new());
                let shared = inner;
                let watched = Watched::start(&client);
                let addresses = 0;
                let node = Node {
                    client,
                    watched,
                    endpoint,
                    folder,
                    logs,
                    proxy,
                    shared,
                    pods,
                    addresses,
                    troubles,
                };
                node.run().await;
            });
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the program of the image with this tag.
    pub fn pull(&self, tag: &str, program: &Path) {
        lock(&self.shared.images).insert(format!("{IMAGE}:{tag}"), program.to_owned());
    }

    /// Pods that start later use the intervals of production.
    pub fn use_production_timing(&self) {
        self.shared.production_timing.store(true, Ordering::Release);
    }

    /// The Pods that serve at the moment.
    pub fn replicas(&self) -> Vec<Replica> {
        lock(&self.shared.running).clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await?;
    Ok(Client::try_from(config)?)
}

impl Node {
    async fn run(mut self) {
        let shared = self.shared.clone();
        let stopped = async {
            while !shared.stop.load(Ordering::Acquire) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = stopped => return,
            read = self.watched.wait_until_read() => {
                if let Err(error) = read {
                    return eprintln!("kubelet: {error}");
                }
            }
        }
        while !self.shared.stop.load(Ordering::Acquire) {
            self.run_pass().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One pass over the Pods of the chart and the endpoints of Services.
    async fn run_pass(&mut self) {
        let ours: Vec<_> =
            self.watched.pods.state().into_iter().filter(|pod| is_ours(pod)).collect();
        let uids: Vec<&str> = ours.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        // A Pod that was removed from the API server is stopped.
        self.pods.retain(|uid, _| uids.contains(&uid.as_str()));
        for pod in &ours {
            if let Err(error) = self.update_pod(pod).await {
                let name = pod.metadata.name.clone().unwrap_or_default();
                self.print_trouble(&name, &error.to_string());
            }
        }
        let serving = self.pods.values().filter_map(Local::replica).collect();
        *lock(&self.shared.running) = serving;
        services::route(&self.watched, &self.proxy, self.pods.values());
    }

    /// Starts, updates or deletes one Pod.
    async fn update_pod(&mut self, pod: &Pod) -> Result<()> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if let Some(local) = self.pods.get_mut(&uid) {
            return local.update(&self.client, pod).await;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if pod.metadata.deletion_timestamp.is_some() {
            return pod::forget(&self.client, pod).await;
        }
        let is_scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !is_scheduled || matches!(phase, Some("Succeeded" | "Failed")) {
            return Ok(());
        }
        let number = self.addresses;
        let address = format!("10.244.{}.{}", number / 250, number % 250 + 1);
        let container = container::Container::of(self, pod, &address).await?;
        self.addresses += 1;
        let local = Local::start(pod, container, address, &self.logs)?;
        self.pods.insert(uid, local);
        Ok(())
    }

    /// Prints a problem once to standard error, where a failed test shows it.
    fn print_trouble(&mut self, pod: &str, problem: &str) {
        if self.troubles.get(pod).is_none_or(|last| last != problem) {
            eprintln!("kubelet: {pod}: {problem}");
            self.troubles.insert(pod.to_owned(), problem.to_owned());
        }
    }
}

fn is_ours(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|c| c.image.as_deref()).any(|image| image.starts_with(IMAGE))
}
