//! Objects of one namespace that stop belay's work in others.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{config_map, volume};
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
