//! The options for serving in a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::seconds::seconds;
use crate::cluster::registration::manifests::TIMEOUT_SECONDS;
use crate::cluster::{Certificates, Cluster, Options, Settings, StartError, instance, replica};
use crate::objects::split_full_name;
use crate::policy::Identities;
use crate::telemetry::{Metrics, Readiness};
use crate::timing::Timing;

/// The source of certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// belay's own, in a Secret
    Own,
    /// From the files in --cert-dir
    Files,
}

/// The default of --backfill-max-objects.
pub const DEFAULT_BACKFILL: usize = 5000;

/// The default of --labelled-kinds.
pub const LABELLED_KINDS: [&str; 9] = [
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
    /// Path to the kubeconfig [default: the ServiceAccount of the Pod, or KUBECONFIG]
    #[arg(long, value_name = "FILE", conflicts_with = "standalone", help_heading = "In a cluster")]
    kubeconfig: Option<PathBuf>,

    /// The namespace of belay [default: that of its ServiceAccount]
    #[arg(long, value_name = "NAME", conflicts_with = "standalone", help_heading = "In a cluster")]
    namespace: Option<String>,

    /// The name of the installation: of its Service, Lease and webhook configurations
    #[arg(long, value_name = "NAME", default_value = "belay", help_heading = "In a cluster")]
    name: String,

    /// The source of certificates: own (a Secret that the leader creates and rotates) or
    /// files (in --cert-dir, from another source)
    #[arg(long, value_name = "own|files", default_value = "own", help_heading = "In a cluster")]
    certificates: Source,

    /// The lifetime of certificates. belay rotates them when a third is left
    #[arg(long, value_name = "DAYS", default_value = "90", value_parser = clap::value_parser!(u32).range(1..=3650), help_heading = "In a cluster")]
    certificate_days: u32,

    /// How long both CA certificates are in the webhook configurations before belay
    /// serves a certificate of the new CA [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "In a cluster")]
    rotation_margin: Option<Duration>,

    /// The age at which belay replaces the secret path of its webhooks. belay answers only requests
    /// with a current secret path [default: 24]
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=8760), help_heading = "In a cluster")]
    path_hours: Option<u64>,

    /// For these kinds, belay watches objects with the label belay.dev/protect and adds the hold,
    /// even if no policy names the kind. Write RESOURCE or RESOURCE.GROUP
    #[arg(long, value_name = "KIND", num_args = 1.., default_values = LABELLED_KINDS, help_heading = "In a cluster")]
    labelled_kinds: Vec<String>,

    /// The maximum number of existing objects of one kind that get a hold for one policy.
    /// If there are more, none gets one. The annotation belay.dev/backfill-max-objects of
    /// a policy overrides it. 0: unlimited
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BACKFILL, help_heading = "In a cluster")]
    backfill_max_objects: usize,

    /// The timeoutSeconds that the webhook configurations should have. If a webhook has another
    /// value, belay reports that and does not change it
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_SECONDS, value_parser = clap::value_parser!(i32).range(1..=30), help_heading = "In a cluster")]
    webhook_timeout: i32,

    /// The accounts that remove Kubernetes' own finalizers: user names, or prefixes that end with a
    /// colon [default: system:kube-controller-manager, system:kube-scheduler, system:apiserver and
    /// system:serviceaccount:kube-system:]
    #[arg(long, value_name = "USER", num_args = 1.., help_heading = "In a cluster")]
    control_plane: Vec<String>,

    /// Serve the names and finalizers of all cached objects at /debug/graph, on the port
    /// of the probes and to every client that can reach it
    #[arg(long, conflicts_with = "standalone", help_heading = "In a cluster")]
    pub(super) debug_graph: bool,
}

impl ClusterArguments {
    /// Applies the options that set intervals.
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
        ca_path: &Path,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Result<Cluster, StartError> {
        let mut identities = Identities::default();
        if !self.control_plane.is_empty() {
            identities.control_plane = self.control_plane;
        }
        let certificates = match self.certificates {
            Source::Own => Certificates::Own {
                // The names depend on the namespace, which `Cluster::start` reads.
                names: Vec::new(),
                days: self.certificate_days,
            },
            Source::Files => Certificates::Files { authorities: Some(ca_path.to_owned()) },
        };
        let settings = Settings {
            namespace: self.namespace.unwrap_or_default(),
            name: self.name,
            replica: replica(),
            instance: instance(),
            labelled: parse_kinds(self.labelled_kinds.iter().map(String::as_str)),
            certificates,
            backfill: self.backfill_max_objects,
            timeout_seconds: self.webhook_timeout,
            timing,
        };
        let options = Options { kubeconfig: self.kubeconfig, identities, settings };
        Cluster::start(options, metrics, readiness)
    }
}

/// Kinds as groups and plural names.
pub fn parse_kinds<'k>(kinds: impl IntoIterator<Item = &'k str>) -> Vec<(String, String)> {
    let kinds = kinds.into_iter().map(split_full_name);
    kinds.map(|(resource, group)| (group.to_owned(), resource.to_owned())).collect()
}
