//! Objects of one namespace that stop what belay does in others.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::team::{SOON, Team};
use crate::{policy, world};

fn map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

#[test]
fn h38_an_ingress_with_too_many_references_concerns_its_own_namespace_alone() {
    let plane = &world().plane;
    let (mine, dev) = (Team::new(plane, "h38"), Team::new(plane, "h38-dev"));
    for team in [&mine, &dev] {
        let target = policy::target("", "configmaps", &team.ns);
        let spec = format!("{target}  protect: {{whileUsed: {{}}}}\n  hold: Never\n");
        policy::apply(plane, &team.ns, &spec);
        team.apply(&map("data"));
    }
    let tls: Vec<Value> = (0..4_100).map(|n| json!({"secretName": format!("s{n}")})).collect();
    let backend = json!({"service": {"name": "x", "port": {"number": 80}}});
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "wide"}, "spec": {"tls": tls, "defaultBackend": backend}});
    dev.may("[{apiGroups: [networking.k8s.io], resources: [ingresses], verbs: ['*']}]");
    eventually("the Ingress", SOON, || {
        dev.send(&["create", "-f", "-"], &ingress.to_string()).success()
    })
    .unwrap();
    let says = format!("Ingress {}/wide has more than 4000 references", dev.ns);
    let refusal = dev.refused(&["configmap/data"]);
    assert!(refusal.contains(&says), "{refusal}");
    mine.deleted(&["configmap/data"]);
    // Its references are local, so no object without a namespace is meant either.
    let volume = format!("{}-volume", mine.ns);
    let all = "apiGroups: [''], resources: [persistentvolumes]";
    let target = format!("  targets: [{{{all}, names: [{volume}]}}]\n");
    let spec = format!("{target}  protect: {{whileUsed: {{}}}}\n  hold: Never\n");
    policy::apply(plane, &volume, &spec);
    mine.may(&format!("[{{{all}, verbs: ['*']}}]"));
    mine.apply(&format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {volume}}}\nspec: \
         {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], hostPath: {{path: /none}}}}\n"
    ));
    mine.deleted(&[&format!("persistentvolume/{volume}")]);
}
