//! Compares fates with the model of the garbage collector, and tests each rule.

mod collector;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Deserialize as _;
use serde_json::json;

use super::oracle::{Obj, Ref, Rules, State};
use super::*;
use crate::graph::{Edges, ObjectPhase};
use crate::objects::Object;

const QUIET: Rules = Rules { strip: false, errors_dangle: false };

/// The number of certain fates, and of fates that were only Possible although every final
/// state agreed. Code that always returns Possible would pass every other check.
#[derive(Debug, Default, Clone, Copy)]
struct Tightness {
    certain: usize,
    loose: usize,
}

/// A graph of these manifests, fed through the catalogue.
fn feed(manifests: &[(&str, serde_json::Value)]) -> Graph {
    let mut kinds = crate::objects::Kinds::default();
    kinds.learn(crate::objects::Kinds::custom("example.com", "v1", "Widget", "widgets", true));
    let catalogue = crate::relations::Catalogue::new(&kinds, &[]).unwrap();
    let mut graph = Graph::new(kinds);
    let all: Vec<_> = graph.kinds.iter().map(|(id, _)| id).collect();
    all.iter().for_each(|id| graph.set_complete(*id, true));
    for (kind, manifest) in manifests {
        let id = all.iter().find(|id| graph.kinds.info(**id).kind == *kind).unwrap();
        catalogue.parse_and_apply(&mut graph, *id, &manifest.to_string()).unwrap();
    }
    graph
}

fn find(graph: &Graph, name: &str) -> NodeId {
    let mut all = graph.kinds.iter().flat_map(|(kind, _)| graph.objects_of_kind(kind));
    all.find(|id| graph.get(*id).unwrap().name() == name).unwrap()
}

/// A line `name: outcome certainty` for each object and each user that breaks, sorted.
fn fate_lines(graph: &Graph, targets: &[(&str, Propagation)], refuse: &[&str]) -> Vec<String> {
    let targets: Vec<_> = targets.iter().map(|(name, p)| (find(graph, name), *p)).collect();
    let deny = |node: Node<'_>| refuse.contains(&node.name());
    let fates = fates(graph, &DeletionRequest { refuses: &deny, ..DeletionRequest::new(&targets) });
    assert!(fates.is_complete());
    let mut lines: Vec<_> = fates
        .iter()
        .map(|(id, fate)| {
            let name = graph.get(id).unwrap().name();
            format!("{name}: {:?} {:?}", fate.outcome, fate.certainty)
        })
        .collect();
    for (id, _) in fates.iter() {
        for (user, certainty) in fates.broken_by(graph, id) {
            let needs = graph.get(id).unwrap().name();
            lines.push(format!(
                "{}: Broken {certainty:?} by {needs} at {}",
                user.node.name(),
                user.path()
            ));
        }
    }
    lines.sort();
    lines
}

fn meta(name: &str, more: serde_json::Value) -> serde_json::Value {
    let mut metadata = json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}")});
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    json!({ "metadata": metadata })
}

fn owned_by(kind: &str, version: &str, name: &str) -> serde_json::Value {
    json!({"ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "blockOwnerDeletion": true}]})
}

#[test]
fn r14_a_namespace_deletes_its_content_except_objects_with_finalizers() {
    let mut outside = meta("outside", json!({"namespace": "other"}));
    outside["spec"] = json!({"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]});
    let mut ingress = meta("edge", json!({}));
    ingress["spec"] = json!({"tls": [{"secretName": "tls"}]});
    let graph = feed(&[
        ("Namespace", json!({"metadata": {"name": "shop", "uid": "uid-shop"}})),
        ("Secret", meta("tls", json!({}))),
        ("Ingress", ingress),
        (
            "PersistentVolumeClaim",
            meta("data", json!({"finalizers": ["kubernetes.io/pvc-protection"]})),
        ),
        ("Pod", outside),
    ]);
    let background = [("shop", Propagation::Background)];
    assert_eq!(
        fate_lines(&graph, &background, &[]),
        [
            "data: Terminating Certain",
            "edge: Deleted Certain",
            "shop: Terminating Certain",
            "tls: Deleted Certain"
        ]
    );
    // R13: an object whose DELETE is denied keeps the Namespace, but not the other objects.
    // It breaks if it needs one of them.
    assert_eq!(
        fate_lines(&graph, &background, &["edge"]),
        [
            "data: Terminating Certain",
            "edge: Broken Certain by tls at spec.tls[0].secretName",
            "shop: Terminating Certain",
            "tls: Deleted Certain"
        ]
    );
}

#[test]
fn r14_a_namespace_deleted_by_a_cascade_deletes_its_content() {
    let owner = owned_by("ClusterRole", "rbac.authorization.k8s.io/v1", "tenant");
    let namespace = json!({"metadata": {"name": "shop", "uid": "uid-shop", "ownerReferences": owner["ownerReferences"]}});
    let graph = feed(&[
        ("ClusterRole", json!({"metadata": {"name": "tenant", "uid": "uid-tenant"}})),
        ("Namespace", namespace),
        ("PersistentVolumeClaim", meta("data", json!({}))),
    ]);
    for targets in [
        &[("tenant", Propagation::Background)][..],
        // The Namespace is also a target, twice.
        &[
            ("tenant", Propagation::Background),
            ("shop", Propagation::Background),
            ("shop", Propagation::Background),
        ],
    ] {
        assert_eq!(
            fate_lines(&graph, targets, &[]),
            ["data: Deleted Certain", "shop: Deleted Certain", "tenant: Deleted Certain"]
        );
    }
}

#[test]
fn resolves_references_to_a_kind_that_is_learned_later() {
    let mut graph = Graph::default();
    let config_maps = graph.kinds.find("", "ConfigMap").unwrap();
    let catalogue = crate::relations::Catalogue::new(&graph.kinds, &[]).unwrap();
    let item = meta("item", owned_by("Widget", "example.com/v1", "w"));
    catalogue.parse_and_apply(&mut graph, config_maps, &item.to_string()).unwrap();
    let info = crate::objects::Kinds::custom("example.com", "v1", "Widget", "widgets", true);
    let widgets = graph.kinds.learn(info);
    catalogue.parse_and_apply(&mut graph, widgets, &meta("w", json!({})).to_string()).unwrap();
    let target = [("w", Propagation::Background)];
    assert_eq!(fate_lines(&graph, &target, &[]), ["item: Deleted Certain", "w: Deleted Certain"]);
    graph.kinds.forget(widgets);
    assert_eq!(fate_lines(&graph, &target, &[]), ["item: Deleted Possible", "w: Deleted Certain"]);
}

#[test]
fn r14_a_crd_deletes_its_instances_and_perhaps_their_dependents() {
    let crd = |established: &str| {
        json!({"metadata": {"name": "widgets.example.com", "uid": "uid-crd",
                            "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]},
               "status": {"conditions": [{"type": "Established", "status": established}]}})
    };
    let others = [
        ("Widget", meta("w", json!({}))),
        ("Widget", meta("held", json!({"finalizers": ["belay.dev/hold"]}))),
        ("ConfigMap", meta("made", owned_by("Widget", "example.com/v1", "w"))),
        ("ConfigMap", meta("kept", owned_by("Widget", "example.com/v1", "held"))),
    ];
    let target = [("widgets.example.com", Propagation::Background)];
    let graph = feed(&[&[("CustomResourceDefinition", crd("True"))], &others[..]].concat());
    assert_eq!(
        fate_lines(&graph, &target, &[]),
        [
            "held: Terminating Certain",
            "kept: Deleted Possible",
            "made: Deleted Possible",
            "w: Deleted Certain",
            "widgets.example.com: Terminating Certain"
        ]
    );
    // If the CRD is not served, its instances stay.
    let graph = feed(&[&[("CustomResourceDefinition", crd("False"))], &others[..]].concat());
    assert_eq!(fate_lines(&graph, &target, &[]), ["widgets.example.com: Deleted Certain"]);
}

#[test]
fn r8_options_override_finalizers_and_finalizers_override_the_default_of_the_kind() {
    let graph = feed(&[
        ("Job", meta("job", json!({}))),
        ("ReplicationController", meta("rc", json!({}))),
        ("ConfigMap", meta("plain", json!({}))),
        (
            "ConfigMap",
            meta("first", json!({"finalizers": ["x/y", "foregroundDeletion", "orphan"]})),
        ),
        ("ConfigMap", meta("orphan", json!({"finalizers": ["orphan"]}))),
        ("Event", meta("event", json!({"finalizers": ["orphan"]}))),
    ]);
    use Propagation::{Background, Foreground, Orphan};
    for (name, policy, orphan_dependents, expected) in [
        ("plain", None, None, Background),
        ("plain", Some(Foreground), None, Foreground),
        ("plain", Some(Foreground), Some(true), Orphan),
        ("plain", Some(Orphan), Some(false), Background),
        ("job", None, None, Orphan),
        ("job", Some(Background), None, Background),
        ("rc", None, None, Orphan),
        ("orphan", None, None, Orphan),
        ("orphan", Some(Background), None, Background),
        ("first", None, None, Foreground),
        ("event", Some(Orphan), None, Background),
    ] {
        let node = graph.get(find(&graph, name)).unwrap();
        let (default, finalizers) = (node.info().default_propagation, node.finalizers().iter());
        let found = Propagation::of_delete(default, finalizers, policy, orphan_dependents);
        assert_eq!(found, expected, "{name} {policy:?} {orphan_dependents:?}");
    }
}

#[test]
fn users_break_when_a_needed_object_is_deleted() {
    let pod = |name: &str, more, optional| {
        let mut pod = meta(name, more);
        pod["spec"] = json!({"volumes": [{"secret": {"secretName": "tls", "optional": optional}}]});
        pod
    };
    let mut finished = pod("finished", json!({}), false);
    finished["status"] = json!({"phase": "Succeeded"});
    let graph = feed(&[
        ("Deployment", meta("web", json!({}))),
        ("Secret", meta("tls", json!({}))),
        ("Pod", pod("alone", json!({}), false)),
        ("Pod", pod("optional", json!({}), true)),
        ("Pod", finished),
        ("Pod", pod("of-web", owned_by("Deployment", "apps/v1", "web"), false)),
    ]);
    let path = "spec.volumes[0].secret.secretName";
    assert_eq!(
        fate_lines(&graph, &[("tls", Propagation::Background)], &[]),
        [
            format!("alone: Broken Certain by tls at {path}"),
            format!("of-web: Broken Certain by tls at {path}"),
            "tls: Deleted Certain".to_owned(),
        ]
    );
    // `kubectl delete deploy/web secret/tls`: a user that is deleted as well does not break.
    assert_eq!(
        fate_lines(
            &graph,
            &[("tls", Propagation::Background), ("web", Propagation::Background)],
            &[]
        ),
        [
            format!("alone: Broken Certain by tls at {path}"),
            "of-web: Deleted Certain".to_owned(),
            "tls: Deleted Certain".to_owned(),
            "web: Deleted Certain".to_owned(),
        ]
    );
}

#[test]
fn r11_events_are_never_collected_and_r1_unknown_is_not_absent() {
    let event = ("Event", meta("event", owned_by("ConfigMap", "v1", "owner")));
    let other = ("ConfigMap", meta("item", owned_by("ConfigMap", "v1", "owner")));
    let mut graph = feed(&[("ConfigMap", meta("owner", json!({}))), event, other]);
    let target = [("owner", Propagation::Background)];
    assert_eq!(
        fate_lines(&graph, &target, &[]),
        ["item: Deleted Certain", "owner: Deleted Certain"]
    );

    // A second owner that is not in the graph keeps the item only if the graph may lack
    // objects of the owner's kind.
    let mut two = meta("item", owned_by("ConfigMap", "v1", "owner"));
    let absent = owned_by("Secret", "v1", "absent")["ownerReferences"][0].clone();
    two["metadata"]["ownerReferences"].as_array_mut().unwrap().push(absent);
    let catalogue = crate::relations::Catalogue::new(&graph.kinds, &[]).unwrap();
    let config_maps = graph.kinds.find("", "ConfigMap").unwrap();
    let secrets = graph.kinds.find("", "Secret").unwrap();
    catalogue.parse_and_apply(&mut graph, config_maps, &two.to_string()).unwrap();
    assert_eq!(
        fate_lines(&graph, &target, &[]),
        ["item: Deleted Certain", "owner: Deleted Certain"]
    );
    graph.set_complete(secrets, false);
    assert_eq!(
        fate_lines(&graph, &target, &[]),
        ["item: Deleted Possible", "owner: Deleted Certain"]
    );
}

#[test]
fn r1_a_recreated_owner_is_another_object() {
    let mut item = meta("item", owned_by("ConfigMap", "v1", "owner"));
    let mut old = owned_by("ConfigMap", "v1", "again")["ownerReferences"][0].clone();
    old["uid"] = json!("uid-of-the-one-before");
    item["metadata"]["ownerReferences"].as_array_mut().unwrap().push(old);
    let owners = ["owner", "again"].map(|name| ("ConfigMap", meta(name, json!({}))));
    let graph = feed(&[&owners[..], &[("ConfigMap", item)]].concat());
    let target = [("owner", Propagation::Background)];
    assert_eq!(
        fate_lines(&graph, &target, &[]),
        ["item: Deleted Certain", "owner: Deleted Certain"]
    );
}

#[test]
fn a_walk_stops_at_its_limit_and_a_long_chain_needs_no_stack() {
    let chain: Vec<_> = (0..20_000)
        .map(|n| {
            let more = if n == 0 {
                json!({})
            } else {
                owned_by("ConfigMap", "v1", &format!("c{}", n - 1))
            };
            ("ConfigMap", meta(&format!("c{n}"), more))
        })
        .collect();
    let graph = feed(&chain);
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    let first = graph.find(kind, "shop", "c0").unwrap();
    for propagation in [Propagation::Background, Propagation::Foreground] {
        let targets = [(first, propagation)];
        let all = fates(&graph, &DeletionRequest::new(&targets));
        assert!(all.is_complete() && all.iter().all(|(id, _)| all.is_certainly_deleted(id)));
        assert_eq!(all.iter().count(), 20_000);
        let some = fates(&graph, &DeletionRequest { limit: 100, ..DeletionRequest::new(&targets) });
        assert!(!some.is_complete() && some.iter().count() == 100);
    }
}
