//! The roles of the chart, for belay's account and for people.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use super::audit::ACCOUNT;
use super::install::NAME;
use super::shared::lock;
use super::{ControlPlane, Result, eventually};

/// The API groups of the kinds in tests and policies. A test that uses a kind of another
/// group adds it here, as a user of the chart does in `rbac.watchAlso`.
const GROUPS: [&str; 15] = [
    "completed.example.com",
    "cycles.example.com",
    "h07.example.com",
    "h15.example.com",
    "labelled.example.com",
    "s01.example.com",
    "s23.example.com",
    "s25-held.example.com",
    "s25.example.com",
    "s39.example.com",
    "s40.example.com",
    "s43.example.com",
    "s46.example.test",
    "soak.dev",
    "undo-large.test",
];

/// Kubernetes' own kinds in the holding policies of tests, in addition to the chart's list.
const KINDS: [&str; 9] = [
    "apps/replicasets",
    "autoscaling/horizontalpodautoscalers",
    "batch/jobs",
    "networking.k8s.io/networkpolicies",
    "policy/poddisruptionbudgets",
    "podtemplates",
    "replicationcontrollers",
    "scheduling.k8s.io/priorityclasses",
    "secrets",
];

/// The chart's value for the kinds that belay may read and hold in addition to the chart's
/// list.
pub fn watch_also_value() -> String {
    let groups = GROUPS.map(|group| format!("\"{group}/*\"")).join(",");
    let kinds = KINDS.map(|kind| format!("\"{kind}\"")).join(",");
    format!("rbac.watchAlso=[{kinds},{groups}]")
}

/// The manifests without their roles and bindings.
pub fn without_roles(manifests: &str) -> String {
    const RIGHTS: [&str; 4] =
        ["kind: ClusterRole", "kind: ClusterRoleBinding", "kind: Role", "kind: RoleBinding"];
    let documents = manifests.split("---\n");
    let kept = documents.filter(|document| !document.lines().any(|line| RIGHTS.contains(&line)));
    kept.collect::<Vec<_>>().join("---\n")
}

/// The roles and bindings of the chart with these values. They are cached, because most
/// control planes use the same ones and helm takes a second of a core.
fn template(plane: &ControlPlane, values: &[String]) -> Result<String> {
    static KNOWN: Mutex<BTreeMap<Vec<String>, String>> = Mutex::new(BTreeMap::new());
    let mut known = lock(&KNOWN);
    if let Some(printed) = known.get(values) {
        return Ok(printed.clone());
    }
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/belay").display().to_string();
    let mut args = ["template", NAME, &chart, "--namespace", NAME].map(str::to_owned).to_vec();
    for file in ["own", "people", "reading"].map(|name| format!("templates/rbac/{name}.yaml")) {
        args.extend(["--show-only".to_owned(), file]);
    }
    for value in values {
        args.extend(["--set-json".to_owned(), value.clone()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let printed = plane.helm(&args)?.success()?;
    known.insert(values.to_owned(), printed.clone());
    Ok(printed)
}

/// Applies the roles and bindings of the chart, with these values.
pub fn apply_chart_roles(plane: &ControlPlane, values: &[String]) -> Result<()> {
    plane.apply(&template(plane, values)?)?;
    if plane.controller_manager.is_some() {
        return Ok(());
    }
    // No controller aggregates ClusterRoles here. A binding to the part that it would aggregate
    // grants the same rights.
    let part = format!("{NAME}-kinds");
    let (role, account) =
        (format!("--clusterrole={part}"), format!("--serviceaccount={NAME}:{NAME}"));
    plane.kubectl(&["create", "clusterrolebinding", &part, &role, &account])?.success().map(drop)
}

/// Waits until the API server applies the rights: a controller aggregates the ClusterRoles, and
/// the API server watches roles. Checks one right of each role.
pub fn wait_until_granted(plane: &ControlPlane) -> Result<()> {
    for (verb, kind) in [
        ("watch", "namespaces"),
        ("watch", "deletionpolicies.belay.dev"),
        ("update", "leases.coordination.k8s.io"),
    ] {
        eventually(&format!("belay's right to {verb} {kind}"), Duration::from_secs(60), || {
            plane.api().may(ACCOUNT, verb, kind, NAME)
        })?;
    }
    Ok(())
}
