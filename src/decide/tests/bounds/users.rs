//! Objects with many users.

use super::*;

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
        message(&decide_counted(&graph, &review(Operation::Delete, target, None), REVIEW_STEPS).0)
            .unwrap()
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
    let budget = StepBudget::new(REVIEW_STEPS);
    let target = graph.find(kind, "shop", "x").unwrap();
    let users = graph.users_limited(target, StepCounter::new(&budget)).count();
    // Each of the 1,000 requirements searches 300 KB of labels.
    assert!(users == 1 && budget.steps() > 1_000_000, "{users} {}", budget.steps());
    let budget = StepBudget::new(1_000);
    assert_eq!(graph.users_limited(target, StepCounter::new(&budget)).count(), 0);
    assert!(StepCounter::new(&budget).is_used_up());
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
        let (verdict, steps) = decide_counted(&graph, &template, REVIEW_STEPS);
        assert_ne!(verdict.decision, Decision::Allow, "{verdict:?}");
        steps
    };
    let (one, ten) = (delete(1), delete(10));
    assert!(one > 5 * 500, "{one}");
    assert!(ten < one + 9 * 100, "{one} steps for one user, and {ten} for ten");
}

#[test]
fn a_warning_about_a_hold_with_long_names_of_users_is_complete() {
    let users = ["a", "b", "c"].map(|letter| {
        let object = ObjectRef::new(("", "pods"), "shop", &letter.repeat(253));
        let owner = crate::decide::ObjectName { kind: "Pod".to_owned(), object };
        Cause::User { owner, user: None, path: String::new() }
    });
    let target = ObjectRef::new(("", "configmaps"), "shop", &"x".repeat(253));
    let blocker = Blocker::new(Decision::Hold, Reason::InUse, target.clone());
    let blocker = Blocker { causes: users.to_vec(), ..blocker };
    let verdict = Verdict::from_blockers(target, vec![blocker]);
    let warnings = warnings(&verdict);
    let end = format!("{} and 2 more objects no longer use it; ", "a".repeat(253));
    assert!(warnings[0].contains(&end), "{warnings:?}");
}
