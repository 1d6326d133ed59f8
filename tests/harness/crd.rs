//! CRDs of tests.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::has_condition;
use super::{ControlPlane, Result};

impl ControlPlane {
    /// Creates a namespaced kind whose objects may contain anything, and waits until it
    /// is served.
    pub fn define_kind(&self, group: &str, kind: &str, plural: &str) -> Result<()> {
        let name = format!("{plural}.{group}");
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            // Groups of Kubernetes itself need the annotation.
            "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved"}},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        });
        self.apply(&crd.to_string())?;
        let established = |crd: Option<&Value>| {
            let crd = crd.ok_or("it does not exist")?;
            let served = has_condition(crd, "Established");
            if served { Ok(()) } else { Err(crd["status"].to_string().into()) }
        };
        let object = format!("customresourcedefinitions/{name}");
        self.api().wait((&object, ""), Duration::from_secs(60), established)
    }
}
