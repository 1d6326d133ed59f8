//! People with rights of their own, and how they see objects.

use std::path::PathBuf;

use serde_json::json;

use crate::harness::kubectl::Output;
use crate::harness::{Api, ControlPlane, Result, eventually};
use crate::team::SOON;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Somebody who may do in one namespace what the ClusterRole `admin` lets
/// people do, and nothing anywhere else.
pub struct Person<'p> {
    plane: &'p ControlPlane,
    pub kubeconfig: PathBuf,
    api: Api,
    /// The name that the API server knows.
    pub name: String,
    namespace: String,
}

impl<'p> Person<'p> {
    /// Somebody of this namespace.
    pub fn of(plane: &'p ControlPlane, namespace: &str) -> Self {
        let name = format!("jane-{namespace}");
        let kubeconfig = plane.user(&name, None).unwrap();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
        });
        plane.apply(&binding.to_string()).unwrap();
        let api = Api::of(&kubeconfig).unwrap();
        Self { plane, kubeconfig, api, name, namespace: namespace.to_owned() }
    }

    /// Gives more rights, in the whole cluster: rules of a ClusterRole, as
    /// YAML in flow style.
    pub fn may(&self, rules: &str) {
        let name = &self.name;
        let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole";
        let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding";
        let subject = format!("{{kind: User, apiGroup: rbac.authorization.k8s.io, name: {name}}}");
        let role_ref =
            format!("{{kind: ClusterRole, apiGroup: rbac.authorization.k8s.io, name: {name}}}");
        let manifest = format!(
            "{role}\nmetadata: {{name: {name}}}\nrules: {rules}\n---\n{binding}\nmetadata: {{name: \
             {name}}}\nroleRef: {role_ref}\nsubjects: [{subject}]\n"
        );
        self.plane.apply(&manifest).unwrap();
    }

    /// kubectl, in the namespace of this person.
    pub fn kubectl(&self, args: &[&str]) -> Output {
        let all: Vec<&str> = args.iter().copied().chain(["-n", &self.namespace]).collect();
        self.plane.kubectl_as(&self.kubeconfig, &all).unwrap()
    }

    /// kubectl with a manifest on its standard input.
    pub fn send(&self, args: &[&str], manifest: &str) -> Output {
        let all: Vec<&str> = args.iter().copied().chain(["-n", &self.namespace]).collect();
        self.plane.kubectl_with(Some(&self.kubeconfig), &all, manifest).unwrap()
    }

    /// Waits while the API server doesn't know a right that was given a moment ago.
    fn allowed(&self, mut request: impl FnMut() -> Result<Output>) -> Output {
        eventually("an answer of the authorizer", SOON, || {
            let output = request()?;
            if output.stderr.contains("(Forbidden)") {
                return Err(output.stderr.into());
            }
            Ok(output)
        })
        .unwrap()
    }

    /// Applies a manifest, which has to succeed.
    pub fn apply(&self, manifest: &str) {
        self.allowed(|| self.api.apply(manifest, &self.namespace)).success().unwrap();
    }

    /// `kubectl apply` that has to succeed.
    pub fn kubectl_apply(&self, manifest: &str) {
        self.send(&["apply", "-f", "-"], manifest).success().unwrap();
    }

    /// Deletes objects as `kubectl delete --wait=false` does.
    pub fn delete(&self, args: &[&str]) -> Output {
        self.allowed(|| self.api.delete(args, &self.namespace))
    }

    /// One field of an object, by a JSON path without its braces.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.api.field(object, &self.namespace, path).unwrap()
    }

    /// The finalizers of an object, as JSON.
    pub fn finalizers(&self, object: &str) -> String {
        self.field(object, ".metadata.finalizers")
    }

    /// Whether the object is gone.
    pub fn lacks(&self, object: &str) -> bool {
        self.api.get(object, &self.namespace).unwrap().is_none()
    }
}
