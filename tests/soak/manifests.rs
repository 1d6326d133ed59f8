//! The objects, as JSON, and where the API server has them.

use serde_json::{Value, json};

use crate::plan::{Kind, Place, ROOMS};

/// The label that some policies select by.
pub const KEEP: &str = "soak.dev/keep";

/// A finalizer that an operator removes.
pub const GUARD: &str = "soak.dev/guard";

impl Place {
    /// The name of its object.
    pub fn name(&self) -> String {
        let letter = match self.kind {
            Kind::ConfigMap => "config",
            Kind::Child => "child",
            Kind::Secret => "secret",
            Kind::Claim => "claim",
            Kind::Pod => "pod",
            Kind::Deployment => "web",
            Kind::StatefulSet => "db",
            Kind::Job => "job",
            Kind::Widget => "widget",
        };
        format!("{letter}-{}", self.number)
    }

    /// Its namespace.
    pub fn namespace(&self) -> &'static str {
        ROOMS[self.room]
    }

    /// Group and plural name.
    pub fn resource(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::ConfigMap | Kind::Child => ("", "configmaps"),
            Kind::Secret => ("", "secrets"),
            Kind::Claim => ("", "persistentvolumeclaims"),
            Kind::Pod => ("", "pods"),
            Kind::Deployment => ("apps", "deployments"),
            Kind::StatefulSet => ("apps", "statefulsets"),
            Kind::Job => ("batch", "jobs"),
            Kind::Widget => ("soak.dev", "widgets"),
        }
    }

    /// The URL of its collection in its namespace.
    pub fn collection(&self) -> String {
        let (group, resource) = self.resource();
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        format!("{root}/v1/namespaces/{}/{resource}", self.namespace())
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }
}

fn pod_spec(uses: [usize; 3], claim: bool, job: bool) -> Value {
    let [config, secret, number] = uses;
    let mut volumes =
        vec![json!({"name": "config", "configMap": {"name": format!("config-{config}")}})];
    if claim {
        let claim = json!({"claimName": format!("claim-{number}")});
        volumes.push(json!({"name": "data", "persistentVolumeClaim": claim}));
    }
    json!({
        "restartPolicy": if job { "Never" } else { "Always" },
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "soak",
            "envFrom": [{"secretRef": {"name": format!("secret-{secret}")}}]}],
        "volumes": volumes,
    })
}

/// The object of a place. `owner`: the uid of the ConfigMap that a child has
/// as its owner.
pub fn manifest(
    place: Place,
    uses: [usize; 3],
    keep: bool,
    guarded: bool,
    owner: Option<&str>,
) -> Value {
    let name = place.name();
    let labels = json!({"app": name});
    let selector = json!({"matchLabels": labels});
    let template = |spec: Value| json!({"metadata": {"labels": labels}, "spec": spec});
    let mut object = match place.kind {
        Kind::ConfigMap | Kind::Child => {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}})
        }
        Kind::Secret => json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"A": "b"}}),
        Kind::Claim => json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "soak",
                "resources": {"requests": {"storage": "1Gi"}}}}),
        Kind::Pod => {
            json!({"apiVersion": "v1", "kind": "Pod", "spec": pod_spec(uses, true, false)})
        }
        Kind::Deployment => json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"replicas": 2, "selector": selector,
                "template": template(pod_spec(uses, false, false))}}),
        Kind::StatefulSet => json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "spec": {"replicas": 1, "serviceName": name, "selector": selector,
                "podManagementPolicy": "Parallel",
                "template": template(pod_spec(uses, false, false)),
                "volumeClaimTemplates": [{"metadata": {"name": "own"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "soak",
                        "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        Kind::Job => json!({"apiVersion": "batch/v1", "kind": "Job",
            "spec": {"template": {"spec": pod_spec(uses, false, true)}}}),
        Kind::Widget => json!({"apiVersion": "soak.dev/v1", "kind": "Widget",
            "spec": {"settings": format!("config-{}", uses[0])}}),
    };
    let mut metadata = json!({"name": name, "namespace": place.namespace()});
    if keep {
        metadata["labels"] = json!({KEEP: "yes"});
    }
    if guarded {
        metadata["finalizers"] = json!([GUARD]);
    }
    if let Some(uid) = owner {
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
            "name": format!("config-{}", place.number), "uid": uid,
            "blockOwnerDeletion": true}]);
    }
    object["metadata"] = metadata;
    object
}
