//! The time of DELETEs on a control plane: without a check, with a ValidatingAdmissionPolicy,
//! with belay, and with Gatekeeper and Kyverno if they are given. Each check has its own
//! namespace, so no configuration changes between the requests.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::process::Process;
use crate::harness::{ControlPlane, Install, Options, Result, eventually};
use crate::policies::{enforce, only, protecting};
use crate::reviews::KEEP_LABEL;
use crate::samples::{Samples, milliseconds};
use crate::writer::{Writer, config_map, core};
use crate::{gatekeeper, kyverno};

/// The number of DELETEs of each sort in each namespace.
const EACH: usize = 400;

const LIMIT: Duration = Duration::from_secs(60);

/// The namespaces, and the titles of their columns.
const NAMESPACES: [(&str, &str); 5] = [
    ("no-check", "no check"),
    ("by-cel", "ValidatingAdmissionPolicy"),
    ("by-belay", "belay"),
    ("by-gatekeeper", "Gatekeeper"),
    ("by-kyverno", "Kyverno"),
];

/// belay denies the DELETE of an object with this label in any namespace. The other checks use
/// another label.
const BELAY_LABEL: &str = "belay.dev/protect";

struct Run {
    runtime: Runtime,
    writer: Writer,
    namespaces: &'static [(&'static str, &'static str)],
}

/// Another webhook.
#[derive(Clone, Copy)]
pub struct Peer<'a> {
    pub program: &'a Path,
    /// The folder of its CRDs.
    pub crds: &'a Path,
}

impl<'a> Peer<'a> {
    pub fn new(program: &'a str, crds: &'a str) -> Self {
        Self { program: Path::new(program), crds: Path::new(crds) }
    }

    /// Creates its own namespace, and its CRDs.
    pub fn prepare(&self, plane: &ControlPlane, system: &str) -> Result<()> {
        plane.create_namespace(system)?;
        let crds = self.crds.to_string_lossy();
        let apply = ["apply", "--server-side", "--recursive", "--filename", &crds];
        plane.kubectl(&apply)?.success().map(drop)
    }
}

/// Measures, also with Gatekeeper and Kyverno if they are given.
pub fn run(peers: Option<[Peer<'_>; 2]>) -> Result<()> {
    let namespaces = match peers {
        Some(_) => &NAMESPACES[..],
        None => &NAMESPACES[..3],
    };
    let plane = ControlPlane::start_with(&Options::default())?;
    let own = std::env::current_exe()?;
    let installed =
        Install { production_timing: true, may_be_forbidden: true, ..Install::of_everything(2) }
            .on(&plane, &own)?;
    for (namespace, _) in namespaces {
        plane.create_namespace(namespace)?;
    }
    let peers = match peers {
        Some([gatekeeper, kyverno]) => Some([
            gatekeeper::start(&plane, gatekeeper, NAMESPACES[3].0)?,
            kyverno::start(&plane, kyverno, NAMESPACES[4].0)?,
        ]),
        None => None,
    };
    let replicas = installed.replicas.iter().map(|replica| &replica.process);
    let mut servers = vec![("belay, both replicas", replicas.collect::<Vec<_>>())];
    for (title, process) in ["Gatekeeper", "Kyverno"].into_iter().zip(peers.iter().flatten()) {
        servers.push((title, vec![process]));
    }
    plane.apply(&cel_policy())?;
    let policy = protecting("held", &only("by-belay"), "configmaps", "whileUsed: {onDelete: Hold}");
    enforce(&plane, "held", &policy)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let writer = runtime.block_on(Writer::of(&plane))?;
    let run = Run { runtime, writer, namespaces };
    run.wait_until_enforced()?;
    let cpu = |processes: &[&Process]| -> Option<Duration> {
        processes.iter().map(|process| process.cpu()).sum()
    };
    let before: Vec<_> = servers.iter().map(|(_, processes)| cpu(processes)).collect();
    let mut denied = vec![Samples::default(); namespaces.len()];
    let mut allowed = denied.clone();
    for number in 0..EACH {
        for (sort, samples) in [("denied", &mut denied), ("allowed", &mut allowed)] {
            let name = format!("{sort}-{number}");
            for (namespace, _) in namespaces {
                run.create(namespace, &name, sort == "denied")?;
            }
            for ((namespace, _), samples) in namespaces.iter().zip(samples) {
                let started = Instant::now();
                let is_allowed = run.delete(namespace, &name, "")?;
                samples.push(started.elapsed());
                if is_allowed != (sort == "allowed" || *namespace == "no-check") {
                    return Err(format!("{namespace}/{name}: deleted: {is_allowed}").into());
                }
            }
        }
    }
    let titles: Vec<_> = namespaces.iter().map(|(_, title)| *title).collect();
    println!("\n| DELETE, p50 / p99 in ms | {} |", titles.join(" | "));
    println!("|---{}|", "|---".repeat(titles.len()));
    for (sort, samples) in [("of a labelled object: denied", denied), ("allowed", allowed)] {
        let median = |samples: &Samples| samples.quantile(0.5);
        let cell = |of: &Samples| {
            let ratio = median(of).as_secs_f64() / median(&samples[0]).as_secs_f64();
            let [p50, p99] = [0.5, 0.99].map(|part| milliseconds(of.quantile(part)));
            format!("{p50} / {p99} (× {ratio:.2})")
        };
        let cells: Vec<_> = samples.iter().map(cell).collect();
        println!("| {sort} | {} |", cells.join(" | "));
    }
    println!("\n| server | CPU seconds for 10,000 DELETEs | resident memory, MiB |\n|---|---|---|");
    for ((title, processes), before) in servers.iter().zip(before) {
        let used = cpu(processes).zip(before).map(|(now, before)| now - before);
        let seconds = used.ok_or("the CPU time is unknown")?.as_secs_f64();
        let for_each = seconds / (2 * EACH) as f64 * 10_000.0;
        let kib: u64 = processes.iter().filter_map(|process| process.resident()).sum();
        println!("| {title} | {for_each:.0} | {} |", kib / 1024);
    }
    Ok(())
}

impl Run {
    fn create(&self, namespace: &str, name: &str, is_labelled: bool) -> Result<()> {
        let mut object = config_map(name, 500);
        if is_labelled {
            let label = if namespace == "by-belay" { BELAY_LABEL } else { KEEP_LABEL };
            object["metadata"]["labels"][label] = "Always".into();
        }
        self.runtime.block_on(self.writer.create(&core(namespace, "configmaps"), &object)).map(drop)
    }

    /// Whether the API server accepts the DELETE.
    fn delete(&self, namespace: &str, name: &str, query: &str) -> Result<bool> {
        let path = format!("{}/{name}{query}", core(namespace, "configmaps"));
        let request = http::Request::delete(path).body(Vec::new())?;
        match self.runtime.block_on(self.writer.0.request_text(request)) {
            Ok(_) => Ok(true),
            // A ValidatingAdmissionPolicy answers 422, if it states no other reason. Kyverno
            // answers 400.
            Err(kube::Error::Api(status)) if [400, 403, 422].contains(&status.code) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn wait_until_enforced(&self) -> Result<()> {
        for (namespace, title) in &self.namespaces[1..] {
            self.create(namespace, "probe", true)?;
            eventually(title, LIMIT, || match self.delete(namespace, "probe", "?dryRun=All")? {
                true => Err("it allows a DELETE".into()),
                false => Ok(()),
            })?;
        }
        Ok(())
    }
}

/// The rule of the policies in CEL.
pub fn has_no_label() -> String {
    format!("!('{KEEP_LABEL}' in oldObject.metadata.?labels.orValue({{}}))")
}

/// The DELETEs that each check is asked about, in the form of webhooks and policies.
pub fn delete_rule() -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"],
        "resources": ["configmaps"]})
}

pub fn namespace_selector(namespace: &str) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}})
}

/// The ValidatingAdmissionPolicy, and its binding to a namespace.
fn cel_policy() -> String {
    let version = "admissionregistration.k8s.io/v1";
    let object = |kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "keep"}, "spec": spec});
    let policy = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [delete_rule()]},
        "validations": [{"expression": has_no_label()}]});
    let binding = json!({"policyName": "keep", "validationActions": ["Deny"], "matchResources":
        {"namespaceSelector": namespace_selector("by-cel")}});
    format!(
        "{}\n---\n{}\n",
        object("ValidatingAdmissionPolicy", policy),
        object("ValidatingAdmissionPolicyBinding", binding)
    )
}
