//! Policies of one test. An error here fails the test.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::{Value, json};

use super::ControlPlane;
use super::api::has_condition;
use super::manifest::deletion_policy;

/// Applies a policy and waits until the API server sends requests about the protected
/// objects to belay.
pub fn apply(plane: &ControlPlane, name: &str, spec: Value) {
    plane.apply(&deletion_policy(name, spec)).unwrap();
    wait_until_in_force(plane, name);
}

/// Like `apply`, for resources of the core group in one namespace. The policy has the name of the
/// namespace.
pub fn protect(plane: &ControlPlane, namespace: &str, resources: &str, protect: Value) {
    let target = target("", resources, namespace);
    apply(plane, namespace, json!({"targets": [target], "protect": protect}));
}

/// Waits until a policy is Ready and Watching with its current spec.
pub fn wait_until_in_force(plane: &ControlPlane, name: &str) {
    let policy = format!("deletionpolicy.belay.dev/{name}");
    let in_force = |policy: Option<&Value>| {
        let policy = policy.ok_or("it does not exist")?;
        let observed = &policy["status"]["observedGeneration"];
        let current = *observed == policy["metadata"]["generation"];
        let in_force =
            current && ["Ready", "Watching"].iter().all(|kind| has_condition(policy, kind));
        if in_force { Ok(()) } else { Err(policy["status"].to_string().into()) }
    };
    plane.api().wait((&policy, ""), Duration::from_secs(60), in_force).unwrap();
}

/// Protects a Namespace while it is not empty, by a policy with its name.
pub fn protect_namespace(plane: &ControlPlane, name: &str) {
    let target = json!({"apiGroups": [""], "resources": ["namespaces"], "names": [name]});
    apply(plane, name, json!({"targets": [target], "protect": {"whileNotEmpty": {}}}));
}

/// A target: these resources of a group in one namespace.
pub fn target(group: &str, resources: &str, namespace: &str) -> Value {
    let resources: Vec<&str> = resources.split(", ").collect();
    let selector = namespace_selector(namespace);
    json!({"apiGroups": [group], "resources": resources, "namespaceSelector": selector})
}

/// The selector of one namespace.
pub fn namespace_selector(namespace: &str) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}})
}
