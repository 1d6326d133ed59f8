//! The policies of the measurements.

use crate::harness::{ControlPlane, Result};

/// A policy that protects kinds of the core group in the namespaces of the
/// selector.
pub fn protecting(name: &str, namespace: &str, resources: &str, protect: &str) -> String {
    format!(
        "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         targets: [{{apiGroups: [\"\"], resources: [{resources}], namespaceSelector: {{{namespace}}}}}]\n  \
         protect: {{{protect}}}\n"
    )
}

/// A policy that protects such objects while they are in use. It adds no holds, because holds cause
/// more writes.
pub fn while_used(name: &str, namespace: &str, resources: &str) -> String {
    format!("{}  hold: Never\n", protecting(name, namespace, resources, "whileUsed: {}"))
}

/// A namespace selector for this name.
pub fn only(namespace: &str) -> String {
    format!("matchLabels: {{kubernetes.io/metadata.name: {namespace}}}")
}

/// Applies a new policy and waits until belay reports it as Ready.
pub fn enforce(plane: &ControlPlane, name: &str, policy: &str) -> Result<()> {
    plane.apply(policy)?;
    for condition in ["--for=condition=Ready", "--for=condition=Watching"] {
        let wait = ["wait", "deletionpolicy", name, condition, "--timeout=60s"];
        plane.kubectl(&wait)?.success()?;
    }
    Ok(())
}
