//! Updates with long lists.

use super::*;

#[test]
fn h06_too_many_finalizers_or_owners_are_denied_if_a_policy_protects() {
    let graph = Graph::default();
    for (finalizers, owners, what) in
        [(60_000, 0, "60000 finalizers"), (0, 9_000, "9000 owner references")]
    {
        let update = |label: &str| {
            let (old, new) = (config_map(label, finalizers, owners), config_map(label, 0, 0));
            decide_counted(&graph, &review(Operation::Update, old, Some(new)), REVIEW_STEPS)
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
fn the_hold_is_not_one_of_too_many_finalizers() {
    let update = |count: usize| {
        let [old, new] = [count, count - 1].map(|finalizers| {
            let mut object = config_map("Always", finalizers, 0);
            object.metadata.finalizers.get_or_insert_default().push(crate::objects::HOLD.into());
            object
        });
        let review = review(Operation::Update, old, Some(new));
        decide_counted(&Graph::default(), &review, REVIEW_STEPS).0.decision
    };
    assert_eq!(update(1_000), Decision::Allow);
    assert_eq!(update(1_001), Decision::Deny);
}

#[test]
fn h68_removed_owner_references_are_compared_and_read_within_bounds() {
    let (mut graph, policies, reads): (Graph, _, _) = Default::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    graph.apply(kind, &config_map("no", 0, 0), ObjectPhase::Active, Edges::default());
    let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(&reads), 0);
    let update = |owners: usize| {
        let (old, new) = (config_map("no", 0, owners), config_map("no", 0, 0));
        let budget = StepBudget::new(REVIEW_STEPS);
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
        let verdict = decide_within(&situation, &review, &StepBudget::new(REVIEW_STEPS));
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
        decide_within(&situation, &review, &StepBudget::new(REVIEW_STEPS))
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
        decide_counted(&graph, &review(Operation::Update, old, Some(new)), REVIEW_STEPS).1
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
        decide_counted(&graph, &review(Operation::Update, old, Some(new)), REVIEW_STEPS).1
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
    decide_counted(&graph, &review(Operation::Update, old, Some(new)), REVIEW_STEPS)
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
fn h39_the_work_below_an_object_that_gets_an_owner_grows_with_its_dependents() {
    let new_owner = || {
        let owner = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}"#;
        object(format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x","namespace":"shop",
            "uid":"d308a385-886a-3f24-8000-000000000000","ownerReferences":[{owner}]}}}}"#
        ))
    };
    let update = |dependents, owners| {
        let graph = with_dependents(dependents, owners);
        decide_counted(
            &graph,
            &review(Operation::Update, target(), Some(new_owner())),
            REVIEW_STEPS,
        )
        .1
    };
    assert_linear("dependents", |n| update(n, 3));
    assert_linear("owner references of a dependent", |n| update(3, n));
    // The usual case: a fresh object gets its owner.
    assert!(update(0, 0) < 50, "{}", update(0, 0));
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

#[test]
fn h164_the_hold_is_examined_once_and_not_for_each_removed_finalizer() {
    let graph = Graph::default();
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
        "protect": {"fromStripping": {}, "whileUsed": {"onDelete": "Deny"}}});
    let policy = Policy::compile("guarded", &serde_json::from_value(spec).unwrap()).unwrap();
    let policies = PolicySet::new(vec![policy], &Catalogue::new(&graph.kinds, &[]).unwrap());
    let metadata = |finalizers: usize| {
        let names = (0..finalizers).map(|n| format!("a.b/{n}"));
        json!({"name": "x", "namespace": "shop", "uid": "u",
            "finalizers": names.chain([crate::objects::HOLD.to_owned()]).collect::<Vec<_>>()})
    };
    let steps = |removed: usize| {
        let [old, new] =
            [removed, 0].map(|count| object(json!({"metadata": metadata(count)}).to_string()));
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let budget = StepBudget::new(REVIEW_STEPS);
        let review = review(Operation::Update, old, Some(new));
        let verdict = decide_within(&situation, &review, &budget);
        assert_eq!((verdict.decision, verdict.blockers.len()), (Decision::Deny, 20));
        assert!(verdict.blockers[0].held);
        budget.steps()
    };
    let (one, two) = (steps(450), steps(900));
    assert!(two < one + 450 * 4, "{one} steps, and {two}");
}
