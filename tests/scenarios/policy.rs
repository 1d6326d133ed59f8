//! Policies of one test.

use std::time::Duration;

use crate::harness::{ControlPlane, eventually};

/// Applies a policy and waits until the API server asks belay about what it
/// protects. `spec` is YAML, indented by two spaces.
pub fn apply(plane: &ControlPlane, name: &str, spec: &str) {
    let head = "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\n";
    plane.apply(&format!("{head}metadata: {{name: {name}}}\nspec:\n{spec}")).unwrap();
    in_force(plane, name);
}

/// Waits until a policy is ready and watches all that it needs.
pub fn in_force(plane: &ControlPlane, name: &str) {
    eventually(&format!("policy {name} in force"), Duration::from_secs(60), || {
        let path = "jsonpath={.metadata.generation} {.status.observedGeneration} \
                    {.status.conditions[?(@.type==\"Ready\")].status} \
                    {.status.conditions[?(@.type==\"Watching\")].status}";
        let said = plane.kubectl(&["get", "deletionpolicy", name, "-o", path])?.success()?;
        match said.split(' ').collect::<Vec<_>>()[..] {
            [generation, observed, "True", "True"] if generation == observed => Ok(()),
            _ => Err(said.into()),
        }
    })
    .unwrap();
}

/// A target: these resources of a group in one namespace.
pub fn target(group: &str, resources: &str, namespace: &str) -> String {
    format!(
        "  targets: [{{apiGroups: [\"{group}\"], resources: [{resources}], namespaceSelector: \
         {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}]\n"
    )
}
