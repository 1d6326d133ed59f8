//! A developer: the ClusterRole `edit` in one namespace, and no right elsewhere.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, pod};
use crate::harness::rbac::user;
use crate::harness::{Api, ControlPlane, eventually};
use crate::{LIMIT, kubectl, policy, world};

/// A new namespace, and a kubeconfig of a developer in it.
fn developer(plane: &ControlPlane, prefix: &str) -> (String, PathBuf) {
    let ns = plane.namespace(prefix).unwrap();
    let name = format!("dev-{ns}");
    let kubeconfig = plane.user(&name, None).unwrap();
    plane.bind(&name, Some(&ns), ("ClusterRole", "edit"), &[user(&name)]).unwrap();
    (ns, kubeconfig)
}

/// The Status of a refused DELETE.
fn refusal(dev: &Api, object: &str, ns: &str, reason: &str) -> Value {
    eventually("the refusal", LIMIT, || match dev.would_refuse(object, ns)? {
        Some(status) if status["reason"] == reason => Ok(status),
        other => Err(format!("{other:?}").into()),
    })
    .unwrap()
}

/// A ConfigMap that a Pod uses, and a policy for it.
fn settings_in_use(plane: &ControlPlane, ns: &str) {
    plane.apply(&config_map("settings").with_namespace(ns)).unwrap();
    let web = pod("web").with_env_from("configMapRef", "settings");
    plane.apply(&web.with_namespace(ns)).unwrap();
    policy::protect(plane, ns, "configmaps", json!({"whileUsed": {}}));
}

#[test]
fn the_api_server_passes_the_causes_of_a_refusal_to_the_client() {
    let plane = &world().plane;
    let (ns, kubeconfig) = developer(plane, "dev-causes");
    settings_in_use(plane, &ns);
    let dev = Api::of(&kubeconfig).unwrap();
    let status = refusal(&dev, "configmap/settings", &ns, "InUse");
    let path = "spec.containers[0].envFrom[0].configMapRef.name";
    let cause = |reason: &str, message: String| json!({"reason": reason, "message": message});
    let says = format!("configmap \"settings\" is in use by Pod {ns}/web ({path})");
    let command = format!("kubectl belay approve configmaps/settings -n {ns} --reason \"…\"");
    let causes = json!([
        cause("InUse", says),
        cause("Object", format!("configmaps/settings -n {ns}")),
        {"reason": "Cause", "message": format!("Pod {ns}/web"), "field": path},
        cause("Policy", ns.clone()),
        cause("NextStep", format!("first delete Pod {ns}/web")),
        cause("Approve", command),
    ]);
    assert_eq!(status["details"], json!({"causes": causes}), "{status:#}");
}

#[test]
fn the_causes_of_a_refusal_name_no_object_of_another_namespace() {
    let plane = &world().plane;
    let (ns, kubeconfig) = developer(plane, "dev-hidden");
    let other = plane.namespace("dev-other").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let exists = policy::target("", "secrets", &other);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"whileExists": [exists]}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    for name in ["merger-acme", "merger-zeta"] {
        kubectl(plane, &["create", "secret", "generic", name, "-n", &other]);
    }
    let dev = Api::of(&kubeconfig).unwrap();
    let status = refusal(&dev, "configmap/settings", &ns, "StillNeeded");
    let causes = status["details"]["causes"].as_array().unwrap();
    let cause = json!({"reason": "Cause", "message": "an object in another namespace"});
    assert!(causes.contains(&cause), "{status:#}");
    for word in [&*other, "merger", "Secret", "More"] {
        assert!(!status.to_string().contains(word), "{word}: {status:#}");
    }
}
