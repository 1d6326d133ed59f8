//! Objects with which a tenant fills belay's memory.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{self, Manifest as _, config_map};
use crate::team::{SOON, Team};
use crate::{policy, world};

/// The references of each Pod: 2 MiB of JSON.
const REFERENCES: usize = 70_000;

#[test]
fn h24_pods_with_thousands_of_references_fill_no_graph_and_may_use_anything() {
    let world = world();
    let team = Team::new(&world.plane, "h24");
    policy::protect(team.plane, &team.ns, "configmaps", json!({"whileUsed": {}}));
    team.apply(&config_map("data"));
    let pods = format!("/api/v1/namespaces/{}/pods", team.ns);
    let file = std::env::temp_dir().join(format!("{}-pod.json", team.ns));
    for pod in 0..5 {
        let sources: Vec<Value> = (0..REFERENCES)
            .map(|n| json!({"configMap": {"name": format!("{pod}a{n:x}")}}))
            .collect();
        let large = manifest::pod(&format!("p{pod}"));
        let large = large.with_volume(json!({"projected": {"sources": sources}}));
        // The gate keeps it from every node.
        let gate = json!({"spec": {"schedulingGates": [{"name": "a.b/c"}]}});
        std::fs::write(&file, large.with(gate).to_string()).unwrap();
        team.kubectl(&["create", "--raw", &pods, "-f", file.to_str().unwrap()]).success().unwrap();
    }
    let _ = std::fs::remove_file(file);
    // No Pod names it, and each may.
    let refusal = team.refused(&["configmap/data"]);
    let says =
        format!("Pod {}/p0 has more than 4000 references, so it may use the object", team.ns);
    assert!(refusal.contains(&says), "{refusal}");
    eventually("the size of the graph", SOON, || {
        let edges = world.belay.metric("belay_graph_edges");
        if edges < REFERENCES as f64 { Ok(()) } else { Err(format!("{edges} edges").into()) }
    })
    .unwrap();
    // The others go on as before.
    let other = Team::new(&world.plane, "h24");
    policy::protect(other.plane, &other.ns, "configmaps", json!({"whileUsed": {}}));
    other.apply(&config_map("data"));
    other.deleted(&["configmap/data"]);
    team.kubectl(&["delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force"]);
    eventually("the delete of what nothing may use", SOON, || {
        team.delete(&["configmap/data", "--dry-run=server"]).success()
    })
    .unwrap();
}
