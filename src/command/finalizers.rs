//! Finalizers: who takes them off, who put them there, and how a person takes
//! one off whose owner is gone for good.

use serde_json::{Value, json};

use crate::objects::{HOLD, is_hold, shell_word};

/// Who takes off the finalizers that are known.
const KNOWN: &[(&str, &str)] = &[
    (HOLD, "belay, when nothing needs the object any more"),
    ("kubernetes", "the namespace controller, when nothing is left in it"),
    ("foregroundDeletion", "the garbage collector, when the dependents that block are gone"),
    ("orphan", "the garbage collector, when its dependents have no reference to it any more"),
    ("kubernetes.io/pvc-protection", "the PVC protection controller, when no Pod uses it"),
    ("kubernetes.io/pv-protection", "the PV protection controller, when no claim is bound to it"),
    ("kubernetes.io/vac-protection", "the protection controller, when no volume uses it"),
    ("batch.kubernetes.io/job-tracking", "the Job controller, when the Pod is counted"),
    (
        "service.kubernetes.io/load-balancer-cleanup",
        "the service controller, when the load balancer is gone",
    ),
    ("customresourcecleanup.apiextensions.k8s.io", "the API server, when its objects are gone"),
    (
        "resource.kubernetes.io/delete-protection",
        "the resource claim controller, when nothing uses it",
    ),
];

/// Who takes a finalizer off that is Kubernetes' own or belay's.
pub fn known(name: &str) -> Option<&'static str> {
    // Whatever name the hold has, belay takes it off.
    let name = if is_hold(name) { HOLD } else { name };
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, who)| *who)
}

/// The field manager that put a finalizer there.
pub fn writer(finalizer: &str, object: &Value) -> Option<String> {
    let managers = object.pointer("/metadata/managedFields")?.as_array()?;
    let key = format!("v:\"{finalizer}\"");
    let wrote = |entry: &&Value| {
        let fields = entry.pointer("/fieldsV1/f:metadata/f:finalizers");
        fields.is_some_and(|fields| fields.get(&key).is_some())
    };
    managers.iter().find(wrote)?.get("manager")?.as_str().map(str::to_owned)
}

/// The command that takes off the finalizer at this place of the list. It tests
/// what it removes, so it hits nothing else when the list has changed.
pub fn by_hand(finalizer: &str, index: usize, arguments: &str) -> String {
    let path = format!("/metadata/finalizers/{index}");
    let patch = json!([{"op": "test", "path": path, "value": finalizer},
                       {"op": "remove", "path": path}]);
    format!("kubectl patch {arguments} --type=json -p {}", shell_word(&patch.to_string()))
}

/// Who writes manifests of people, and has nothing to do with what is in them;
/// and names that say nothing.
const TOOLS: &[&str] = &[
    "kubectl",
    "helm",
    "argocd",
    "kustomize-controller",
    "helm-controller",
    "terraform",
    "pulumi",
    "manager",
    "operator",
    "controller",
    "before-first-apply",
    "unknown",
    "python",
    "curl",
    "node-fetch",
    "go-http-client",
    "openapi-generator",
];

/// Whether a field manager is one of those.
pub fn is_tool(manager: &str) -> bool {
    let manager = manager.to_lowercase();
    TOOLS.iter().any(|tool| {
        manager.strip_prefix(tool).is_some_and(|rest| {
            let ends = ["manager", "operator", "controller", "node-fetch"].contains(tool);
            rest.is_empty() || (!ends && !rest.starts_with(|c: char| c.is_alphanumeric()))
        })
    })
}
