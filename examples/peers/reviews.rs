//! The reviews, and the policies and objects from which belay answers them.

use serde_json::{Map, Value, json};

/// The namespace of all objects.
const NAMESPACE: &str = "shop";

/// The other servers deny the DELETE of an object with this label.
pub const KEEP_LABEL: &str = "peers.belay.dev/keep";

/// The other servers add this finalizer to a new object.
pub const FINALIZER: &str = "peers.belay.dev/hold";

/// belay denies the DELETE of a used ConfigMap and adds its hold to a new one.
pub const POLICY: &str = "apiVersion: belay.dev/v1alpha1
kind: DeletionPolicy
metadata:
  name: config-in-use
spec:
  targets:
    - apiGroups: [\"\"]
      resources: [configmaps]
  protect:
    whileUsed: {}
";

/// A review, and what its answer contains.
pub struct Review {
    pub name: &'static str,
    /// `validate` or `mutate`.
    pub path: &'static str,
    pub body: Vec<u8>,
    pub is_allowed: bool,
    pub has_patch: bool,
}

/// All reviews.
pub fn all() -> Vec<Review> {
    let (none, large) = (Value::Null, |size| update(size));
    let review = |name, operation, object: &str, new: Value, old: Value| Review {
        name,
        path: if operation == "CREATE" { "mutate" } else { "validate" },
        body: body(operation, object, &new, &old),
        is_allowed: object != "used",
        has_patch: operation == "CREATE",
    };
    let (new_20k, old_20k) = large(20 << 10);
    let (new_1m, old_1m) = large(1 << 20);
    vec![
        review("DELETE, allowed", "DELETE", "free", none.clone(), config_map("free", 5)),
        review("DELETE, denied", "DELETE", "used", none.clone(), config_map("used", 5)),
        review("UPDATE, 20 KiB", "UPDATE", "changed", new_20k, old_20k),
        review("UPDATE, 1 MiB", "UPDATE", "changed", new_1m, old_1m),
        review("CREATE, gets a finalizer", "CREATE", "new", config_map("new", 5), none),
    ]
}

/// The objects: three ConfigMaps, and ten Pods that use the ConfigMap `used`.
pub fn objects() -> String {
    let pod = |number: usize| {
        let name = format!("web-{number}");
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid(&name)},
            "spec": {"containers": [{"name": "main", "image": "web:1",
                "envFrom": [{"configMapRef": {"name": "used"}}]}]},
            "status": {"phase": "Running"},
        })
    };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let mut items = vec![namespace];
    items.extend(["free", "used", "changed"].map(|name| config_map(name, 5)));
    items.extend((0..10).map(pod));
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Both objects of an UPDATE of the data, so that the review has about this size.
fn update(size: usize) -> (Value, Value) {
    let line =
        config_map("changed", 2).to_string().len() - config_map("changed", 1).to_string().len();
    let old = config_map("changed", size / 2 / line);
    let mut new = old.clone();
    new["data"]["line-0"] = "changed".into();
    (new, old)
}

/// A ConfigMap with this number of lines of 80 bytes.
fn config_map(name: &str, lines: usize) -> Value {
    let lines = || (0..lines).map(|number| format!("line-{number}"));
    let data: Map<String, Value> =
        lines().map(|line| (line, "key = some \"value\" and".repeat(4).into())).collect();
    let fields: Map<String, Value> = lines().map(|line| (format!("f:{line}"), json!({}))).collect();
    let mut labels = json!({"app.kubernetes.io/name": "web", "team": NAMESPACE});
    if name == "used" {
        labels[KEEP_LABEL] = "".into();
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": uid(name), "resourceVersion": "123456",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": fields}}],
        },
        "data": data,
    })
}

fn body(operation: &str, name: &str, new: &Value, old: &Value) -> Vec<u8> {
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid("review"), "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": NAMESPACE, "operation": operation,
            "userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]},
            "object": new, "oldObject": old, "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"},
        }
    });
    review.to_string().into_bytes()
}

/// A unique uid for each name.
fn uid(name: &str) -> String {
    let sum = name.bytes().fold(0_u64, |sum, byte| sum * 131 % 1_000_003 + u64::from(byte));
    format!("5a0c2f6e-7a4f-4f0e-8c55-{sum:012x}")
}
