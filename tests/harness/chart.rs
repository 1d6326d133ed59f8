//! belay, installed by its chart with the real helm.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::install::wait_until_asked;
use super::kubectl::Output;
use super::kubelet::Replica;
use super::{ControlPlane, Kubelet, Result, eventually};

/// The release, and its namespace.
pub const RELEASE: &str = "belay";

/// How long a hook or a rollout may take: a safety limit.
const TIMEOUT: &str = "--timeout=4m";

/// A release of the chart.
pub struct Chart<'p> {
    plane: &'p ControlPlane,
    /// What runs its Pods.
    pub kubelet: Kubelet,
    chart: PathBuf,
    /// What helm said of the installation.
    pub notes: String,
}

impl<'p> Chart<'p> {
    /// A namespace that lets only what is restricted run, and the means to
    /// install there; nothing is yet.
    pub fn prepare(plane: &'p ControlPlane, program: &Path) -> Result<Self> {
        let kubelet = Kubelet::start(plane)?;
        kubelet.pull(env!("CARGO_PKG_VERSION"), program);
        plane.apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {RELEASE}\n  labels: \
             {{pod-security.kubernetes.io/enforce: restricted}}\n"
        ))?;
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/belay");
        Ok(Self { plane, kubelet, chart, notes: String::new() })
    }

    /// Installs it with these arguments, and waits until the API server asks.
    pub fn install(plane: &'p ControlPlane, program: &Path, args: &[&str]) -> Result<Self> {
        let mut chart = Self::prepare(plane, program)?;
        chart.notes = chart.helm("install", args)?.success()?;
        wait_until_asked(plane)?;
        Ok(chart)
    }

    /// `helm install` or `helm upgrade` of the chart, with these arguments.
    pub fn helm(&self, what: &str, args: &[&str]) -> Result<Output> {
        let chart = self.chart.display().to_string();
        let own = [what, RELEASE, &chart, "--namespace", RELEASE, "--wait", TIMEOUT];
        self.plane.helm(&[&own, args].concat())
    }

    /// The same chart under another version, as the next release of belay
    /// would be; from now on `helm` means that.
    pub fn next_version(&mut self, version: &str, program: &Path) -> Result<()> {
        self.kubelet.pull(version, program);
        let folder = self.plane.folder().join("charts").join(version);
        std::fs::create_dir_all(&folder)?;
        let (chart, into) = (self.chart.display().to_string(), folder.display().to_string());
        let args = ["package", &chart, "--destination", &into];
        let versions = ["--version", version, "--app-version", version];
        self.plane.helm(&[&args[..], &versions].concat())?.success()?;
        self.chart = folder.join(format!("belay-{version}.tgz"));
        Ok(())
    }

    /// `helm uninstall`, with these arguments.
    pub fn uninstall(&self, args: &[&str]) -> Result<Output> {
        let own = ["uninstall", RELEASE, "--namespace", RELEASE, "--wait", TIMEOUT];
        self.plane.helm(&[&own, args].concat())
    }

    /// Waits until so many replicas are ready, and no other one is left.
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
