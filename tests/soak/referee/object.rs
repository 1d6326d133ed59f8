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
    /// The objects that it mentions in the fields that Kubernetes' relations read.
    pub mentions: Vec<Need>,
    /// Whether it is a ReplicaSet with zero replicas.
    pub scaled_down: bool,
    /// Whether a Deployment controls it.
    pub has_deployment: bool,
    /// Whether the log has only its metadata.
    pub partial: bool,
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
            has_deployment: owners
                .clone()
                .any(|owner| owner["kind"] == "Deployment" && owner["controller"] == true),
            owners: owners.filter_map(|o| Some(o["uid"].as_str()?.to_owned())).collect(),
            created: time(&metadata["creationTimestamp"])?,
            mentions: mentions(group, resource, object),
            scaled_down: resource == "replicasets" && object["spec"]["replicas"] == 0,
            partial: object["kind"] == "PartialObjectMetadata",
            finished: is_finished(resource, object),
            over: deleted.is_some() && finalizers.is_empty() && !graceful && !kept,
            whole: is_kept_whole(group).then(|| Arc::new(object.clone())),
            finalizers,
            deleted,
        })
    }

    /// Takes what the log does not have from the version before.
    pub fn complete(&mut self, before: &Self) {
        self.mentions.clone_from(&before.mentions);
        self.whole.clone_from(&before.whole);
        (self.scaled_down, self.finished) = (before.scaled_down, before.finished);
    }

    /// The objects that it uses by the relations of Kubernetes. A Deployment keeps ReplicaSets
    /// with zero replicas as history, and history uses nothing.
    pub fn needs(&self) -> &[Need] {
        if self.scaled_down && self.has_deployment { &[] } else { &self.mentions }
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

fn mentions(group: &str, resource: &str, object: &Value) -> Vec<Need> {
    let spec = &object["spec"];
    let mut mentions = match (group, resource) {
        ("", "pods") => of_pod(spec),
        ("apps", "deployments" | "statefulsets" | "replicasets") | ("batch", "jobs") => {
            of_pod(&spec["template"]["spec"])
        }
        _ => Vec::new(),
    };
    if resource == "statefulsets" {
        let set = object["metadata"]["name"].as_str().unwrap_or_default();
        for template in spec["volumeClaimTemplates"].as_array().into_iter().flatten() {
            let claim = template["metadata"]["name"].as_str().unwrap_or_default();
            // For any number of replicas, because scaling down deletes no claims.
            let claims =
                (0..3).map(|n| ("", "persistentvolumeclaims", format!("{claim}-{set}-{n}")));
            mentions.extend(claims);
        }
    }
    mentions
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
