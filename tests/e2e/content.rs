//! R14 and R1 on the real control plane: objects deleted with a Namespace and with a CRD,
//! and owners in other namespaces.

use std::collections::BTreeMap;
use std::time::Duration;

use belay::graph::{DeletionRequest, Graph, Propagation, fates};
use belay::objects::Kinds;
use belay::relations::Catalogue;
use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, object, owner};
use crate::harness::{ControlPlane, Result, eventually};
use crate::world;

/// The objects of these resources in all namespaces.
fn stored(plane: &ControlPlane, resources: &str) -> Result<Vec<Value>> {
    let lists = resources.split(',').map(|kind| plane.api().list(kind, "", ""));
    Ok(lists.collect::<Result<Vec<_>>>()?.concat())
}

/// The fates of a background delete of `target` (kind, name), by name, for the objects
/// whose name begins with `prefix`.
fn predict(
    objects: &[Value],
    custom: Option<(&str, &str)>,
    target: (&str, &str),
    prefix: &str,
) -> Result<BTreeMap<String, String>> {
    let mut kinds = Kinds::default();
    if let Some((kind, resource)) = custom {
        kinds.learn(Kinds::custom("content.example.com", "v1", kind, resource, true));
    }
    let catalogue = Catalogue::new(&kinds, &[])?;
    let mut graph = Graph::new(kinds);
    let ids: Vec<_> = graph.kinds.iter().map(|(id, _)| id).collect();
    ids.iter().for_each(|id| graph.set_complete(*id, true));
    for object in objects {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, _) = belay::objects::split_api_version(api_version);
        let kind = graph.kinds.find(group, object["kind"].as_str().unwrap_or_default());
        catalogue.parse_and_apply(
            &mut graph,
            kind.ok_or("a kind is unknown")?,
            &object.to_string(),
        )?;
    }
    let group = if target.0 == "Namespace" { "" } else { "apiextensions.k8s.io" };
    let kind = graph.kinds.find(group, target.0).ok_or("no such kind")?;
    let id = graph.find(kind, "", target.1).ok_or("no such target")?;
    let targets = [(id, Propagation::Background)];
    let fates = fates(&graph, &DeletionRequest::new(&targets));
    let mut told = BTreeMap::new();
    for (id, fate) in fates.iter() {
        let name = graph.get(id).map(|node| node.name().to_owned()).unwrap_or_default();
        if name.starts_with(prefix) {
            told.insert(name, format!("{:?} {:?}", fate.outcome, fate.certainty));
        }
    }
    Ok(told)
}

/// Waits until exactly the predicted deletions have happened, and then a little longer.
fn wait_for_fates(
    plane: &ControlPlane,
    resources: &str,
    prefix: &str,
    told: &BTreeMap<String, String>,
) {
    eventually("what was told", Duration::from_secs(60), || {
        let objects = stored(plane, resources)?;
        let find = |name: &str| objects.iter().find(|o| o["metadata"]["name"] == name);
        for (name, fate) in told {
            let held = find(name).map(|o| o["metadata"].get("deletionTimestamp").is_some());
            let right = match fate.as_str() {
                "Deleted Certain" => held.is_none(),
                "Terminating Certain" => held == Some(true),
                _ => true,
            };
            if !right {
                return Err(format!("{name} is to be {fate}").into());
            }
        }
        // Objects without a fate are unchanged.
        let names = objects.iter().filter_map(|o| o["metadata"]["name"].as_str());
        let untold = names.filter(|name| name.starts_with(prefix) && !told.contains_key(*name));
        for name in untold {
            let terminating =
                find(name).is_some_and(|o| o["metadata"].get("deletionTimestamp").is_some());
            assert!(!terminating, "{name} has no fate");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn r14_a_namespace_takes_what_is_in_it_and_finalizers_hold() {
    let plane = &world().plane;
    let ns = plane.namespace("content").unwrap();
    let map = |name: &str| config_map(name).with_namespace(&ns);
    for object in [
        map("nsc-plain"),
        map("nsc-held").with_finalizers(&["example.com/other"]),
        map("nsc-orphan").with_finalizers(&["orphan"]),
        config_map("nsc-outside").with_namespace("default"),
    ] {
        plane.apply(&object).unwrap();
    }
    let mut objects = stored(plane, "configmaps").unwrap();
    objects.extend(stored(plane, "namespaces").unwrap());
    let mut told = predict(&objects, None, ("Namespace", &ns), "nsc-").unwrap();
    assert_eq!(
        told.iter().map(|(name, fate)| format!("{name} {fate}")).collect::<Vec<_>>(),
        ["nsc-held Terminating Certain", "nsc-orphan Deleted Certain", "nsc-plain Deleted Certain"]
    );
    told.extend(predict(&objects, None, ("Namespace", &ns), &ns).unwrap());
    assert_eq!(told[&ns], "Terminating Certain");
    plane.kubectl(&["delete", "namespace", &ns, "--wait=false"]).unwrap().success().unwrap();
    wait_for_fates(plane, "configmaps,namespaces", "nsc-", &told);
}

#[test]
fn r14_a_crd_takes_its_instances_and_finalizers_on_them_hold() {
    let plane = &world().plane;
    let ns = plane.namespace("crd").unwrap();
    plane
        .apply(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gadgets.content.example.com}\n\
             spec:\n  group: content.example.com\n  scope: Namespaced\n  names: {plural: gadgets, kind: Gadget}\n  \
             versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n",
        )
        .unwrap();
    let gadget = |name: &str| object("content.example.com/v1", "Gadget", name).with_namespace(&ns);
    eventually("a served CRD", Duration::from_secs(30), || plane.apply(&gadget("crd-plain")))
        .unwrap();
    plane.apply(&gadget("crd-held").with_finalizers(&["example.com/other"])).unwrap();
    let mut objects = stored(plane, "gadgets.content.example.com").unwrap();
    objects.extend(stored(plane, "customresourcedefinitions").unwrap());
    let target = ("CustomResourceDefinition", "gadgets.content.example.com");
    let mut told = predict(&objects, Some(("Gadget", "gadgets")), target, "crd-").unwrap();
    assert_eq!(
        told.iter().map(|(name, fate)| format!("{name} {fate}")).collect::<Vec<_>>(),
        ["crd-held Terminating Certain", "crd-plain Deleted Certain"]
    );
    told.extend(predict(&objects, Some(("Gadget", "gadgets")), target, target.1).unwrap());
    assert_eq!(told[target.1], "Terminating Certain");
    plane.kubectl(&["delete", "crd", target.1, "--wait=false"]).unwrap().success().unwrap();
    wait_for_fates(plane, "gadgets.content.example.com,customresourcedefinitions", "crd-", &told);
}

/// R1: a namespaced owner of the same name in another namespace is not an owner, and a
/// cluster-scoped object that names a namespaced owner is an error, which keeps it.
#[test]
fn r1_owners_elsewhere_are_dangling_or_errors() {
    let plane = &world().plane;
    let (here, there) = (plane.namespace("here").unwrap(), plane.namespace("there").unwrap());
    plane.apply(&config_map("owner").with_namespace(&there)).unwrap();
    let uid = plane.api().field("configmap/owner", &there, ".metadata.uid").unwrap();
    let owners = json!({"metadata": {"ownerReferences": [owner("ConfigMap", "owner", &uid)]}});
    let across = config_map("across").with_namespace(&here);
    let name = format!("cluster-{here}");
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", &name);
    for object in [across, role] {
        plane.apply(&object.with(owners.clone())).unwrap();
    }
    // The dangling one is collected though the owner lives.
    plane.api().wait_gone(("configmap/across", &here), Duration::from_secs(60)).unwrap();
    plane.kubectl(&["delete", "configmap", "owner", "-n", &there]).unwrap().success().unwrap();
    // The collector had time to collect the first; it leaves the second.
    let role = format!("clusterrole/cluster-{here}");
    assert!(plane.api().get(&role, "").unwrap().is_some());
}
