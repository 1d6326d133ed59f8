//! belay, installed by its chart with the real helm.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::api::{Api, has_condition};
use super::install::wait_until_called;
use super::kubectl::{self, Output};
use super::kubelet::Replica;
use super::manifest::{Manifest as _, object};
use super::{ControlPlane, Kubelet, Result, eventually};

/// The release, and its namespace.
pub const RELEASE: &str = "belay";

/// How long a hook or a rollout may take: a safety limit.
const TIMEOUT: &str = "--timeout=4m";

/// A release of the chart.
pub struct Chart {
    /// The kubelet that runs its Pods.
    pub kubelet: Kubelet,
    chart: PathBuf,
    helm: PathBuf,
    admin: PathBuf,
    folder: PathBuf,
    /// The notes that helm printed after the installation.
    pub notes: String,
}

impl Chart {
    /// Creates a namespace with the `restricted` Pod Security Standard and the means to
    /// install there. Installs nothing yet.
    pub fn prepare(plane: &ControlPlane, program: &Path) -> Result<Self> {
        let kubelet = Kubelet::start(plane)?;
        kubelet.pull(env!("CARGO_PKG_VERSION"), program);
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        plane.apply(&object("v1", "Namespace", RELEASE).with_labels(labels))?;
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/belay");
        Ok(Self {
            kubelet,
            chart,
            helm: plane.binaries().join("helm"),
            admin: plane.kubeconfig().to_owned(),
            folder: plane.folder().join("charts"),
            notes: String::new(),
        })
    }

    /// Installs it with these arguments, and waits until the API server calls belay.
    pub fn install(plane: &ControlPlane, program: &Path, args: &[&str]) -> Result<Self> {
        let mut chart = Self::prepare(plane, program)?;
        chart.notes = chart.deploy("install", args)?.success()?;
        wait_until_called(plane)?;
        Ok(chart)
    }

    /// `helm install` or `helm upgrade` of the chart, with these arguments.
    pub fn deploy(&self, what: &str, args: &[&str]) -> Result<Output> {
        let chart = self.chart.display().to_string();
        let own = [what, RELEASE, &chart, "--namespace", RELEASE, "--wait", TIMEOUT];
        let args = [&own, args].concat();
        let output = self.helm(&args)?;
        // Before helm stores the release, it waits one minute for new CRDs. In CI it gave up
        // once. If the CRDs are established by then, belay had no part in the failure.
        if what == "install" && !output.ok() && self.has_established_crds()? {
            let failure = &output.stderr;
            if failure.contains("CustomResourceDefinition//") {
                // Not with `eprintln!`: the output of a test that passes is not printed.
                let _ = writeln!(std::io::stderr(), "helm install is repeated after: {failure}");
                return self.helm(&args);
            }
        }
        Ok(output)
    }

    /// Whether all CRDs of belay are established. Prints their conditions.
    fn has_established_crds(&self) -> Result<bool> {
        let mut crds = Api::of(&self.admin)?.list("crd", "", "")?;
        crds.retain(|crd| crd["spec"]["group"] == "belay.dev");
        for crd in &crds {
            eprintln!("{}: {}", crd["metadata"]["name"], crd["status"]["conditions"]);
        }
        Ok(!crds.is_empty() && crds.iter().all(|crd| has_condition(crd, "Established")))
    }

    /// Packages the chart with another version, as the next release of belay. Later calls of
    /// `deploy` use this package.
    pub fn next_version(&mut self, version: &str, program: &Path) -> Result<()> {
        self.kubelet.pull(version, program);
        let folder = self.folder.join(version);
        std::fs::create_dir_all(&folder)?;
        let (chart, into) = (self.chart.display().to_string(), folder.display().to_string());
        let args = ["package", &chart, "--destination", &into];
        let versions = ["--version", version, "--app-version", version];
        self.helm(&[&args[..], &versions].concat())?.success()?;
        self.chart = folder.join(format!("belay-{version}.tgz"));
        Ok(())
    }

    fn helm(&self, args: &[&str]) -> Result<Output> {
        kubectl::run(&self.helm, &self.admin, args, None)
    }

    /// `helm uninstall`, with these arguments.
    pub fn uninstall(&self, args: &[&str]) -> Result<Output> {
        let own = ["uninstall", RELEASE, "--namespace", RELEASE, "--wait", TIMEOUT];
        self.helm(&[&own, args].concat())
    }

    /// The last revision that `helm history` lists.
    pub fn last_revision(&self) -> Result<String> {
        let history = self.helm(&["history", RELEASE, "--namespace", RELEASE, "-o", "json"])?;
        let revisions: Vec<serde_json::Value> = serde_json::from_str(&history.success()?)?;
        Ok(revisions.last().ok_or("no revision")?["revision"].to_string())
    }

    /// `helm rollback` to a revision.
    pub fn roll_back(&self, revision: &str) -> Result<Output> {
        self.helm(&["rollback", RELEASE, revision, "--namespace", RELEASE, "--wait", TIMEOUT])
    }

    /// Waits until exactly this number of replicas is ready and no other replica is left.
    pub fn wait_for(&self, replicas: usize) -> Result<Vec<Replica>> {
        eventually(&format!("{replicas} replicas"), Duration::from_secs(120), || {
            let running = self.kubelet.replicas();
            let ready = running.iter().filter(|replica| replica.ready).count();
            if ready == replicas && running.len() == replicas {
                Ok(running)
            } else {
                Err(format!("{running:?}").into())
            }
        })
    }
}
