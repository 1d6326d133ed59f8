//! Plans are idempotent and change nothing except holds.

use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::*;
use crate::decide::ObjectSource;
use crate::graph::Graph;
use crate::objects::{FORMER_HOLD_FOR_TESTS, set_former_hold_for_tests};
use crate::policy::{Pause, Policy, PolicySet};
use crate::relations::Catalogue;

fn policies(specs: &[Value]) -> PolicySet {
    let compile = |spec: &Value| {
        let mut spec = spec.clone();
        spec["targets"] = json!([{"apiGroups": ["*"], "resources": ["*"]}]);
        Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap()
    };
    PolicySet::new(specs.iter().map(compile).collect(), &Catalogue::default())
}

fn planned(policies: &PolicySet, known: bool, resource: (&str, &str), object: &Value) -> HoldPlan {
    let graph = Graph::default();
    let situation = Situation::new(&graph, policies, ObjectSource::Files, 0);
    plan(&situation, known, resource, &Object::deserialize(object).unwrap())
}

fn object(metadata: Value) -> Value {
    let mut object =
        json!({"metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "1"}});
    json_patch::merge(&mut object["metadata"], &metadata);
    object
}

fn removal_at(index: usize) -> HoldPlan {
    HoldPlan::Remove(HoldEntry { index, name: HOLD })
}

const SECRET: (&str, &str) = ("", "secrets");

#[test]
fn missing_holds_are_added_and_unwanted_ones_removed() {
    let (without_hold, held) = (object(json!({})), object(json!({"finalizers": ["x/y", HOLD]})));
    let wanted = policies(&[json!({"protect": {"whileUsed": {}}})]);
    let unwanted = policies(&[json!({"protect": {"whileUsed": {}}, "action": "Audit"})]);
    assert_eq!(planned(&wanted, true, SECRET, &without_hold), HoldPlan::Add(HoldPosition::NewList));
    assert_eq!(planned(&wanted, true, SECRET, &held), HoldPlan::Nothing);
    assert_eq!(planned(&unwanted, true, SECRET, &held), removal_at(1));
    assert_eq!(planned(&unwanted, true, SECRET, &without_hold), HoldPlan::Nothing);
    // The CRD of policies is missing, so no policy seems to exist.
    assert_eq!(planned(&policies(&[]), false, SECRET, &held), HoldPlan::Nothing);
    assert_eq!(planned(&policies(&[]), true, SECRET, &held), removal_at(1));
}

#[test]
fn one_write_renames_a_former_hold_in_place() {
    set_former_hold_for_tests();
    let wanted = policies(&[json!({"protect": {"whileUsed": {}}})]);
    let former = HoldEntry { index: 1, name: FORMER_HOLD_FOR_TESTS };
    let with = |finalizers: &[&str]| object(json!({ "finalizers": finalizers }));
    let apply_plan = |finalizers: &[&str]| {
        let mut object = with(finalizers);
        let plan = planned(&wanted, true, SECRET, &object);
        json_patch::patch(&mut object, &plan_patch(&plan, "u", "1").unwrap()).unwrap();
        assert_eq!(planned(&wanted, true, SECRET, &object), HoldPlan::Nothing);
        (plan, object["metadata"]["finalizers"].clone())
    };
    let renamed = (HoldPlan::Rename(former), json!(["x/y", HOLD, "z/z"]));
    assert_eq!(apply_plan(&["x/y", FORMER_HOLD_FOR_TESTS, "z/z"]), renamed);
    // If the object also has the current name, the plan removes the former one.
    assert_eq!(
        apply_plan(&[HOLD, FORMER_HOLD_FOR_TESTS]),
        (HoldPlan::Remove(former), json!([HOLD]))
    );
    assert_eq!(
        apply_plan(&[FORMER_HOLD_FOR_TESTS, HOLD, FORMER_HOLD_FOR_TESTS, "x/y"]),
        (
            HoldPlan::RemoveSeveral { remaining: vec![HOLD.to_owned(), "x/y".to_owned()] },
            json!([HOLD, "x/y"])
        )
    );
    // No policy wants a hold.
    let several = with(&[HOLD, "x/y", FORMER_HOLD_FOR_TESTS, HOLD]);
    let plan = planned(&policies(&[]), true, SECRET, &several);
    assert_eq!(plan, HoldPlan::RemoveSeveral { remaining: vec!["x/y".to_owned()] });
    let plan = planned(&policies(&[]), true, SECRET, &with(&["x/y", FORMER_HOLD_FOR_TESTS]));
    assert_eq!(plan, HoldPlan::Remove(former));
    // The API server adds no finalizer to a Terminating object.
    let mut terminating = with(&[FORMER_HOLD_FOR_TESTS]);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
    assert_eq!(planned(&wanted, true, SECRET, &terminating), HoldPlan::Nothing);
}

#[test]
fn a_pause_removes_no_hold() {
    let mut paused = policies(&[json!({"protect": {"whileUsed": {}}})]);
    paused.pauses = vec![Pause { expires: 1, ..Pause::default() }];
    let held = object(json!({"finalizers": [HOLD]}));
    assert_eq!(planned(&paused, true, SECRET, &held), HoldPlan::Nothing);
}

/// A policy selects by the labels of the Namespace, which are unknown.
#[test]
fn a_hold_that_is_possibly_wanted_is_neither_added_nor_removed() {
    let target = json!({"apiGroups": [""], "resources": ["secrets"],
        "namespaceSelector": {"matchLabels": {"env": "prod"}}});
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}});
    let policy = Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap();
    let uncertain = PolicySet::new(vec![policy], &Catalogue::default());
    assert_eq!(planned(&uncertain, true, SECRET, &object(json!({}))), HoldPlan::Nothing);
    let held = object(json!({"finalizers": [HOLD]}));
    assert_eq!(planned(&uncertain, true, SECRET, &held), HoldPlan::Nothing);
}

#[test]
fn no_hold_is_added_where_it_is_unsafe() {
    let wanted = policies(&[json!({"protect": {"whileUsed": {}}})]);
    let plan_for = |resource, metadata| planned(&wanted, true, resource, &object(metadata));
    let hook = json!({"annotations": {"helm.sh/hook": "pre-install"}});
    assert_eq!(plan_for(SECRET, hook), HoldPlan::Nothing);
    assert_eq!(plan_for(("", "pods"), json!({})), HoldPlan::Nothing);
    assert_eq!(plan_for(("", "pods"), json!({"finalizers": [HOLD]})), removal_at(0));
    let custom = ("example.com", "things");
    assert_eq!(plan_for(custom, json!({})), HoldPlan::Add(HoldPosition::NewList));
    // The manifest may list these finalizers, and applying it would remove the hold.
    assert_eq!(plan_for(custom, json!({"finalizers": ["x/y"]})), HoldPlan::Nothing);
    assert_eq!(plan_for(custom, json!({"finalizers": ["x/y", HOLD]})), HoldPlan::Nothing);
}

#[test]
fn a_patch_applies_only_to_the_planned_version() {
    for (plan, metadata) in [
        (HoldPlan::Add(HoldPosition::NewList), json!({})),
        (HoldPlan::Rename(HoldEntry { index: 0, name: HOLD }), json!({"finalizers": [HOLD]})),
        (removal_at(0), json!({"finalizers": [HOLD]})),
    ] {
        let patch = plan_patch(&plan, "u", "1").unwrap();
        assert!(json_patch::patch(&mut object(metadata.clone()), &patch).is_ok());
        for changed in [json!({"uid": "v"}), json!({"resourceVersion": "2"})] {
            let mut other = object(metadata.clone());
            json_patch::merge(&mut other["metadata"], &changed);
            assert!(json_patch::patch(&mut other, &patch).is_err(), "{changed}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn after_its_patch_a_plan_is_empty(
        policies in prop::collection::vec((
            prop::sample::select(vec!["always", "whileUsed", "fromOrphaning"]),
            prop::sample::select(vec!["Deny", "Warn", "Audit"]),
            prop::sample::select(vec!["Auto", "Never"]),
        ), 0..3),
        resource in prop::sample::select(vec![
            SECRET, ("", "pods"), ("", "namespaces"), ("example.com", "things"), ("argoproj.io", "rollouts"),
        ]),
        finalizers in prop::option::of(prop::sample::subsequence(vec!["x/y", HOLD, "z/z"], 0..=3)),
        terminating in any::<bool>(),
        hook in any::<bool>(),
        known in any::<bool>(),
    ) {
        let specs: Vec<Value> = policies.iter().map(|(mode, action, hold)| {
            json!({"protect": {*mode: {}}, "action": action, "hold": hold})
        }).collect();
        let policies = self::policies(&specs);
        let mut metadata = json!({});
        if let Some(finalizers) = &finalizers {
            metadata["finalizers"] = json!(finalizers);
        }
        if terminating {
            metadata["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
        }
        if hook {
            metadata["annotations"] = json!({"helm.sh/hook": "pre-install"});
        }
        let mut object = object(metadata);
        let plan = planned(&policies, known, resource, &object);
        if terminating || !known {
            prop_assert_eq!(&plan, &HoldPlan::Nothing);
        }
        if let Some(patch) = plan_patch(&plan, "u", "1") {
            let others = |object: &Value| -> Vec<Value> {
                let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
                list.into_iter().flatten().filter(|f| *f != HOLD).cloned().collect()
            };
            let before = others(&object);
            json_patch::patch(&mut object, &patch).unwrap();
            prop_assert_eq!(others(&object), before);
            prop_assert_eq!(planned(&policies, known, resource, &object), HoldPlan::Nothing);
        }
    }
}
