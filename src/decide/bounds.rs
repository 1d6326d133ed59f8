//! Large inputs of hostile users. These tests count the steps of a verdict and do not measure time.

use std::fmt::Write as _;

use serde::Deserialize as _;
use serde_json::json;

use super::*;
use crate::graph::{
    Certainty, DeletionOutcome, DeletionRequest, EdgeQualifier, Edges, Graph, ObjectPhase,
    Propagation, Requirement, Selector, SelectorEdge, Strength, UnresolvedUse, fates,
};
use crate::objects::{ApiError, Object, ObjectRef, Text};
use crate::policy::{Approval, Approvals, Policy, PolicySet};
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
        user: Requester { name: Text::from("eve"), groups: Vec::new() },
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

#[test]
fn h06_too_many_finalizers_or_owners_are_denied_if_a_policy_protects() {
    let graph = Graph::default();
    for (finalizers, owners, what) in
        [(60_000, 0, "60000 finalizers"), (0, 9_000, "9000 owner references")]
    {
        let update = |label: &str| {
            let (old, new) = (config_map(label, finalizers, owners), config_map(label, 0, 0));
            decide_counted(&graph, &review(Operation::Update, old, Some(new)), STEPS)
        };
        let (verdict, steps) = update("Always");
        assert_eq!((verdict.decision, verdict.reason), (Decision::Deny, Some(Reason::Unknown)));
        assert!(message(&verdict).unwrap().contains(what), "{verdict:?}");
        assert!(steps < 100, "{steps}");
        let (verdict, steps) = update("no");
        assert_eq!(verdict.decision, Decision::Allow);
        assert!(steps < 100_000, "{steps}");
    }
}

#[test]
fn h68_removed_owner_references_are_compared_and_read_within_bounds() {
    let (mut graph, policies, reads): (Graph, _, _) = Default::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    graph.apply(kind, &config_map("no", 0, 0), ObjectPhase::Active, Edges::default());
    let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(&reads), 0);
    let update = |owners: usize| {
        let (old, new) = (config_map("no", 0, owners), config_map("no", 0, 0));
        let budget = StepBudget::new(STEPS);
        let review = review(Operation::Update, old, Some(new));
        (decide_within(&situation, &review, &budget), budget.steps())
    };
    for (owners, read) in [(16, 16), (17, 0), (1_001, 0), (100_000, 0)] {
        let (verdict, steps) = update(owners);
        assert_eq!(verdict.decision, Decision::Allow, "{owners}");
        assert_eq!(verdict.needed_reads.len(), read, "{owners}");
        assert!(steps < 1_000, "{owners}: {steps}");
    }
    // A reference that belay does not read may name a protected owner.
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["secrets"]}],
        "protect": {"fromOrphaning": {}}});
    let policy = Policy::compile("kept", &serde_json::from_value(spec).unwrap()).unwrap();
    let policies = PolicySet::new(vec![policy], &Catalogue::new(&graph.kinds, &[]).unwrap());
    let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(&reads), 0);
    for owners in [17, 1_001] {
        let (old, new) = (config_map("no", 0, owners), config_map("no", 0, 0));
        let review = review(Operation::Update, old, Some(new));
        let verdict = decide_within(&situation, &review, &StepBudget::new(STEPS));
        assert_eq!(verdict.reason, Some(Reason::Unknown), "{owners}");
    }
}

#[test]
fn h62_an_owner_with_a_name_that_is_too_long_is_not_read() {
    let (graph, policies, reads) = Default::default();
    let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(&reads), 0);
    let after = |length: usize| {
        let mut new = config_map("Always", 0, 1);
        new.metadata.owner_references[0].name = Text::from(&*String::leak("o".repeat(length)));
        let review = review(Operation::Update, config_map("Always", 0, 0), Some(new));
        decide_within(&situation, &review, &StepBudget::new(STEPS))
    };
    let is_read = |verdict: &Verdict| !verdict.needed_reads.is_empty();
    assert!(is_read(&after(253)));
    let verdict = after(254);
    assert!(!is_read(&verdict), "{:?}", verdict.needed_reads.len());
    assert_eq!(verdict.decision, Decision::Deny);
}

#[test]
fn h60_a_manifest_that_cannot_be_stored_is_not_read() {
    let reason = |spaces: usize| {
        let manifest =
            format!(r#"{{"metadata":{{"finalizers":["a.b/c"]}}}}{}"#, " ".repeat(spaces));
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        let annotations = json!({ key: manifest });
        let metadata = json!({"name": "x", "annotations": annotations});
        super::create::no_hold_reason(
            "example.com",
            "widgets",
            &object(json!({"metadata": metadata}).to_string()),
        )
    };
    assert_eq!(reason(0), Some(super::create::NoHoldReason::Listed));
    assert_eq!(reason(256 << 10), None);
}

#[test]
fn h06_the_work_of_an_update_grows_with_its_lists_and_not_with_their_square() {
    let graph = Graph::default();
    let update = |finalizers: usize, owners: usize| {
        let (old, new) = (config_map("Always", finalizers, owners), config_map("Always", 0, 0));
        decide_counted(&graph, &review(Operation::Update, old, Some(new)), STEPS).1
    };
    assert_linear("finalizers", |n| update(n, 0));
    assert_linear("owner references", |n| update(0, n));
    let repeat_uids = |owners: usize| {
        let old = config_map("Always", 0, owners);
        let mut new = config_map("Always", 0, owners);
        for reference in &mut new.metadata.owner_references {
            reference.name = Text::from("none");
        }
        new.metadata.owner_references.extend(old.metadata.owner_references.clone());
        decide_counted(&graph, &review(Operation::Update, old, Some(new)), STEPS).1
    };
    assert_linear("repeated uids", |n| repeat_uids(n / 2));
}

/// The verdict and steps of an update that adds the first of these ConfigMaps as an owner of a
/// protected one. Each ConfigMap has its owners by index.
fn add_owner(owners: &[Vec<usize>]) -> (Verdict, usize) {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let reference = |n: usize| {
        let uid = format!("d308a385-886a-3f24-8000-{n:012x}");
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{n}"), "uid": uid})
    };
    for (n, owners) in owners.iter().enumerate() {
        let references: Vec<_> = owners.iter().map(|owner| reference(*owner)).collect();
        let value = json!({"metadata": {"name": format!("o{n}"), "namespace": "shop",
            "uid": reference(n)["uid"], "ownerReferences": references}});
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    graph.set_complete(kind, true);
    let (old, new) = (config_map("Always", 0, 0), config_map("Always", 0, 1));
    decide_counted(&graph, &review(Operation::Update, old, Some(new)), STEPS)
}

#[test]
fn h21_the_work_above_an_added_owner_grows_with_the_references_there() {
    let wide = |n: usize| {
        let all = std::iter::once((1..=n).collect());
        all.chain((0..n).map(|_| Vec::new())).collect::<Vec<_>>()
    };
    assert_linear("owners of an owner", |n| add_owner(&wide(n)).1);
    assert_eq!(add_owner(&wide(400)).0.decision, Decision::Allow);
    // belay checks each owner once, not each path to it.
    let levels: Vec<_> =
        (0..400).map(|n| (20 * (n / 20 + 1)..20 * (n / 20 + 2)).collect()).collect();
    let top = std::iter::repeat_n(Vec::new(), 20);
    let (verdict, steps) = add_owner(&levels.into_iter().chain(top).collect::<Vec<_>>());
    assert_eq!(verdict.decision, Decision::Allow);
    assert!(steps < 50_000, "{steps}");
    // Owners beyond the limit are unknown.
    let chain: Vec<_> = (1..100).map(|n| vec![n]).chain([Vec::new()]).collect();
    assert_eq!(add_owner(&chain).0.decision, Decision::Deny);
}

#[test]
fn h39_the_work_below_an_object_that_gets_an_owner_grows_with_what_is_there() {
    let new_owner = || {
        let owner = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}"#;
        object(format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x","namespace":"shop",
            "uid":"d308a385-886a-3f24-8000-000000000000","ownerReferences":[{owner}]}}}}"#
        ))
    };
    let update = |dependents, owners| {
        let graph = with_dependents(dependents, owners);
        decide_counted(&graph, &review(Operation::Update, target(), Some(new_owner())), STEPS).1
    };
    assert_linear("dependents", |n| update(n, 3));
    assert_linear("owner references of a dependent", |n| update(3, n));
    // The usual case: a fresh object gets its owner.
    assert!(update(0, 0) < 50, "{}", update(0, 0));
}

#[test]
fn h05_the_work_of_a_delete_grows_with_owner_references_and_dependents() {
    let delete = |dependents, owners| {
        let graph = with_dependents(dependents, owners);
        decide_counted(&graph, &review(Operation::Delete, target(), None), STEPS).1
    };
    assert_linear("owner references of a dependent", |n| delete(3, n));
    assert_linear("dependents", |n| delete(n, 3));
    assert!(delete(30, 9_000) < 4 * 30 * 9_000);
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

#[test]
fn h05_an_owner_reference_beyond_the_limit_hides_no_dependents() {
    for owners in [1, 1_000, 1_001, 27_000] {
        let graph = hidden_owner(owners);
        let (verdict, _) =
            decide_counted(&graph, &review(Operation::Delete, target(), None), STEPS);
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
    let first = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"{uid}"}}"#);
    let middle = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"middle","uid":"middle"}"#;
    let owners = format!("{first},{middle}");
    let update = |graph: &Graph| {
        let template = review(Operation::Update, object(&first), Some(object(&owners)));
        decide_counted(graph, &Review { name: "other".into(), ..template }, STEPS).0.decision
    };
    assert_eq!(update(&hidden_owner(3)), Decision::Allow);
    assert_eq!(update(&hidden_owner(1_001)), Decision::Deny);
    // belay remembers only some owners of a deleted object.
    let update_after_deletion = |owners| {
        let mut graph = hidden_owner(owners);
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        graph.delete(kind, "shop", "middle", None);
        update(&graph)
    };
    assert_eq!(
        (update_after_deletion(3), update_after_deletion(1_000), update_after_deletion(1_001)),
        (Decision::Allow, Decision::Deny, Decision::Deny)
    );
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
    let (verdict, steps) = decide_counted(&graph, &review(Operation::Delete, target, None), STEPS);
    assert_ne!(verdict.decision, Decision::Allow, "{verdict:?}");
    steps
}

fn named(name: &str, labels: usize) -> serde_json::Value {
    let labels: std::collections::BTreeMap<_, _> =
        (0..labels).map(|n| (format!("label-{n}"), "value")).collect();
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels}})
}

/// The edges of a user of the ConfigMap `x`.
fn uses_config_map() -> Edges {
    let used = UnresolvedUse {
        kind: Graph::default().kinds.find("", "ConfigMap").unwrap(),
        namespace: "shop".to_owned(),
        name: "x".to_owned(),
        uid: None,
        strength: Strength::Needs,
        qualifier: EdgeQualifier::None,
        relation: crate::graph::RelationId(0),
        path: "p".to_owned(),
    };
    Edges { uses: vec![used], ..Edges::default() }
}

#[test]
fn h06_the_advice_of_a_message_is_checked_within_limits() {
    let advice = |dependents: usize| {
        let mut graph = Graph::default();
        let find = |graph: &Graph, kind: &str| graph.kinds.find("", kind).unwrap();
        let (maps, secrets) = (find(&graph, "ConfigMap"), find(&graph, "Secret"));
        let target = config_map("WhileUsed", 0, 0);
        graph.apply(maps, &target, ObjectPhase::Active, Edges::default());
        let user = named("user", 0);
        let user = Object::deserialize(&user).unwrap();
        graph.apply(secrets, &user, ObjectPhase::Active, uses_config_map());
        for n in 0..dependents {
            let mut dependent = named(&format!("d{n}"), 0);
            dependent["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Secret", "name": "user", "uid": "user"}]);
            let dependent = Object::deserialize(&dependent).unwrap();
            graph.apply(maps, &dependent, ObjectPhase::Active, Edges::default());
        }
        graph.set_complete(maps, true);
        graph.set_complete(secrets, true);
        message(&decide_counted(&graph, &review(Operation::Delete, target, None), STEPS).0).unwrap()
    };
    let (few, many) = (advice(1), advice(30_000));
    assert!(few.contains("from Secret shop/user, or delete the Secret."), "{few}");
    assert!(many.contains("from Secret shop/user. To override"), "{many}");
}

#[test]
fn h06_the_work_of_users_grows_with_their_number_and_with_their_selectors() {
    let config_map = Graph::default().kinds.find("", "ConfigMap").unwrap();
    let relation = crate::graph::RelationId(0);
    let by_labels = |requirements: usize, edges: usize| {
        let requirement = |n| Requirement::Absent(format!("label-{n}"));
        let edge = SelectorEdge {
            kind: config_map,
            namespace: "shop".to_owned(),
            selector: Selector::Labels((0..requirements).map(requirement).collect()),
            strength: Strength::Needs,
            relation,
            path: "p".into(),
        };
        Edges { selector_edges: vec![edge; edges], ..Edges::default() }
    };
    let user = |n: usize, edges| ("Pod", named(&format!("pod-{n}"), 0), edges);
    assert_linear("users by name", |n| {
        delete_steps("WhileUsed", (0..n).map(|i| user(i, uses_config_map())).collect())
    });
    assert_linear("requirements of a selector", |n| {
        delete_steps("WhileUsed", vec![user(0, by_labels(n, 1))])
    });
    assert_linear("selectors", |n| delete_steps("WhileUsed", vec![user(0, by_labels(3, n))]));
}

#[test]
fn h06_the_steps_of_a_selector_grow_with_the_labels() {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let object = named("x", 20_000);
    let object = Object::deserialize(&object).unwrap();
    graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    let edge = SelectorEdge {
        kind,
        namespace: "shop".to_owned(),
        selector: Selector::Labels(vec![Requirement::Absent("none".to_owned()); 1_000]),
        strength: Strength::Needs,
        relation: crate::graph::RelationId(0),
        path: "p".into(),
    };
    let pod = named("pod", 0);
    let pod = Object::deserialize(&pod).unwrap();
    let pods = graph.kinds.find("", "Pod").unwrap();
    graph.apply(
        pods,
        &pod,
        ObjectPhase::Active,
        Edges { selector_edges: vec![edge], ..Edges::default() },
    );
    let budget = StepBudget::new(STEPS);
    let target = graph.find(kind, "shop", "x").unwrap();
    let users = graph.users_limited(target, StepLimit::new(&budget)).count();
    // Each of the 1,000 requirements searches 300 KB of labels.
    assert!(users == 1 && budget.steps() > 1_000_000, "{users} {}", budget.steps());
    let budget = StepBudget::new(1_000);
    assert_eq!(graph.users_limited(target, StepLimit::new(&budget)).count(), 0);
    assert!(StepLimit::new(&budget).is_used_up());
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
    let kind = graph.kinds.find("", "Namespace").unwrap();
    graph.set_complete(kind, true);
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["namespaces"]}],
        "protect": {"whileNotEmpty": {"counting": "Any"}}});
    let policy = Policy::compile("full", &serde_json::from_value(spec).unwrap()).unwrap();
    let policies = PolicySet::new(vec![policy], &Catalogue::new(&graph.kinds, &[]).unwrap());
    let delete = |uid: &str, reads: &LiveReads| {
        let budget = StepBudget::new(STEPS);
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
        decide_counted(&graph, &delete_namespace("shop"), STEPS).1
    };
    assert_linear("objects", |n| delete(n, 3));
    assert_linear("labels of an object", |n| delete(3, 10 * n));
    assert!(delete(3, 8_000) > delete(3, 0) + 3 * 1_000, "labels are looked through");
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
        decide_counted(&graph, &template, STEPS).1
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
        decide_counted(&graph, &template, STEPS).1
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
fn h06_the_work_of_approvals_grows_with_their_number() {
    let graph = Graph::default();
    let delete = |count: usize| {
        let mut policies = PolicySet::default();
        let approval = |n: usize| crate::policy::Approval {
            name: n.to_string(),
            own_uid: n.to_string(),
            approver: "ann".to_owned(),
            object: ObjectRef::new(("", "configmaps"), "shop", "y"),
            uid: crate::objects::Uid::new("u"),
            content: true,
            exempts: Vec::new(),
            version: 0,
            created: 0,
            expires: 60,
        };
        policies.approvals = crate::policy::Approvals::new((0..count).map(approval));
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let budget = StepBudget::new(STEPS);
        let template = review(Operation::Delete, config_map("Always", 0, 0), None);
        let verdict = decide_within(&situation, &template, &budget);
        assert_eq!(verdict.decision, Decision::Deny);
        assert!(budget.steps() >= count);
        budget.steps()
    };
    assert_linear("approvals", delete);
}

#[test]
fn h40_shared_owners_of_users_are_checked_once() {
    let owner = |kind: &str, name: String| {
        let version = if kind == "Nope" { "example.com/v1" } else { "v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": name})
    };
    // Deleted owners, an owner of the next level, and an owner of an unknown kind.
    let owners = |level: usize| {
        let deleted = (0..500).map(|n| owner("ConfigMap", format!("gone-{level}-{n}")));
        let above = (level > 0).then(|| owner("ConfigMap", format!("level-{}", level - 1)));
        deleted.chain(above).chain([owner("Nope", "n".to_owned())]).collect::<Vec<_>>()
    };
    let delete = |users: usize| {
        let mut graph = Graph::default();
        let mut apply = |kind: &str, value: serde_json::Value, edges| {
            let kind = graph.kinds.find("", kind).unwrap();
            graph.apply(kind, &Object::deserialize(&value).unwrap(), ObjectPhase::Active, edges);
            graph.set_complete(kind, true);
        };
        let target = json!({"metadata": {"name": "x", "namespace": "shop", "uid": "u",
            "labels": {"belay.dev/protect": "WhileUsed"}, "finalizers": ["belay.dev/hold"]}});
        apply("ConfigMap", target.clone(), Edges::default());
        for level in 0..5 {
            let mut object = named(&format!("level-{level}"), 0);
            object["metadata"]["ownerReferences"] = owners(level).into();
            apply("ConfigMap", object, Edges::default());
        }
        for n in 0..users {
            let mut pod = named(&format!("pod-{n}"), 0);
            let above = [owner("ConfigMap", "level-4".to_owned())];
            pod["metadata"]["ownerReferences"] = json!(above);
            apply("Pod", pod, uses_config_map());
        }
        let template = review(Operation::Delete, object(target.to_string()), None);
        let (verdict, steps) = decide_counted(&graph, &template, STEPS);
        assert_ne!(verdict.decision, Decision::Allow, "{verdict:?}");
        steps
    };
    let (one, ten) = (delete(1), delete(10));
    assert!(one > 5 * 500, "{one}");
    assert!(ten < one + 9 * 100, "{one} steps for one user, and {ten} for ten");
}

/// An approval of a ConfigMap, by one of seven people.
fn approval(n: usize, object: &str, uid: &str, content: bool) -> Approval {
    Approval {
        name: n.to_string(),
        own_uid: n.to_string(),
        approver: format!("ann-{}", n % 7),
        object: ObjectRef::new(("", "configmaps"), "shop", object),
        uid: crate::objects::Uid::new(uid),
        content,
        exempts: Vec::new(),
        version: 5,
        created: 0,
        expires: 60,
    }
}

#[test]
fn h43_an_owner_with_too_many_approvals_counts_as_approved_with_its_content() {
    let uid = "d308a385-886a-3f24-8000-000000000000";
    let update = |others: usize| {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let owner = json!({"metadata": {"name": "o0", "namespace": "shop", "uid": uid}});
        let owner = Object::deserialize(&owner).unwrap();
        graph.apply(kind, &owner, ObjectPhase::Active, Edges::default());
        graph.set_complete(kind, true);
        let mut policies = PolicySet::default();
        let others = (0..others).map(|n| approval(n, "o0", uid, false));
        policies.approvals = Approvals::new(others);
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let (old, new) = (config_map("Always", 0, 0), config_map("Always", 0, 1));
        decide(&situation, &review(Operation::Update, old, Some(new))).decision
    };
    assert_eq!(update(1_000), Decision::Allow);
    assert_eq!(update(1_001), Decision::Deny);
}

#[test]
fn h43_an_approval_above_many_owners_is_found_within_limits_and_reported_once() {
    let (owners, approvals) = (50, 1_500);
    let mut graph = Graph::default();
    graph.track_owner_versions();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let owner =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
    let map = |name: &str, owners: Vec<serde_json::Value>| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name,
            "namespace": "shop", "uid": name, "resourceVersion": "9",
            "labels": {"belay.dev/protect": "Always"}, "ownerReferences": owners}})
    };
    let between: Vec<String> = (0..owners).map(|n| format!("between-{n}")).collect();
    let target = map("x", between.iter().map(|name| owner(name)).collect());
    let top = map("top", Vec::new());
    let all = between.iter().map(|name| map(name, vec![owner("top")]));
    for value in [top, target.clone()].into_iter().chain(all) {
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    graph.set_complete(kind, true);
    for name in between.iter().map(String::as_str).chain(["top"]) {
        assert!(graph.delete(kind, "shop", name, None));
    }
    let mut policies = PolicySet::default();
    policies.approvals = Approvals::new((0..approvals).map(|n| approval(n, "top", "top", true)));
    let budget = StepBudget::new(STEPS);
    let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
    let situation = Situation { work: StepLimit::new(&budget), ..situation };
    let item = JudgedObject::of_node(&situation, graph.object(kind, "shop", "x").unwrap());
    let applied = situation.policies_of(item.facts);
    let protecting: Vec<_> = applied.iter().map(|applied| applied.policy).collect();
    let reported = approved::ineffective_approvals(&situation, &item, &protecting);
    let approvers: Vec<_> = reported.iter().map(|one| one.approver.as_str()).collect();
    assert_eq!(approvers, ["ann-0", "ann-1", "ann-2"]);
    // The first owner that is not covered decides.
    assert!(
        (owners::MAX_OWNERS..owners::MAX_OWNERS + 1_000).contains(&budget.steps()),
        "{}",
        budget.steps()
    );
}

#[test]
fn h06_a_used_up_budget_is_unknown_and_denies() {
    let graph = with_dependents(100, 100);
    let (verdict, _) = decide_counted(&graph, &review(Operation::Delete, target(), None), 50);
    assert_eq!((verdict.decision, verdict.reason), (Decision::Deny, Some(Reason::Unknown)));
    assert!(message(&verdict).unwrap().contains("more objects and references"), "{verdict:?}");
    let (verdict, _) = decide_counted(&graph, &review(Operation::Delete, target(), None), STEPS);
    assert_eq!(verdict.decision, Decision::Allow);
}

#[test]
fn h15_parts_are_compared_as_text() {
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
    let same = ReviewDetails::read(Some(&held), Some(&with("", 2, "<")));
    assert!(!same.rest_changes);
    assert_eq!(same.old_spec_finalizers, ["kubernetes"]);
    assert!(ReviewDetails::read(Some(&held), Some(&with("", 2, ">"))).rest_changes);
    assert!(ReviewDetails::read(Some(&held), Some(&with(r#""a.b/c""#, 2, "<"))).rest_changes);
}
