//! What the API server refuses, with the same sentence and the same field as belay's own
//! check.

use std::collections::{BTreeMap, BTreeSet};

use belay::policy::api::{
    Check, DeletionApprovalSpec, DeletionPolicySpec, PauseSpec, Problem, RelationSpec, crds,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{approval, in_seconds, installed, object, pause, refusal};
use crate::harness::ControlPlane;

/// A field of a valid object with another value, and its error message.
struct Row {
    kind: &'static str,
    /// The place of the value, as a JSON pointer below the spec.
    pointer: String,
    value: Value,
    /// The field that is named.
    field: String,
    message: &'static str,
}

fn row(
    kind: &'static str,
    pointer: impl Into<String>,
    value: Value,
    field: impl Into<String>,
    message: &'static str,
) -> Row {
    Row { kind, pointer: pointer.into(), value, field: field.into(), message }
}

/// A valid object with every place that has a rule.
fn good(kind: &'static str, name: &str) -> Value {
    let target = |resource: &str| {
        json!({
            "apiGroups": [""],
            "resources": [resource],
            "names": ["data"],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        })
    };
    let subject = json!({"kind": "User", "name": "alice"});
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]});
    match kind {
        "DeletionPolicy" => object(
            kind,
            name,
            json!({
                "targets": [target("namespaces")],
                "exclude": [target("namespaces")],
                "subjects": [subject],
                "exemptSubjects": [subject],
                "protect": {
                    "always": {},
                    "whileUsed": {"by": [{"objectSelector": selector}]},
                    "whileNotEmpty": {"ignore": [target("events")]},
                    "whileExists": [{
                        "apiGroups": [""],
                        "resources": ["pods"],
                        "namespaceSelector": selector,
                    }],
                    "fromStripping": {"removers": [subject]},
                },
                "actionOverrides": [{"namespaceSelector": selector, "action": "Audit"}],
                "approval": {"serviceAccounts": ["argocd/application-controller"]},
            }),
        ),
        "Relation" => object(
            kind,
            name,
            json!({
                "from": {"resource": "services"},
                "to": {"resource": "pods"},
                "nameFieldPath": "spec.pod",
            }),
        ),
        "DeletionApproval" => approval(name, "admin", in_seconds(60), "default", "pods"),
        "Pause" => pause(name, "admin", in_seconds(60)),
        kind => panic!("{kind}"),
    }
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object["spec"].pointer_mut(parent).unwrap();
    match parent {
        Value::Array(values) => values[field.parse::<usize>().unwrap()] = value,
        parent => parent[field] = value,
    }
    object
}

const MODELESS: &str = "protect enables no mode: set at least one of always, whileUsed, \
     whileNotEmpty, whileExists, fromOrphaning, fromStripping";
const HELD_ALWAYS: &str =
    "always denies deletes, so nothing would be held: remove always, or whileUsed.onDelete Hold";
const SOME_SUBJECTS: &str = "a policy with subjects places no hold, because others may delete what \
     it protects: remove subjects, or whileUsed.onDelete Hold";
const NO_CONTAINER: &str = "whileNotEmpty is for namespaces and customresourcedefinitions: it \
                            does not protect other kinds";
const RESOURCES: &str = "resources must name at least one plural resource, such as \
     persistentvolumeclaims, and no subresource";
const EXISTING: &str =
    "whileExists needs the plural resources by name, because belay watches these kinds";
const EXISTING_GROUPS: &str = "whileExists needs the API groups by name (\"\" is the core group), \
                               because belay watches these kinds";
const OPERATOR: &str = "operator In and NotIn need values, Exists and DoesNotExist take none";
const SUBJECT: &str =
    "a subject of kind ServiceAccount needs its namespace, a User or Group has none";
const REQUIRED: &str =
    "required is the number of different users who must approve: between 1 and 10";
const DURATION: &str = "maxDurationSeconds is between 60 (a minute) and 86400 (a day)";
const SETTLE: &str = "settleSeconds is between 0 and 600; with 45, belay sees every object whose creation began before the DELETE";
const FINALIZERS: &str = "finalizers must name at least one finalizer; \"*\" is every one";
const ACCOUNTS: &str = "serviceAccounts are written namespace/name";
const TO: &str = "set either to (the needed kind) or toRef (the field with the kind)";
const PATHS: &str =
    "set either nameFieldPath or selectorFieldPath: the field that names the needed object";
const SELECTOR_PATH: &str = "selectorFieldPath needs to, and no namespaceFieldPath: a selector \
                             selects one kind in the object's own namespace";
const BLANK: &str = "reason is blank: state why, for those who read the record later";

/// The invalid DeletionPolicies, except for the types that several places use.
fn policies() -> Vec<Row> {
    let row = |pointer: &str, value, field: &str, message| {
        row("DeletionPolicy", pointer, value, field, message)
    };
    let mut rows = vec![
        row("/protect", json!({}), "spec.protect", MODELESS),
        row("/protect", json!({"always": null}), "spec.protect", MODELESS),
        row("/protect/whileUsed", json!({"onDelete": "Hold"}), "spec.protect", HELD_ALWAYS),
        row("/protect", json!({"whileUsed": {"onDelete": "Hold"}}), "spec", SOME_SUBJECTS),
        row(
            "/targets",
            json!([]),
            "spec.targets",
            "targets is empty: a policy protects nothing until it names at least one kind of object",
        ),
        row("/targets/0/resources", json!(["pods"]), "spec", NO_CONTAINER),
        row("/targets/0/resources", json!(["*"]), "spec", NO_CONTAINER),
        row("/targets/0/resources", json!(["namespaces", "pods"]), "spec", NO_CONTAINER),
        row(
            "/protect/whileExists",
            json!([]),
            "spec.protect.whileExists",
            "whileExists is empty: name at least one kind whose objects keep the target",
        ),
    ];
    for value in [-1, 601] {
        rows.push(row("/settleSeconds", json!(value), "spec.settleSeconds", SETTLE));
    }
    for value in [0, 11] {
        rows.push(row("/approval/required", json!(value), "spec.approval.required", REQUIRED));
    }
    for value in [59, 86_401] {
        let field = "spec.approval.maxDurationSeconds";
        rows.push(row("/approval/maxDurationSeconds", json!(value), field, DURATION));
    }
    let accounts =
        ["builder", "/builder", "ci/", "a/b/c", "CI/builder", "ci/-b", "ci/b\n", "ci /b"];
    for account in accounts {
        let field = "spec.approval.serviceAccounts";
        rows.push(row("/approval/serviceAccounts", json!([account]), field, ACCOUNTS));
    }
    for value in [json!([]), json!([""]), json!(["*", ""])] {
        let field = "spec.protect.fromStripping.finalizers";
        rows.push(row("/protect/fromStripping/finalizers", value, field, FINALIZERS));
    }
    for value in [json!([]), json!(["*"]), json!(["pods/log"]), json!([""])] {
        let field = "spec.protect.whileExists[0].resources";
        rows.push(row("/protect/whileExists/0/resources", value, field, EXISTING));
    }
    for value in [json!([]), json!(["", "*"])] {
        let field = "spec.protect.whileExists[0].apiGroups";
        rows.push(row("/protect/whileExists/0/apiGroups", value, field, EXISTING_GROUPS));
    }
    rows
}

/// `/targets/0` as `spec.targets[0]`.
fn field_of(pointer: &str) -> String {
    pointer.split('/').skip(1).fold("spec".to_owned(), |path, part| match part.parse::<usize>() {
        Ok(index) => format!("{path}[{index}]"),
        Err(_) => format!("{path}.{part}"),
    })
}

/// The invalid values of each place with targets, subjects and selectors.
fn places() -> Vec<Row> {
    let row = |pointer: String, value, message| {
        let field = field_of(&pointer);
        row("DeletionPolicy", pointer, value, field, message)
    };
    let mut rows = Vec::new();
    let targets = ["/targets/0", "/exclude/0", "/protect/whileNotEmpty/ignore/0"];
    for place in targets {
        rows.push(row(format!("{place}/resources"), json!([]), RESOURCES));
        rows.push(row(
            format!("{place}/apiGroups"),
            json!([]),
            "apiGroups is empty: name at least one API group, \"\" is the core group",
        ));
        rows.push(row(
            format!("{place}/names"),
            json!(["data", ""]),
            "names has an empty entry, which is no object's name; omit names to match every name",
        ));
    }
    // For a target these values would also not be containers, which has another message.
    for place in &targets[1..] {
        for value in [json!([""]), json!(["pods/log"]), json!(["pods", "*/status"])] {
            rows.push(row(format!("{place}/resources"), value, RESOURCES));
        }
    }
    for place in ["/subjects/0", "/exemptSubjects/0", "/protect/fromStripping/removers/0"] {
        for value in [
            json!({"kind": "ServiceAccount", "name": "a"}),
            json!({"kind": "ServiceAccount", "name": "a", "namespace": ""}),
            json!({"kind": "User", "name": "a", "namespace": "b"}),
            json!({"kind": "Group", "name": "a", "namespace": "b"}),
        ] {
            rows.push(row(place.to_owned(), value, SUBJECT));
        }
    }
    let selectors = targets
        .iter()
        .flat_map(|t| [format!("{t}/namespaceSelector"), format!("{t}/objectSelector")])
        .chain(
            [
                "/protect/whileUsed/by/0/objectSelector",
                "/protect/whileExists/0/namespaceSelector",
                "/actionOverrides/0/namespaceSelector",
            ]
            .map(str::to_owned),
        );
    for selector in selectors {
        let place = format!("{selector}/matchExpressions/0");
        rows.push(row(place.clone(), json!({"key": "a", "operator": "In"}), OPERATOR));
        let exists = json!({"key": "a", "operator": "Exists", "values": ["b"]});
        rows.push(row(place, exists, OPERATOR));
    }
    let place = "/targets/0/objectSelector/matchExpressions/0";
    for value in [
        json!({"key": "a", "operator": "NotIn", "values": []}),
        json!({"key": "a", "operator": "DoesNotExist", "values": ["b"]}),
    ] {
        rows.push(row(place.to_owned(), value, OPERATOR));
    }
    rows
}

fn relations() -> Vec<Row> {
    let from = json!({"resource": "services"});
    let kind = json!({"resource": "pods"});
    let reference = json!({"groupFieldPath": "spec.apiVersion", "kindFieldPath": "spec.kind"});
    [
        (json!({"from": from, "nameFieldPath": "spec.a"}), TO),
        (json!({"from": from, "to": kind, "toRef": reference, "nameFieldPath": "spec.a"}), TO),
        (json!({"from": from, "to": kind}), PATHS),
        (
            json!({"from": from, "to": kind, "nameFieldPath": "spec.a", "selectorFieldPath": "spec.b"}),
            PATHS,
        ),
        (
            json!({"from": from, "toRef": reference, "selectorFieldPath": "spec.b"}),
            SELECTOR_PATH,
        ),
        (
            json!({"from": from, "to": kind, "selectorFieldPath": "spec.b", "namespaceFieldPath": "spec.c"}),
            SELECTOR_PATH,
        ),
    ]
    .into_iter()
    .map(|(spec, message)| row("Relation", "", spec, "spec", message))
    .collect()
}

fn reasons() -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in ["DeletionApproval", "Pause"] {
        for blank in ["", " ", " \t\n", "\u{a0}\u{2003}"] {
            rows.push(row(kind, "/reason", json!(blank), "spec.reason", BLANK));
        }
    }
    rows
}

fn rows() -> Vec<Row> {
    [policies(), places(), relations(), reasons()].into_iter().flatten().collect()
}

/// The object of a row.
fn wrong(row: &Row, name: &str) -> Value {
    let good = good(row.kind, name);
    if row.pointer.is_empty() {
        return object(row.kind, name, row.value.clone());
    }
    with(good, &row.pointer, row.value.clone())
}

/// The problems of an object according to belay's own check, or why it can't be read.
fn problems(object: &Value) -> Result<Vec<Problem>, String> {
    fn of<T: DeserializeOwned + Check>(spec: &Value) -> Result<Vec<Problem>, String> {
        let typed: T = serde_json::from_value(spec.clone()).map_err(|e| e.to_string())?;
        Ok(typed.problems())
    }
    match object["kind"].as_str().unwrap() {
        "DeletionPolicy" => of::<DeletionPolicySpec>(&object["spec"]),
        "Relation" => of::<RelationSpec>(&object["spec"]),
        "DeletionApproval" => of::<DeletionApprovalSpec>(&object["spec"]),
        "Pause" => of::<PauseSpec>(&object["spec"]),
        kind => panic!("{kind}"),
    }
}

/// The causes for which the API server refuses an object: field and sentence of each.
fn causes(plane: &ControlPlane, object: &Value) -> Result<Vec<(String, String)>, String> {
    let status = refusal(plane, object).map_err(|error| error.to_string())?;
    let causes = status["details"]["causes"].as_array().ok_or_else(|| status.to_string())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(causes.iter().map(|cause| (text(&cause["field"]), text(&cause["message"]))).collect())
}

/// Compares the results of both for an object, and returns the differences from the row.
fn disagreement(plane: &ControlPlane, row: &Row) -> Option<String> {
    let wrong = wrong(row, "wrong");
    let ours = problems(&wrong);
    let expected = vec![Problem { field: row.field.clone(), message: row.message }];
    let theirs = causes(plane, &wrong);
    // The API server puts a short value before the sentence.
    let agrees = theirs.as_ref().is_ok_and(|causes| match causes.as_slice() {
        [(field, message)] => {
            *field == row.field
                && message.starts_with("Invalid value: ")
                && message.ends_with(row.message)
        }
        _ => false,
    });
    (ours != Ok(expected) || !agrees).then(|| {
        format!(
            "{} {} = {}: {}: {}\n  our check: {ours:?}\n  API server: {theirs:?}\n",
            row.kind, row.pointer, row.value, row.field, row.message
        )
    })
}

#[test]
fn good_objects_are_accepted_by_the_api_server_and_by_our_check() {
    let (plane, _) = installed();
    for kind in ["DeletionPolicy", "Relation", "DeletionApproval", "Pause"] {
        let good = good(kind, "good");
        plane.api().would_create(&good, "default").unwrap().unwrap();
        assert_eq!(problems(&good), Ok(Vec::new()), "{kind}");
    }
}

#[test]
fn the_api_server_refuses_in_the_words_and_at_the_place_of_our_check() {
    let (plane, _) = installed();
    let rows = rows();
    let wrong: Vec<String> = rows.iter().filter_map(|row| disagreement(plane, row)).collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join(""));
}

/// Errors that need no rule of belay: the schema has its own messages, and belay's types
/// don't accept such an object.
#[test]
fn the_schema_itself_names_the_field_and_what_is_allowed() {
    let (plane, _) = installed();
    let supported = |field: &'static str, kind: &'static str, value: &str, allowed: &str| {
        let said = format!("Unsupported value: \"{value}\": supported values: {allowed}");
        (kind, field, json!(value), said)
    };
    let actions = r#""Audit", "Warn", "Deny""#;
    let subjects = r#""User", "Group", "ServiceAccount""#;
    let operators = r#""In", "NotIn", "Exists", "DoesNotExist""#;
    let rows = [
        supported("/action", "DeletionPolicy", "deny", actions),
        supported("/actionOverrides/0/action", "DeletionPolicy", "Log", actions),
        supported("/hold", "DeletionPolicy", "Always", r#""Auto", "Never""#),
        supported("/protect/whileUsed/onDelete", "DeletionPolicy", "Warn", r#""Deny", "Hold""#),
        supported(
            "/protect/whileUsed/optionalReferences",
            "DeletionPolicy",
            "Yes",
            r#""Ignore", "Count""#,
        ),
        supported(
            "/protect/whileNotEmpty/counting",
            "DeletionPolicy",
            "All",
            r#""Protected", "Any""#,
        ),
        supported("/protect/whileNotEmpty/owned", "DeletionPolicy", "Any", r#""Ignore", "Count""#),
        supported("/subjects/0/kind", "DeletionPolicy", "user", subjects),
        supported(
            "/targets/0/objectSelector/matchExpressions/0/operator",
            "DeletionPolicy",
            "in",
            operators,
        ),
        supported("/strength", "Relation", "needs", r#""Needs", "Mentions", "Produces""#),
        supported("/scope", "DeletionApproval", "All", r#""Object", "Content""#),
        ("DeletionPolicy", "/protect", Value::Null, "Required value".to_owned()),
        ("DeletionPolicy", "/targets", Value::Null, "Required value".to_owned()),
        ("DeletionPolicy", "/targets/0/resources", Value::Null, "Required value".to_owned()),
        ("Relation", "/from", Value::Null, "Required value".to_owned()),
        ("DeletionApproval", "/reason", Value::Null, "Required value".to_owned()),
        ("DeletionApproval", "/targetRef/uid", Value::Null, "Required value".to_owned()),
        ("Pause", "/expirationTime", Value::Null, "Required value".to_owned()),
    ];
    for (kind, pointer, value, said) in rows {
        let wrong = with(good(kind, "wrong"), pointer, value);
        let theirs = causes(plane, &wrong).unwrap();
        let expected = (field_of(pointer), said);
        assert!(theirs.contains(&expected), "{pointer}: {theirs:?}");
        assert!(problems(&wrong).is_err(), "{pointer}");
    }
    // An unknown field is refused, and not silently dropped.
    let wrong = with(good("DeletionPolicy", "wrong"), "/protect/whileused", json!({}));
    let refused = refusal(plane, &wrong).unwrap();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("unknown field \"spec.protect.whileused\""), "{refused}");
}

/// The rules below a schema: where each is, without indices, and its sentence.
fn rules(schema: &Value, path: &str, found: &mut BTreeMap<(String, String), String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let message = rule["message"].as_str().unwrap_or_default().to_owned();
        found.insert((path.to_owned(), message), rule["rule"].as_str().unwrap().to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        rules(field, &format!("{path}.{name}"), found);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            rules(&schema[part], &format!("{path}[]"), found);
        }
    }
}

#[test]
fn every_rule_has_a_row_in_each_of_its_places() {
    let mut covered: BTreeSet<(String, String)> = rows()
        .iter()
        .map(|row| {
            let field = row.field.replace("[0]", "[]");
            (format!("{} .{field}", row.kind), row.message.to_owned())
        })
        .collect();
    // A ValidatingAdmissionPolicy checks approvals, because belay changes its own records.
    let in_crds = super::approvals::UNCHANGEABLE.into_iter().filter(|(kind, _)| *kind == "Pause");
    for (kind, message) in in_crds {
        covered.insert((format!("{kind} .spec"), message.to_owned()));
    }
    let mut found = BTreeMap::new();
    for crd in crds() {
        let kind = crd.spec.names.kind.clone();
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        rules(schema, &format!("{kind} "), &mut found);
    }
    let missing: Vec<_> = found.keys().filter(|rule| !covered.contains(*rule)).collect();
    assert!(missing.is_empty(), "rules with no row: {missing:#?}");
    let without: Vec<_> = covered.iter().filter(|row| !found.contains_key(*row)).collect();
    assert!(without.is_empty(), "rows with no rule: {without:#?}");
}
