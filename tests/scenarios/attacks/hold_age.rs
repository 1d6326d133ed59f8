//! An editor makes a hold look older than it is, or adds it many times.

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, pod, secret};
use crate::team::{SOON, Team};
use crate::{policy, world};

/// A hold that was added a moment ago may not be relied on (s33). managedFields contain its
/// age, and an editor can reset them.
#[test]
fn h18_a_hold_does_not_become_effective_by_a_reset_of_managed_fields() {
    let team = Team::new(&world().plane, "h18");
    team.apply(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: blue}\n",
    );
    team.apply(&pod("reader").with_env_from("configMapRef", "settings"));
    policy::protect(team.plane, &team.ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    eventually("the hold", SOON, || {
        let finalizers = team.field("configmap/settings", ".metadata.finalizers");
        if finalizers.contains("belay.dev/hold") { Ok(()) } else { Err(finalizers.into()) }
    })
    .unwrap();

    let reset = json!({"metadata": {"managedFields": [{}]}}).to_string();
    let patch = ["patch", "configmap/settings", "--type=merge", "-p", &reset];
    team.kubectl(&patch).success().unwrap();
    let managed = team.field("configmap/settings", ".metadata.managedFields");
    assert!(!managed.contains("belay.dev/hold"), "{managed}");

    let delete = ["delete", "configmap/settings", "--dry-run=server"];
    let refused = team.kubectl(&delete).failure().unwrap();
    assert!(refused.contains("is in use by Pod"), "{refused}");
}

/// The API server stores a finalizer several times. Removed one by one, with growing pauses, so many
/// holds would keep the object and its Namespace for days.
#[test]
fn h179_all_holds_of_an_object_are_removed_at_once() {
    let team = Team::new(&world().plane, "h179");
    policy::protect(team.plane, &team.ns, "configmaps, secrets", json!({"whileUsed": {}}));
    let holds = json!({"metadata": {"finalizers": vec!["belay.dev/hold"; 3_000]}}).to_string();
    let hold = |object: &str| {
        let patch = ["patch", object, "--type=merge", "-p", &holds];
        team.kubectl(&patch).success().unwrap();
    };
    team.apply(&secret("deleted"));
    hold("secret/deleted");
    team.kubectl(&["delete", "secret/deleted", "--wait=false"]).success().unwrap();
    team.plane.api().wait_gone(("secret/deleted", &team.ns), SOON).unwrap();

    // No policy wants a hold on a ConfigMap that Kubernetes creates in every Namespace.
    hold("configmap/kube-root-ca.crt");
    eventually("an object without holds", SOON, || {
        let finalizers = team.field("configmap/kube-root-ca.crt", ".metadata.finalizers");
        if finalizers.is_empty() { Ok(()) } else { Err(finalizers.len().to_string().into()) }
    })
    .unwrap();
}
