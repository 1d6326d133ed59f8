//! Policies of one test. What fails here fails the test.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use serde_json::Value;

use super::ControlPlane;
use super::api::has_condition;

/// Applies a policy and waits until the API server asks belay about what it
/// protects. `spec` is YAML, indented by two spaces.
pub fn apply(plane: &ControlPlane, name: &str, spec: &str) {
    let head = "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\n";
    plane.apply(&format!("{head}metadata: {{name: {name}}}\nspec:\n{spec}")).unwrap();
    in_force(plane, name);
}

/// Waits until a policy is ready and watches all that it needs.
pub fn in_force(plane: &ControlPlane, name: &str) {
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

/// A target: these resources of a group in one namespace.
pub fn target(group: &str, resources: &str, namespace: &str) -> String {
    format!(
        "  targets: [{{apiGroups: [\"{group}\"], resources: [{resources}], namespaceSelector: \
         {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}]\n"
    )
}
