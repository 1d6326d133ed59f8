//! Examples of each kind that together use every field: accepted, stored as
//! they are, read back by our types, listed.

use std::collections::BTreeSet;

use belay::policy::api::{Check, DeletionApproval, DeletionPolicy, Pause, Problem, Relation, crds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{in_seconds, installed, object};
use crate::harness::ControlPlane;

const CLAIMS: &str = r#"
targets:
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  names: ["data-*"]
  namespaceSelector:
    matchLabels: {tier: production}
    matchExpressions: [{key: ring, operator: NotIn, values: [canary]}]
  objectSelector: {matchExpressions: [{key: app, operator: Exists}]}
  matchAnnotations: {example.com/keep: "yes"}
exclude: [{apiGroups: [""], resources: [persistentvolumeclaims], names: [scratch]}]
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: developers}]
exemptSubjects: [{kind: ServiceAccount, name: cleaner, namespace: jobs}]
protect:
  always: {}
  whileUsed:
    by:
    - apiGroups: [apps]
      resources: [statefulsets]
      objectSelector: {matchLabels: {app: db}}
    onDelete: Deny
    optionalReferences: Count
  whileExists:
  - apiGroups: [""]
    resources: [pods]
    namespaceSelector: {matchLabels: {tier: production}}
  fromOrphaning: {}
  fromStripping:
    finalizers: ["kubernetes.io/*"]
    removers: [{kind: User, name: alice}]
hold: Never
action: Warn
actionOverrides:
- namespaceSelector: {matchLabels: {ring: canary}}
  action: Audit
approval: {required: 2, maxDurationSeconds: 600, serviceAccounts: [argocd/application-controller]}
settleSeconds: 45
"#;

const CONTAINERS: &str = r#"
targets: [{apiGroups: ["", apiextensions.k8s.io], resources: [namespaces, customresourcedefinitions]}]
protect:
  whileNotEmpty:
    counting: Any
    ignore: [{apiGroups: [""], resources: [events]}]
    owned: Count
"#;

const BY_NAME: &str = r#"
from: {group: example.com, resource: databases}
to: {group: example.com, resource: clusters}
nameFieldPath: spec.cluster.name
namespaceFieldPath: spec.cluster.namespace
strength: Mentions
crossNamespaceStrength: Mentions
until: {fieldPath: status.phase, equals: Done}
"#;

const BY_REFERENCE: &str = r#"
from: {group: example.com, resource: databases}
toRef: {groupFieldPath: spec.ref.apiVersion, kindFieldPath: spec.ref.kind}
nameFieldPath: spec.ref.name
"#;

const BY_SELECTOR: &str = r#"
from: {resource: services}
to: {resource: pods}
selectorFieldPath: spec.selector
"#;

/// The shortest policy, for which defaults exist.
const SHORT_POLICY: &str = r#"
targets: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
protect: {whileUsed: {}, fromStripping: {}}
"#;

const SHORT_CONTAINERS: &str = r#"
targets: [{apiGroups: [""], resources: [namespaces]}]
protect: {whileNotEmpty: {}}
approval: {}
"#;

/// An empty line of a Helm template leaves a null.
const WITH_NULLS: &str = r#"
from: {group: null, resource: services}
to: {resource: pods}
toRef: null
nameFieldPath: spec.pod
selectorFieldPath: null
strength: null
until: {fieldPath: status.phase, equals: null}
"#;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn full_approval() -> Value {
    json!({
        "targetRef": {
            "group": "apps",
            "resource": "deployments",
            "namespace": "shop",
            "name": "web",
            "uid": "8c1f4f5e-0000-4000-8000-000000000001",
        },
        "approver": "admin",
        "reason": "the tenant has left",
        "expirationTime": in_seconds(3600),
        "scope": "Content",
        "exempts": ["pvc-in-use"],
    })
}

fn full_pause() -> Value {
    json!({"by": "admin", "reason": "a migration", "expirationTime": in_seconds(3600)})
}

/// Name, kind and spec of each full example.
fn full() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("claims", "DeletionPolicy", yaml(CLAIMS)),
        ("containers", "DeletionPolicy", yaml(CONTAINERS)),
        ("by-name", "Relation", yaml(BY_NAME)),
        ("by-reference", "Relation", yaml(BY_REFERENCE)),
        ("by-selector", "Relation", yaml(BY_SELECTOR)),
        ("full-approval", "DeletionApproval", full_approval()),
        ("full-pause", "Pause", full_pause()),
    ]
}

/// Stores an object and returns the stored object as its type.
fn store(plane: &ControlPlane, kind: &str, name: &str, spec: &Value) -> Value {
    let object = object(kind, name, spec.clone());
    let created = plane.api().create(&object, "").unwrap();
    assert_eq!(created.stderr, "", "{name}");
    created.success().unwrap();
    plane.api().get(&format!("{kind}.belay.dev/{name}"), "").unwrap().unwrap()
}

/// The spec after a round trip through our type, and the problems that its own rules find.
fn through<T>(object: &Value, spec: impl Fn(&T) -> (Value, Vec<Problem>)) -> Value
where
    T: DeserializeOwned,
{
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    let (value, problems) = spec(&typed);
    assert_eq!(problems, [], "{value:#}");
    value
}

fn written(spec: &(impl Serialize + Check)) -> (Value, Vec<Problem>) {
    (serde_json::to_value(spec).unwrap(), spec.problems())
}

fn typed(object: &Value) -> Value {
    match object["kind"].as_str().unwrap() {
        "DeletionPolicy" => through::<DeletionPolicy>(object, |o| written(&o.spec)),
        "Relation" => through::<Relation>(object, |o| written(&o.spec)),
        "DeletionApproval" => through::<DeletionApproval>(object, |o| written(&o.spec)),
        "Pause" => through::<Pause>(object, |o| written(&o.spec)),
        kind => panic!("{kind}"),
    }
}

#[test]
fn full_examples_come_back_as_they_were_written() {
    let (plane, _) = installed();
    for (name, kind, spec) in full() {
        let stored = store(plane, kind, name, &spec);
        // Defaults are added, and no field is dropped or changed.
        let mut with_defaults = spec.clone();
        add_missing(&mut with_defaults, &stored["spec"]);
        assert_eq!(stored["spec"], with_defaults, "{name}");
        assert_eq!(typed(&stored), stored["spec"], "{name}");
    }
    let columns = [
        ("deletionpolicies.belay.dev", "NAME ACTION WHILE-USED READY PROTECTED HOLDS DENIED AGE"),
        ("relations.belay.dev", "NAME FROM TO STRENGTH AGE"),
        ("deletionapprovals.belay.dev", "NAME RESOURCE NAMESPACE NAME APPROVER SCOPE EXPIRES"),
        ("pauses.belay.dev", "NAME BY REASON EXPIRES"),
    ];
    for (resource, expected) in columns {
        let table = plane.kubectl(&["get", resource]).unwrap().success().unwrap();
        let header: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(header.join(" "), expected);
    }
    let row = |args: &[&str]| {
        let table = plane.kubectl(args).unwrap().success().unwrap();
        table.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(
        row(&["get", "delappr", "full-approval", "--no-headers"])
            .starts_with("full-approval deployments shop web admin Content 2")
    );
    assert!(
        row(&["get", "relation", "by-name", "--no-headers"])
            .starts_with("by-name databases clusters Mentions ")
    );
    assert!(
        row(&["get", "pauses", "full-pause", "--no-headers"])
            .starts_with("full-pause admin a migration 2")
    );
    let category = plane.kubectl(&["get", "belay", "-o", "name"]).unwrap().success().unwrap();
    for (name, kind, _) in full() {
        let line = format!("{}.belay.dev/{name}", kind.to_lowercase());
        assert!(category.lines().any(|l| l == line), "{line}: {category}");
    }

    // The status is belay's; the columns show it.
    let status = json!({
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "Compiled",
            "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }],
        "observedGeneration": 1,
        "protectedObjects": 12,
        "heldObjects": 3,
        "notHeld": [
            {"resource": "pods", "why": "it is harm"},
            {"resource": "secrets", "why": "they are many", "objects": 7},
        ],
        "unknownKinds": ["gadgets.example.com"],
        "last24h": {"denied": 7, "wouldDeny": 8, "held": 9},
        "recent": [{
            "time": "2026-01-02T03:04:05Z",
            "target": "persistentvolumeclaims data-0",
            "verdict": "Denied",
            "user": "bob",
            "message": "it is used",
        }],
    });
    plane.patch("delpol/claims/status", "", &json!({"status": status}));
    let stored = plane.api().get("delpol/claims", "").unwrap().unwrap();
    assert_eq!(stored["status"], status);
    let policy: DeletionPolicy = serde_json::from_value(stored).unwrap();
    assert_eq!(serde_json::to_value(policy.status.unwrap()).unwrap(), status);
    assert!(
        row(&["get", "delpol", "claims", "--no-headers"])
            .starts_with("claims Warn Deny True 12 3 7 ")
    );
}

/// Adds the fields of `from` that `to` lacks, at any depth.
fn add_missing(to: &mut Value, from: &Value) {
    match (to, from) {
        (Value::Object(to), Value::Object(from)) => {
            for (name, value) in from {
                match to.get_mut(name) {
                    Some(own) => add_missing(own, value),
                    None => drop(to.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(to), Value::Array(from)) => {
            to.iter_mut().zip(from).for_each(|(to, from)| add_missing(to, from));
        }
        _ => {}
    }
}

#[test]
fn the_api_server_and_our_types_fill_in_the_same_defaults() {
    let (plane, _) = installed();
    let mut approval = full_approval();
    approval.as_object_mut().unwrap().remove("scope");
    approval["targetRef"] = json!({"resource": "nodes", "name": "node-0", "uid": "1"});
    let short = [
        ("short-policy", "DeletionPolicy", yaml(SHORT_POLICY)),
        ("short-containers", "DeletionPolicy", yaml(SHORT_CONTAINERS)),
        ("short-relation", "Relation", yaml(BY_SELECTOR)),
        ("short-approval", "DeletionApproval", approval),
    ];
    for (name, kind, spec) in &short {
        let stored = store(plane, kind, name, spec);
        assert_ne!(&stored["spec"], spec, "{name}: nothing was filled in");
        assert_eq!(typed(&object(kind, name, spec.clone())), stored["spec"], "{name}");
        assert_eq!(typed(&stored), stored["spec"], "{name}");
    }
    let stored = store(plane, "Relation", "with-nulls", &yaml(WITH_NULLS));
    assert_eq!(
        stored["spec"],
        json!({
            "from": {"group": "", "resource": "services"},
            "to": {"group": "", "resource": "pods"},
            "nameFieldPath": "spec.pod",
            "strength": "Needs",
            "until": {"fieldPath": "status.phase", "equals": ""},
        })
    );
}

/// The fields below a schema, each as a path.
fn fields_of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields_of_schema(field, &path, found);
        fields_of_schema(&field["items"], &path, found);
        found.insert(path);
    }
}

fn fields_of_value(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = format!("{path}.{name}");
                fields_of_value(field, &path, found);
                found.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|v| fields_of_value(v, path, found)),
        _ => {}
    }
}

/// Places of types that have several: there it is enough that a field is used
/// in one of them.
const SHARED: [&str; 6] =
    [".exclude.", ".ignore.", "ubjects.", ".removers.", "Selector.", ".matchExpressions."];

#[test]
fn the_full_examples_use_every_field() {
    for crd in crds() {
        let kind = crd.spec.names.kind.clone();
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let (mut there, mut used) = (BTreeSet::new(), BTreeSet::new());
        fields_of_schema(&schema["properties"]["spec"], "", &mut there);
        for (_, _, spec) in full().iter().filter(|(_, k, _)| *k == kind) {
            fields_of_value(spec, "", &mut used);
        }
        assert!(!there.is_empty(), "{kind}");
        let leaf = |path: &str| path.rsplit('.').next().map(str::to_owned);
        let leaves: BTreeSet<_> = used.iter().filter_map(|path| leaf(path)).collect();
        let elsewhere = |path: &str| {
            SHARED.iter().any(|place| path.contains(place))
                && leaf(path).is_some_and(|leaf| leaves.contains(&leaf))
        };
        let unused: Vec<_> = there.difference(&used).filter(|path| !elsewhere(path)).collect();
        assert_eq!(unused, Vec::<&String>::new(), "{kind}");
    }
}
