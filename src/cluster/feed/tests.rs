//! Tests of the plan of watches and of the rules in force, without an API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::objects::ObjectSink;
use super::own_kinds::{OtherVersion, OwnObjects};
use super::plan::{WatchScope, plan};
use super::rules_in_force::{OwnCrds, RulesChange, RulesInForce};
use super::waiting;
use super::watcher::WatchSink as _;
use crate::cluster::context::Settings;
use crate::cluster::world::{ServedVerbs, World, store};
use crate::objects::{ApiError, KindId};
use crate::policy::api::{DeletionPolicy, DeletionPolicySpec, Relation};
use crate::policy::{Policy, PolicySet};
use crate::relations::Catalogue;
use crate::timing::{self, Timing};

fn timing() -> timing::Feed {
    Timing::default().feed
}

fn policy(name: &str, spec: &str) -> DeletionPolicy {
    let spec: DeletionPolicySpec = serde_saphyr::from_str(spec).unwrap();
    DeletionPolicy::new(name, spec)
}

const CONFIG_MAPS: &str =
    "{targets: [{apiGroups: [''], resources: [configmaps]}], protect: {whileUsed: {}}}";

fn world(policies: &[DeletionPolicy]) -> World {
    let mut world = World::default();
    let kinds: Vec<KindId> = world.graph.kinds.iter().map(|(kind, _)| kind).collect();
    let listed = ServedVerbs { list: true, watch: true };
    world.served = kinds.into_iter().map(|kind| (kind, listed)).collect();
    world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
    let compiled = policies
        .iter()
        .map(|p| Policy::compile(p.metadata.name.as_deref().unwrap(), &p.spec).unwrap());
    world.policies = PolicySet::new(compiled.collect(), &world.catalogue);
    world
}

fn planned(world: &World, labelled: &[(&str, &str)]) -> Vec<(String, WatchScope)> {
    let planned = plan(world, &Settings::of_test(labelled));
    planned
        .into_iter()
        .map(|(kind, want)| (world.graph.kinds.info(kind).resource.clone(), want))
        .collect()
}

fn kinds(planned: &[(String, WatchScope)]) -> BTreeSet<&str> {
    planned.iter().map(|(kind, _)| kind.as_str()).collect()
}

#[test]
fn watches_only_kinds_that_policies_need() {
    let planned = planned(&world(&[]), &[]);
    assert_eq!(kinds(&planned), BTreeSet::from(["customresourcedefinitions", "namespaces"]));
}

#[test]
fn watches_targets_their_users_and_the_kinds_of_known_owners() {
    let mut world = world(&[policy("p", CONFIG_MAPS)]);
    let planned_before = planned(&world, &[]);
    let before = kinds(&planned_before);
    for kind in ["configmaps", "pods", "deployments", "cronjobs"] {
        assert!(before.contains(kind), "{kind} of {before:?}");
    }
    assert!(!before.contains("secrets") && !before.contains("nodes"), "{before:?}");
    // A Node owns static Pods. belay has seen such a reference, so it watches Nodes.
    let find = |name: &str| world.graph.kinds.find_resource("", name).unwrap();
    world.owner_kinds.insert((find("pods"), find("nodes")), tokio::time::Instant::now());
    assert!(kinds(&planned(&world, &[])).contains("nodes"));
}

#[test]
fn secrets_are_watched_for_a_policy_but_never_their_data() {
    let spec = CONFIG_MAPS.replace("configmaps", "secrets");
    let world = world(&[policy("p", &spec)]);
    assert!(kinds(&planned(&world, &[])).contains("secrets"));
    let secrets = world.graph.kinds.find_resource("", "secrets").unwrap();
    assert_eq!(world.detail(secrets), crate::cluster::api::Detail::Metadata);
    let pods = world.graph.kinds.find_resource("", "pods").unwrap();
    assert_eq!(world.detail(pods), crate::cluster::api::Detail::Whole);
}

#[test]
fn labelled_kinds_are_watched_by_label_unless_a_policy_wants_them_all() {
    let labelled = [("", "configmaps"), ("", "services")];
    let planned = planned(&world(&[policy("p", CONFIG_MAPS)]), &labelled);
    let want =
        |resource: &str| planned.iter().find(|(kind, _)| kind == resource).map(|(_, want)| *want);
    assert_eq!(want("configmaps"), Some(WatchScope::All));
    assert_eq!(want("services"), Some(WatchScope::Labelled));
}

#[test]
fn does_not_watch_unwatchable_kinds() {
    let mut world = world(&[policy("p", CONFIG_MAPS)]);
    let pods = world.graph.kinds.find_resource("", "pods").unwrap();
    world.served.insert(pods, ServedVerbs { list: true, watch: false });
    assert!(!kinds(&planned(&world, &[])).contains("pods"));
}

#[test]
fn orphaning_needs_to_know_the_dependents() {
    let spec =
        "{targets: [{apiGroups: [apps], resources: [deployments]}], protect: {fromOrphaning: {}}}";
    assert!(kinds(&planned(&world(&[policy("p", spec)]), &[])).contains("replicasets"));
}

fn own_objects(policies: &[DeletionPolicy]) -> OwnObjects {
    let mut own_objects = OwnObjects::default();
    for policy in policies {
        own_objects.policies.all.insert(policy.metadata.name.clone().unwrap(), Ok(policy.clone()));
    }
    (own_objects.policies.synced, own_objects.relations.synced) = (true, true);
    own_objects
}

fn names(rules: &RulesInForce) -> Vec<&str> {
    rules.policies.keys().map(String::as_str).collect()
}

#[test]
fn removes_a_deleted_policy_and_keeps_the_last_valid_version_of_a_broken_one() {
    let now = Instant::now();
    let mut rules = RulesInForce::new(timing().thaw);
    let both = own_objects(&[policy("a", CONFIG_MAPS), policy("b", CONFIG_MAPS)]);
    assert!(rules.update(&both, OwnCrds::Present, now).policies);
    assert_eq!(
        rules.update(&both, OwnCrds::Present, now),
        RulesChange::default(),
        "nothing has changed"
    );
    let mut broken = own_objects(&[policy("a", CONFIG_MAPS)]);
    broken.policies.all.insert("b".to_owned(), Err(OtherVersion("no such field".to_owned())));
    assert!(!rules.update(&broken, OwnCrds::Present, now).policies);
    assert_eq!((names(&rules), rules.problems.len()), (vec!["a", "b"], 1));
    assert!(
        rules.update(&own_objects(&[policy("a", CONFIG_MAPS)]), OwnCrds::Present, now).policies
    );
    assert_eq!((names(&rules), rules.problems.len()), (vec!["a"], 0));
}

#[test]
fn the_annotation_for_backfills_counts_without_a_change_of_the_spec() {
    let now = Instant::now();
    let mut rules = RulesInForce::new(timing().thaw);
    let mut written = policy("a", CONFIG_MAPS);
    rules.update(&own_objects(&[written.clone()]), OwnCrds::Present, now);
    assert_eq!(rules.policies["a"].backfill_limit, None);
    for (text, number) in [("12000", Some(12_000)), ("0", Some(0)), ("many", None)] {
        let annotation = (crate::policy::BACKFILL_ANNOTATION.to_owned(), text.to_owned());
        written.metadata.annotations = Some([annotation].into());
        assert!(
            rules.update(&own_objects(&[written.clone()]), OwnCrds::Present, now).policies,
            "{text}"
        );
        assert_eq!(rules.policies["a"].backfill_limit, number, "{text}");
    }
}

/// After a restart, no earlier version is in force.
#[test]
fn reports_a_policy_or_relation_that_it_cannot_read() {
    let mut written = own_objects(&[policy("a", CONFIG_MAPS)]);
    let mut rules = RulesInForce::new(timing().thaw);
    rules.update(&written, OwnCrds::Present, Instant::now());
    assert_eq!(rules.first_unreadable(&written), None);
    written.policies.all.insert("b".to_owned(), Err(OtherVersion("no such field".to_owned())));
    rules.update(&written, OwnCrds::Present, Instant::now());
    assert_eq!(rules.first_unreadable(&written).as_deref(), Some("DeletionPolicy b"));
    written.policies.all.remove("b");
    written.relations.all.insert("r".to_owned(), Err(OtherVersion("no such field".to_owned())));
    rules.update(&written, OwnCrds::Present, Instant::now());
    assert_eq!(rules.first_unreadable(&written).as_deref(), Some("Relation r"));
}

#[test]
fn keeps_policies_while_their_crd_is_deleted_and_recreated() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut rules = RulesInForce::new(timing().thaw);
    rules.update(
        &own_objects(&[policy("a", CONFIG_MAPS), policy("b", CONFIG_MAPS)]),
        OwnCrds::Present,
        at(0),
    );
    // The CRD is Terminating, and its instances are deleted one by one.
    let one = own_objects(&[policy("b", CONFIG_MAPS)]);
    assert!(rules.would_remove(&one));
    rules.update(&one, OwnCrds::Absent, at(1));
    let mut none = own_objects(&[]);
    none.policies.error = Some(ApiError::NotFound);
    rules.update(&none, OwnCrds::Absent, at(2));
    assert!(rules.is_frozen());
    assert_eq!(names(&rules), ["a", "b"]);
    // The CRD is back without instances, but no user deleted the policies.
    rules.update(&own_objects(&[]), OwnCrds::Present, at(1000));
    assert_eq!((names(&rules), rules.is_frozen()), (vec!["a", "b"], true));
    // A user re-creates one policy now and the other one later.
    let again = |seconds, policies: &[DeletionPolicy], rules: &mut RulesInForce| {
        rules.update(&own_objects(policies), OwnCrds::Present, at(seconds))
    };
    let changed = policy("b", &CONFIG_MAPS.replace("whileUsed", "always"));
    again(2000, std::slice::from_ref(&changed), &mut rules);
    assert!(rules.is_frozen(), "it has only just changed");
    assert_eq!(names(&rules), ["a", "b"]);
    again(2100, std::slice::from_ref(&changed), &mut rules);
    assert_eq!(
        (names(&rules), rules.is_frozen()),
        (vec!["b"], false),
        "policies that were not re-created are removed"
    );
}

#[test]
fn removes_nothing_while_it_is_unknown_whether_the_kind_exists() {
    let now = Instant::now();
    let mut rules = RulesInForce::new(timing().thaw);
    rules.update(&own_objects(&[policy("a", CONFIG_MAPS)]), OwnCrds::Present, now);
    let change = rules.update(&own_objects(&[]), OwnCrds::Unknown, now);
    assert_eq!((names(&rules), change.retry_after.is_some()), (vec!["a"], true));
}

#[test]
fn a_relation_that_cannot_be_used_is_left_out_and_the_others_are_in_force() {
    let relation = |name: &str, path: &str| {
        let spec = json!({"from": {"group": "e.x", "resource": "dbs"}, "to": {"resource": "secrets"}, "nameFieldPath": path});
        Relation::new(name, serde_json::from_value(spec).unwrap())
    };
    let mut own_objects = own_objects(&[]);
    own_objects.relations.all.insert("good".into(), Ok(relation("good", "spec.secret")));
    own_objects.relations.all.insert("bad".into(), Ok(relation("bad", "spec.[")));
    let mut rules = RulesInForce::new(timing().thaw);
    assert!(rules.update(&own_objects, OwnCrds::Present, Instant::now()).relations);
    assert_eq!(rules.relations.keys().collect::<Vec<_>>(), ["good"]);
}

/// Stores an object like the feed.
fn feed(world: &mut World, resource: &str, object: &serde_json::Value) -> bool {
    let kind = world.graph.kinds.find_resource("", resource).unwrap();
    let json = object.to_string();
    let parsed = serde_json::from_str(&json).unwrap();
    let used = waiting::find_used_waiting_objects(world, kind, &parsed);
    let World { graph, catalogue, .. } = &mut *world;
    let node = store(graph, catalogue, kind, &json, None).unwrap();
    let waiting_state = waiting::waiting_state(&parsed, &json).unwrap();
    waiting::record_stored(world, node, waiting_state) | waiting::record_user_change(world, &used)
}

#[test]
fn records_waiting_objects_and_the_deletion_of_their_last_user() {
    let mut world = world(&[policy("p", CONFIG_MAPS)]);
    let config = |deleted: bool| {
        let mut metadata = json!({"name": "c", "namespace": "n", "uid": "c", "resourceVersion": "1",
            "finalizers": ["belay.dev/hold"]});
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        json!({ "metadata": metadata })
    };
    let pod = |name: &str, phase: &str| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
            "spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}]}, "status": {"phase": phase}})
    };
    assert!(!feed(&mut world, "configmaps", &config(false)), "it does not wait yet");
    assert!(!feed(&mut world, "pods", &pod("a", "Running")));
    assert!(!feed(&mut world, "pods", &pod("b", "Running")));
    assert!(feed(&mut world, "configmaps", &config(true)));
    let unused =
        |world: &World| world.waiting.objects.values().map(|seen| seen.unused).collect::<Vec<_>>();
    assert_eq!(unused(&world), [false]);
    world.waiting.changed.clear();
    // One Pod has ended, so a release must check. The other Pod still needs the object.
    assert!(feed(&mut world, "pods", &pod("a", "Succeeded")));
    assert_eq!(unused(&world), [false]);
    world.waiting.changed.clear();
    // The other Pod was deleted while the watch was disconnected, so the list does not contain it.
    let pods = world.graph.kinds.find_resource("", "pods").unwrap();
    world.graph.end_listing(crate::graph::Listing::new(pods));
    assert!(waiting::record_list_end(&mut world, pods));
    assert_eq!(unused(&world), [true]);
    // Without its hold, the object no longer waits.
    let mut free = config(true);
    free["metadata"]["finalizers"] = json!(["other/one"]);
    feed(&mut world, "configmaps", &free);
    assert!(world.waiting.objects.is_empty());
}

#[test]
fn an_unreadable_object_may_use_anything_until_it_is_read_or_deleted() {
    let world = Arc::new(parking_lot::RwLock::new(world(&[policy("p", CONFIG_MAPS)])));
    let pods = world.read().graph.kinds.find_resource("", "pods").unwrap();
    let mut sink = ObjectSink::new(world.clone(), pods, true, Arc::default(), timing().grace);
    let pod = |name: &str, labels: serde_json::Value| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": labels}})
            .to_string()
    };
    let (good, bad) = (|name| pod(name, json!({"a": "b"})), |name| pod(name, json!(["hunter2"])));
    let unreadable = || world.read().graph.describe_unreadable(pods, "n");
    sink.begin();
    assert!(sink.add_listed(&good("one")).is_ok() && sink.add_listed(&bad("two")).is_err());
    sink.end();
    sink.current();
    assert_eq!(unreadable().as_deref(), Some("Pod n/two can't be read"));
    assert!(world.read().graph.is_current(pods), "the others are known");
    assert!(sink.change(&good("two")).is_ok());
    assert_eq!(unreadable(), None);

    // The known state stays until the object is deleted.
    assert!(sink.change(&bad("one")).is_err());
    assert_eq!(unreadable().as_deref(), Some("Pod n/one can't be read"));
    assert!(world.read().graph.object(pods, "n", "one").is_some());
    assert!(sink.remove(&bad("one")).is_err());
    assert_eq!(unreadable(), None);
    assert!(world.read().graph.object(pods, "n", "one").is_none());

    // An object without a known name counts as unreadable until the next list.
    assert!(sink.change(r#"{"metadata": {"name": 1}}"#).is_err());
    assert_eq!(unreadable().as_deref(), Some("Pod of unknown name can't be read"));
    sink.disconnected();
    assert!(!world.read().graph.is_current(pods) && world.read().graph.is_complete(pods));
    sink.begin();
    assert!(sink.add_listed(&good("two")).is_ok());
    sink.end();
    sink.current();
    assert_eq!(unreadable(), None);
    assert!(world.read().graph.proves_absence(pods, "n", "one"));
}

#[test]
fn an_object_with_too_many_references_is_known_without_them_and_may_use_anything() {
    let world = Arc::new(parking_lot::RwLock::new(world(&[policy("p", CONFIG_MAPS)])));
    let pods = world.read().graph.kinds.find_resource("", "pods").unwrap();
    let mut sink = ObjectSink::new(world.clone(), pods, true, Arc::default(), timing().grace);
    let pod = |count: usize| {
        let sources = (0..count).map(|n| json!({"configMap": {"name": format!("c{n}")}}));
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "p", "labels": {"a": "b"}},
            "spec": {"volumes": [{"projected": {"sources": sources.collect::<Vec<_>>()}}]}})
        .to_string()
    };
    let found = || {
        let graph = &world.read().graph;
        assert!(graph.object(pods, "n", "p").unwrap().labels().get("a").is_some());
        (graph.edge_count(), graph.describe_unreadable(pods, "n"))
    };
    let many = || (0, Some("Pod n/p has more than 4000 references".to_owned()));
    for count in [4_001, 70_000] {
        sink.begin();
        assert!(sink.add_listed(&pod(count)).is_ok(), "it never ends the watch");
        sink.end();
        sink.current();
        assert_eq!(found(), many());
        assert_eq!(world.read().graph.describe_unreadable(pods, "other"), None);
        assert!(sink.change(&pod(4_000)).is_ok());
        assert_eq!(found(), (4_000, None));
        assert!(sink.change(&pod(count)).is_ok());
        assert_eq!(found(), many());
    }
    assert!(sink.remove(&pod(4_001)).is_ok());
    assert_eq!(world.read().graph.describe_unreadable(pods, "n"), None);
}

#[tokio::test(start_paused = true)]
async fn kinds_of_owners_are_forgotten_with_the_last_reference_and_some_are_never_learned() {
    let world = Arc::new(parking_lot::RwLock::new(world(&[policy("p", CONFIG_MAPS)])));
    let maps = world.read().graph.kinds.find_resource("", "configmaps").unwrap();
    let mut sink = ObjectSink::new(world.clone(), maps, true, Arc::default(), timing().grace);
    let object = |name: &str, owners: &[(&str, &str)]| {
        let owners = owners.iter().map(|(version, kind)| {
            json!({"apiVersion": version, "kind": kind, "name": "none", "uid": "none"})
        });
        json!({"metadata": {"name": name, "namespace": "n", "uid": name,
            "ownerReferences": owners.collect::<Vec<_>>()}})
        .to_string()
    };
    let is_planned = |resource: &str| kinds(&planned(&world.read(), &[])).contains(resource);
    let made_up = [
        ("v1", "Secret"),
        ("v1", "Node"),
        ("v1", "Event"),
        ("events.k8s.io/v1", "Event"),
        ("coordination.k8s.io/v1", "Lease"),
        ("discovery.k8s.io/v1", "EndpointSlice"),
    ];
    sink.change(&object("odd", &made_up)).unwrap();
    sink.change(&object("real", &[("v1", "Node")])).unwrap();
    assert!(is_planned("secrets") && is_planned("nodes"), "at once");
    for resource in ["events", "leases", "endpointslices"] {
        assert!(!is_planned(resource), "{resource}");
    }
    let passes = async |seconds| {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        world.write().forget_owner_kinds(timing().owners);
    };
    passes(600).await;
    assert!(is_planned("secrets"), "while there is a reference");
    sink.remove(&object("odd", &made_up)).unwrap();
    passes(60).await;
    assert!(is_planned("secrets"), "for a while, because the reference may come back");
    passes(61).await;
    assert!(!is_planned("secrets") && is_planned("nodes"));
    // A change of the object ends the reference, like a deletion.
    sink.change(&object("real", &[("v1", "Secret")])).unwrap();
    assert!(is_planned("secrets"));
    passes(121).await;
    assert!(is_planned("secrets") && !is_planned("nodes"));
}
