//! People with the rights that a test gives them, and what they look at.

use std::path::PathBuf;

use crate::harness::ControlPlane;

/// Somebody who may do anything with what is in one namespace, and with the
/// namespace itself.
pub fn editor(plane: &ControlPlane, ns: &str) -> PathBuf {
    let name = format!("{ns}-editor");
    plane.apply(&rights(ns, &name, &format!("{{kind: User, name: {name}}}"))).unwrap();
    plane.user(&name, None).unwrap()
}

/// A service account with the same rights, as an operator has them; its home is
/// this Namespace or another one.
pub fn operator(plane: &ControlPlane, ns: &str, home: &str, name: &str) -> PathBuf {
    plane.kubectl(&["create", "serviceaccount", name, "-n", home]).unwrap().success().unwrap();
    let subject = format!("{{kind: ServiceAccount, name: {name}, namespace: {home}}}");
    plane.apply(&rights(ns, &format!("{ns}-{name}"), &subject)).unwrap();
    plane.account(home, name).unwrap()
}

fn rights(ns: &str, name: &str, subject: &str) -> String {
    let rbac = "apiVersion: rbac.authorization.k8s.io/v1";
    let role = "apiGroup: rbac.authorization.k8s.io, kind: ClusterRole";
    format!(
        "{rbac}\nkind: ClusterRole\nmetadata: {{name: {name}}}\n\
         rules: [{{apiGroups: ['*'], resources: ['*'], verbs: ['*']}}]\n---\n\
         {rbac}\nkind: RoleBinding\nmetadata: {{name: {name}, namespace: {ns}}}\n\
         roleRef: {{{role}, name: {name}}}\nsubjects: [{subject}]\n---\n\
         {rbac}\nkind: ClusterRole\nmetadata: {{name: {name}-itself}}\n\
         rules: [{{apiGroups: [''], resources: [namespaces, namespaces/finalize], \
         resourceNames: [{ns}], verbs: ['*']}}]\n---\n\
         {rbac}\nkind: ClusterRoleBinding\nmetadata: {{name: {name}-itself}}\n\
         roleRef: {{{role}, name: {name}-itself}}\nsubjects: [{subject}]\n"
    )
}

/// A field of one object; empty where it is not set.
pub fn field(plane: &ControlPlane, ns: &str, object: &str, path: &str) -> String {
    plane.api().field(object, ns, path).unwrap()
}

/// Whether the object is not there any more.
pub fn is_gone(plane: &ControlPlane, ns: &str, object: &str) -> crate::harness::Result<()> {
    match plane.api().get(object, ns)? {
        None => Ok(()),
        Some(object) => Err(object.to_string().into()),
    }
}
