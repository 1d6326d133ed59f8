//! Tests each relation with a realistic manifest that matches and one that does not.
//!
//! A case has the kind, the manifest as YAML, and the expected edges, one in each line: relation,
//! path, strength, and used object. A manifest that does not match has the same shape without
//! references, or with other references.

mod custom;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rows::ROWS;
use super::*;
use crate::graph::{EdgeQualifier, Edges, Graph, ObjectPhase, Selector, Strength};
use crate::objects::{KindInfo, Kinds, Object};

/// The catalogue, with the third-party kinds in its rows.
fn catalogue() -> (Kinds, Catalogue) {
    let mut kinds = Kinds::default();
    for (group, kind, resource, namespaced) in [
        ("argoproj.io", "Rollout", "rollouts", true),
        ("snapshot.storage.k8s.io", "VolumeSnapshotClass", "volumesnapshotclasses", false),
        ("snapshot.storage.k8s.io", "VolumeSnapshot", "volumesnapshots", true),
    ] {
        kinds.learn(Kinds::custom(group, "v1", kind, resource, namespaced));
    }
    let catalogue = Catalogue::new(&kinds, &[]).unwrap();
    (kinds, catalogue)
}

fn read(resource: &str, manifest: &str) -> (ObjectPhase, Vec<String>) {
    read_value(resource, &parse(manifest))
}

fn parse(manifest: &str) -> Value {
    serde_saphyr::from_str(manifest).unwrap_or_else(|e| panic!("{e}\n{manifest}"))
}

fn read_value(resource: &str, object: &Value) -> (ObjectPhase, Vec<String>) {
    let (mut kinds, catalogue) = catalogue();
    let (group, resource) = resource.split_once('/').unwrap();
    let kind = kinds.find_resource(group, resource).unwrap();
    let (phase, edges) = catalogue.read(&mut kinds, kind, &object.to_string()).unwrap();
    (phase, describe(&kinds, &catalogue, &edges))
}

/// `pod-claim spec.volumes[0].persistentVolumeClaim.claimName needs persistentvolumeclaims ns/data`
fn describe(kinds: &Kinds, catalogue: &Catalogue, edges: &Edges) -> Vec<String> {
    let strength = |strength| match strength {
        Strength::Needs => "needs",
        Strength::Mentions => "mentions",
        Strength::Produces => "produces",
    };
    let namespace_prefix = |info: &KindInfo, namespace: &str| match (info.namespaced, namespace) {
        (true, namespace) if !namespace.is_empty() => format!("{namespace}/"),
        _ => String::new(),
    };
    let kind = |info: &KindInfo| match info.resource.as_str() {
        "" => info.kind.clone(),
        resource => resource.to_owned(),
    };
    let mut lines: Vec<_> = edges
        .uses
        .iter()
        .map(|edge| {
            let info = kinds.info(edge.kind);
            let qualifier = match edge.qualifier {
                EdgeQualifier::None => "",
                EdgeQualifier::Optional => " (optional)",
                EdgeQualifier::ScaledDown => " (scaled down)",
            };
            format!(
                "{} {} {}{qualifier} {} {}{}",
                catalogue.relation_name(edge.relation),
                edge.path,
                strength(edge.strength),
                kind(info),
                namespace_prefix(info, &edge.namespace),
                edge.name
            )
        })
        .collect();
    lines.extend(edges.selector_edges.iter().map(|edge| {
        let info = kinds.info(edge.kind);
        let selector = match &edge.selector {
            Selector::Ordinals { prefix, from, below } => {
                let below = below.map_or(String::new(), |n| n.to_string());
                format!("{prefix}[{from}..{below}]")
            }
            Selector::Labels(requirements) => format!("{requirements:?}"),
        };
        format!(
            "{} {} {} {} {}{selector}",
            catalogue.relation_name(edge.relation),
            edge.path,
            strength(edge.strength),
            kind(info),
            namespace_prefix(info, &edge.namespace),
        )
    }));
    lines.sort();
    lines
}

/// Every case: `(resource, manifest, expected edges)`.
type Case = (&'static str, &'static str, &'static [&'static str]);

include!("test_cases.rs");

#[test]
fn each_relation_finds_what_it_should_and_nothing_else() {
    let mut seen = BTreeSet::new();
    for (resource, manifest, expected) in CASES {
        let (_, found) = read(resource, manifest);
        let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        expected.sort();
        assert_eq!(found, expected, "{resource}\n{manifest}");
        seen.extend(found.iter().map(|line| line.split(' ').next().unwrap().to_owned()));
    }
    let missing: Vec<_> =
        ROWS.iter().map(|r| r.name).filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no manifest shows {missing:?}");
}

/// For each row, a manifest that must not match: without the references of a case, no row has an
/// edge.
#[test]
fn the_same_manifests_without_their_references_have_no_edges() {
    for (resource, manifest, expected) in CASES {
        let names: Vec<_> =
            expected.iter().filter_map(|line| line.rsplit(['/', ' ']).next()).collect();
        let mut blanked = parse(manifest);
        blank(&mut blanked, &names);
        let (_, found) = read_value(resource, &blanked);
        let left: Vec<_> = found
            .into_iter()
            .filter(|line| expected.contains(&line.as_str()))
            // These edges follow from the name of the object.
            .filter(|line| {
                !["csi-node", "pod-ephemeral-claim", "stateful-set-claims"]
                    .iter()
                    .any(|n| line.starts_with(n))
            })
            .filter(|line| !line.contains('{') && !line.contains("[In("))
            .collect();
        assert_eq!(left, [""; 0], "{resource}\n{manifest}");
    }
}

/// Replaces every string in the body that is one of these names with a number, which is no
/// reference.
fn blank(value: &mut Value, names: &[&str]) {
    match value {
        Value::String(text) if names.contains(&text.as_str()) => *value = Value::from(7),
        Value::Array(items) => items.iter_mut().for_each(|item| blank(item, names)),
        Value::Object(fields) => fields.values_mut().for_each(|field| blank(field, names)),
        _ => {}
    }
}

#[test]
fn rows_have_names_of_their_own() {
    let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), ROWS.len());
}

#[test]
fn finished_pods_and_jobs_and_unserved_crds_are_recognized() {
    for (resource, manifest, expected) in [
        ("/pods", "{status: {phase: Succeeded}}", ObjectPhase::Finished),
        ("/pods", "{status: {phase: Failed}}", ObjectPhase::Finished),
        ("/pods", "{status: {phase: Running}}", ObjectPhase::Active),
        ("/pods", "{}", ObjectPhase::Active),
        (
            "batch/jobs",
            "{status: {conditions: [{type: Suspended, status: 'True'}, {type: Complete, status: 'True'}]}}",
            ObjectPhase::Finished,
        ),
        (
            "batch/jobs",
            "{status: {conditions: [{type: Failed, status: 'True'}]}}",
            ObjectPhase::Finished,
        ),
        (
            "batch/jobs",
            "{status: {conditions: [{type: Complete, status: 'False'}]}}",
            ObjectPhase::Active,
        ),
        (
            "apiextensions.k8s.io/customresourcedefinitions",
            "{status: {conditions: [{type: Established, status: 'True'}]}}",
            ObjectPhase::Active,
        ),
        (
            "apiextensions.k8s.io/customresourcedefinitions",
            "{status: {conditions: []}}",
            ObjectPhase::CrdNotServed,
        ),
    ] {
        assert_eq!(read(resource, manifest).0, expected, "{resource} {manifest}");
    }
}

#[test]
fn end_conditions_turn_a_need_into_a_mention() {
    let claim = |phase: &str| {
        let manifest = format!(
            "{{metadata: {{name: c, namespace: ns}}, status: {{phase: {phase}}}, \
             spec: {{dataSource: {{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}}}}}}"
        );
        read("/persistentvolumeclaims", &manifest).1
    };
    assert_eq!(
        claim("Pending"),
        ["claim-data-source spec.dataSource.name needs volumesnapshots ns/s"]
    );
    assert_eq!(
        claim("Bound"),
        ["claim-data-source spec.dataSource.name mentions volumesnapshots ns/s"]
    );
    let allocated = |status: &str| {
        let manifest = format!(
            "{{metadata: {{name: c, namespace: ns}}, status: {status}, \
             spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu}}}}]}}}}}}"
        );
        read("resource.k8s.io/resourceclaims", &manifest).1
    };
    assert_eq!(
        allocated("{}"),
        [
            "resource-claim-class spec.devices.requests[0].exactly.deviceClassName needs deviceclasses gpu"
        ]
    );
    assert_eq!(
        allocated("{allocation: {}}"),
        [
            "resource-claim-class spec.devices.requests[0].exactly.deviceClassName mentions deviceclasses gpu"
        ]
    );
}

#[test]
fn a_replica_set_scaled_to_zero_is_kept_for_rollback() {
    let set = |replicas: u32, metadata: &str| {
        let manifest = format!(
            "{{metadata: {{name: r, namespace: ns, {metadata}}}, spec: {{replicas: {replicas}, \
             template: {{spec: {{volumes: [{{name: v, secret: {{secretName: s}}}}]}}}}}}}}"
        );
        read("apps/replicasets", &manifest).1
    };
    let owner = |api_version: &str, rest: &str| {
        format!("ownerReferences: [{{apiVersion: {api_version}, {rest}}}]")
    };
    let path = "pod-secret-volume spec.template.spec.volumes[0].secret.secretName needs";
    let (counts, history) =
        ([format!("{path} secrets ns/s")], [format!("{path} (scaled down) secrets ns/s")]);
    let deployment = owner("apps/v1", "kind: Deployment, controller: true");
    assert_eq!(set(1, &deployment), counts);
    assert_eq!(set(0, &deployment), history);
    let rollout = owner("argoproj.io/v1alpha1", "kind: Rollout, controller: true");
    assert_eq!(set(0, &rollout), history);
    for no_history in [
        owner("apps/v1", "kind: Operator, controller: true"),
        owner("apps/v1", "kind: Deployment"),
        owner("apps/v1", "kind: Deployment, controller: false"),
        owner("example.com/v1", "kind: Deployment, controller: true"),
        owner("apps/v1", "kind: Rollout, controller: true"),
        format!("labels: {{belay.dev/protect: Always}}, {deployment}"),
    ] {
        assert_eq!(set(0, &no_history), counts, "{no_history}");
    }
    let labelled = format!("labels: {{belay.dev/protect: WhileUsed}}, {deployment}");
    assert_eq!(set(0, &labelled), history);
}

#[test]
fn claims_of_ordinals_that_the_set_itself_deletes_are_not_needed() {
    let set = |extra: &str| {
        let manifest = format!(
            "{{metadata: {{name: db, namespace: ns}}, spec: {{replicas: 2, {extra} \
             volumeClaimTemplates: [{{metadata: {{name: data}}}}]}}}}"
        );
        read("apps/statefulsets", &manifest).1.concat()
    };
    let found = |range: &str| {
        format!(
            "stateful-set-claims spec.volumeClaimTemplates[0] needs persistentvolumeclaims ns/data-db-{range}"
        )
    };
    assert_eq!(set(""), found("[0..]"));
    assert_eq!(set("persistentVolumeClaimRetentionPolicy: {whenScaled: Retain},"), found("[0..]"));
    assert_eq!(set("persistentVolumeClaimRetentionPolicy: {whenScaled: Delete},"), found("[0..2]"));
    assert_eq!(
        set("ordinals: {start: 5}, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete},"),
        found("[5..7]")
    );
}

/// Content edges: an object to its Namespace, a custom resource to its CRD.
#[test]
fn content_is_known_without_a_row() {
    let (kinds, catalogue) = catalogue();
    let mut graph = Graph::new(kinds);
    let mut feed = |resource: &str, manifest: &str| {
        let kind = graph.kinds.find_resource("", resource).unwrap();
        let object: Value = serde_saphyr::from_str(manifest).unwrap();
        catalogue.parse_and_apply(&mut graph, kind, &object.to_string()).unwrap();
    };
    feed("configmaps", "{metadata: {name: a, namespace: shop}}");
    feed("namespaces", "{metadata: {name: shop}}");
    feed("configmaps", "{metadata: {name: b, namespace: other}}");
    let namespaces = graph.kinds.namespace().unwrap();
    let shop = graph.find(namespaces, "", "shop").unwrap();
    let names: Vec<_> =
        graph.objects_in_namespace(shop).filter_map(|id| graph.get(id)).map(|n| n.name()).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn h38_only_kinds_whose_references_can_name_a_namespace_count_in_others() {
    let (kinds, catalogue) = catalogue();
    let user_kinds = catalogue.user_kinds();
    let crosses = |used: (&str, &str), from: (&str, &str)| {
        let kind = |(group, resource)| kinds.find_resource(group, resource).unwrap();
        user_kinds
            .user_kinds(&kinds, kind(used))
            .find(|(user, _)| *user == kind(from))
            .map(|(_, crosses)| crosses)
    };
    let ingress = ("networking.k8s.io", "ingresses");
    for used in [("", "configmaps"), ("", "services"), ("", "secrets")] {
        assert_eq!(crosses(used, ingress), Some(false), "{used:?}");
        assert_eq!(crosses(used, ("", "persistentvolumeclaims")), Some(true), "{used:?}");
        assert_eq!(crosses(used, ("networking.k8s.io", "ingressclasses")), Some(true), "{used:?}");
    }
    for used in [("", "persistentvolumes"), ("storage.k8s.io", "storageclasses")] {
        assert_eq!(crosses(used, ingress), None, "{used:?}");
    }
    assert_eq!(crosses(("networking.k8s.io", "ingressclasses"), ingress), Some(false));
    assert_eq!(crosses(("", "secrets"), ("", "persistentvolumes")), Some(true));
    assert_eq!(crosses(("", "configmaps"), ("", "pods")), Some(false));
}

/// A reference to an absent object is an edge to any later object with this name.
#[test]
fn a_reference_to_an_absent_object_counts_when_the_object_is_created() {
    let (kinds, catalogue) = catalogue();
    let mut graph = Graph::new(kinds);
    let pods = graph.kinds.find("", "Pod").unwrap();
    let secrets = graph.kinds.find("", "Secret").unwrap();
    let feed = |graph: &mut Graph, kind, manifest: &str| {
        let object: Value = serde_saphyr::from_str(manifest).unwrap();
        catalogue.parse_and_apply(graph, kind, &object.to_string()).unwrap();
    };
    let pod = "{metadata: {name: p, namespace: ns, uid: u}, spec: {volumes: [{name: v, secret: {secretName: s}}]}}";
    feed(&mut graph, pods, pod);
    let before = graph.node_count();
    let secret = graph.find(secrets, "ns", "s").unwrap();
    assert!(graph.get(secret).is_none());
    feed(&mut graph, secrets, "{metadata: {name: s, namespace: ns, uid: one}}");
    assert_eq!(graph.users(secret).count(), 1);
    assert!(graph.delete(secrets, "ns", "s", None));
    feed(&mut graph, secrets, "{metadata: {name: s, namespace: ns, uid: two}}");
    assert_eq!(
        graph.users(secret).map(|u| u.path()).collect::<Vec<_>>(),
        ["spec.volumes[0].secret.secretName"]
    );
    // An object with another uid is another object, so its deletion does not remove this one.
    let object: Value = serde_saphyr::from_str("{metadata: {uid: one}}").unwrap();
    let uid = crate::objects::Uid::new(
        &serde::Deserialize::deserialize(&object)
            .map(|o: Object<'_>| o.metadata.uid.to_string())
            .unwrap(),
    );
    assert!(!graph.delete(secrets, "ns", "s", Some(uid)));
    // After the deletion of all objects, the graph is empty.
    assert!(graph.delete(secrets, "ns", "s", None) && graph.node_count() == before);
    assert!(graph.delete(pods, "ns", "p", None));
    assert_eq!((graph.node_count(), graph.object_count(), graph.edge_count()), (0, 0, 0));
}
