//! The managers of an object: its owners, and the tools that created it. A manager can re-create
//! or delete the object automatically.

use serde_json::Value;

use crate::cluster::MANAGER;
use crate::objects::quote_if_ambiguous;

/// How a tool marks the objects that it manages.
struct ManagerMark {
    /// The field of the metadata: `labels` or `annotations`.
    field: &'static str,
    /// The key whose value is the name of the manager.
    key: &'static str,
    /// The key whose value is the namespace of the manager. Empty if there is none.
    namespace: &'static str,
    /// What the manager is.
    what: &'static str,
}

#[rustfmt::skip]
const MARKS: &[ManagerMark] = &[
    ManagerMark { field: "annotations", key: "meta.helm.sh/release-name", namespace: "meta.helm.sh/release-namespace", what: "Helm release" },
    ManagerMark { field: "labels", key: "helm.toolkit.fluxcd.io/name", namespace: "helm.toolkit.fluxcd.io/namespace", what: "Flux HelmRelease" },
    ManagerMark { field: "labels", key: "kustomize.toolkit.fluxcd.io/name", namespace: "kustomize.toolkit.fluxcd.io/namespace", what: "Flux Kustomization" },
    ManagerMark { field: "annotations", key: "argocd.argoproj.io/tracking-id", namespace: "", what: "Argo CD application" },
    ManagerMark { field: "labels", key: "argocd.argoproj.io/instance", namespace: "", what: "Argo CD application" },
    ManagerMark { field: "labels", key: "olm.owner", namespace: "olm.owner.namespace", what: "OLM operator" },
];

/// The label with the name of the managing tool.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The owners of an object and the tools that manage it, as text. `missing`: the uids of owners that
/// do not exist.
pub fn managers(object: &Value, missing: &[String]) -> Vec<String> {
    let metadata = &object["metadata"];
    let text = |field: &str, key: &str| metadata[field][key].as_str().unwrap_or_default();
    let mut all: Vec<String> = owners(metadata, missing).collect();
    let tool = text("labels", MANAGED_BY);
    let mut is_listed = tool.is_empty();
    for ManagerMark { field, key, namespace, what } in MARKS {
        // An Argo CD tracking id starts with the name of the application.
        let name = text(field, key).split(':').next().unwrap_or_default();
        if name.is_empty() {
            continue;
        }
        let manager = match text(field, namespace) {
            "" => format!("{what} {}", quote_if_ambiguous(name)),
            namespace => {
                format!("{what} {} -n {}", quote_if_ambiguous(name), quote_if_ambiguous(namespace))
            }
        };
        is_listed |= normalize(what).starts_with(&normalize(tool));
        if !all.contains(&manager) {
            all.push(manager);
        }
    }
    if !is_listed {
        all.push(format!("{} (label {MANAGED_BY})", quote_if_ambiguous(tool)));
    }
    all
}

/// One spelling for `Argo CD`, `argocd` and `argo-cd`.
fn normalize(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase()
}

fn owners(metadata: &Value, missing: &[String]) -> impl Iterator<Item = String> {
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    owners.map(|owner| {
        let is_missing = missing.iter().any(|uid| owner["uid"] == uid.as_str());
        let state = if is_missing { ", which does not exist" } else { "" };
        let text = |field: &str| quote_if_ambiguous(owner[field].as_str().unwrap_or_default());
        let role = if owner["controller"] == true { "its controller" } else { "its owner" };
        format!("{} {} ({role}{state})", text("kind"), text("name"))
    })
}

/// The last writer of the object and the time. Writes of the status don't count, and neither do
/// those of belay, which adds and removes only the hold and its annotations.
pub fn last_writer(object: &Value) -> Option<String> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let writes = entries.iter().filter(|entry| entry["subresource"].as_str().is_none());
    let writes = writes.filter(|entry| entry["manager"] != MANAGER);
    let last = writes.max_by_key(|entry| entry["time"].as_str().unwrap_or_default())?;
    let manager = quote_if_ambiguous(last["manager"].as_str()?);
    let time = last["time"].as_str().unwrap_or_default();
    Some(if time.is_empty() { manager.into_owned() } else { format!("{manager}, {time}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn h138_names_that_look_like_messages_are_quoted() {
        let owner = json!({"kind": "it. Faster: kubectl delete namespace", "name": "prod --wait"});
        let object = json!({"metadata": {"ownerReferences": [owner]}});
        let shown = r#""it. Faster: kubectl delete namespace" "prod --wait" (its owner)"#;
        assert_eq!(managers(&object, &[]), [shown]);
    }

    #[test]
    fn who_manages_an_object_is_read_from_the_marks_of_tools() {
        let managers_of = |metadata: Value| managers(&json!({"metadata": metadata}), &[]);
        assert_eq!(managers_of(json!({})), [""; 0]);
        assert_eq!(
            managers_of(json!({
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "web",
                    "meta.helm.sh/release-namespace": "shop"}
            })),
            ["Helm release web -n shop"]
        );
        assert_eq!(
            managers_of(json!({
                "labels": {"argocd.argoproj.io/instance": "shop",
                    "app.kubernetes.io/managed-by": "tofu"},
                "annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:web/web"}
            })),
            ["Argo CD application shop", "tofu (label app.kubernetes.io/managed-by)"]
        );
        // A tool is distinguished from an object with the same name.
        assert_eq!(
            managers_of(json!({"labels": {"app.kubernetes.io/managed-by": "web"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1"}]})),
            ["ReplicaSet web-1 (its owner)", "web (label app.kubernetes.io/managed-by)"]
        );
        assert_eq!(
            managers_of(json!({
                "labels": {"kustomize.toolkit.fluxcd.io/name": "apps",
                    "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true},
                    {"kind": "Shop", "name": "web"}]
            })),
            [
                "ReplicaSet web-1 (its controller)",
                "Shop web (its owner)",
                "Flux Kustomization apps -n flux-system"
            ]
        );
    }

    #[test]
    fn last_writer_ignores_belay_and_writes_of_the_status() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time});
        let mut status = entry("kubelet", "2026-01-03T00:00:00Z");
        status["subresource"] = "status".into();
        let fields = json!([
            entry("kubectl-create", "2026-01-01T00:00:00Z"),
            entry("kubectl-edit", "2026-01-02T00:00:00Z"),
            status,
            // The hold.
            entry("belay", "2026-01-04T00:00:00Z"),
        ]);
        let object = json!({"metadata": {"managedFields": fields}});
        let last = last_writer(&object);
        assert_eq!(last.as_deref(), Some("kubectl-edit, 2026-01-02T00:00:00Z"));
        assert_eq!(managers(&object, &[]), [""; 0]);
    }
}
