//! CRDs of tests.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::has_condition;
use super::manifest::{Manifest as _, object};
use super::{ControlPlane, Result, eventually};

/// A CRD of a namespaced kind whose objects may contain anything. `stored` is the version
/// in which they are stored.
pub fn crd(group: &str, kind: &str, plural: &str, versions: &[&str], stored: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": *name == stored,
            "schema": {"openAPIV3Schema": any}})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
    let name = format!("{plural}.{group}");
    // Groups of Kubernetes itself need the annotation.
    let annotations = json!({"api-approved.kubernetes.io": "unapproved"});
    object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name).with(json!({
        "metadata": {"annotations": annotations},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }))
}

/// A CRD of Things with the versions v1 and v2. With `dead`, a webhook that does not exist
/// converts them.
pub fn things(group: &str, stored: &str, dead: bool) -> Value {
    let service = json!({"service": {"namespace": "default", "name": "nobody"}});
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": service});
    let conversion = match dead {
        true => json!({"strategy": "Webhook", "webhook": webhook}),
        false => json!({"strategy": "None"}),
    };
    let things = crd(group, "Thing", "things", &["v1", "v2"], stored);
    things.with(json!({"spec": {"conversion": conversion}}))
}

impl ControlPlane {
    /// Creates a namespaced kind whose objects may contain anything, and waits until it
    /// is served.
    pub fn define_kind(&self, group: &str, kind: &str, plural: &str) -> Result<()> {
        let name = format!("{plural}.{group}");
        self.apply(&crd(group, kind, plural, &["v1"], "v1"))?;
        let established = |crd: Option<&Value>| {
            let crd = crd.ok_or("it does not exist")?;
            let served = has_condition(crd, "Established");
            if served { Ok(()) } else { Err(crd["status"].to_string().into()) }
        };
        let object = format!("customresourcedefinitions/{name}");
        let limit = Duration::from_secs(60);
        self.api().wait((&object, ""), limit, established)?;
        // Discovery serves the kind a moment later.
        eventually(&format!("the discovery of {name}"), limit, || {
            self.api().finds_kind(&format!("{kind}.v1.{group}"))
        })
    }
}
