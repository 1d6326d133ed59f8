//! The verdicts of the tables, once through HTTPS for each kind of request: a review
//! becomes the right request, and the verdict the right answer.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::harness::Belay;
use crate::{client, program};

const POLICIES: &str = r#"
apiVersion: belay.dev/v1alpha1
kind: DeletionPolicy
metadata: {name: claims}
spec:
  targets: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
  protect: {whileUsed: {}}
---
apiVersion: belay.dev/v1alpha1
kind: DeletionPolicy
metadata: {name: pods}
spec:
  targets: [{apiGroups: [""], resources: [pods]}]
  protect: {always: {}}
---
apiVersion: belay.dev/v1alpha1
kind: DeletionPolicy
metadata: {name: maps}
spec:
  targets: [{apiGroups: [""], resources: [configmaps]}]
  protect: {always: {}}
  action: Warn
"#;

const OBJECTS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: main, namespace: db}
spec: {volumes: [{persistentVolumeClaim: {claimName: data}}]}
"#;

fn serve(folder: &tempfile::TempDir) -> Belay {
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let policies = format!("--policies={}", path("policies.yaml", POLICIES));
    let objects = format!("--objects={}", path("objects.yaml", OBJECTS));
    Belay::start("belay", program(), &["--standalone", &policies, &objects], folder.path()).unwrap()
}

fn ask(belay: &Belay, path: &str, request: Value) -> Value {
    let mut request = request;
    request["uid"] = json!("1");
    request["userInfo"] = json!({"username": "alice"});
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    client(belay).post(path, review.to_string()).json()["response"].take()
}

fn core(operation: &str, resource: &str, name: &str, old: Value, new: Value) -> Value {
    json!({"operation": operation, "resource": {"group": "", "version": "v1", "resource": resource},
        "namespace": "db", "name": name, "oldObject": old, "object": new})
}

#[test]
fn each_question_arrives_and_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let belay = serve(&folder);
    let claim = |finalizers: Value, volume: &str| {
        json!({"metadata": {"name": "data", "namespace": "db", "uid": "u", "finalizers": finalizers},
            "spec": {"volumeName": volume}})
    };
    let held = || json!(["a.dev/x", "belay.dev/hold"]);

    // The hold is removed and nothing else changes: refused by the webhook that returns
    // patches.
    let strip = core(
        "UPDATE",
        "persistentvolumeclaims",
        "data",
        claim(held(), "v"),
        claim(json!(["a.dev/x"]), "v"),
    );
    let answer = ask(&belay, "/mutate", strip);
    assert_eq!(answer["status"]["reason"], "FinalizerGuarded", "{answer}");
    assert_eq!(answer["status"]["code"], 403);

    // Something else changes: belay restores the hold at its index, with a warning.
    let put = claim(json!(["a.dev/x"]), "other");
    let answer = ask(
        &belay,
        "/mutate",
        core("UPDATE", "persistentvolumeclaims", "data", claim(held(), "v"), put.clone()),
    );
    assert_eq!(answer["allowed"], true, "{answer}");
    let patch = base64::engine::general_purpose::STANDARD
        .decode(answer["patch"].as_str().unwrap())
        .unwrap();
    let mut patched = put;
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut patched, &patch).unwrap();
    assert_eq!(patched["metadata"]["finalizers"], held());
    assert!(
        answer["warnings"][0].as_str().unwrap().contains("belay keeps the finalizer"),
        "{answer}"
    );
    assert_eq!(answer["auditAnnotations"]["hold"], "restored");

    // In use, and the audit annotation names the policy.
    let answer = ask(
        &belay,
        "/validate",
        core("DELETE", "persistentvolumeclaims", "data", claim(json!([]), "v"), Value::Null),
    );
    assert_eq!(answer["status"]["reason"], "InUse", "{answer}");
    assert_eq!(answer["auditAnnotations"]["policies"], "policy claims");

    // Warn passes with a warning, and records the denial that action Deny would cause.
    let map = json!({"metadata": {"name": "m", "namespace": "db", "uid": "m"}});
    let answer = ask(&belay, "/validate", core("DELETE", "configmaps", "m", map, Value::Null));
    assert_eq!(answer["allowed"], true, "{answer}");
    assert!(
        answer["warnings"][0].as_str().unwrap().starts_with("belay would deny this"),
        "{answer}"
    );
    assert!(answer["auditAnnotations"]["would-deny"].as_str().unwrap().contains("policy maps"));

    // The answer to an eviction is to retry later.
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "main", "namespace": "db"}});
    let mut request = core("CREATE", "pods", "main", Value::Null, eviction);
    request["subResource"] = json!("eviction");
    let answer = ask(&belay, "/validate", request);
    assert_eq!(answer["status"]["code"], 429, "{answer}");

    // Finalizes a Namespace that still holds a protected Pod.
    let namespace = |finalizers: Value| {
        json!({"metadata": {"name": "db", "uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"finalizers": finalizers}})
    };
    let mut request =
        core("UPDATE", "namespaces", "db", namespace(json!(["kubernetes"])), namespace(json!([])));
    request["subResource"] = json!("finalize");
    let answer = ask(&belay, "/validate", request);
    assert_eq!(answer["status"]["reason"], "NotEmpty", "{answer}");
}
