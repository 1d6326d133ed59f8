//! Starts the cluster side on threads of its own, and ends it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::context::{Context, Settings, Signals};
use super::world::SharedWorld;
use super::{feed, pace};
use crate::policy::Identities;
use crate::telemetry::{Metrics, Readiness};

/// Threads of the cluster side: one that feeds may be busy with a long list
/// while a verdict waits for a live read.
const THREADS: usize = 2;

/// How long the parts may take to end: the Lease is given back meanwhile.
const ENDING: Duration = Duration::from_secs(3);

/// Where the cluster is, and who belay is in it.
#[derive(Debug, Clone)]
pub struct Options {
    /// A kubeconfig; none: the account of the Pod, or what KUBECONFIG says.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace that belay runs in; none: that of the account.
    pub namespace: Option<String>,
    /// The name of the installation.
    pub name: String,
    /// What this replica is called; none: by the name of its machine.
    pub replica: Option<String>,
    /// The kinds of which labelled objects are watched.
    pub labelled: Vec<(String, String)>,
    /// Whom belay knows by name.
    pub identities: Identities,
}

/// Why the cluster side could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no cluster.
    #[error(
        "cannot find a cluster: {0}; run belay in a Pod, name a kubeconfig with --kubeconfig, or \
         serve with no cluster by --standalone"
    )]
    Configuration(String),
    /// A client cannot be made.
    #[error("cannot make a client for the API server: {0}")]
    Client(String),
    /// A runtime cannot be made.
    #[error("cannot start the threads of the cluster side: {0}")]
    Threads(#[source] std::io::Error),
}

/// The cluster side, running.
pub struct Cluster {
    /// What its parts share.
    pub context: Context,
    runtime: Runtime,
    parts: JoinSet<()>,
}

impl Cluster {
    /// Starts it. Nothing has been read when this returns; readiness says when
    /// it has.
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
        let namespace = options.namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = {
            let _entered = runtime.enter();
            kube::Client::try_from(config)
                .map_err(|error| StartError::Client(super::api::chain(&error)))?
        };
        let settings = Settings {
            namespace,
            name: options.name,
            replica: options.replica.unwrap_or_else(replica),
            labelled: options.labelled,
        };
        let context = Context {
            client,
            world: SharedWorld::default(),
            settings: Arc::new(settings),
            metrics,
            readiness,
            signals: Arc::new(Signals::default()),
        };
        let mut parts = JoinSet::new();
        parts.spawn_on(feed::run(context.clone(), options.identities), runtime.handle());
        Ok(Self { context, runtime, parts })
    }

    /// Ends it: whoever leads gives the Lease back.
    pub fn stop(self) {
        let Self { context, runtime, mut parts } = self;
        context.signals.ending.send_replace(true);
        runtime.block_on(async {
            let all = async { while parts.join_next().await.is_some() {} };
            if tokio::time::timeout(ENDING, all).await.is_err() {
                tracing::warn!("the cluster side did not end in time and is cut off");
            }
        });
        runtime.shutdown_background();
    }
}

async fn configuration(kubeconfig: Option<&PathBuf>) -> Result<kube::Config, StartError> {
    let wrong = |error: &dyn std::error::Error| StartError::Configuration(super::api::chain(error));
    let mut config = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|error| wrong(&error))?
        }
        None => kube::Config::infer().await.map_err(|error| wrong(&error))?,
    };
    // Each part tries again by itself, and knows when that is of no use.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// A name for this process: that of its machine, which in a Pod is the Pod's,
/// and something that no other start of it has.
fn replica() -> String {
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
