//! Compares the index with a check of every policy, and tests approval terms.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::api::DeletionPolicySpec;
use super::*;
use crate::graph::{Edges, Graph, ObjectPhase};
use crate::objects::{Object, ObjectRef, Uid};
use crate::relations::Catalogue;
use serde::Deserialize as _;

fn policy(name: &str, spec: Value) -> Policy {
    let spec: DeletionPolicySpec = serde_json::from_value(spec).unwrap();
    Policy::compile(name, &spec).unwrap()
}

/// Two Namespaces.
fn graph() -> Graph {
    let mut graph = Graph::default();
    let kind = graph.kinds.namespace().unwrap();
    for (name, env) in [("a", "prod"), ("b", "dev")] {
        let labels = json!({"env": env, "kubernetes.io/metadata.name": name});
        let value = json!({"metadata": {"name": name, "labels": labels}});
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    graph
}

#[test]
fn only_known_names_count_as_the_garbage_collector() {
    let identities = Identities { control_plane: vec!["manager".into()], ..Identities::default() };
    assert!(identities.is_garbage_collector("manager"));
    for (user, is_collector) in [
        ("system:serviceaccount:kube-system:generic-garbage-collector", true),
        ("system:kube-controller-manager", true),
        ("system:serviceaccount:kube-system:job-controller", false),
        ("system:kube-scheduler", false),
        ("system:apiserver", false),
        ("manager", false),
    ] {
        assert_eq!(Identities::default().is_garbage_collector(user), is_collector, "{user}");
    }
}

fn target() -> impl Strategy<Value = Value> {
    let groups = prop::sample::subsequence(vec!["", "apps", "*"], 1..=2);
    let resources = prop::sample::subsequence(vec!["secrets", "namespaces", "nodes", "*"], 1..=2);
    let names = prop::sample::subsequence(vec!["x", "y", "x*", "*", "a"], 0..=2);
    let namespaces = prop::sample::select(vec![
        Value::Null,
        json!({}),
        json!({"matchLabels": {"env": "prod"}}),
        json!({"matchLabels": {"kubernetes.io/metadata.name": "a"}}),
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "c"]}]}),
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a"]}]}),
        json!({"matchLabels": {"kubernetes.io/metadata.name": "a", "env": "dev"}}),
    ]);
    let labels = prop::sample::select(vec![Value::Null, json!({"matchLabels": {"tier": "gold"}})]);
    (groups, resources, names, namespaces, labels).prop_map(
        |(groups, resources, names, namespaces, labels)| {
            json!({"apiGroups": groups, "resources": resources, "names": names,
            "namespaceSelector": namespaces, "objectSelector": labels})
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_index_finds_the_same_policies_as_a_check_of_every_policy(
        policies in prop::collection::vec((prop::collection::vec(target(), 1..3), prop::collection::vec(target(), 0..2)), 0..6),
        resource in prop::sample::select(vec![("", "secrets"), ("", "namespaces"), ("", "nodes"), ("apps", "secrets"), ("other", "things")]),
        namespace in prop::sample::select(vec!["", "a", "b", "c"]),
        name in prop::sample::select(vec!["x", "y", "xy", "a", "b"]),
        gold in any::<bool>(),
    ) {
        let graph = graph();
        let compiled: Vec<Policy> = policies.iter().enumerate().map(|(number, (targets, exclude))| {
            let spec = json!({"targets": targets, "exclude": exclude, "protect": {"always": {}}});
            policy(&format!("p{number}"), spec)
        }).collect();
        // Namespaces and Nodes are cluster-scoped.
        let namespace = if matches!(resource.1, "namespaces" | "nodes") { "" } else { namespace };
        let metadata = if gold { json!({"labels": {"tier": "gold"}}) } else { json!({}) };
        let value = json!({ "metadata": metadata });
        let object = Object::deserialize(&value).unwrap();
        let facts = ObjectFacts::of_object(resource, (namespace, name), &object);
        let labels = NamespaceLabels::new(&graph);
        let expected: Vec<(PolicySource, bool)> = compiled.iter().filter_map(|policy| {
            let matched = policy.targets.iter().map(|target| policy.matches(target, labels, facts));
            let matched: Vec<_> = matched.filter(|matched| *matched != MatchResult::No).collect();
            (!matched.is_empty()).then(|| (policy.source.clone(), matched.contains(&MatchResult::Yes)))
        }).collect();
        let set = PolicySet::new(compiled.clone(), &Catalogue::default());
        let found: Vec<(PolicySource, bool)> =
            set.policies_of(labels, facts, 0).iter().map(|a| (a.policy.source.clone(), a.certain)).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn the_index_skips_policies_for_other_kinds_names_and_namespaces() {
    let graph = graph();
    let mut specs = Vec::new();
    for number in 0..1_000 {
        for narrowed in [
            json!({"resources": [format!("things-{number}")]}),
            json!({"resources": ["secrets"], "names": [format!("name-{number}")]}),
            json!({"resources": ["secrets"], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": format!("team-{number}")}}}),
        ] {
            let mut target = narrowed;
            target["apiGroups"] = json!([""]);
            specs.push(policy("p", json!({"targets": [target], "protect": {"always": {}}})));
        }
    }
    let set = PolicySet::new(specs, &Catalogue::default());
    let value = json!({});
    let object = Object::deserialize(&value).unwrap();
    let facts = ObjectFacts::of_object(("", "secrets"), ("team-7", "name-9"), &object);
    // The two policies of the label apply to every kind. Two other policies match.
    assert_eq!(set.candidates(facts), 2 + 2);
    assert_eq!(set.policies_of(NamespaceLabels::new(&graph), facts, 0).len(), 2);
}

#[test]
fn terms_of_several_policies_are_the_strictest_of_each() {
    let terms = |required, longest_seconds, accounts: &[&str]| ApprovalTerms {
        required,
        longest_seconds,
        accounts: accounts.iter().map(|a| (*a).to_owned()).collect(),
    };
    let (a, b) = (terms(1, 3600, &["ci/x", "ci/y"]), terms(2, 7200, &["ci/y"]));
    assert_eq!(ApprovalTerms::merge([&a, &b]), Some(terms(2, 3600, &["ci/y"])));
    assert_eq!(ApprovalTerms::merge([]), None);
}

#[test]
fn no_approval_names_an_object_without_a_uid() {
    let approval = Approval {
        name: "a".into(),
        uid: "1".into(),
        approver: "bob".into(),
        target: ObjectRef::new(("", "configmaps"), "shop", "x"),
        target_uid: Uid::NONE,
        content: false,
        exempts: Vec::new(),
        version: 0,
        created: 0,
        expires: 100,
    };
    assert!(Approvals::new([approval]).is_empty());
}

#[test]
fn no_policy_applies_in_exempt_namespaces() {
    let everything =
        json!({"targets": [{"apiGroups": ["*"], "resources": ["*"]}], "protect": {"always": {}}});
    let mut set = PolicySet::new(vec![policy("all", everything)], &Catalogue::default());
    set.identities.namespace = Some("belay".to_owned());
    let (graph, labels) = (Graph::default(), std::collections::BTreeMap::new());
    let applies = |resource, namespace, name| {
        let (labels, annotations) = (KeyValues::Texts(&labels), KeyValues::Texts(&labels));
        let facts = ObjectFacts { group: "", resource, namespace, name, labels, annotations };
        !set.policies_ignoring_pause(NamespaceLabels::new(&graph), facts).is_empty()
    };
    assert!(applies("configmaps", "shop", "c") && applies("namespaces", "", "shop"));
    assert!(applies("nodes", "", "kube-system"), "a Node of that name is no Namespace");
    for exempt in ["kube-system", "kube-node-lease", "belay"] {
        assert!(!applies("configmaps", exempt, "c") && !applies("namespaces", "", exempt));
    }
}
