//! DELETEs of objects with many dependents, or with much content.

use super::*;

#[test]
fn h05_the_work_of_a_delete_grows_with_owner_references_and_dependents() {
    let delete = |dependents, owners| {
        let graph = with_dependents(dependents, owners);
        decide_counted(&graph, &review(Operation::Delete, target(), None), REVIEW_STEPS).1
    };
    assert_linear("owner references of a dependent", |n| delete(3, n));
    assert_linear("dependents", |n| delete(n, 3));
    assert!(delete(30, 9_000) < 4 * 30 * 9_000);
}

#[test]
fn h05_an_owner_reference_beyond_the_limit_hides_no_dependents() {
    for owners in [1, 1_000, 1_001, 27_000] {
        let graph = hidden_owner(owners);
        let (verdict, _) =
            decide_counted(&graph, &review(Operation::Delete, target(), None), REVIEW_STEPS);
        assert_eq!(verdict.decision, Decision::Deny, "{owners}");
        assert!(message(&verdict).unwrap().contains("precious"), "{verdict:?}");
    }
}

/// A Namespace with this many objects.
fn with_content(namespace: &Object<'_>, objects: usize, labels: usize) -> Graph {
    let mut graph = Graph::default();
    let find = |graph: &Graph, kind: &str| graph.kinds.find("", kind).unwrap();
    let (kind, namespaces) = (find(&graph, "ConfigMap"), find(&graph, "Namespace"));
    graph.apply(namespaces, namespace, ObjectPhase::Active, Edges::default());
    for n in 0..objects {
        let value = named(&format!("{n}"), labels);
        let member = Object::deserialize(&value).unwrap();
        graph.apply(kind, &member, ObjectPhase::Active, Edges::default());
    }
    graph
}

/// A DELETE of the Namespace `shop` with this uid.
fn delete_namespace(uid: &str) -> Review<'static> {
    let json =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": uid}});
    let template = review(Operation::Delete, object(json.to_string()), None);
    let resource = Resource { resource: "namespaces".into(), ..Resource::default() };
    Review { name: "shop".into(), resource, ..template }
}

#[test]
fn h54_the_content_of_a_namespace_that_does_not_exist_is_not_checked() {
    let namespace = object(
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"shop"}}"#
            .to_owned(),
    );
    let mut graph = with_content(&namespace, 1_000, 0);
    let kind = graph.kinds.namespace().unwrap();
    graph.set_complete(kind, true);
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["namespaces"]}],
        "protect": {"whileNotEmpty": {"counting": "Any"}}});
    let policy = Policy::compile("full", &serde_json::from_value(spec).unwrap()).unwrap();
    let policies = PolicySet::new(vec![policy], &Catalogue::new(&graph.kinds, &[]).unwrap());
    let delete = |uid: &str, reads: &LiveReads| {
        let budget = StepBudget::new(REVIEW_STEPS);
        let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(reads), 0);
        (decide_within(&situation, &delete_namespace(uid), &budget), budget.steps())
    };
    let mut reads = LiveReads::default();
    let (verdict, steps) = delete("shop", &reads);
    assert!(verdict.reason == Some(Reason::NotEmpty) && steps > 1_000, "{steps} {verdict:?}");
    let (verdict, steps) = delete("made-up", &reads);
    assert_eq!(steps, 0);
    let [read] = &verdict.needed_reads[..] else { panic!("{verdict:?}") };
    // No result of the read leads to a check of the content.
    for (answer, decision) in [(Ok(()), Decision::Allow), (Err(ApiError::NotFound), Decision::Deny)]
    {
        reads.results.insert(read.clone(), answer);
        let (verdict, steps) = delete("made-up", &reads);
        assert_eq!((verdict.decision, verdict.needed_reads, steps), (decision, Vec::new(), 0));
    }
}

#[test]
fn h06_the_work_of_content_grows_with_the_objects_and_their_labels() {
    let namespace = object(
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"shop"}}"#
            .to_owned(),
    );
    let delete = |objects: usize, labels: usize| {
        let graph = with_content(&namespace, objects, labels);
        decide_counted(&graph, &delete_namespace("shop"), REVIEW_STEPS).1
    };
    assert_linear("objects", |n| delete(n, 3));
    assert_linear("labels of an object", |n| delete(3, 10 * n));
    assert!(delete(3, 8_000) > delete(3, 0) + 3 * 1_000, "the labels are searched");
}

#[test]
fn h06_the_work_of_a_foreground_deletion_grows_with_dependents_and_owners() {
    let delete = |dependents, owners| {
        let graph = with_dependents(dependents, owners);
        let options = DeleteOptions {
            propagation_policy: Some("Foreground".into()),
            ..DeleteOptions::default()
        };
        let template = Review { options, ..review(Operation::Delete, target(), None) };
        decide_counted(&graph, &template, REVIEW_STEPS).1
    };
    assert_linear("dependents that block", |n| delete(n, 3));
    assert_linear("owner references of a blocking dependent", |n| delete(3, n));
    let chain = |length: usize| {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let uid = |n: usize| format!("d308a385-886a-3f24-8000-{n:012x}");
        for n in 0..length {
            let owner = |n: usize| {
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "uid": uid(n),
                "name": if n == 0 { "x".to_owned() } else { n.to_string() }, "blockOwnerDeletion": true}])
            };
            let owners = if n == 0 { json!([]) } else { owner(n - 1) };
            let name = if n == 0 { "x".to_owned() } else { n.to_string() };
            let value = json!({"metadata": {"name": name, "namespace": "shop", "uid": uid(n),
                "finalizers": ["a.b/c"], "ownerReferences": owners}});
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        }
        let options = DeleteOptions {
            propagation_policy: Some("Foreground".into()),
            ..DeleteOptions::default()
        };
        let template = Review { options, ..review(Operation::Delete, target(), None) };
        decide_counted(&graph, &template, REVIEW_STEPS).1
    };
    assert_linear("a chain of owners", chain);
}

#[test]
fn h06_an_object_with_too_many_owners_does_not_keep_its_owner() {
    let graph = with_dependents(1, 1_001);
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let target = graph.find(kind, "shop", "x").unwrap();
    let targets = [(target, Propagation::Foreground)];
    let request =
        DeletionRequest { refuses: &|node| node.name() == "d0", ..DeletionRequest::new(&targets) };
    let fate = fates(&graph, &request).get(target).unwrap();
    assert_eq!((fate.outcome, fate.certainty), (DeletionOutcome::Deleted, Certainty::Possible));
}

#[test]
fn h06_a_used_up_budget_is_unknown_and_denies() {
    let graph = with_dependents(100, 100);
    let (verdict, _) = decide_counted(&graph, &review(Operation::Delete, target(), None), 50);
    assert_eq!((verdict.decision, verdict.reason), (Decision::Deny, Some(Reason::Unknown)));
    assert!(message(&verdict).unwrap().contains("more objects and references"), "{verdict:?}");
    let (verdict, _) =
        decide_counted(&graph, &review(Operation::Delete, target(), None), REVIEW_STEPS);
    assert_eq!(verdict.decision, Decision::Allow);
}
