//! Kubernetes objects of tests, as values.

use std::time::Duration;

use serde_json::{Value, json};

use super::policy::namespace_selector;

/// An object with only a name.
pub fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// A ConfigMap without data.
pub fn config_map(name: &str) -> Value {
    object("v1", "ConfigMap", name)
}

/// A Secret without data.
pub fn secret(name: &str) -> Value {
    object("v1", "Secret", name)
}

/// A PersistentVolumeClaim whose class has no volumes.
pub fn claim(name: &str) -> Value {
    object("v1", "PersistentVolumeClaim", name).with(json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}}}}))
}

/// A PersistentVolume without a class.
pub fn volume(name: &str) -> Value {
    object("v1", "PersistentVolume", name).with(json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}}}))
}

/// A PersistentVolume for a claim, and the claim.
pub fn bound_claim(namespace: &str, name: &str, volume_name: &str) -> [Value; 2] {
    let claim_ref = json!({"namespace": namespace, "name": name});
    let bound = json!({"spec": {"storageClassName": "", "volumeName": volume_name}});
    [
        volume(volume_name).with(json!({"spec": {"claimRef": claim_ref}})),
        claim(name).with_namespace(namespace).with(bound),
    ]
}

/// A Pod that uses nothing.
pub fn pod(name: &str) -> Value {
    let container = json!({"name": "c", "image": "none"});
    object("v1", "Pod", name).with(json!({"spec": {"containers": [container]}}))
}

/// A Pod that reads a ConfigMap (`configMapRef`) or a Secret (`secretRef`), without a
/// grace period.
pub fn reader(name: &str, reference: &str, to: &str) -> Value {
    pod(name).with_env_from(reference, to).without_grace_period()
}

/// A Deployment or a StatefulSet of Pods like this one. Its name is their label `app`.
pub fn workload(kind: &str, name: &str, pod: &Value) -> Value {
    let labels = json!({"app": pod["metadata"]["name"]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod["spec"]});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    object("apps/v1", kind, name).with(json!({"spec": spec}))
}

/// Several objects as one manifest.
pub fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

/// A reference to an owner without an API group.
pub fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
}

/// The administrator's approval of a deletion, for an hour.
pub fn approval(name: &str, target: Value, scope: &str) -> Value {
    let until = jiff::Timestamp::now() + Duration::from_secs(3600);
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let spec = json!({"targetRef": target, "scope": scope, "approver": "admin",
        "reason": "it was made to be deleted", "expirationTime": until});
    object("belay.dev/v1alpha1", "DeletionApproval", name).with(json!({"spec": spec}))
}

/// A DeletionPolicy.
pub fn deletion_policy(name: &str, spec: Value) -> Value {
    object("belay.dev/v1alpha1", "DeletionPolicy", name).with(json!({"spec": spec}))
}

/// A Relation.
pub fn relation(name: &str, spec: Value) -> Value {
    object("belay.dev/v1alpha1", "Relation", name).with(json!({"spec": spec}))
}

/// A ValidatingAdmissionPolicy that validates operations on resources in one namespace, on
/// the objects that a selector selects, and its binding.
pub fn admission_policy(
    name: &str,
    namespace: &str,
    (operations, resources): (&[&str], &[&str]),
    objects: Value,
    validation: Value,
) -> [Value; 2] {
    let group = "admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": operations,
        "resources": resources});
    let matched = json!({"namespaceSelector": namespace_selector(namespace),
        "objectSelector": objects, "resourceRules": [rule]});
    let policy = json!({"matchConstraints": matched, "validations": [validation]});
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)]
        .map(|(kind, spec)| object(group, kind, name).with(json!({"spec": spec})))
}

/// A ValidatingWebhookConfiguration for an operation on a resource in one namespace.
pub fn validating_webhook(
    name: &str,
    namespace: &str,
    (operation, resource): (&str, &str),
    client: Value,
) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation],
        "resources": [resource]});
    let webhook = json!({"name": format!("{name}.example.test"), "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": client, "rules": [rule],
        "namespaceSelector": namespace_selector(namespace)});
    object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", name)
        .with(json!({"webhooks": [webhook]}))
}

/// Changes of an object.
pub trait Manifest: Sized {
    /// Merges fields into the object.
    fn with(self, fields: Value) -> Value;

    /// Puts the object into a namespace.
    fn with_namespace(self, namespace: &str) -> Value {
        self.with(json!({"metadata": {"namespace": namespace}}))
    }

    /// Adds labels.
    fn with_labels(self, labels: Value) -> Value {
        self.with(json!({"metadata": {"labels": labels}}))
    }

    /// Adds the label by which belay protects an object.
    fn with_protect_label(self, protect: &str) -> Value {
        self.with_labels(json!({"belay.dev/protect": protect}))
    }

    /// Sets the finalizers.
    fn with_finalizers(self, finalizers: &[&str]) -> Value {
        self.with(json!({"metadata": {"finalizers": finalizers}}))
    }

    /// Sets the only owner, which waits for the object in a foreground deletion.
    fn with_owner(self, owner: Value) -> Value {
        let owner = owner.with(json!({"blockOwnerDeletion": true}));
        self.with(json!({"metadata": {"ownerReferences": [owner]}}))
    }

    /// Assigns a Pod to a node.
    fn with_node(self, node: &str) -> Value {
        self.with(json!({"spec": {"nodeName": node}}))
    }

    /// Sets the grace period of a Pod to zero.
    fn without_grace_period(self) -> Value {
        self.with(json!({"spec": {"terminationGracePeriodSeconds": 0}}))
    }

    /// Mounts a source, `{"configMap": {"name": …}}`, into a Pod.
    fn with_volume(self, source: Value) -> Value {
        self.with(json!({"spec": {"volumes": [json!({"name": "v"}).with(source)]}}))
    }

    /// Mounts a claim into a Pod.
    fn with_claim(self, claim: &str) -> Value {
        self.with_volume(json!({"persistentVolumeClaim": {"claimName": claim}}))
    }

    /// Makes the container of a Pod read a ConfigMap (`configMapRef`) or a Secret (`secretRef`).
    fn with_env_from(self, reference: &str, to: &str) -> Value {
        let container =
            json!({"name": "c", "image": "none", "envFrom": [{reference: {"name": to}}]});
        self.with(json!({"spec": {"containers": [container]}}))
    }
}

impl Manifest for Value {
    fn with(mut self, fields: Value) -> Value {
        json_patch::merge(&mut self, &fields);
        self
    }
}
