//! In a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::seconds;
use crate::cluster::registration::configurations::TIMEOUT_SECONDS;
use crate::cluster::{Certificates, Cluster, Options, StartError};
use crate::policy::Identities;
use crate::telemetry::{Metrics, Readiness};
use crate::timing::Timing;

/// Whose matter certificates are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// belay's own, in a Secret
    Own,
    /// Somebody else's, in the files of --cert-dir
    Files,
}

/// So many objects of one kind may get a hold late for one policy.
pub const BACKFILL: usize = 5000;

/// The kinds of which labelled objects are watched by default.
pub const LABELLED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "services",
    "serviceaccounts",
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "cronjobs.batch",
    "ingresses.networking.k8s.io",
];

#[derive(Debug, Args)]
pub struct ClusterArguments {
    /// The kubeconfig of the cluster [default: the account of the Pod, or what
    /// KUBECONFIG says]
    #[arg(long, value_name = "FILE", conflicts_with = "standalone", help_heading = "In a cluster")]
    kubeconfig: Option<PathBuf>,

    /// The namespace that belay runs in [default: that of its account]
    #[arg(long, value_name = "NAME", conflicts_with = "standalone", help_heading = "In a cluster")]
    namespace: Option<String>,

    /// The name of the installation: of its Service, Lease and webhook
    /// configurations
    #[arg(long, value_name = "NAME", default_value = "belay", help_heading = "In a cluster")]
    name: String,

    /// Whose matter certificates are: belay's own, in a Secret that the leader
    /// makes and rotates, or somebody else's, in the files of --cert-dir
    #[arg(long, value_name = "own|files", default_value = "own", help_heading = "In a cluster")]
    certificates: Source,

    /// For how long belay makes a certificate; a third before that it is
    /// rotated
    #[arg(long, value_name = "DAYS", default_value = "90", value_parser = clap::value_parser!(u32).range(1..=3650), help_heading = "In a cluster")]
    certificate_days: u32,

    /// How long the webhook configurations carry a new authority before
    /// anything is served that it signed [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "In a cluster")]
    rotation_margin: Option<Duration>,

    /// How old the secret in the paths of the webhooks becomes before the leader
    /// makes a new one [default: 24]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=8760), help_heading = "In a cluster")]
    path_hours: Option<u64>,

    /// Kinds, as RESOURCE or RESOURCE.GROUP, of which objects with the label
    /// belay.dev/protect are watched and held though no policy names them
    #[arg(long, value_name = "KIND", num_args = 1.., default_values = LABELLED, help_heading = "In a cluster")]
    labelled_kinds: Vec<String>,

    /// How many objects of one kind may get a hold late for one policy; where it
    /// would be more, none gets one until somebody says so: the annotation
    /// belay.dev/backfill-max-objects of the policy says another number for it.
    /// 0: any number
    #[arg(long, value_name = "N", default_value_t = BACKFILL, help_heading = "In a cluster")]
    backfill_max_objects: usize,

    /// How long the API server waits for an answer, as the webhook configurations
    /// say it: another number there is reported
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_SECONDS, value_parser = clap::value_parser!(i32).range(1..=30), help_heading = "In a cluster")]
    webhook_timeout: i32,

    /// Who takes off the finalizers of Kubernetes' own: names of users, or
    /// prefixes that end with a colon [default: the control plane's, in both
    /// ways that kube-controller-manager runs]
    #[arg(long, value_name = "USER", num_args = 1.., help_heading = "In a cluster")]
    control_plane: Vec<String>,

    /// Serve the objects that belay knows, names and finalizers, at
    /// /debug/graph beside the probes, to whoever may reach them
    #[arg(long, conflicts_with = "standalone", help_heading = "In a cluster")]
    pub(super) debug_graph: bool,
}

impl ClusterArguments {
    /// Puts what the options say into the intervals.
    pub fn set_timing(&self, timing: &mut Timing) {
        if let Some(margin) = self.rotation_margin {
            timing.certificates.margin = margin;
        }
        if let Some(hours) = self.path_hours {
            timing.paths.every = Duration::from_secs(hours * 3600);
        }
    }

    /// Starts the cluster side.
    pub fn start(
        self,
        timing: Timing,
        authorities: &Path,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Result<Cluster, StartError> {
        let mut identities = Identities::default();
        if !self.control_plane.is_empty() {
            identities.control_plane = self.control_plane;
        }
        let labelled = parsed(self.labelled_kinds.iter().map(String::as_str));
        let certificates = match self.certificates {
            Source::Own => Certificates::Own {
                // The names follow from the namespace, which the cluster says.
                names: Vec::new(),
                days: self.certificate_days,
            },
            Source::Files => Certificates::Files { authorities: Some(authorities.to_owned()) },
        };
        let options = Options {
            kubeconfig: self.kubeconfig,
            namespace: self.namespace,
            name: self.name,
            replica: None,
            labelled,
            identities,
            certificates,
            backfill: self.backfill_max_objects,
            timeout_seconds: self.webhook_timeout,
            timing,
        };
        Cluster::start(options, metrics, readiness)
    }
}

/// Kinds as groups and plural names.
pub fn parsed<'k>(kinds: impl IntoIterator<Item = &'k str>) -> Vec<(String, String)> {
    let kinds = kinds.into_iter().map(|kind| kind.split_once('.').unwrap_or((kind, "")));
    kinds.map(|(resource, group)| (group.to_owned(), resource.to_owned())).collect()
}
