//! Starts the container of a Pod as a process: program, arguments, environment, files.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container as Spec, EnvVar, Pod, PodSpec, Probe, Secret, ServiceAccount, Volume,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::{Node, lock};
use crate::harness::ports;
use crate::harness::{Result, timing};

/// A container, ready to be started.
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// The addresses of the container's ports on this machine.
    pub(super) ports: BTreeMap<u16, SocketAddr>,
    pub(super) readiness: Option<HttpProbe>,
    pub(super) liveness: Option<HttpProbe>,
    pub(super) mounts: Vec<Mount>,
}

/// An HTTP probe of a container.
pub(super) struct HttpProbe {
    pub(super) address: SocketAddr,
    pub(super) path: String,
    pub(super) failure_threshold: u32,
}

/// A volume that is updated with its Secret or ConfigMap.
pub(super) struct Mount {
    namespace: String,
    source: Source,
    folder: PathBuf,
    written: Option<BTreeMap<String, Vec<u8>>>,
}

enum Source {
    Secret(String),
    ConfigMap(String),
    /// An empty folder.
    Empty,
}

impl Container {
    pub(super) async fn of(node: &Node, pod: &Pod, address: &str) -> Result<Self> {
        let spec = pod.spec.as_ref().ok_or("a Pod without a spec")?;
        let [container] = spec.containers.as_slice() else {
            return Err("only Pods of one container are supported".into());
        };
        if spec.init_containers.as_ref().is_some_and(|init| !init.is_empty()) {
            return Err("init containers are not supported".into());
        }
        if container.lifecycle.is_some() {
            return Err("lifecycle hooks are not supported".into());
        }
        let image = container.image.clone().unwrap_or_default();
        let program = lock(&node.shared.images).get(&image).cloned();
        let program = program.ok_or_else(|| format!("no node has pulled {image}"))?;

        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let folder = node.folder.join(&uid);
        let mut mounts = Vec::new();
        let mut mount_paths = Vec::new();
        for volume in spec.volumes.iter().flatten() {
            let Some(mount_path) = container
                .volume_mounts
                .iter()
                .flatten()
                .find(|mount| mount.name == volume.name)
                .map(|mount| mount.mount_path.clone())
            else {
                continue;
            };
            let Some(source) = source(volume)? else { continue };
            let folder = folder.join(&volume.name);
            std::fs::create_dir_all(&folder)?;
            let mut mount = Mount {
                namespace: namespace.clone(),
                source,
                folder: folder.clone(),
                written: None,
            };
            mount.update(&node.client).await?;
            mount_paths.push((mount_path, folder.display().to_string()));
            mounts.push(mount);
        }

        let is_short = !node.shared.production_timing.load(Ordering::Acquire);
        let mut env: Vec<_> = is_short.then(timing::environment).into_iter().collect();
        for variable in container.env.iter().flatten() {
            env.push((variable.name.clone(), value(variable, pod, address)?));
        }
        if spec.automount_service_account_token != Some(false) {
            let config = folder.join("kubeconfig");
            std::fs::create_dir_all(&folder)?;
            let token = token(&node.client, pod, spec).await?;
            std::fs::write(&config, node.endpoint.kubeconfig(&token, &namespace))?;
            env.push(("KUBECONFIG".to_owned(), config.display().to_string()));
        }

        let command = container.command.iter().flatten().skip(1);
        let words = command.chain(container.args.iter().flatten());
        let mut args: Vec<String> = words.map(|word| expand(word, &env, &mount_paths)).collect();
        let ports = if args.first().is_some_and(|first| first == "serve") {
            // The value of a test overrides the chart's default.
            args.retain(|arg| !is_short || arg != "--drain=5");
            own_ports(&mut args)?
        } else {
            BTreeMap::new()
        };
        let readiness = http_probe(container, container.readiness_probe.as_ref(), &ports)?;
        let liveness = http_probe(container, container.liveness_probe.as_ref(), &ports)?;
        let name = container.name.clone();
        Ok(Self { name, image, program, args, env, ports, readiness, liveness, mounts })
    }
}

/// Two replicas on one machine cannot have the same port. Each gets free ports to listen
/// on, and its callers get the addresses.
fn own_ports(args: &mut Vec<String>) -> Result<BTreeMap<u16, SocketAddr>> {
    let mut ports = BTreeMap::new();
    for (flag, default) in [("--listen=", 8443), ("--probes=", 8081)] {
        let given = args.iter().find_map(|arg| arg.strip_prefix(flag));
        let port = given.and_then(|address| address.rsplit_once(':')?.1.parse().ok());
        let [free] = ports::free::<1>()?;
        let here = SocketAddr::from(([127, 0, 0, 1], free));
        args.retain(|arg| !arg.starts_with(flag));
        args.push(format!("{flag}{here}"));
        ports.insert(port.unwrap_or(default), here);
    }
    Ok(ports)
}

fn http_probe(
    container: &Spec,
    probe: Option<&Probe>,
    ports: &BTreeMap<u16, SocketAddr>,
) -> Result<Option<HttpProbe>> {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let Some(probe) = probe else { return Ok(None) };
    let http = probe.http_get.as_ref().ok_or("only HTTP probes are supported")?;
    let port = match &http.port {
        IntOrString::Int(port) => u16::try_from(*port)?,
        IntOrString::String(name) => {
            let named = |port: &&_| {
                let port: &k8s_openapi::api::core::v1::ContainerPort = port;
                port.name.as_ref() == Some(name)
            };
            let port = container.ports.iter().flatten().find(named);
            u16::try_from(port.ok_or_else(|| format!("no port is called {name}"))?.container_port)?
        }
    };
    let address = *ports.get(&port).ok_or_else(|| format!("nothing listens on {port}"))?;
    let path = http.path.clone().unwrap_or_else(|| "/".to_owned());
    let failure_threshold = probe.failure_threshold.unwrap_or(3).max(1).unsigned_abs();
    Ok(Some(HttpProbe { address, path, failure_threshold }))
}

fn value(variable: &EnvVar, pod: &Pod, address: &str) -> Result<String> {
    let Some(from) = &variable.value_from else {
        return Ok(variable.value.clone().unwrap_or_default());
    };
    let field = from
        .field_ref
        .as_ref()
        .ok_or_else(|| format!("the source of variable {} is not supported", variable.name))?;
    let spec = pod.spec.as_ref();
    let value = match field.field_path.as_str() {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" => Some(address.to_owned()),
        other => return Err(format!("the field {other} is not supported").into()),
    };
    Ok(value.unwrap_or_default())
}

fn source(volume: &Volume) -> Result<Option<Source>> {
    if let Some(secret) = &volume.secret {
        return Ok(Some(Source::Secret(secret.secret_name.clone().unwrap_or_default())));
    }
    if let Some(map) = &volume.config_map {
        return Ok(Some(Source::ConfigMap(map.name.clone())));
    }
    if volume.empty_dir.is_some() {
        return Ok(Some(Source::Empty));
    }
    // The token of the account, which the kubeconfig contains here.
    if volume.projected.is_some() && volume.name.starts_with("kube-api-access-") {
        return Ok(None);
    }
    Err(format!("the kind of volume {} is not supported", volume.name).into())
}

impl Mount {
    /// Writes the data of the source, if it has changed. As in a kubelet, the data is in a new
    /// folder, and one link is swapped.
    pub(super) async fn update(&mut self, client: &Client) -> Result<()> {
        let Some(content) = self.source.read(client, &self.namespace).await? else { return Ok(()) };
        if self.written.as_ref() == Some(&content) {
            return Ok(());
        }
        let version = format!("..{}", jiff::Timestamp::now().as_nanosecond());
        let version_folder = self.folder.join(&version);
        std::fs::create_dir_all(&version_folder)?;
        for (name, bytes) in &content {
            std::fs::write(version_folder.join(name), bytes)?;
            let link = self.folder.join(name);
            if !link.exists() {
                symlink(Path::new("..data").join(name), link)?;
            }
        }
        let aside = self.folder.join("..data_tmp");
        let _ = std::fs::remove_file(&aside);
        symlink(&version, &aside)?;
        std::fs::rename(&aside, self.folder.join("..data"))?;
        self.written = Some(content);
        Ok(())
    }
}

impl Source {
    async fn read(
        &self,
        client: &Client,
        namespace: &str,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
        Ok(match self {
            Self::Empty => None,
            Self::Secret(name) => {
                let secret = Api::<Secret>::namespaced(client.clone(), namespace).get(name).await?;
                let data = secret.data.unwrap_or_default();
                Some(data.into_iter().map(|(key, bytes)| (key, bytes.0)).collect())
            }
            Self::ConfigMap(name) => {
                let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get(name).await?;
                let data = map.data.unwrap_or_default();
                Some(data.into_iter().map(|(key, text)| (key, text.into_bytes())).collect())
            }
        })
    }
}

/// A token of the Pod's account that expires with the Pod, as a kubelet requests it.
async fn token(client: &Client, pod: &Pod, spec: &PodSpec) -> Result<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = spec.service_account_name.as_deref().unwrap_or("default");
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    };
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(bound),
            expiration_seconds: Some(24 * 3600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(answer.status.ok_or("a token request without an answer")?.token)
}

/// Replaces variables, such as `$(NAME)`, by their values, and the paths of mounts by their paths
/// on this machine.
fn expand(word: &str, env: &[(String, String)], mount_paths: &[(String, String)]) -> String {
    let mut word = word.to_owned();
    for (name, value) in env {
        word = word.replace(&format!("$({name})"), value);
    }
    for (mount_path, folder) in mount_paths {
        word = word.replace(mount_path, folder);
    }
    word
}
