//! The data that the referee stores about one version of an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::event::{Span, time};

/// A used object: group, plural name, and a name in the same namespace.
pub type Need = (&'static str, &'static str, String);

/// A version of an object after one write.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its number in storage.
    pub number: u64,
    /// When it was written.
    pub span: Span,
    /// The user who wrote it.
    pub by: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// The uids of its owners.
    pub owners: Vec<String>,
    /// Since when it is Terminating.
    pub deleted: Option<i64>,
    /// When it was created.
    pub created: i64,
    /// The objects that it uses by the relations of Kubernetes.
    pub needs: Vec<Need>,
    /// Whether it is finished and uses nothing.
    pub finished: bool,
    /// Whether no finalizer keeps it in storage.
    pub over: bool,
    /// All of it, where the referee has to read more.
    pub whole: Option<Arc<Value>>,
}

/// The kinds whose objects are stored whole: belay objects, and those that relations read.
fn is_kept_whole(group: &str) -> bool {
    group == "belay.dev" || group == "soak.dev"
}

impl Version {
    /// The object of a response.
    pub fn of(group: &str, resource: &str, object: &Value, span: Span, by: &str) -> Option<Self> {
        let metadata = &object["metadata"];
        let texts = |value: &Value| -> Vec<String> {
            let list = value.as_array().into_iter().flatten();
            list.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
        };
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let finalizers = texts(&metadata["finalizers"]);
        let deleted = time(&metadata["deletionTimestamp"]);
        let graceful = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
        let kept = resource == "namespaces" && !texts(&object["spec"]["finalizers"]).is_empty();
        Some(Self {
            number: metadata["resourceVersion"].as_str()?.parse().ok()?,
            span,
            by: by.to_owned(),
            labels: labels
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            owners: owners.filter_map(|o| Some(o["uid"].as_str()?.to_owned())).collect(),
            created: time(&metadata["creationTimestamp"])?,
            needs: needs(group, resource, object),
            finished: is_finished(resource, object),
            over: deleted.is_some() && finalizers.is_empty() && !graceful && !kept,
            whole: is_kept_whole(group).then(|| Arc::new(object.clone())),
            finalizers,
            deleted,
        })
    }

    /// Whether it has this finalizer.
    pub fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }
}

fn is_finished(resource: &str, object: &Value) -> bool {
    let status = &object["status"];
    match resource {
        "pods" => matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")),
        "jobs" => status["conditions"].as_array().into_iter().flatten().any(|condition| {
            matches!(condition["type"].as_str(), Some("Complete" | "Failed"))
                && condition["status"] == "True"
        }),
        _ => false,
    }
}

fn needs(group: &str, resource: &str, object: &Value) -> Vec<Need> {
    let spec = &object["spec"];
    let mut needs = match (group, resource) {
        ("", "pods") => of_pod(spec),
        ("apps", "deployments" | "statefulsets" | "replicasets") | ("batch", "jobs") => {
            of_pod(&spec["template"]["spec"])
        }
        _ => Vec::new(),
    };
    if resource == "replicasets" && spec["replicas"] == 0 {
        // The ReplicaSets of a Deployment's history only mention objects that it used
        // before.
        needs.clear();
    }
    if resource == "statefulsets" {
        let set = object["metadata"]["name"].as_str().unwrap_or_default();
        for template in spec["volumeClaimTemplates"].as_array().into_iter().flatten() {
            let claim = template["metadata"]["name"].as_str().unwrap_or_default();
            // For any number of replicas, because scaling down deletes no claims.
            let claims =
                (0..3).map(|n| ("", "persistentvolumeclaims", format!("{claim}-{set}-{n}")));
            needs.extend(claims);
        }
    }
    needs
}

fn of_pod(spec: &Value) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut add = |resource: &'static str, reference: &Value, key: &str| {
        if let Some(name) = reference[key].as_str().filter(|_| reference["optional"] != true) {
            needs.push(("", resource, name.to_owned()));
        }
    };
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        add("configmaps", &volume["configMap"], "name");
        add("secrets", &volume["secret"], "secretName");
        add("persistentvolumeclaims", &volume["persistentVolumeClaim"], "claimName");
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            add("configmaps", &source["configMap"], "name");
            add("secrets", &source["secret"], "name");
        }
    }
    for container in spec["containers"].as_array().into_iter().flatten() {
        for from in container["envFrom"].as_array().into_iter().flatten() {
            add("configmaps", &from["configMapRef"], "name");
            add("secrets", &from["secretRef"], "name");
        }
    }
    needs
}
