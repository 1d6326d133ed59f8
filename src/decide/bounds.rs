//! Hostile sizes: the work of a verdict is counted in steps, never timed.

use std::fmt::Write as _;

use serde::Deserialize as _;
use serde_json::json;

use super::*;
use crate::graph::{Edges, Graph, Progress};
use crate::objects::{Object, Text};
use crate::policy::PolicySet;

/// No list that clients write may make twice the length cost more than this.
const LINEAR: f64 = 2.5;

fn object(json: String) -> Object<'static> {
    serde_json::from_str(String::leak(json)).unwrap()
}

/// A ConfigMap with so many finalizers and owner references.
fn config_map(label: &str, finalizers: usize, owners: usize) -> Object<'static> {
    let names: Vec<_> = (0..finalizers).map(|n| format!("\"a.b/{n}\"")).collect();
    let owners: Vec<_> = (0..owners)
        .map(|n| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"o{n}","uid":"d308a385-886a-3f24-8000-{n:012x}"}}"#
            )
        })
        .collect();
    let mut json = String::new();
    write!(
        json,
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x","namespace":"shop","uid":"u",
        "labels":{{"belay.dev/protect":"{label}"}},"finalizers":[{}],"ownerReferences":[{}]}}}}"#,
        names.join(","),
        owners.join(",")
    )
    .unwrap();
    object(json)
}

fn review(
    operation: Operation,
    old: Object<'static>,
    new: Option<Object<'static>>,
) -> Review<'static> {
    Review {
        uid: "1".into(),
        door: Door::Validate,
        operation,
        resource: Resource { resource: "configmaps".into(), ..Resource::default() },
        name: "x".into(),
        namespace: "shop".into(),
        user: User { name: Text::from("eve"), groups: Vec::new() },
        dry_run: false,
        options: DeleteOptions::default(),
        object: new,
        old_object: Some(old),
        extra: Extra::default(),
        labelled: false,
    }
}

fn counted(graph: &Graph, review: &Review<'_>, most: usize) -> (Verdict, usize) {
    let policies = PolicySet::default();
    let live = Live::Graph;
    let situation = Situation::new(graph, &policies, live, 0);
    let meter = Meter::new(most);
    let verdict = decide_within(&situation, review, &meter);
    (verdict, meter.steps())
}

fn assert_linear(what: &str, steps: impl Fn(usize) -> usize) {
    let (one, two) = (steps(400), steps(800));
    assert!(two as f64 <= LINEAR * one as f64, "{what}: {one} steps, and {two} for twice as much");
}

/// Pods that each name all of these owners, of which the first is a target.
fn families(dependents: usize, owners: usize) -> Graph {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let uid = |n: usize| format!("d308a385-886a-3f24-8000-{n:012x}");
    let references: Vec<_> = (0..owners)
        .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{n}"), "uid": uid(n), "blockOwnerDeletion": true}))
        .collect();
    let target = json!({"metadata": {"name": "x", "namespace": "shop", "uid": uid(0)}});
    let dependents = (0..dependents).map(|n| {
        json!({"metadata": {"name": format!("d{n}"), "namespace": "shop", "uid": format!("d{n}"), "ownerReferences": references}})
    });
    for value in std::iter::once(target).chain(dependents) {
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, Progress::Ordinary, Edges::default());
    }
    graph.set_complete(kind, true);
    graph
}

fn target() -> Object<'static> {
    object(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"shop","uid":"d308a385-886a-3f24-8000-000000000000"}}"#.to_owned())
}

#[test]
fn h06_too_many_finalizers_or_owners_are_refused_where_a_policy_protects() {
    let graph = Graph::default();
    for (finalizers, owners, what) in
        [(60_000, 0, "60000 finalizers"), (0, 9_000, "9000 owner references")]
    {
        let of = |label: &str| {
            let (old, new) = (config_map(label, finalizers, owners), config_map(label, 0, 0));
            counted(&graph, &review(Operation::Update, old, Some(new)), STEPS)
        };
        let (verdict, steps) = of("Always");
        assert_eq!((verdict.decision, verdict.reason), (Decision::Deny, Some(Reason::Unknown)));
        assert!(message(&verdict).unwrap().contains(what), "{verdict:?}");
        assert!(steps < 100, "{steps}");
        let (verdict, steps) = of("no");
        assert_eq!(verdict.decision, Decision::Allow);
        assert!(steps < 100_000, "{steps}");
    }
}

#[test]
fn h06_the_work_of_an_update_grows_with_its_lists_and_not_with_their_square() {
    let graph = Graph::default();
    let update = |finalizers: usize, owners: usize| {
        let (old, new) = (config_map("Always", finalizers, owners), config_map("Always", 0, 0));
        counted(&graph, &review(Operation::Update, old, Some(new)), STEPS).1
    };
    assert_linear("finalizers", |n| update(n, 0));
    assert_linear("owner references", |n| update(0, n));
}

#[test]
fn h05_the_work_of_a_delete_grows_with_owner_references_and_dependents() {
    let delete = |dependents, owners| {
        let graph = families(dependents, owners);
        counted(&graph, &review(Operation::Delete, target(), None), STEPS).1
    };
    assert_linear("owner references of a dependent", |n| delete(3, n));
    assert_linear("dependents", |n| delete(n, 3));
    // The case of the issue.
    assert!(delete(30, 9_000) < 4 * 30 * 9_000);
}

/// ConfigMaps: a protected one below one with so many owners, of which the last
/// is the target of [`target`].
fn hidden_owner(owners: usize) -> Graph {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let uid = target().metadata.uid.to_string();
    let mut references: Vec<_> = (1..owners).map(|n| owner("none", &format!("none-{n}"))).collect();
    references.push(owner("x", &uid));
    let of = |name: &str, uid: &str, label: &str, owners: &[serde_json::Value]| {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": uid,
            "labels": {"belay.dev/protect": label}, "ownerReferences": owners}})
    };
    for value in [
        of("x", &uid, "no", &[]),
        of("middle", "middle", "no", &references),
        of("precious", "precious", "Always", &[owner("middle", "middle")]),
    ] {
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, Progress::Ordinary, Edges::default());
    }
    graph.set_complete(kind, true);
    graph
}

#[test]
fn h05_an_owner_reference_that_is_not_kept_hides_no_dependents() {
    for owners in [1, 1_000, 1_001, 27_000] {
        let graph = hidden_owner(owners);
        let (verdict, _) = counted(&graph, &review(Operation::Delete, target(), None), STEPS);
        assert_eq!(verdict.decision, Decision::Deny, "{owners}");
        assert!(message(&verdict).unwrap().contains("precious"), "{verdict:?}");
    }
}

#[test]
fn h05_an_owner_with_too_many_owners_may_be_below_an_approved_object() {
    let object = |owner: &str| {
        object(format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"other","namespace":"shop","uid":"other",
            "labels":{{"belay.dev/protect":"Always"}},"ownerReferences":[{owner}]}}}}"#
        ))
    };
    let uid = target().metadata.uid.to_string();
    let stays = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"{uid}"}}"#);
    let middle = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"middle","uid":"middle"}"#;
    let owners = format!("{stays},{middle}");
    let update = |graph: &Graph| {
        let question = review(Operation::Update, object(&stays), Some(object(&owners)));
        counted(graph, &Review { name: "other".into(), ..question }, STEPS).0.decision
    };
    assert_eq!(update(&hidden_owner(3)), Decision::Allow);
    assert_eq!(update(&hidden_owner(1_001)), Decision::Deny);
    // Of one that is gone a part of the owners is remembered.
    let gone = |owners| {
        let mut graph = hidden_owner(owners);
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        graph.delete(kind, "shop", "middle", None);
        update(&graph)
    };
    assert_eq!(
        (gone(3), gone(1_000), gone(1_001)),
        (Decision::Allow, Decision::Deny, Decision::Deny)
    );
}

#[test]
fn h06_a_used_up_budget_is_unknown_and_refuses() {
    let graph = families(100, 100);
    let (verdict, _) = counted(&graph, &review(Operation::Delete, target(), None), 50);
    assert_eq!((verdict.decision, verdict.reason), (Decision::Deny, Some(Reason::Unknown)));
    assert!(message(&verdict).unwrap().contains("more objects and references"), "{verdict:?}");
    let (verdict, _) = counted(&graph, &review(Operation::Delete, target(), None), STEPS);
    assert_eq!(verdict.decision, Decision::Allow);
}

#[test]
fn h15_parts_are_compared_without_being_built() {
    use serde_json::value::RawValue;
    let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let with = |finalizers: &str, version: u8, data: &str| {
        raw(&format!(
            r#"{{"metadata":{{"name":"x","resourceVersion":"{version}","finalizers":[{finalizers}],"managedFields":{deep}}},
            "spec":{{"finalizers":["kubernetes"],"deep":{deep}}},"data":"{data}"}}"#
        ))
    };
    let held = with(r#""belay.dev/hold""#, 1, "<");
    let same = Extra::read(Some(&held), Some(&with("", 2, "<")));
    assert!(!same.rest_changes);
    assert_eq!(same.old_spec_finalizers, ["kubernetes"]);
    assert!(Extra::read(Some(&held), Some(&with("", 2, ">"))).rest_changes);
    assert!(Extra::read(Some(&held), Some(&with(r#""a.b/c""#, 2, "<"))).rest_changes);
}
