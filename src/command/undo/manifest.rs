//! The manifest that creates an object again.

use std::collections::HashSet;

use json_patch::PatchOperation;
use serde_json::{Value, json};

use crate::cluster::RELEASE_REQUESTED;
use crate::hold::TOKEN_ANNOTATION;
use crate::objects::{
    CLAIM_PROTECTION, FOREGROUND, Kinds, is_hold, operations, short_digest, split_api_version,
};

/// The annotation of a created object with the uid of the deleted one.
pub const RESTORED_FROM: &str = "belay.dev/restored-from";

/// The annotation of a created object with its marker. An undo that continues knows its own objects
/// by it. The uid alone is no proof, because other users know it; they see the marker only after the
/// creation.
pub const RESTORED_BY: &str = "belay.dev/restored-by";

/// The annotations of a workload and of a volume that an undo changes, with the old value. A new undo
/// without the file of an interrupted one restores that value as well.
pub const OLD_REPLICAS: &str = "belay.dev/undo-replicas";
pub const OLD_RECLAIM_POLICY: &str = "belay.dev/undo-reclaim-policy";

/// The annotations of a token with the name and the uid of its ServiceAccount.
pub const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Fields of a Service that the API server allocates. Another Service may have the values meanwhile.
const ALLOCATED: &[&str] = &["clusterIP", "clusterIPs", "healthCheckNodePort"];

/// Fields of the metadata that the API server sets.
const SERVER_SET: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "generation",
    "selfLink",
];

/// Finalizers of a deletion, and finalizers that the API server adds to a new object.
const DELETION_FINALIZERS: &[&str] =
    &[FOREGROUND, "orphan", "kubernetes", CLAIM_PROTECTION, "kubernetes.io/pv-protection"];

/// Annotations about the binding of a claim, of belay about a release, and of an interrupted undo.
const STALE_ANNOTATIONS: &[&str] = &[
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    TOKEN_ANNOTATION,
    RELEASE_REQUESTED,
    OLD_REPLICAS,
];

/// The marker of the object that replaces the object with this uid. Each object has its own one, so
/// that users who read it can't create another object of the undo (H204). `secret`: that of the file.
pub fn object_marker(secret: &str, uid: &str) -> String {
    short_digest(&(secret, uid))
}

/// Returns the manifest that creates the object again, and the removed owner references to other
/// deleted objects. `secret`: that of the file; `deleted`: the uids of all deleted objects.
pub fn manifest(mut object: Value, secret: &str, deleted: &HashSet<String>) -> (Value, Vec<Value>) {
    let mut owners = Vec::new();
    let Some(fields) = object.as_object_mut() else { return (object, owners) };
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (split_api_version(text("apiVersion")).0, text("kind"));
    let (is_built_in, is_namespace) =
        (Kinds::is_built_in_group(group), (group, kind) == ("", "Namespace"));
    // The API server ignores the status of a new custom resource only if it is a subresource.
    if is_built_in {
        fields.remove("status");
    }
    restore_replicas(fields);
    if is_namespace {
        fields.remove("spec");
    }
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return (object, owners) };
    let uid = metadata.get("uid").cloned().unwrap_or_default();
    for field in SERVER_SET {
        metadata.remove(*field);
    }
    retain(metadata, "finalizers", |finalizer| {
        let name = finalizer.as_str().unwrap_or_default();
        !is_hold(name) && !DELETION_FINALIZERS.contains(&name)
    });
    retain(metadata, "ownerReferences", |owner| {
        let is_deleted = owner["uid"].as_str().is_some_and(|uid| deleted.contains(uid));
        owners.extend(is_deleted.then(|| owner.clone()));
        !is_deleted
    });
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|name, _| !STALE_ANNOTATIONS.contains(&name.as_str()));
        let marker = object_marker(secret, uid.as_str().unwrap_or_default());
        annotations.insert(RESTORED_FROM.to_owned(), uid);
        annotations.insert(RESTORED_BY.to_owned(), marker.into());
    }
    (object, owners)
}

/// Restores the replicas of a workload that an interrupted undo has scaled to 0.
fn restore_replicas(object: &mut serde_json::Map<String, Value>) {
    let Some(old) = object.get("metadata").and_then(old_replicas) else { return };
    if let Some(replicas) = object.get_mut("spec").and_then(|spec| spec.get_mut("replicas"))
        && *replicas == 0
    {
        *replicas = old.into();
    }
}

/// The replicas that an undo has noted before it scaled a workload with this metadata to 0.
pub fn old_replicas(metadata: &Value) -> Option<i64> {
    let noted = metadata["annotations"][OLD_REPLICAS].as_str()?;
    noted.parse::<i32>().ok().map(i64::from)
}

/// Removes the addresses and ports of a Service that the API server allocates. Returns whether there
/// were any.
pub fn without_allocated(manifest: &mut Value) -> bool {
    let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let removed = ALLOCATED.iter().filter(|field| spec.remove(**field).is_some()).count();
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    let ports = ports.filter_map(Value::as_object_mut);
    removed + ports.filter_map(|port| port.remove("nodePort")).count() > 0
}

pub fn is_secret(manifest: &Value) -> bool {
    manifest["apiVersion"] == "v1" && manifest["kind"] == "Secret"
}

/// Whether the token controller fills this Secret.
pub fn is_token_secret(manifest: &Value) -> bool {
    is_secret(manifest) && manifest["type"] == "kubernetes.io/service-account-token"
}

/// Removes the token and the uid of a deleted ServiceAccount from a Secret. The token controller
/// then adds a token of the new ServiceAccount. With the old uid, it would delete the Secret.
pub fn without_token(manifest: &mut Value) {
    let remove = |map: &mut Value, keys: &[&str]| {
        if let Some(map) = map.as_object_mut() {
            map.retain(|key, _| !keys.contains(&key.as_str()));
        }
    };
    remove(&mut manifest["metadata"]["annotations"], &[ACCOUNT_UID]);
    remove(&mut manifest["data"], &["token", "ca.crt", "namespace"]);
}

/// The operations that set an annotation to this value, or remove it.
pub fn annotate(object: &Value, name: &str, value: Option<&str>) -> Vec<PatchOperation> {
    let path = &["metadata", "annotations"];
    let annotations = &object["metadata"]["annotations"];
    match value {
        Some(value) if annotations.is_object() => {
            vec![operations::add(&[&path[..], &[name]].concat(), value)]
        }
        Some(value) => {
            let version = &object["metadata"]["resourceVersion"];
            let unchanged = operations::test(&["metadata", "resourceVersion"], version.clone());
            vec![unchanged, operations::add(path, json!({name: value}))]
        }
        None if annotations[name].is_string() => {
            vec![operations::remove(&[&path[..], &[name]].concat())]
        }
        None => Vec::new(),
    }
}

/// The owner references of an object.
pub fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

/// Keeps entries of a list in the metadata, and removes an empty list.
fn retain(
    metadata: &mut serde_json::Map<String, Value>,
    field: &str,
    keeps: impl FnMut(&Value) -> bool,
) {
    let Some(Value::Array(list)) = metadata.get_mut(field) else { return };
    list.retain(keeps);
    if list.is_empty() {
        metadata.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_omits_the_fields_of_the_deleted_object() {
        let object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data", "namespace": "shop", "uid": "old", "resourceVersion": "7",
                "generation": 2, "creationTimestamp": "now", "deletionTimestamp": "now",
                "deletionGracePeriodSeconds": 0, "managedFields": [{}], "labels": {"a": "b"},
                "annotations": {
                    "own": "text", "pv.kubernetes.io/bind-completed": "yes", TOKEN_ANNOTATION: "t",
                    "pv.kubernetes.io/bound-by-controller": "yes",
                },
                "finalizers": ["kubernetes.io/pvc-protection", "belay.dev/hold", "example.com/x"],
                "ownerReferences": [{"uid": "lives"}, {"uid": "gone"}],
            },
            "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
        });
        let marker = object_marker("s", "old");
        assert!(marker != object_marker("s", "other") && marker != object_marker("t", "old"));
        let expected = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data", "namespace": "shop", "labels": {"a": "b"},
                "annotations": {"own": "text", RESTORED_FROM: "old", RESTORED_BY: marker},
                "finalizers": ["example.com/x"], "ownerReferences": [{"uid": "lives"}],
            },
            "spec": {"volumeName": "pv-1"},
        });
        let deleted = HashSet::from(["gone".to_owned()]);
        let owners = vec![json!({"uid": "gone"})];
        assert_eq!(manifest(object, "s", &deleted), (expected, owners));
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]},
            "metadata": {"name": "shop", "uid": "old", "finalizers": ["belay.dev/hold"]},
        });
        let expected = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "annotations": {RESTORED_FROM: "old", RESTORED_BY: marker}}});
        assert_eq!(manifest(namespace, "s", &deleted), (expected, Vec::new()));
    }
}
