//! Approvals in large numbers, or above many owners.

use super::*;

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
        decide_counted(graph, &Review { name: "other".into(), ..template }, REVIEW_STEPS).0.decision
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

#[test]
fn h06_the_work_of_approvals_grows_with_their_number() {
    let graph = Graph::default();
    let delete = |count: usize| {
        let mut policies = PolicySet::default();
        let approval = |n: usize| crate::policy::Approval {
            name: n.to_string(),
            uid: n.to_string(),
            approver: "ann".to_owned(),
            target: ObjectRef::new(("", "configmaps"), "shop", "y"),
            target_uid: crate::objects::Uid::new("u"),
            content: true,
            exempts: Vec::new(),
            version: 0,
            created: 0,
            expires: 60,
        };
        policies.approvals = crate::policy::Approvals::new((0..count).map(approval));
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let budget = StepBudget::new(REVIEW_STEPS);
        let template = review(Operation::Delete, config_map("Always", 0, 0), None);
        let verdict = decide_within(&situation, &template, &budget);
        assert_eq!(verdict.decision, Decision::Deny);
        assert!(budget.steps() >= count);
        budget.steps()
    };
    assert_linear("approvals", delete);
}

/// An approval of a ConfigMap, by one of seven people.
fn approval(n: usize, object: &str, uid: &str, content: bool) -> Approval {
    Approval {
        name: n.to_string(),
        uid: n.to_string(),
        approver: format!("ann-{}", n % 7),
        target: ObjectRef::new(("", "configmaps"), "shop", object),
        target_uid: crate::objects::Uid::new(uid),
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
    let budget = StepBudget::new(REVIEW_STEPS);
    let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
    let situation = Situation { work: StepCounter::new(&budget), ..situation };
    let item = JudgedObject::of_node(&situation, graph.object(kind, "shop", "x").unwrap());
    let applied = situation.policies_of(item.facts);
    let protecting: Vec<_> = applied.iter().map(|applied| applied.policy).collect();
    let reported = approved::ineffective_approvals(&situation, &item, &protecting);
    let approvers: Vec<_> = reported.iter().map(|approval| approval.approver.as_str()).collect();
    assert_eq!(approvers, ["ann-0", "ann-1", "ann-2"]);
    // The first owner that is not covered decides.
    assert!(
        (owners::MAX_OWNERS..owners::MAX_OWNERS + 1_000).contains(&budget.steps()),
        "{}",
        budget.steps()
    );
}
