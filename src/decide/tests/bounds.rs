//! Large inputs of hostile users. These tests count the steps of a verdict and do not measure time.

mod approvals;
mod deletes;
mod updates;
mod users;

use std::fmt::Write as _;

use serde::Deserialize as _;
use serde_json::json;

use crate::decide::*;
use crate::graph::{
    Certainty, DeletionOutcome, DeletionRequest, EdgeQualifier, Edges, Graph, ObjectPhase,
    Propagation, Requirement, Selector, SelectorEdge, Strength, UnresolvedUse, fates,
};
use crate::objects::{ApiError, Object, ObjectRef, Text};
use crate::policy::{Approval, Approvals, Policy, PolicySet, Requester};
use crate::relations::Catalogue;

/// The limit of the growth of steps when a list that clients write becomes twice as long.
const MAX_GROWTH: f64 = 2.5;

fn object(json: String) -> Object<'static> {
    serde_json::from_str(String::leak(json)).unwrap()
}

/// A ConfigMap with this many finalizers and owner references.
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
        phase: AdmissionPhase::Validate,
        operation,
        resource: Resource { resource: "configmaps".into(), ..Resource::default() },
        name: "x".into(),
        namespace: "shop".into(),
        requester: Requester { name: Text::from("eve"), groups: Default::default() },
        dry_run: false,
        options: DeleteOptions::default(),
        object: new,
        old_object: Some(old),
        details: ReviewDetails::default(),
        labelled: false,
    }
}

fn decide_counted(graph: &Graph, review: &Review<'_>, limit: usize) -> (Verdict, usize) {
    let policies = PolicySet::default();
    let live = ObjectSource::Files;
    let situation = Situation::new(graph, &policies, live, 0);
    let budget = StepBudget::new(limit);
    let verdict = decide_within(&situation, review, &budget);
    (verdict, budget.steps())
}

fn assert_linear(what: &str, steps: impl Fn(usize) -> usize) {
    let (one, two) = (steps(400), steps(800));
    assert!(
        two as f64 <= MAX_GROWTH * one as f64,
        "{what}: {one} steps, and {two} for twice as much"
    );
}

/// ConfigMaps that each have all of these owners. The first owner is the target.
fn with_dependents(dependents: usize, owners: usize) -> Graph {
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
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    graph.set_complete(kind, true);
    graph
}

fn target() -> Object<'static> {
    object(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"shop","uid":"d308a385-886a-3f24-8000-000000000000"}}"#.to_owned())
}

/// The steps of a DELETE of the target in a graph with these objects.
fn delete_steps(label: &str, others: Vec<(&str, serde_json::Value, Edges)>) -> usize {
    let mut graph = Graph::default();
    let find = |graph: &Graph, kind: &str| graph.kinds.find("", kind).unwrap();
    let target = object(format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x","namespace":"shop","uid":"u",
        "labels":{{"belay.dev/protect":"{label}"}}}}}}"#
    ));
    let kind = find(&graph, "ConfigMap");
    graph.apply(kind, &target, ObjectPhase::Active, Edges::default());
    for (kind, value, edges) in others {
        let (kind, object) = (find(&graph, kind), Object::deserialize(&value).unwrap());
        graph.apply(kind, &object, ObjectPhase::Active, edges);
    }
    let (verdict, steps) =
        decide_counted(&graph, &review(Operation::Delete, target, None), REVIEW_STEPS);
    assert_ne!(verdict.decision, Decision::Allow, "{verdict:?}");
    steps
}

fn named(name: &str, labels: usize) -> serde_json::Value {
    let labels: std::collections::BTreeMap<_, _> =
        (0..labels).map(|n| (format!("label-{n}"), "value")).collect();
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels}})
}

/// A protected ConfigMap whose owner has this many owners. The last of them is [`target`].
fn hidden_owner(owners: usize) -> Graph {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let uid = target().metadata.uid.to_string();
    let mut references: Vec<_> = (1..owners).map(|n| owner("none", &format!("none-{n}"))).collect();
    references.push(owner("x", &uid));
    let config_map = |name: &str, uid: &str, label: &str, owners: &[serde_json::Value]| {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": uid,
            "labels": {"belay.dev/protect": label}, "ownerReferences": owners}})
    };
    for value in [
        config_map("x", &uid, "no", &[]),
        config_map("middle", "middle", "no", &references),
        config_map("precious", "precious", "Always", &[owner("middle", "middle")]),
    ] {
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    graph.set_complete(kind, true);
    graph
}
