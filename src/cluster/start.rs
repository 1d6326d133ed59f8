//! Starts the cluster side on its own threads, and shuts it down.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::KubeConfigOptions;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::{Id, JoinHandle, JoinSet};

use super::context::{Certificates, Context, Settings, Signals};
use super::decider::ClusterDecider;
use super::journal::Journal;
use super::kubeconfig::{NoCluster, find_cluster};
use super::live::Reader;
use super::{
    certificates, deep_objects, election, expired_approvals, feed, holds, journal, pace, paths,
    pause_reports, registration, release, rights, status,
};
use crate::certs::Serving;
use crate::policy::Identities;
use crate::telemetry::{Metrics, Readiness, ReadinessCondition};
use crate::webhook::{AcceptedPaths, Decider};

/// The number of threads of the cluster side. While the feed works on a long list, the other thread
/// serves live reads.
const THREADS: usize = 2;

/// How long the shutdown of the parts may take. The leader releases the Lease meanwhile.
const ENDING: Duration = Duration::from_secs(3);

/// How to connect to the cluster, and the identity of belay.
#[derive(Debug, Clone)]
pub struct Options {
    /// A kubeconfig; `None`: the ServiceAccount of the Pod, or KUBECONFIG.
    pub kubeconfig: Option<PathBuf>,
    /// The user names that belay treats specially.
    pub identities: Identities,
    /// The settings. An empty namespace means the namespace of the account. Certificates without
    /// names get the names of the Service.
    pub settings: Settings,
}

/// Why the cluster side could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No cluster was found.
    #[error(
        "cannot find a cluster: {0}; run belay in a Pod, name a kubeconfig with --kubeconfig, or \
         serve without a cluster with --standalone"
    )]
    Configuration(#[source] NoCluster),
    /// No cluster was found for a command.
    #[error(
        "cannot find a cluster: {0}; next: name a kubeconfig with --kubeconfig or in KUBECONFIG, \
         and one of its contexts with --context"
    )]
    Kubeconfig(#[source] NoCluster),
    /// The client could not be created.
    #[error("cannot make a client for the API server: {0}")]
    Client(String),
    /// The runtime could not be created.
    #[error("cannot start the threads of the cluster side: {0}")]
    Threads(#[source] std::io::Error),
}

/// The running cluster side.
pub struct Cluster {
    /// The data that the parts share.
    pub context: Context,
    runtime: Runtime,
    parts: JoinHandle<()>,
    died: watch::Receiver<Option<&'static str>>,
    serving: Option<Arc<Serving>>,
    accepted_paths: Arc<AcceptedPaths>,
    decider: Arc<ClusterDecider>,
}

impl Cluster {
    /// Starts all tasks. Readiness reports when the cluster was read.
    pub fn start(
        options: Options,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("cluster")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let config = runtime.block_on(configuration(options.kubeconfig.as_ref()))?;
        let mut settings = options.settings;
        if settings.namespace.is_empty() {
            settings.namespace.clone_from(&config.default_namespace);
        }
        let service = service_names(&settings.name, &settings.namespace);
        if let Certificates::Own { names, .. } = &mut settings.certificates
            && names.is_empty()
        {
            *names = service;
        }
        let client = {
            let _entered = runtime.enter();
            super::connection::client(config)
                .map_err(|error| StartError::Client(super::error_chain(&error)))?
        };
        let context = Context { metrics, readiness, ..Context::new(client, settings) };
        let serving = matches!(context.settings.certificates, Certificates::Own { .. })
            .then(Arc::<Serving>::default);
        let accepted_paths = Arc::<AcceptedPaths>::default();
        let (journal, entries) = Journal::new(context.metrics.clone());
        let (stored_policies_sender, stored_policies) = watch::channel(Arc::default());
        let parts_condition = context.readiness.condition("parts");
        parts_condition.set(true);
        let mut parts = Parts::default();
        let handle = runtime.handle();
        let reader = {
            let _entered = runtime.enter();
            Reader::new(context.clone())
        };
        let live_api = Arc::new(reader.clone());
        let decider = ClusterDecider::new(context.world.clone(), live_api, journal);
        let own_serving = serving.clone().unwrap_or_default();
        let feed = feed::run(context.clone(), options.identities, stored_policies_sender);
        parts.start("feed", feed, handle);
        parts.start("certificates", certificates::run(context.clone(), own_serving), handle);
        let paths = paths::run(context.clone(), accepted_paths.clone());
        parts.start("paths", paths, handle);
        parts.start("election", election::run(context.clone()), handle);
        parts.start("journal", journal::run(context.clone(), entries), handle);
        let status = status::run(context.clone(), stored_policies, feed::plan::needed_kinds);
        parts.start("status", status, handle);
        let rights = until_the_end(&context, rights::run(context.clone()));
        parts.start("rights", rights, handle);
        parts.start("registration", registration::run(context.clone()), handle);
        let release = until_the_end(&context, release::run(context.clone(), reader));
        parts.start("release", release, handle);
        let expired = until_the_end(&context, expired_approvals::run(context.clone()));
        parts.start("expired", expired, handle);
        let deep = until_the_end(&context, deep_objects::run(context.clone()));
        parts.start("deep", deep, handle);
        let paused = until_the_end(&context, pause_reports::run(context.clone()));
        parts.start("paused", paused, handle);
        parts.start("holds", until_the_end(&context, holds::run(context.clone())), handle);
        let (died_sender, died) = watch::channel(None);
        let parts =
            handle.spawn(parts.supervise(context.signals.clone(), parts_condition, died_sender));
        let decider = Arc::new(decider);
        Ok(Self { runtime, parts, died, context, serving, accepted_paths, decider })
    }

    /// The task that ended before the shutdown, if one did. Without it, decisions use
    /// outdated data, so the process must exit.
    pub fn died(&self) -> watch::Receiver<Option<&'static str>> {
        self.died.clone()
    }

    /// The decider for reviews.
    pub fn decider(&self) -> Arc<dyn Decider> {
        self.decider.clone()
    }

    /// A function that prints the current graph.
    pub fn dump(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let world = self.context.world.clone();
        move || super::dump(&world)
    }

    /// The certificates from the Secret; `None`: they are in files.
    pub fn serving(&self) -> Option<Arc<Serving>> {
        self.serving.clone()
    }

    /// The accepted secret paths of reviews, from the Secret.
    pub fn accepted_paths(&self) -> Arc<AcceptedPaths> {
        self.accepted_paths.clone()
    }

    /// Shuts down. The leader releases the Lease.
    pub fn stop(self) {
        let Self { context, runtime, parts, .. } = self;
        context.signals.ending.send_replace(true);
        runtime.block_on(async {
            if tokio::time::timeout(ENDING, parts).await.is_err() {
                tracing::warn!("the cluster side did not end in time and is cut off");
            }
        });
        runtime.shutdown_background();
    }
}

/// The running tasks by name.
#[derive(Default)]
struct Parts {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Parts {
    fn start(
        &mut self,
        name: &'static str,
        part: impl Future<Output = ()> + Send + 'static,
        handle: &Handle,
    ) {
        let task = self.tasks.spawn_on(part, handle);
        self.names.insert(task.id(), name);
    }

    /// Waits for all tasks. A task that ends before the shutdown must be noticed, because
    /// no other task does its work.
    async fn supervise(
        mut self,
        signals: Arc<Signals>,
        parts_condition: ReadinessCondition,
        died_sender: watch::Sender<Option<&'static str>>,
    ) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if *signals.ending.borrow() {
                continue;
            }
            let (id, how) = match ended {
                Ok((id, ())) => (id, "it returned"),
                Err(error) => (error.id(), "it panicked"),
            };
            let part = self.names.get(&id).copied().unwrap_or("unnamed");
            tracing::error!(
                part,
                how,
                "a task of belay has ended; belay exits so that it is restarted"
            );
            parts_condition.explain(part);
            parts_condition.set(false);
            died_sender.send_replace(Some(part));
        }
    }
}

/// Runs a part that needs no cleanup until belay shuts down.
fn until_the_end(
    context: &Context,
    part: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let signals = context.signals.clone();
    async move { signals.until_end(part).await }
}

/// The server names that an API server expects for a Service.
fn service_names(name: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
        format!("{name}.{namespace}"),
    ]
}

async fn configuration(kubeconfig: Option<&PathBuf>) -> Result<kube::Config, StartError> {
    let config = find_cluster(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.map_err(StartError::Configuration)?;
    Ok(with_defaults(config, concat!("belay/", env!("CARGO_PKG_VERSION"))))
}

/// Sets the user agent and time-outs, and disables kube's own retries. The name in the user agent
/// is the field manager of writes without one.
pub(super) fn with_defaults(mut config: kube::Config, user_agent: &'static str) -> kube::Config {
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    // Each task retries on its own.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    // This is longer than any watch may be silent, and it ends a list that hangs.
    config.read_timeout = Some(Duration::from_secs(300));
    config
}

/// A name for this process: the host name, which in a Pod is the name of the Pod, with a suffix
/// that differs for each start.
pub fn replica() -> String {
    let machine = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    let machine: String = machine
        .unwrap_or_default()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(40)
        .collect();
    let machine = machine.trim_matches('-');
    let number = pace::random(u32::MAX);
    match machine {
        "" => format!("belay-{number:08x}"),
        _ => format!("{machine}-{number:08x}"),
    }
}

/// A random name for this process.
pub fn instance() -> String {
    format!("belay-{:08x}{:08x}", pace::random(u32::MAX), pace::random(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn supervised(ending: bool) -> (bool, Option<&'static str>) {
        let (readiness, signals) = (Readiness::default(), Arc::new(Signals::default()));
        let parts_condition = readiness.condition("parts");
        parts_condition.set(true);
        signals.ending.send_replace(ending);
        let mut parts = Parts::default();
        parts.start("feed", async { panic!("a mistake") }, &Handle::current());
        let (died_sender, died) = watch::channel(None);
        parts.supervise(signals, parts_condition, died_sender).await;
        (readiness.is_ready(), *died.borrow())
    }

    #[tokio::test]
    async fn a_part_that_dies_ends_readiness_and_is_named() {
        assert_eq!(supervised(false).await, (false, Some("feed")));
        // A task may end during the shutdown.
        assert_eq!(supervised(true).await, (true, None));
    }
}
