//! An editor makes a hold look older than it is.

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, pod};
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
