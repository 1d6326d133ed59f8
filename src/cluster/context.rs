//! The data that all parts of the cluster side share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::holding::HoldProgress;
use super::world::SharedWorld;
use crate::decide::AdmissionPhase;
use crate::telemetry::{Metrics, Readiness};
use crate::timing::Timing;
use crate::webhook::SecretPath;

/// The identity of this installation and the names of its objects.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace that belay runs in.
    pub namespace: String,
    /// The name of the installation. Both webhook configurations, the Lease and the
    /// Service have this name; other objects have it as a prefix.
    pub name: String,
    /// The name of this replica. It differs after each start of the process.
    pub replica: String,
    /// A random name of this process, for objects that tenants read. It does not reveal
    /// the name of the Pod.
    pub instance: String,
    /// The kinds (group, plural name) whose labelled objects belay watches although no policy names
    /// the kinds, so that verdicts on a cascade include these objects.
    pub labelled: Vec<(String, String)>,
    /// Where the certificates come from.
    pub certificates: Certificates,
    /// The maximum number of existing objects of one kind that get a hold for one policy,
    /// unless the policy sets it; 0: unlimited.
    pub backfill: usize,
    /// The time-out in the installed webhook configurations.
    pub timeout_seconds: i32,
    /// Intervals and time-outs.
    pub timing: Timing,
}

/// Where the certificates come from.
#[derive(Debug, Clone)]
pub enum Certificates {
    /// The leader creates and rotates the certificates in a Secret.
    Own {
        /// The server names that the API server expects.
        names: Vec<String>,
        /// The validity of a new certificate.
        days: u32,
    },
    /// Mounted files from another source.
    Files {
        /// The file with the CA certificates for the webhook configurations; `None`:
        /// another client writes them.
        authorities: Option<PathBuf>,
    },
}

/// The data that all parts of the cluster side share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The client of the API server.
    pub client: kube::Client,
    /// The cached state.
    pub world: SharedWorld,
    /// The settings of this installation.
    pub settings: Arc<Settings>,
    /// The metrics.
    pub metrics: Metrics,
    /// The readiness conditions.
    pub readiness: Readiness,
    /// The signals between the parts.
    pub signals: Arc<Signals>,
}

impl Context {
    /// An empty world, with metrics, readiness and signals of its own.
    pub fn new(client: kube::Client, settings: Settings) -> Self {
        Self {
            client,
            world: SharedWorld::default(),
            settings: Arc::new(settings),
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            signals: Arc::default(),
        }
    }
}

#[cfg(test)]
impl Settings {
    /// The settings of the installation belay/belay, for tests.
    pub fn of_test(labelled: &[(&str, &str)]) -> Self {
        let own = |(group, resource): &(&str, &str)| ((*group).to_owned(), (*resource).to_owned());
        Self {
            namespace: "belay".into(),
            name: "belay".into(),
            replica: "r".into(),
            instance: "r".into(),
            labelled: labelled.iter().map(own).collect(),
            certificates: Certificates::Files { authorities: None },
            backfill: 0,
            timeout_seconds: 5,
            timing: Timing::default(),
        }
    }
}

#[cfg(test)]
impl Context {
    /// The context of the installation belay/belay with this API server, for tests.
    pub fn of_test(client: kube::Client, world: super::World, labelled: &[(&str, &str)]) -> Self {
        let world = Arc::new(parking_lot::RwLock::new(world));
        Self { world, ..Self::new(client, Settings::of_test(labelled)) }
    }
}

/// Sends a value if it differs from the last one.
pub fn send_changed<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|last| {
        let differs = *last != value;
        if differs {
            *last = value;
        }
        differs
    });
}

/// The signals between the parts. Each signal has one writer, and readers subscribe.
#[derive(Debug)]
pub struct Signals {
    /// Counts the changes of policies, relations, kinds and owner kinds. Rules, statuses and holds
    /// depend on them.
    pub changed: watch::Sender<u64>,
    /// Whether this replica is the leader.
    pub leading: watch::Sender<bool>,
    /// The CA certificates that the API server must trust, PEM; `None` if another client
    /// manages them or they are unknown.
    pub bundle: watch::Sender<Option<Arc<str>>>,
    /// The secrets in the paths of the webhooks; `None`: not read yet.
    pub paths: watch::Sender<Option<Paths>>,
    /// The state of the webhook configurations.
    pub registered: watch::Sender<Registered>,
    /// The progress of the holds of each policy, by its name.
    pub holding: watch::Sender<Arc<HashMap<String, HoldProgress>>>,
    /// Whether belay is shutting down.
    pub ending: watch::Sender<bool>,
    /// Wakes the task that releases holds: see [`super::world::TerminatingObjects`].
    pub waiting: Arc<Notify>,
    /// Wakes the feed after a change that affects its plan.
    pub plan: Arc<Notify>,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            changed: watch::Sender::new(0),
            leading: watch::Sender::new(false),
            bundle: watch::Sender::new(None),
            paths: watch::Sender::new(None),
            registered: watch::Sender::new(Registered::default()),
            holding: watch::Sender::new(Arc::default()),
            ending: watch::Sender::new(false),
            waiting: Arc::default(),
            plan: Arc::default(),
        }
    }
}

impl Signals {
    /// Reports a change of policies, relations, kinds or owner kinds.
    pub fn change(&self) {
        self.changed.send_modify(|generation| *generation += 1);
    }

    /// Runs a task while this replica is the leader, and drops it when it no longer is.
    /// `follows` runs before, while it is not the leader.
    pub async fn while_leading<L, F>(
        &self,
        mut leads: impl FnMut() -> L,
        mut follows: impl FnMut() -> F,
    ) where
        L: Future<Output = ()>,
        F: Future<Output = ()>,
    {
        let mut leading = self.leading.subscribe();
        loop {
            // `self` keeps the sender, so neither wait fails.
            tokio::select! {
                biased;
                () = follows() => {}
                _ = leading.wait_for(|leading| *leading) => {}
            }
            tokio::select! {
                () = leads() => {}
                _ = leading.wait_for(|leading| !leading) => {}
            }
        }
    }

    /// Runs a task until it ends or belay shuts down.
    pub async fn until_end(&self, task: impl Future<Output = ()>) {
        tokio::select! {
            () = task => {}
            () = self.ended() => {}
        }
    }

    /// Waits until belay shuts down.
    pub async fn ended(&self) {
        // `self` keeps the sender, so the wait does not fail.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }
}

/// The secret paths of the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The secret path for the webhook configurations.
    pub register: SecretPath,
    /// All accepted secret paths.
    pub accepted: Vec<SecretPath>,
}

/// The state of the webhook configurations in the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registered {
    /// The value of [`Signals::changed`] whose rules are in both configurations; `None`
    /// if they are not.
    pub generation: Option<u64>,
    /// The CA certificates in all webhooks of both configurations.
    pub bundle: Option<Arc<str>>,
    /// The secret path of all webhooks of both configurations.
    pub secret_path: Option<SecretPath>,
    /// The missing configurations, as `kind/name`, and the missing webhooks, as
    /// `kind/name webhook name`, each with its phase.
    pub missing: Vec<(AdmissionPhase, String)>,
    /// The webhooks that differ from the manifests of this version, as
    /// `kind/name webhook name (fields)`.
    pub changed: Vec<String>,
    /// Whether at least one configuration is known to exist. Without one, belay is being
    /// uninstalled, and no object gets a hold.
    pub any_exists: bool,
}
