//! Kubernetes keeps a claim for each Pod on a node that names it, also after the Pod has ended. It
//! ignores Pods without a node.

use serde_json::json;

use super::*;
use crate::stuck::causes;

/// A Pod on a node that has succeeded and names this claim.
fn completed_pod(plane: &ControlPlane, ns: &str, name: &str, claim: &str) {
    let pod = pod(name).with_claim(claim).without_grace_period();
    plane.apply(&pod.with_namespace(ns)).unwrap();
    let is_node = |node: &str| !node.is_empty();
    let pod = format!("pod/{name}");
    plane.api().wait_field((&pod, ns), LIMIT, ".spec.nodeName", is_node).unwrap();
    let status = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch = ["patch", &pod, "-n", ns, "--subresource=status", "--type=merge", "-p", &status];
    plane.kubectl(&patch).unwrap().success().unwrap();
}

#[test]
fn all_commands_name_the_completed_pod_that_keeps_a_claim() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-completed").unwrap();
    claims(plane, &ns, &["data"]);
    completed_pod(plane, &ns, "import", "data");
    let nowhere = json!({"spec": {"nodeSelector": {"no": "such"}}});
    let pending = pod("pending").with_claim("data").with(nowhere);
    plane.apply(&pending.with_namespace(&ns)).unwrap();
    let impact = belay(plane, &["impact", "pvc/data", "-n", &ns]);
    assert!(impact.stdout.contains("until pod/import is deleted"), "{impact:?}");
    let deleted = belay(plane, &["delete", "pvc/data", "-n", &ns, "--yes", "--timeout", "20s"]);
    let stays = "these objects stay Terminating, as expected";
    assert!(deleted.stdout.contains(stays), "{deleted:?}");
    assert!(deleted.stdout.contains("until pod/import is deleted"), "{deleted:?}");
    let found =
        causes(plane, &["-n", &ns], &format!("persistentvolumeclaims/data -n {ns}"), "InUse");
    let says = found[0]["says"].as_str().unwrap();
    assert_eq!(says, "Pod import, which has ended, uses it");
    let why = belay(plane, &["why", "pvc/data", "-n", &ns]);
    assert!(why.stdout.contains(says), "{why:?}");
    let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]).stdout;
    let during = format!("during this wait, delete pods/import -n {ns}\n");
    assert!(steps.contains(&during) && !steps.contains("pods/pending"), "{steps}");
}

#[test]
fn a_completed_pod_is_deleted_in_a_wave_before_its_claim() {
    let plane = &world().plane;
    let ns = plane.namespace("delete-completed").unwrap();
    claims(plane, &ns, &["data"]);
    completed_pod(plane, &ns, "import", "data");
    // A custom resource is deleted before Pods, and the claim of this one with it. The garbage
    // collector learns the new kind only after 30 s.
    plane.define_kind("completed.example.com", "Store", "stores").unwrap();
    let store = object("completed.example.com/v1", "Store", "main").with_namespace(&ns);
    eventually("the kind", LIMIT, || plane.apply(&store)).unwrap();
    let name = "stores.completed.example.com/main";
    let mut owner = owner("Store", "main", uid(&read(plane, &ns, name)));
    owner["apiVersion"] = "completed.example.com/v1".into();
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    plane.api().patch("pvc/data", &ns, &owned).unwrap().success().unwrap();
    let delete = ["delete", name, "pod/import", "-n", &ns, "--yes", "--timeout", "90s"];
    let deleted = belay(plane, &delete);
    let pod = format!("wave 1 of 2: deleting pods/import -n {ns}\n");
    assert!(deleted.code == 0 && deleted.stderr.contains(&pod), "{deleted:?}");
}
