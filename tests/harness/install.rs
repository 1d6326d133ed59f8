//! belay as it is installed in a cluster: its kinds, its account with its rights, its webhook
//! configurations, and replicas behind a Service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::audit::Watcher;
use super::belay::{Belay, http_get};
use super::manifest::approval;
use super::process::Process;
use super::wait::{eventually, while_running};
use super::{ControlPlane, Link, Result, clock, ports, roles, timing};

/// The namespace, and the name, of the installation.
pub const NAME: &str = "belay";

/// The options of an installation.
#[derive(Debug, Clone, Default)]
pub struct Install {
    /// The number of replicas. 0 is the same as 1.
    pub replicas: usize,
    /// The values with which the chart makes its roles, as helm's `--set-json` takes them.
    /// `None`: the roles are those of `belay admin manifests`.
    pub roles: Option<Vec<String>>,
    /// Whether requests of belay may be forbidden: the test removes rights, grants too few, or
    /// restarts the API server, which does not know RBAC for a moment. In any other test, the
    /// first forbidden request ends the run.
    pub may_be_forbidden: bool,
    /// More arguments of `belay serve`.
    pub serve: Vec<String>,
    /// Whether each replica has its own connection to the API server, which a test can
    /// break.
    pub linked: bool,
    /// Whether it uses the intervals of production instead of those of tests.
    pub production_timing: bool,
    /// By how many seconds the clocks of the first replicas are ahead. The clocks of the others are
    /// correct.
    pub ahead: Vec<u32>,
}

/// belay, installed.
pub struct Installed {
    /// Its replicas.
    pub replicas: Vec<Belay>,
    /// The kubeconfig of its account.
    pub kubeconfig: PathBuf,
    /// The connections of the replicas to the API server, if they have their own.
    pub links: Vec<Link>,
    /// Ends the run if a request of belay is forbidden.
    pub watcher: Option<Watcher>,
}

impl Install {
    /// This number of replicas with the chart's roles for all kinds in the tests' policies:
    /// the chart's list of kinds, with Secrets and the kinds of the tests.
    pub fn of_everything(replicas: usize) -> Self {
        let roles = Some(vec![roles::watch_also_value()]);
        Self { replicas, roles, ..Self::default() }
    }

    /// Installs belay and waits until the API server calls it.
    pub fn on(&self, plane: &ControlPlane, program: &Path) -> Result<Installed> {
        plane.create_namespace(NAME)?;
        plane.apply(&print(program, &["admin", "crds"])?)?;
        let service = format!("--service={NAME}/{NAME}");
        let manifests = print(program, &["admin", "manifests", &service])?;
        match &self.roles {
            None => plane.apply(&manifests)?,
            Some(values) => {
                plane.apply(&roles::without_roles(&manifests))?;
                roles::apply_chart_roles(plane, values)?;
            }
        }
        roles::wait_until_granted(plane)?;
        let watcher = if self.may_be_forbidden { None } else { Some(Watcher::start(plane)?) };
        let kubeconfig = plane.account(NAME, NAME)?;

        let (mut replicas, mut links) = (Vec::new(), Vec::new());
        for number in 0..self.replicas.max(1) {
            let mut own_kubeconfig = kubeconfig.clone();
            if self.linked {
                let (link, path) = plane.link(&kubeconfig, &format!("{NAME}-{number}"))?;
                links.push(link);
                own_kubeconfig = path;
            }
            replicas.push(self.replica(plane, program, &own_kubeconfig, number)?);
        }
        let addresses: Vec<SocketAddr> = replicas.iter().map(|belay| belay.listen).collect();
        plane.service(NAME, NAME, &addresses)?;
        let mut installed = Installed { replicas, kubeconfig, links, watcher };
        for belay in &mut installed.replicas {
            belay.wait_until_ready()?;
        }
        wait_until_called(plane)?;
        Ok(installed)
    }

    fn replica(
        &self,
        plane: &ControlPlane,
        program: &Path,
        kubeconfig: &Path,
        number: usize,
    ) -> Result<Belay> {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let [listen, probes] = ports::free::<2>()?.map(address);
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={NAME}"),
            format!("--listen={listen}"),
            format!("--probes={probes}"),
            "--log-format=json".to_owned(),
        ];
        arguments.extend(self.serve.iter().cloned());
        let name = format!("{NAME}-{number}");
        let mut env = vec![("POD_NAME".to_owned(), name.clone())];
        if !self.production_timing {
            env.push(timing::environment());
        }
        if let Some(ahead) = self.ahead.get(number) {
            env.extend(clock::ahead(plane.folder(), *ahead)?);
        }
        let process = Process::start_with_env(&name, program, &arguments, &env, &plane.logs())?;
        Ok(Belay { process, listen, probes, ca: PathBuf::new() })
    }
}

impl Installed {
    /// The addresses of the replicas.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|belay| belay.listen).collect()
    }

    /// The index of the replica that is the leader.
    pub fn leader(&self) -> Result<usize> {
        eventually("a leader", Duration::from_secs(40), || {
            let leads = |belay: &Belay| {
                belay.metrics().is_ok_and(|text| text.lines().any(|line| line == "belay_leader 1"))
            };
            self.replicas.iter().position(leads).ok_or_else(|| "no leader".into())
        })
    }

    /// The sum of a metric over the replicas that answer, for lines with this prefix.
    pub fn metric(&self, prefix: &str) -> f64 {
        let value = |belay: &Belay| -> f64 {
            let text = belay.metrics().unwrap_or_default();
            let lines = text.lines().filter(|line| line.starts_with(prefix));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        self.replicas.iter().map(value).sum()
    }
}

impl Belay {
    /// Waits until it reports that it is ready.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let probes = self.probes;
        while_running(&mut self.process, Duration::from_secs(60), || {
            match http_get(probes, "/readyz")? {
                (200, _) => Ok(()),
                (code, body) => Err(format!("{code}: {body}").into()),
            }
        })
    }
}

/// The output of a subcommand.
pub fn print(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until the API server calls belay. The API server uses webhooks and Services a moment after
/// they are stored.
pub fn wait_until_called(plane: &ControlPlane) -> Result<()> {
    let probe = |labels: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "belay-probe",
            "namespace": "default", "labels": labels}})
    };
    let protected = || probe(json!({"belay.dev/protect": "Always"}));
    eventually("the mutating webhook", Duration::from_secs(60), || {
        let stored = plane.api().would_create(&protected(), "default")?;
        let finalizers =
            stored.map_err(|status| status.to_string())?["metadata"]["finalizers"].take();
        match finalizers.to_string().contains("belay.dev/hold") {
            true => Ok(()),
            false => Err(finalizers.to_string().into()),
        }
    })?;
    // No hold is added, because the label is set later.
    for object in [probe(json!({})), protected()] {
        plane.apply(&object)?;
    }
    let delete = ["configmap/belay-probe", "--dry-run=server"];
    eventually("the validating webhook", Duration::from_secs(60), || {
        let refusal = plane.api().delete(&delete, "default")?.failure()?;
        if refusal.contains("is protected; label") { Ok(()) } else { Err(refusal.into()) }
    })?;
    delete_probe(plane)
}

/// Deletes the probe with an approval, because belay protects it.
fn delete_probe(plane: &ControlPlane) -> Result<()> {
    let (api, object) = (plane.api(), "configmap/belay-probe");
    let uid = api.field(object, "default", ".metadata.uid")?;
    let target = json!({"resource": "configmaps", "namespace": "default", "name": "belay-probe",
        "uid": uid});
    plane.apply(&approval("belay-probe", target, "Object"))?;
    eventually("the end of the probe", Duration::from_secs(60), || {
        if api.get(object, "default")?.is_none() {
            return Ok(());
        }
        // A dry run comes first, so that belay records no refusal.
        api.delete(&[object, "--dry-run=server"], "default")?.success()?;
        Err(api.delete(&[object], "default")?.stderr.into())
    })?;
    api.delete(&["deletionapproval/belay-probe"], "")?.success().map(drop)
}
