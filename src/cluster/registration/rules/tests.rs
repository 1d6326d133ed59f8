//! Tests of the rules that follow from policies.

use serde_json::{Value, json};

use super::*;
use crate::policy::PolicySet;
use crate::policy::api::DeletionPolicySpec;

fn world(specs: &[Value]) -> World {
    let mut world = World::default();
    let policies = specs.iter().map(|spec| {
        let spec: DeletionPolicySpec = serde_json::from_value(spec.clone()).unwrap();
        Policy::compile("p", &spec).unwrap()
    });
    world.policies = PolicySet::new(policies.collect(), &world.catalogue);
    world
}

fn policy(groups: &[&str], resources: &[&str]) -> Value {
    json!({
        "targets": [{"apiGroups": groups, "resources": resources}],
        "protect": {"always": {}},
    })
}

/// Rules as `OPERATION groups/resources`, one per line.
fn shown(rules: &Rules, webhook: &str) -> Vec<String> {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap().join(",");
    let line = |rule: &RuleWithOperations| {
        assert_eq!(list(&rule.api_versions), "*");
        assert_eq!(rule.scope.as_deref(), Some("*"));
        format!("{} [{}] {}", list(&rule.operations), list(&rule.api_groups), list(&rule.resources))
    };
    rules.for_webhook(webhook).iter().map(line).collect()
}

#[track_caller]
fn check(world: &World, expected: &[(&str, &[&str])]) {
    let rules = rules(world, &[]);
    for (webhook, lines) in expected {
        assert_eq!(shown(&rules, webhook), *lines, "{webhook}");
    }
}

#[test]
fn without_policies_the_rules_cover_only_the_label() {
    // belay adds a hold only to the kinds whose labelled objects it watches.
    let labelled = [(String::new(), "configmaps".to_owned())];
    let rules = rules(&World::default(), &labelled);
    let hold = ["CREATE [] configmaps", "UPDATE [*] */*"];
    assert_eq!(shown(&rules, "label-hold.belay.dev"), hold);
    assert_eq!(shown(&rules, "label-delete.belay.dev"), ["DELETE [*] *"]);
    assert_eq!(shown(&rules, "label-update.belay.dev"), ["UPDATE [*] */*"]);
    assert_eq!(shown(&rules, "finalize.belay.dev"), ["UPDATE [] namespaces/finalize"]);
    assert_eq!(shown(&rules, "evict.belay.dev"), ["CREATE [] pods/eviction"]);
    assert_eq!(rules.rules.len(), 7, "{rules:?}");
}

#[test]
fn a_protected_kind_gets_rules_for_itself_and_for_namespaces() {
    check(
        &world(&[policy(&[""], &["persistentvolumeclaims"])]),
        &[
            (
                "hold.belay.dev",
                &["CREATE [] persistentvolumeclaims", "UPDATE [] persistentvolumeclaims/*"],
            ),
            ("delete.belay.dev", &["DELETE [] persistentvolumeclaims"]),
            ("cascade.belay.dev", &["DELETE [] namespaces"]),
            ("update.belay.dev", &["UPDATE [] persistentvolumeclaims/*"]),
            ("finalize.belay.dev", &["UPDATE [] namespaces/finalize"]),
            ("annotate.belay.dev", &[]),
            ("evict.belay.dev", &["CREATE [] pods/eviction"]),
        ],
    );
}

#[test]
fn cluster_scoped_kinds_need_no_rule_for_namespaces_and_custom_kinds_need_one_for_crds() {
    check(
        &world(&[policy(&["storage.k8s.io"], &["storageclasses"])]),
        &[("cascade.belay.dev", &[]), ("finalize.belay.dev", &[])],
    );
    // The scope of a kind that is not served is unknown.
    check(
        &world(&[policy(&["example.com"], &["databases"])]),
        &[
            (
                "cascade.belay.dev",
                &[
                    "DELETE [apiextensions.k8s.io] customresourcedefinitions",
                    "DELETE [] namespaces",
                ],
            ),
            ("delete.belay.dev", &["DELETE [example.com] databases"]),
            ("finalize.belay.dev", &["UPDATE [] namespaces/finalize"]),
        ],
    );
}

#[test]
fn owners_get_rules_of_their_own_unless_they_are_protected() {
    let mut world = world(&[policy(&["", "apps"], &["secrets", "statefulsets"])]);
    let kinds = &mut world.graph.kinds;
    let secret = kinds.find("", "Secret").unwrap();
    for (group, kind) in [("apps", "StatefulSet"), ("apps", "Deployment"), ("", "Pod")] {
        world.protected_owner_kinds.insert((secret, kinds.find(group, kind).unwrap()));
    }
    world.protected_owner_kinds.insert((secret, kinds.mention("nowhere.example.com", "Nothing")));
    check(
        &world,
        &[
            (
                "cascade.belay.dev",
                &[
                    "DELETE [apiextensions.k8s.io] customresourcedefinitions",
                    "DELETE [apps] deployments",
                    "DELETE [] namespaces,pods",
                    "UPDATE [apps] deployments/*",
                    "UPDATE [] pods/*",
                ],
            ),
            (
                "orphan.belay.dev",
                &[
                    "DELETE [apiextensions.k8s.io] customresourcedefinitions",
                    "DELETE [apps] deployments",
                    "DELETE [] namespaces,pods",
                ],
            ),
        ],
    );
}

#[test]
fn kinds_watched_only_by_label_get_cascade_and_finalize_webhooks() {
    let labelled = [("".to_owned(), "configmaps".to_owned())];
    let rules = rules(&World::default(), &labelled);
    assert_eq!(shown(&rules, "cascade.belay.dev"), ["DELETE [] namespaces"]);
    assert_eq!(shown(&rules, "delete.belay.dev"), [""; 0]);
    assert_eq!(shown(&rules, "finalize.belay.dev"), ["UPDATE [] namespaces/finalize"]);
}

#[test]
fn the_hold_webhook_has_only_kinds_that_may_get_a_hold() {
    let mut never = policy(&[""], &["secrets"]);
    never["hold"] = json!("Never");
    let mut audit = policy(&[""], &["configmaps"]);
    audit["action"] = json!("Audit");
    let mut ring = audit.clone();
    ring["targets"][0]["resources"] = json!(["services"]);
    ring["actionOverrides"] =
        json!([{"namespaceSelector": {"matchLabels": {"ring": "1"}}, "action": "Deny"}]);
    let pods = policy(&[""], &["pods"]);
    let argo = policy(&["argoproj.io"], &["applications"]);
    check(
        &world(&[never, audit, ring, pods, argo]),
        &[
            ("hold.belay.dev", &["CREATE [] services", "UPDATE [] services/*"]),
            (
                "delete.belay.dev",
                &[
                    "DELETE [argoproj.io] applications",
                    "DELETE [] configmaps,pods,secrets,services",
                ],
            ),
            ("evict.belay.dev", &["CREATE [] pods/eviction"]),
        ],
    );
}

#[test]
fn a_star_replaces_the_kinds_that_it_covers() {
    check(
        &world(&[
            policy(&["apps"], &["*"]),
            policy(&["batch"], &["*"]),
            policy(&["apps"], &["deployments"]),
            policy(&["*"], &["widgets"]),
            policy(&["x.example.com"], &["widgets", "gadgets"]),
        ]),
        &[
            (
                "delete.belay.dev",
                &["DELETE [apps,batch] *", "DELETE [x.example.com] gadgets", "DELETE [*] widgets"],
            ),
            (
                "update.belay.dev",
                &[
                    "UPDATE [apps,batch] */*",
                    "UPDATE [x.example.com] gadgets/*",
                    "UPDATE [*] widgets/*",
                ],
            ),
        ],
    );
    check(
        &world(&[policy(&["*"], &["*"]), policy(&[""], &["pods"])]),
        &[
            ("delete.belay.dev", &["DELETE [*] *"]),
            ("update.belay.dev", &["UPDATE [*] */*"]),
            ("cascade.belay.dev", &[]),
            ("evict.belay.dev", &["CREATE [] pods/eviction"]),
            ("hold.belay.dev", &["CREATE [*] *", "UPDATE [*] */*"]),
        ],
    );
}

#[test]
fn updates_of_namespaces_have_a_rule_if_a_selector_reads_their_labels() {
    let mut named = policy(&[""], &["secrets"]);
    named["targets"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "a"}});
    check(&world(&[named.clone()]), &[("update.belay.dev", &["UPDATE [] secrets/*"])]);
    named["targets"][0]["namespaceSelector"] = json!({"matchLabels": {"env": "prod"}});
    check(&world(&[named]), &[("update.belay.dev", &["UPDATE [] namespaces/*,secrets/*"])]);
}

#[test]
fn updates_of_annotations_have_a_rule_if_a_policy_reads_annotations_of_others() {
    let mut reads = policy(&[""], &["secrets"]);
    reads["targets"][0]["matchAnnotations"] = json!({"belay.dev/tier": "gold"});
    check(&world(&[reads.clone()]), &[("annotate.belay.dev", &[])]);
    reads["targets"][0]["matchAnnotations"] = json!({"example.com/tier": "gold"});
    check(
        &world(&[reads, policy(&[""], &["services"])]),
        &[("annotate.belay.dev", &["UPDATE [] secrets/*"])],
    );
}

#[test]
fn equal_policies_in_any_order_give_equal_rules() {
    let a = policy(&["apps", ""], &["pods", "deployments"]);
    let b = policy(&[""], &["secrets"]);
    let one = rules(&world(&[a.clone(), b.clone(), b.clone()]), &[]);
    assert_eq!(one, rules(&world(&[b, a]), &[]));
}

/// Two policies for Pods in `db` and ReplicaSets in `shop`, and the kinds that own Pods.
fn owning_world(protect: Value) -> World {
    let target = |group: &str, resource: &str, namespace: &str| {
        let name = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        json!({"apiGroups": [group], "resources": [resource], "names": ["x"],
            "namespaceSelector": name})
    };
    let mut world = world(&[
        json!({"targets": [target("", "pods", "db")], "protect": {"always": {}}}),
        json!({"targets": [target("apps", "replicasets", "shop")], "protect": protect}),
    ]);
    let kinds = &world.graph.kinds;
    let [pod, set] = [("", "Pod"), ("apps", "ReplicaSet")].map(|(g, k)| kinds.find(g, k).unwrap());
    world.owner_kinds.insert((pod, set), tokio::time::Instant::now());
    world.protected_owner_kinds.insert((pod, set));
    world
}

/// The condition of a webhook.
fn condition(world: &World, webhook: &str) -> Option<String> {
    rules(world, &[]).condition(webhook).map(|condition| condition.expression.clone())
}

#[test]
fn deletes_are_limited_to_the_namespaces_and_names_of_policies_and_their_owners() {
    let world = owning_world(json!({"always": {}}));
    let delete = condition(&world, "delete.belay.dev").unwrap();
    for part in ["'/pods/db', 'apps/replicasets/db', 'apps/replicasets/shop'", "== 'x'"] {
        assert!(delete.contains(part), "{delete}");
    }
    // The owner is not limited to its name.
    assert!(!delete.contains("== 'apps/replicasets'"), "{delete}");
    assert_eq!(condition(&world, "update.belay.dev"), Some(delete));
    // A webhook that runs later may add labels, or the API server the name.
    let hold = condition(&world, "hold.belay.dev").unwrap();
    assert!(hold.contains("'apps/replicasets/shop'") && !hold.contains("== 'x'"), "{hold}");
}

#[test]
fn updates_of_dependents_are_limited_to_the_namespaces_of_owners_that_they_may_not_lose() {
    let mut world = owning_world(json!({"fromOrphaning": {}}));
    let update = condition(&world, "update.belay.dev").unwrap();
    assert!(update.contains("'/pods/db', '/pods/shop', 'apps/replicasets/db'"), "{update}");
    assert!(!update.contains("== '/pods'"), "{update}");
    let delete = condition(&world, "delete.belay.dev").unwrap();
    assert!(delete.contains("== '/pods'") && !delete.contains("/pods/shop"), "{delete}");
    // A cluster-scoped owner is protected whatever the namespaces of its policy.
    let node = world.graph.kinds.find("", "Node").unwrap();
    let pod = world.graph.kinds.find("", "Pod").unwrap();
    world.protected_owner_kinds = [(pod, node)].into();
    world.owner_kinds = [((pod, node), tokio::time::Instant::now())].into_iter().collect();
    let spec = json!({
        "targets": [{"apiGroups": [""], "resources": ["nodes"], "namespaceSelector":
            {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}],
        "protect": {"fromOrphaning": {}},
    });
    let nodes = Policy::compile("n", &serde_json::from_value(spec).unwrap()).unwrap();
    let others = world.policies.iter().skip(2).cloned();
    world.policies = PolicySet::new(others.chain([nodes]).collect(), &world.catalogue);
    let update = condition(&world, "update.belay.dev").unwrap();
    assert!(!update.contains("/pods/db"), "{update}");
}

#[test]
fn nothing_is_limited_while_the_owners_of_protected_objects_are_unknown() {
    let mut world = owning_world(json!({"always": {}}));
    let is_limited = |world: &World| condition(world, "delete.belay.dev").is_some();
    assert!(is_limited(&world));
    // A kind that no policy needs is of no interest.
    let kinds = &world.graph.kinds;
    let find = |(group, kind)| kinds.find(group, kind).unwrap();
    let [pod, set, job] = [("", "Pod"), ("apps", "ReplicaSet"), ("batch", "Job")].map(find);
    let served = crate::cluster::world::ServedVerbs { list: true, watch: true };
    for kind in [pod, set, job] {
        world.served.insert(kind, served);
    }
    assert!(!is_limited(&world), "no list was read");
    world.watched.insert(pod);
    assert!(!is_limited(&world), "ReplicaSets may have owners");
    world.watched.insert(set);
    assert!(is_limited(&world));
    world.owner_kinds.insert((pod, job), tokio::time::Instant::now());
    assert!(!is_limited(&world), "the rules do not contain Jobs yet");
    world.protected_owner_kinds.insert((pod, job));
    assert!(!is_limited(&world), "Jobs are unread");
    world.graph.set_incomplete(job, crate::objects::ApiError::NotFound);
    assert!(is_limited(&world), "belay can't read Jobs");
}
