//! Tests which events make a release check a waiting object.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::{Value, json};

use super::super::objects::ObjectSink;
use super::super::watcher::WatchSink;
use super::{find_used_waiting_objects_limited, is_unused};
use crate::cluster::world::{SharedWorld, WaitingObject, World};
use crate::graph::{StepBudget, StepCounter};
use crate::relations::Catalogue;

/// A world that the feed's sinks update.
struct FedWorld {
    world: SharedWorld,
}

impl FedWorld {
    fn new() -> Self {
        let mut world = World::default();
        world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
        Self { world: Arc::new(RwLock::new(world)) }
    }

    fn sink(&self, (group, kind): (&str, &str)) -> ObjectSink {
        let kind = self.world.read().graph.kinds.find(group, kind).unwrap();
        ObjectSink::new(self.world.clone(), kind, true, Arc::default(), Duration::ZERO)
    }

    fn store(&self, kind: (&str, &str), object: &Value) {
        self.sink(kind).change(&object.to_string()).unwrap();
    }

    fn remove(&self, kind: (&str, &str), object: &Value) {
        self.sink(kind).remove(&object.to_string()).unwrap();
    }

    /// The number of changes of the users of the waiting object, and whether it has no user.
    fn state(&self) -> (u64, bool) {
        let world = self.world.read();
        let seen: Vec<&WaitingObject> = world.waiting.objects.values().collect();
        assert_eq!(seen.len(), 1);
        (seen[0].changes, seen[0].unused)
    }
}

fn held(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "1",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["belay.dev/hold"]}})
}

const MAP: (&str, &str) = ("", "ConfigMap");
const POD: (&str, &str) = ("", "Pod");

#[test]
fn only_changes_that_decide_whether_a_user_counts_start_a_check() {
    let fed = FedWorld::new();
    let mut pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "p"},
        "spec": {"containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "data"}}]}]}});
    fed.store(POD, &pod);
    let mut target = held("data");
    fed.store(MAP, &target);
    assert_eq!(fed.state(), (0, false));

    // The release of the object writes a token.
    target["metadata"]["annotations"] = json!({"belay.dev/release-token": "belay-0/1"});
    target["metadata"]["resourceVersion"] = json!("2");
    fed.store(MAP, &target);
    assert_eq!(fed.state(), (0, false));
    pod["status"] = json!({"phase": "Running"});
    pod["metadata"]["annotations"] = json!({"seen": "yes"});
    pod["metadata"]["resourceVersion"] = json!("2");
    fed.store(POD, &pod);
    assert_eq!(fed.state(), (0, false));

    pod["metadata"]["labels"] = json!({"app": "web"});
    fed.store(POD, &pod);
    assert_eq!(fed.state(), (1, false));
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    fed.store(POD, &pod);
    assert_eq!(fed.state(), (2, false));
    pod["status"] = json!({"phase": "Succeeded"});
    fed.store(POD, &pod);
    assert_eq!(fed.state(), (3, true));
    fed.remove(POD, &pod);
    assert_eq!(fed.state(), (4, true));
}

/// The object lost its label while it was Terminating, so no list of labelled objects contains it.
#[test]
fn list_keeps_unwatched_waiting_object() {
    let fed = FedWorld::new();
    let mut sink = fed.sink(MAP);
    sink.covers_all = false;
    sink.change(&held("watched").to_string()).unwrap();
    sink.change(&held("data").to_string()).unwrap();
    let kind = sink.kind;
    let key = |name: &str| (kind, "a".to_owned(), name.to_owned());
    {
        let mut world = fed.world.write();
        world.waiting.changed.clear();
        world.graph.delete(kind, "a", "data", None);
        world.waiting.objects.get_mut(&key("data")).unwrap().unwatched = true;
    }
    sink.begin();
    sink.end();
    let world = fed.world.read();
    assert_eq!(world.waiting.objects.keys().collect::<Vec<_>>(), [&key("data")]);
    assert_eq!(world.waiting.objects[&key("data")].changes, 0);
    // The other object may only have lost its label.
    assert_eq!(world.left_watch, [key("watched")].into());
}

#[test]
fn only_a_leader_records_held_objects_that_left_the_watch() {
    let fed = FedWorld::new();
    let mut sink = fed.sink(MAP);
    sink.covers_all = false;
    let plain = json!({"metadata": {"name": "plain", "namespace": "a", "uid": "plain"}});
    let left = |sink: &mut ObjectSink, leads: bool| {
        sink.signals.leading.send_replace(leads);
        for object in [&held("data"), &plain] {
            sink.change(&object.to_string()).unwrap();
            sink.remove(&object.to_string()).unwrap();
        }
        fed.world.read().left_watch.iter().map(|(.., name)| name.clone()).collect::<Vec<_>>()
    };
    assert!(left(&mut sink, false).is_empty());
    assert_eq!(left(&mut sink, true), ["data"]);
}

/// A StatefulSet needs its PersistentVolumeClaims by a name pattern.
#[test]
fn deletion_of_a_user_by_pattern_starts_a_check() {
    let fed = FedWorld::new();
    let set = ("apps", "StatefulSet");
    let db = json!({"metadata": {"name": "db", "namespace": "a", "uid": "db"}, "spec": {
        "replicas": 0, "template": {"spec": {"containers": []}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}});
    let mut other = db.clone();
    other["metadata"] = json!({"name": "other", "namespace": "a", "uid": "other"});
    fed.store(set, &db);
    fed.store(set, &other);
    fed.store(("", "PersistentVolumeClaim"), &held("data-db-0"));
    assert_eq!(fed.state(), (0, false));
    fed.remove(set, &other);
    assert_eq!(fed.state(), (0, false));
    fed.remove(set, &db);
    assert_eq!(fed.state(), (1, true));
}

/// Users with edit rights choose how many objects wait, and how many references point to them.
#[test]
fn an_event_has_a_bounded_number_of_steps_however_many_objects_wait() {
    let fed = FedWorld::new();
    let (set, claim) = (("apps", "StatefulSet"), ("", "PersistentVolumeClaim"));
    let templates: Vec<_> =
        (0..100).map(|n| json!({"metadata": {"name": format!("data{n}")}})).collect();
    let owner = json!({"metadata": {"name": "db", "namespace": "a", "uid": "db"},
        "spec": {"replicas": 1, "volumeClaimTemplates": templates}});
    fed.store(set, &owner);
    (0..100).for_each(|n| fed.store(claim, &held(&format!("data{n}-db-0"))));
    let world = fed.world.read();
    let kind = world.graph.kinds.find(set.0, set.1).unwrap();
    let json = owner.to_string();
    let object = serde_json::from_str(&json).unwrap();
    let uses = |most| {
        let budget = StepBudget::new(most);
        let before =
            find_used_waiting_objects_limited(&world, kind, &object, StepCounter::new(&budget));
        (before.waiting.len(), budget.steps())
    };
    let (all, steps) = uses(usize::MAX);
    assert_eq!(all, 100);
    assert!(steps > 10_000, "{steps}");
    let (some, steps) = uses(1_000);
    assert!(some < 100 && steps < 1_200, "{some} in {steps} steps");

    // Beyond the budget, an object does not count as unused.
    let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
    drop(world);
    fed.store(MAP, &held("data"));
    let pod = |n: usize| {
        json!({"metadata": {"name": format!("p{n}"), "namespace": "a", "uid": format!("p{n}")},
            "status": {"phase": "Succeeded"},
            "spec": {"volumes": [{"name": "data", "configMap": {"name": "data"}}]}})
    };
    (0..100).for_each(|n| fed.store(POD, &pod(n)));
    let world = fed.world.read();
    let node = world.graph.find(kind, "a", "data").unwrap();
    let unused = |most| is_unused(&world.graph, node, StepCounter::new(&StepBudget::new(most)));
    assert!(unused(1_000) && !unused(100));
}
