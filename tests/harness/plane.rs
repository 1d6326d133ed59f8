//! The control plane: its processes, its users, its network.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::{Result, folder, ports};
use serde_json::{Value, json};

use super::api::{Api, has_condition};
use super::api_server::{AUDIT, AUDIT_BODIES, api_server_args};
use super::kubectl::{self, Output};
use super::link::Link;
use super::manifest::{Manifest as _, object};
use super::pki::{Pair, Pki, file_name};
use super::process::Process;
use super::proxy::EgressProxy;
use super::shared::lock;
use super::wait::{eventually, while_running};

/// The options of a control plane.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of nodes that kwok simulates. If there are any, a scheduler runs as well.
    pub nodes: usize,
    /// Whether each controller uses its own service account.
    pub service_account_credentials: bool,
    /// Whether kube-controller-manager runs.
    pub controllers: bool,
    /// Whether the audit log is complete: it contains requests, responses, and the watches of
    /// belay's service accounts.
    pub audit_bodies: bool,
    /// Whether the API server streams lists to watches. Kubernetes 1.33, the oldest version
    /// that belay supports, does not.
    pub streams_lists: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 0,
            service_account_credentials: true,
            controllers: true,
            audit_bodies: false,
            streams_lists: true,
        }
    }
}

/// A running control plane. Its processes end with it.
pub struct ControlPlane {
    // In the order in which they are stopped: the API server hangs when etcd stops first.
    pub kwok: Option<Process>,
    pub scheduler: Option<Process>,
    pub controller_manager: Option<Process>,
    api_server: Mutex<Process>,
    etcd: Mutex<Process>,
    etcd_url: String,
    pub proxy: EgressProxy,
    pki: Pki,
    binaries: PathBuf,
    folder: PathBuf,
    server: String,
    admin: PathBuf,
    api: Api,
    namespaces: AtomicUsize,
}

impl ControlPlane {
    /// A control plane with controllers and no nodes, ready for use.
    pub fn start() -> Result<Self> {
        Self::start_with(&Options::default())
    }

    /// A control plane with these options, ready for use.
    pub fn start_with(options: &Options) -> Result<Self> {
        // The ports are free when they are chosen, but another process may take them.
        match Self::try_start(options) {
            Err(error) if error.to_string().contains("address already in use") => {
                Self::try_start(options)
            }
            result => result,
        }
    }

    fn try_start(options: &Options) -> Result<Self> {
        let binaries = binaries()?;
        let folder = folder::create()?;
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs)?;

        let pki = Pki::new(&folder.join("pki"))?;
        let [etcd_port, peer_port, api_port, manager_port, scheduler_port] = ports::free()?;
        let server = format!("https://127.0.0.1:{api_port}");
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");

        let etcd_args = vec![
            format!("--data-dir={}", folder.join("etcd").display()),
            format!("--listen-client-urls={etcd_url}"),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-cluster=default=http://127.0.0.1:{peer_port}"),
            // A test's data need not outlive a power cut.
            "--unsafe-no-fsync=true".to_owned(),
            // Measurements store hundreds of thousands of objects.
            "--quota-backend-bytes=8589934592".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let program = binaries.join("etcd");
        let etcd = Process::start_with_env("etcd", &program, &etcd_args, &env_of_waiting(), &logs)?;

        let socket = folder.join("egress.sock");
        let proxy = EgressProxy::listen(&socket)?;
        let audit = if options.audit_bodies { AUDIT_BODIES } else { AUDIT };
        let mut args = api_server_args(&folder, &pki, &etcd_url, api_port, &socket, audit)?;
        if !options.streams_lists {
            args.push("--feature-gates=WatchList=false".to_owned());
        }
        let api_server =
            Process::start("kube-apiserver", &binaries.join("kube-apiserver"), &args, &logs)?;

        let admin = write_kubeconfig(&folder, &pki, &server, ("admin", Some("system:masters")))?;
        let api = Api::of(&admin)?;
        let mut plane = Self {
            kwok: None,
            scheduler: None,
            controller_manager: None,
            api_server: Mutex::new(api_server),
            etcd: Mutex::new(etcd),
            etcd_url,
            proxy,
            pki,
            binaries,
            folder,
            server,
            admin,
            api,
            namespaces: AtomicUsize::new(0),
        };
        plane.wait_until_serving()?;
        if options.controllers {
            plane.start_controllers(options, manager_port)?;
        }
        if options.nodes > 0 {
            plane.start_nodes(options.nodes, scheduler_port)?;
        }
        Ok(plane)
    }

    /// The API server's process.
    pub fn api_server(&self) -> MutexGuard<'_, Process> {
        lock(&self.api_server)
    }

    /// The process of etcd.
    pub fn etcd(&self) -> MutexGuard<'_, Process> {
        lock(&self.etcd)
    }

    /// The address of etcd's clients.
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// Where the API server listens.
    fn address(&self) -> Result<SocketAddr> {
        Ok(self.server.trim_start_matches("https://").parse()?)
    }

    /// Waits until the API server answers, after a start or a restart.
    pub fn wait_until_serving(&self) -> Result<()> {
        let address = self.address()?;
        while_running(&mut self.api_server(), Duration::from_secs(60), || {
            std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
            self.api.is_ready()
        })
    }

    fn start_controllers(&mut self, options: &Options, port: u16) -> Result<()> {
        let kubeconfig =
            self.write_kubeconfig("system:kube-controller-manager", None)?.display().to_string();
        if !options.service_account_credentials {
            // Its own roles let it create tokens for its controllers and little else. In
            // this mode it needs the rights of all its controllers.
            let bind =
                ["create", "clusterrolebinding", "controllers", "--clusterrole=cluster-admin"];
            let user = ["--user=system:kube-controller-manager"];
            self.kubectl(&[&bind[..], &user].concat())?.success()?;
        }
        let pki = self.folder.join("pki");
        let args = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--use-service-account-credentials={}", options.service_account_credentials),
            format!("--root-ca-file={}", self.pki.ca().display()),
            format!(
                "--service-account-private-key-file={}",
                pki.join("service-accounts.key").display()
            ),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
            "--enable-hostpath-provisioner=true".to_owned(),
            // On a busy machine a node may appear lost although it is not, and its Pods
            // never become Ready again.
            "--node-monitor-grace-period=15m".to_owned(),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
        ];
        let name = "kube-controller-manager";
        let (program, env) = (self.binaries.join(name), env_of_waiting());
        let process = Process::start_with_env(name, &program, &args, &env, &self.logs())?;
        self.controller_manager = Some(process);
        // The first thing that shows that controllers run.
        self.wait_for_default_account("default")
    }

    /// Waits for the service account that the controllers create.
    fn wait_for_default_account(&self, namespace: &str) -> Result<()> {
        let account = ("serviceaccounts/default", namespace);
        self.api.wait(account, Duration::from_secs(60), |found| match found {
            Some(_) => Ok(()),
            None => Err("it does not exist".into()),
        })
    }

    fn start_nodes(&mut self, nodes: usize, port: u16) -> Result<()> {
        let scheduler = self.write_kubeconfig("system:kube-scheduler", None)?.display().to_string();
        let args = vec![
            format!("--kubeconfig={scheduler}"),
            format!("--authentication-kubeconfig={scheduler}"),
            format!("--authorization-kubeconfig={scheduler}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        let program = self.binaries.join("kube-scheduler");
        self.scheduler = Some(Process::start("kube-scheduler", &program, &args, &self.logs())?);

        let args = vec![
            format!("--kubeconfig={}", self.admin.display()),
            format!("--config={}", self.stages()?.display()),
            "--manage-all-nodes=true".to_owned(),
        ];
        self.kwok = Some(Process::start("kwok", &self.binaries.join("kwok"), &args, &self.logs())?);
        for number in 0..nodes {
            let name = format!("node-{number}");
            // A kubelet sets this label on its node, and Pod spreading uses it.
            let labels = json!({"kubernetes.io/hostname": name});
            self.apply(&object("v1", "Node", &name).with_labels(labels))?;
        }
        for number in 0..nodes {
            let node = format!("node/node-{number}");
            self.api.wait((&node, ""), Duration::from_secs(60), |found| match found {
                Some(node) if has_condition(node, "Ready") => Ok(()),
                _ => Err("it is not ready".into()),
            })?;
        }
        Ok(())
    }

    /// kwok's stages, except for the Pods of belay's image, which the kubelet runs.
    fn stages(&self) -> Result<PathBuf> {
        let text = std::fs::read_to_string(self.binaries.join("kwok-stages.yaml"))?;
        let ours = format!(
            "    matchExpressions:\n    - key: '.spec.containers[].image | \
             select(startswith(\"{}\"))'\n      operator: 'DoesNotExist'\n",
            super::kubelet::IMAGE
        );
        let mut stages = Vec::new();
        for stage in text.split("---\n").filter(|stage| !stage.trim().is_empty()) {
            let is_for_pods = stage.contains("kind: Pod");
            if is_for_pods && !stage.contains("    matchExpressions:\n") {
                return Err("a stage of kwok's has no matchExpressions to add to".into());
            }
            let own = stage.replacen("    matchExpressions:\n", &ours, 1);
            stages.push(if is_for_pods { own } else { stage.to_owned() });
        }
        let path = self.folder.join("kwok-stages.yaml");
        std::fs::write(&path, stages.join("---\n"))?;
        Ok(path)
    }

    /// Where the logs are.
    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// A folder of this control plane for the files of a test.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// The folder of kubectl, helm and the rest.
    pub fn binaries(&self) -> &Path {
        &self.binaries
    }

    /// The audit log so far, one JSON object per line.
    pub fn audit_log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.logs().join("audit.log"))?)
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self, args: &[&str]) -> Result<Output> {
        kubectl::run(&self.binaries.join("kubectl"), &self.admin, args, None)
    }

    /// kubectl as another user, with a kubeconfig of the method `user`.
    pub fn kubectl_as(&self, kubeconfig: &Path, args: &[&str]) -> Result<Output> {
        kubectl::run(&self.binaries.join("kubectl"), kubeconfig, args, None)
    }

    /// Applies a manifest as the administrator.
    pub fn apply(&self, manifest: &(impl Display + ?Sized)) -> Result<()> {
        self.api.apply(manifest, "default")?.success().map(drop)
    }

    /// Deletes objects as the administrator without waiting: `KIND NAME…` or `KIND/NAME…`.
    #[allow(clippy::unwrap_used)]
    pub fn delete(&self, objects: &[&str], namespace: &str) {
        self.api.delete(objects, namespace).and_then(Output::success).unwrap();
    }

    /// Changes an object as the administrator, by a merge patch or a JSON patch.
    #[allow(clippy::unwrap_used)]
    pub fn patch(&self, object: &str, namespace: &str, patch: &Value) {
        self.api.patch(object, namespace, patch).and_then(Output::success).unwrap();
    }

    /// kubectl with a manifest on its standard input.
    pub fn apply_to(&self, args: &[&str], manifest: &(impl Display + ?Sized)) -> Result<Output> {
        self.kubectl_with(None, args, manifest)
    }

    /// kubectl with a manifest on its standard input, as the administrator or as another user,
    /// with a kubeconfig of the method `user`.
    pub fn kubectl_with(
        &self,
        kubeconfig: Option<&Path>,
        args: &[&str],
        input: &(impl Display + ?Sized),
    ) -> Result<Output> {
        let (kubectl, input) = (self.binaries.join("kubectl"), input.to_string());
        kubectl::run(&kubectl, kubeconfig.unwrap_or(&self.admin), args, Some(&input))
    }

    /// helm as the administrator.
    pub fn helm(&self, args: &[&str]) -> Result<Output> {
        kubectl::run(&self.binaries.join("helm"), &self.admin, args, None)
    }

    /// The API server as the administrator sees it.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// A Rust client as the administrator, for the current runtime.
    pub async fn client(&self) -> Result<kube::Client> {
        let config = kube::config::Kubeconfig::read_from(&self.admin)?;
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// A new namespace with its default service account.
    pub fn namespace(&self, prefix: &str) -> Result<String> {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        self.create_namespace(&name)?;
        if self.controller_manager.is_some() {
            self.wait_for_default_account(&name)?;
        }
        Ok(name)
    }

    /// A new namespace with this name.
    pub fn create_namespace(&self, name: &str) -> Result<()> {
        self.api.create(&object("v1", "Namespace", name), "")?.success().map(drop)
    }

    /// The kubeconfig of a new user with a client certificate. RBAC grants it only what a
    /// test binds to it.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<PathBuf> {
        self.write_kubeconfig(name, group)
    }

    /// The kubeconfig of a service account, with its own token.
    pub fn account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.api.token(namespace, name)?;
        let path = self.folder.join(format!("{namespace}-{name}.kubeconfig"));
        std::fs::write(&path, self.endpoint().kubeconfig(&token, namespace))?;
        Ok(path)
    }

    /// The address of the API server, for a client with a token.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { server: self.server.clone(), ca: self.pki.ca() }
    }

    /// A proxy to the API server that a test can break, and a copy of a kubeconfig that
    /// uses the proxy.
    pub fn link(&self, kubeconfig: &Path, name: &str) -> Result<(Link, PathBuf)> {
        let link = Link::to(self.address()?)?;
        let server = format!("https://{}", link.address());
        let text = std::fs::read_to_string(kubeconfig)?.replace(&self.server, &server);
        let path = self.folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, text)?;
        Ok((link, path))
    }

    /// Creates a Service and forwards the API server's connections to `backends`.
    pub fn service(&self, namespace: &str, name: &str, backends: &[SocketAddr]) -> Result<()> {
        let spec = json!({"spec": {"ports": [{"port": 443, "targetPort": 8443}]}});
        self.apply(&object("v1", "Service", name).with_namespace(namespace).with(spec))?;
        let service = format!("service/{name}");
        let cluster_ip = self.api.field(&service, namespace, ".spec.clusterIP")?;
        self.proxy.route(&format!("{cluster_ip}:443"), backends);
        Ok(())
    }

    fn write_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        write_kubeconfig(&self.folder, &self.pki, &self.server, (user, group))
    }
}

/// The environment of programs that mostly wait. On one processor, Go does not look for work
/// on the others, and etcd and the controllers use an eighth less CPU time. Measurements and
/// `make play` use all processors.
fn env_of_waiting() -> Vec<(String, String)> {
    let one = ("GOMAXPROCS".to_owned(), "1".to_owned());
    if cfg!(test) { vec![one] } else { Vec::new() }
}

fn write_kubeconfig(
    folder: &Path,
    pki: &Pki,
    server: &str,
    (user, group): (&str, Option<&str>),
) -> Result<PathBuf> {
    let Pair { cert, key } = pki.client(user, group)?;
    let path = folder.join(format!("{}.kubeconfig", file_name(user)));
    let user = json!({"client-certificate": cert, "client-key": key});
    std::fs::write(&path, kubeconfig(server, &pki.ca(), &user, None).to_string())?;
    Ok(path)
}

fn kubeconfig(server: &str, ca: &Path, user: &Value, namespace: Option<&str>) -> Value {
    let cluster = json!({"server": server, "certificate-authority": ca});
    let context = json!({"cluster": "test", "user": "test"});
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": context.with(json!({"namespace": namespace}))}],
    })
}

/// The address of the API server and its CA.
#[derive(Debug, Clone)]
pub struct Endpoint {
    server: String,
    ca: PathBuf,
}

impl Endpoint {
    /// A kubeconfig with this token.
    pub fn kubeconfig(&self, token: &str, namespace: &str) -> String {
        let user = json!({"token": token});
        kubeconfig(&self.server, &self.ca, &user, Some(namespace)).to_string()
    }
}

/// The folder of the control plane's programs. Builds them if needed, and reports the
/// progress on standard error.
pub fn binaries() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane/build");
    let output = Command::new(&script).stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the control plane could not be built; the lines above say why".into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
