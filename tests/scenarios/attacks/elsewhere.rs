//! Objects of one namespace that stop belay's work in others.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{
    Manifest as _, claim, config_map, object, relation, secret, volume,
};
use crate::harness::rbac::rule;
use crate::team::{SOON, Team};
use crate::{policy, world};

#[test]
fn h38_an_ingress_with_too_many_references_concerns_its_own_namespace_alone() {
    let plane = &world().plane;
    let (mine, dev) = (Team::new(plane, "h38"), Team::new(plane, "h38-dev"));
    for team in [&mine, &dev] {
        let target = policy::target("", "configmaps", &team.ns);
        let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
        policy::apply(plane, &team.ns, spec);
        team.apply(&config_map("data"));
    }
    let tls: Vec<Value> = (0..4_100).map(|n| json!({"secretName": format!("s{n}")})).collect();
    let backend = json!({"service": {"name": "x", "port": {"number": 80}}});
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "wide"}, "spec": {"tls": tls, "defaultBackend": backend}});
    dev.may(&[rule("networking.k8s.io", "ingresses", "*")]);
    eventually("the Ingress", SOON, || dev.send(&["create", "-f", "-"], &ingress).success())
        .unwrap();
    let says = format!("Ingress {}/wide has more than 4000 references", dev.ns);
    let refusal = dev.refused(&["configmap/data"]);
    assert!(refusal.contains(&says), "{refusal}");
    mine.deleted(&["configmap/data"]);
    // Its references are local, so they refer to no object without a namespace either.
    let name = format!("{}-volume", mine.ns);
    let target = json!({"apiGroups": [""], "resources": ["persistentvolumes"], "names": [name]});
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &name, spec);
    mine.may(&[rule("", "persistentvolumes", "*")]);
    mine.apply(&volume(&name));
    mine.deleted(&[&format!("persistentvolume/{name}")]);
}

/// The Relations of the chart about these kinds of the Gateway API.
fn relate_gateways(kinds: &[&str]) {
    let plane = &world().plane;
    let group = "gateway.networking.k8s.io";
    for kind in kinds {
        plane.define_kind(group, kind, &format!("{}s", kind.to_lowercase())).unwrap();
    }
    let path = "charts/belay/files/relations/gatewayApi.yaml";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).unwrap();
    let listed: Vec<Value> = serde_saphyr::from_str(&text).unwrap();
    let is_defined = |one: &&Value| {
        let user = one["spec"]["from"]["resource"].as_str().unwrap();
        kinds.iter().any(|kind| user == format!("{}s", kind.to_lowercase()))
    };
    for one in listed.iter().filter(is_defined) {
        let name = format!("h159-{}", one["name"].as_str().unwrap());
        plane.apply(&relation(&name, one["spec"].clone())).unwrap();
    }
}

#[test]
fn h159_a_route_or_a_gateway_keeps_no_object_of_another_namespace() {
    let plane = &world().plane;
    let (shop, evil) = (Team::new(plane, "h159"), Team::new(plane, "h159-evil"));
    relate_gateways(&["HTTPRoute", "Gateway"]);
    let (group, version) = ("gateway.networking.k8s.io", "gateway.networking.k8s.io/v1");
    for team in [&shop, &evil] {
        let core = "services, persistentvolumeclaims, secrets";
        let targets = [("", core), (group, "gateways")]
            .map(|(group, resources)| policy::target(group, resources, &team.ns));
        let spec = json!({"targets": targets, "protect": {"whileUsed": {}}, "hold": "Never"});
        policy::apply(plane, &team.ns, spec);
        team.may(&[rule(group, "*", "*")]);
        team.apply(&object(version, "Gateway", "edge"));
        let ports = json!({"spec": {"ports": [{"port": 80}]}});
        team.apply(&object("v1", "Service", "web").with(ports));
        team.apply(&claim("data"));
        team.apply(&secret("tls"));
    }
    let of = |team: &Team<'_>| {
        let reference = |group: &str, kind: &str, name: &str| json!({"group": group, "kind": kind, "name": name, "namespace": team.ns});
        let backends =
            [reference("", "PersistentVolumeClaim", "data"), reference("", "Service", "web")];
        let parent = reference(group, "Gateway", "edge");
        let route = json!({"parentRefs": [parent], "rules": [{"backendRefs": backends}]});
        let certificate = reference("", "Secret", "tls");
        let listener = json!({"name": "a", "tls": {"certificateRefs": [certificate]}});
        [
            object(version, "HTTPRoute", &team.ns).with(json!({"spec": route})),
            object(version, "Gateway", &team.ns).with(json!({"spec": {"listeners": [listener]}})),
        ]
    };
    for object in [of(&shop), of(&evil)].as_flattened() {
        evil.apply(object);
    }
    // Objects of the own namespace are kept, so belay knows the references.
    let gateway = "gateways.gateway.networking.k8s.io/edge";
    for object in ["service/web", "secret/tls", gateway] {
        evil.refused(&[object]);
    }
    shop.deleted(&["pvc/data", "service/web", "secret/tls", gateway]);
    // No backend is a claim.
    evil.deleted(&["pvc/data"]);
}
