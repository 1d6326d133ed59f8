use super::*;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::graph::listing::Listing;
use crate::objects::{Kinds, NumberSet, Unreadable};

impl Graph {
    /// Replaces all objects of a kind, and sets the kind to complete. Objects that the graph
    /// already has and that are in the new list are never absent in between.
    pub(in crate::graph) fn replace_kind<'o>(
        &mut self,
        kind: KindId,
        objects: impl IntoIterator<Item = (&'o Object<'o>, ObjectPhase, Edges)>,
    ) {
        let mut listing = Listing::new(kind);
        for (object, phase, edges) in objects {
            let too_many = edges.too_many;
            self.apply(kind, object, phase, edges);
            self.add_to_listing(&mut listing, object, too_many);
        }
        self.end_listing(listing);
        self.set_complete(kind, true);
    }
}

fn manifest(name: &str, uid: &str, owner: Option<&str>) -> Value {
    let owners: Vec<_> = owner
        .iter()
        .map(|o| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o, "uid": format!("uid-{o}")}))
        .collect();
    json!({"metadata": {"name": name, "namespace": "shop", "uid": uid, "ownerReferences": owners,
        "annotations": {"belay.dev/x": "1", "team": "blue", "other": "2"}}})
}

#[test]
fn a_deleted_owner_is_remembered_until_its_last_dependent_is_deleted() {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let chain = [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("c"))];
    for (name, owner) in chain {
        let value = manifest(name, &format!("uid-{name}"), owner);
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    let uid = |name: &str| Uid::new(&format!("uid-{name}"));
    for name in ["c", "a", "b"] {
        graph.delete(kind, "shop", name, None);
    }
    let owner =
        |graph: &Graph, name| graph.deleted_object(uid(name)).map(|object| object.owners[0].uid);
    assert_eq!(owner(&graph, "c"), Some(uid("b")));
    assert_eq!(owner(&graph, "b"), Some(uid("a")), "only the deleted c names it");
    graph.delete(kind, "shop", "d", None);
    assert!(graph.deleted_objects.is_empty());
}

/// A ConfigMap with `count` owners of two kinds.
fn owned(count: usize) -> Value {
    let owner = |n| {
        json!({"apiVersion": "v1", "kind": if n % 2 == 0 { "Pod" } else { "Secret" },
        "name": format!("owner-{n}"), "uid": format!("uid-{n}")})
    };
    json!({"metadata": {"name": "owned", "namespace": "shop", "uid": "owned",
        "ownerReferences": (0..count).map(owner).collect::<Vec<_>>()}})
}

#[test]
fn too_many_owner_references_keep_their_uids_and_kinds_and_get_no_nodes() {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let dependents = |graph: &Graph, n: usize| {
        let uid = Uid::new(&format!("uid-{n}"));
        graph.dependents_of(uid).map(|node| node.name().to_owned()).collect::<Vec<_>>()
    };
    // Each version replaces the previous one completely.
    for count in [27_000, MAX_LIST_ENTRIES, 27_000, 2, MAX_LIST_ENTRIES + 1] {
        let value = owned(count);
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        let node = graph.object(kind, "shop", "owned").unwrap();
        let many = count > MAX_LIST_ENTRIES;
        assert_eq!(node.has_too_many_owners(), many);
        let owners = if many { 0 } else { count };
        assert_eq!(graph.node_count(), 2 + owners, "itself and its namespace");
        assert_eq!(node.owner_uids().count(), count);
        assert_eq!(node.owner_kinds().collect::<NumberSet<_>>().len(), 2);
        assert_eq!(dependents(&graph, count - 1), ["owned"]);
        assert!(dependents(&graph, count).is_empty());
        assert!(graph.dependents.size() <= count + MAX_LIST_ENTRIES, "{}", graph.dependents.size());
    }
    graph.delete(kind, "shop", "owned", None);
    assert_eq!((graph.node_count(), graph.edge_count(), graph.dependents.size()), (0, 0, 0));
}

#[test]
fn h37_labels_that_change_leave_no_bytes_behind() {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    for (labels, changes) in [(15_000, 4), (12, 2_000)] {
        for change in 0..changes {
            let label = |n| (format!("k{n}"), format!("{change:06}{n:057}"));
            let labels: std::collections::BTreeMap<_, _> = (0..labels).map(label).collect();
            let value = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "a",
                "labels": labels, "finalizers": labels.keys().collect::<Vec<_>>()}});
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        }
        assert!(graph.interner.bytes() < 1 << 20, "{labels}: {}", graph.interner.bytes());
    }
}

#[test]
fn maps_that_were_large_become_small_again() {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    for n in 0..20_000 {
        let value = manifest(&n.to_string(), &format!("uid-{n}"), Some(&format!("o{n}")));
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
    }
    let large = (graph.nodes.capacity(), graph.dependents.capacity());
    assert!(large.0 >= 40_000 && large.1 >= 20_000, "{large:?}");
    graph.replace_kind(kind, []);
    let small = (graph.nodes.capacity(), graph.dependents.capacity());
    assert!(small.0 < 8_000 && small.1 < 8_000, "{small:?}");
}

#[test]
fn the_owners_version_is_the_version_that_may_have_added_an_owner_reference() {
    let mut graph = Graph::default();
    graph.track_owner_versions();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let apply = |graph: &mut Graph, name: &str, version: &str, owner| {
        let mut value = manifest(name, &format!("uid-{name}"), owner);
        value["metadata"]["resourceVersion"] = json!(version);
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        graph.object(kind, "shop", name).unwrap().owners_version()
    };
    // A listed object may have got its owners at its current version.
    assert_eq!(apply(&mut graph, "listed", "5", Some("a")), 5);
    assert_eq!(apply(&mut graph, "listed", "6", Some("a")), 5, "no new owner");
    graph.set_complete(kind, true);
    assert_eq!(apply(&mut graph, "created", "7", Some("a")), 0);
    assert_eq!(apply(&mut graph, "created", "8", None), 8, "no owner");
    assert_eq!(apply(&mut graph, "created", "9", Some("b")), 9);
    let name = Some(("shop".to_owned(), "unread".to_owned()));
    graph.set_unreadable(kind, &Unreadable { name, ..Unreadable::of_unknown_name() });
    assert_eq!(apply(&mut graph, "unread", "10", Some("a")), 10, "it existed before");
    graph.set_stale(kind);
    assert_eq!(apply(&mut graph, "later", "11", Some("a")), 11, "its creation is unknown");
    assert_eq!(apply(&mut graph, "later", "no number", Some("b")), u64::MAX);
}

#[test]
fn a_few_lost_owners_of_an_object_are_remembered() {
    let mut graph = Graph::default();
    graph.track_owner_versions();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let apply = |graph: &mut Graph, version: u64, owners: &[&str]| {
        let mut value = manifest("child", "uid-child", None);
        let owner = |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
        value["metadata"]["ownerReferences"] = owners.iter().map(owner).collect();
        value["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = Object::deserialize(&value).unwrap();
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        let child = graph.object(kind, "shop", "child").unwrap();
        let past = child.past_owners().iter().map(|past| (past.owner.uid, past.version));
        (child.owners_version(), past.collect::<Vec<_>>())
    };
    let uid = Uid::new;
    assert_eq!(apply(&mut graph, 5, &["a", "b", "c"]), (5, vec![]));
    assert_eq!(apply(&mut graph, 6, &["a", "b"]), (5, vec![(uid("c"), 6)]));
    let lost = vec![(uid("c"), 6), (uid("a"), 7)];
    assert_eq!(apply(&mut graph, 7, &["b"]), (5, lost));
    // With a new owner, the past owners are forgotten.
    assert_eq!(apply(&mut graph, 8, &["b", "a"]), (8, vec![]));
    assert_eq!(apply(&mut graph, 9, &[]), (9, vec![]));
    let many: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(apply(&mut graph, 10, &many), (10, vec![]));
    assert_eq!(apply(&mut graph, 11, &many[9..]), (11, vec![]), "too many");

    // The graph forgets the past owners when the object is deleted.
    apply(&mut graph, 12, &many[10..]);
    assert!(graph.deleted_objects.is_named_as_owner(uid("o9")));
    graph.delete(kind, "shop", "child", None);
    assert!(graph.deleted_objects.is_empty());
}

/// The kind of the topmost owner of a Pod with these owners: group, kind, and whether the owner is
/// the controller. Editors write owners, and messages advise to delete the topmost owner.
fn root_of_pod(owners: &[(&str, &str, bool)]) -> String {
    let mut graph = Graph::default();
    graph.kinds.learn(Kinds::custom("example.com", "v1", "Database", "databases", true));
    graph.kinds.learn(Kinds::custom("example.com", "v1", "Fleet", "fleets", false));
    let mut apply = |group: &str, kind: &str, owners: Vec<Value>| {
        let id = graph.kinds.find(group, kind).unwrap();
        let mut object = manifest(kind, kind, None);
        object["metadata"]["ownerReferences"] = owners.into();
        if !graph.kinds.info(id).namespaced {
            object["metadata"]["namespace"] = "".into();
        }
        let object = Object::deserialize(&object).unwrap();
        graph.apply(id, &object, ObjectPhase::Active, Edges::default());
    };
    let reference = |&(group, kind, controller): &(&str, &str, bool)| {
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        json!({"apiVersion": api_version, "kind": kind, "name": kind, "uid": kind,
            "controller": controller})
    };
    for (group, kind, _) in owners {
        apply(group, kind, Vec::new());
    }
    apply("", "Pod", owners.iter().map(reference).collect());
    let pod = graph.object(graph.kinds.find("", "Pod").unwrap(), "shop", "Pod").unwrap();
    assert_eq!(pod.existing_owners().count(), owners.len());
    pod.topmost_owner().name().to_owned()
}

#[test]
fn h136_an_owner_that_an_editor_adds_in_front_of_the_controller_is_not_followed() {
    let owners = [("apps", "Deployment", false), ("apps", "ReplicaSet", true)];
    assert_eq!(root_of_pod(&owners), "ReplicaSet");
}

#[test]
fn h142_only_a_workload_or_custom_controller_in_the_namespace_manages_an_object() {
    for (group, kind, as_owner, as_controller) in [
        ("apps", "ReplicaSet", true, true),
        ("apps", "StatefulSet", true, true),
        ("apps", "DaemonSet", true, true),
        ("batch", "Job", true, true),
        // h150: their controllers create no Pods, and remove no reference to them.
        ("apps", "Deployment", false, false),
        ("batch", "CronJob", false, false),
        ("", "ReplicationController", true, true),
        ("example.com", "Database", false, true),
        ("example.com", "Fleet", false, false),
        ("apps", "ControllerRevision", false, false),
        ("storage.k8s.io", "StorageClass", false, false),
        ("", "PersistentVolumeClaim", false, false),
        ("", "ResourceQuota", false, false),
        ("", "Namespace", false, false),
        ("", "Secret", false, false),
        ("", "Node", false, false),
    ] {
        for (controller, manages) in [(false, as_owner), (true, as_controller)] {
            let root = root_of_pod(&[(group, kind, controller)]);
            assert_eq!(root, if manages { kind } else { "Pod" }, "{kind} {controller}");
        }
    }
    let owners = [("", "Secret", true), ("apps", "ReplicaSet", false)];
    assert_eq!(root_of_pod(&owners), "ReplicaSet");
}

#[test]
fn replace_kind_removes_other_objects_and_completes_the_kind() {
    let mut graph = Graph::default();
    graph.keep_annotations(["team".to_owned()]);
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let values = [
        manifest("stays", "uid-stays", None),
        manifest("goes", "uid-goes", Some("stays")),
        manifest("again", "uid-old", None),
    ];
    for value in &values {
        let object = Object::deserialize(value).unwrap();
        let applied = graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        assert_eq!(applied, ApplyResult::Created);
    }
    assert!(!graph.is_complete(kind));
    let now = [manifest("stays", "uid-stays", None), manifest("again", "uid-again", Some("stays"))];
    let objects: Vec<_> = now.iter().map(|v| Object::deserialize(v).unwrap()).collect();
    graph.replace_kind(kind, objects.iter().map(|o| (o, ObjectPhase::Active, Edges::default())));
    assert!(graph.is_complete(kind));
    let mut names: Vec<_> = graph
        .objects_of_kind(kind)
        .filter_map(|id| graph.get(id))
        .map(|n| n.name().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["again", "stays"]);
    assert!(graph.find(kind, "shop", "goes").is_none(), "no object refers to this node");

    let again = graph.get(graph.find(kind, "shop", "again").unwrap()).unwrap();
    assert_eq!(again.uid(), Uid::new("uid-again"));
    let stays = graph.get(graph.find(kind, "shop", "stays").unwrap()).unwrap();
    assert_eq!(graph.dependents(stays).map(|n| n.name()).collect::<Vec<_>>(), ["again"]);
    let kept: Vec<_> = stays.annotations().iter().collect();
    assert_eq!(kept, [("belay.dev/x", "1"), ("team", "blue")]);
    graph.replace_kind(kind, []);
    assert_eq!((graph.object_count(), graph.edge_count(), graph.node_count()), (0, 0, 0));
}
