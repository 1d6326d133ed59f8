//! Rights of users in tests.

use serde_json::{Value, json};

use super::manifest::{Manifest as _, object};
use super::{ControlPlane, Result};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A rule of a role. Each list is written with commas: `get, list`.
pub fn rule(groups: &str, resources: &str, verbs: &str) -> Value {
    let list = |text: &str| text.split(", ").map(Value::from).collect::<Value>();
    json!({"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)})
}

/// A user, as the subject of a binding.
pub fn user(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "User", "name": name})
}

impl ControlPlane {
    /// Grants subjects the rights of a new role, in a namespace or in the whole cluster.
    pub fn grant(
        &self,
        name: &str,
        namespace: Option<&str>,
        rules: &[Value],
        subjects: &[Value],
    ) -> Result<()> {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let role = json!({"metadata": {"namespace": namespace}, "rules": rules});
        self.apply(&object(&format!("{GROUP}/v1"), kind, name).with(role))?;
        self.bind(name, namespace, (kind, name), subjects)
    }

    /// Grants subjects the rights of an existing role.
    pub fn bind(
        &self,
        name: &str,
        namespace: Option<&str>,
        (kind, role): (&str, &str),
        subjects: &[Value],
    ) -> Result<()> {
        let binding = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        let role = json!({"apiGroup": GROUP, "kind": kind, "name": role});
        let fields =
            json!({"metadata": {"namespace": namespace}, "roleRef": role, "subjects": subjects});
        self.apply(&object(&format!("{GROUP}/v1"), binding, name).with(fields))
    }
}
