//! The status of a policy.

use std::time::Duration;

use serde_json::json;

use crate::harness::eventually;
use crate::{policy, world};

#[test]
fn a_policy_is_ready_with_its_rules_and_existing_objects_get_holds() {
    let plane = &world().plane;
    let ns = plane.namespace("ready").unwrap();
    let create = ["create", "configmap", "before", "-n", &ns];
    plane.kubectl(&create).unwrap().success().unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));

    // From the moment it is ready, new objects get the hold at once.
    let args = ["create", "configmap", "after", "-n", &ns, "-o", "jsonpath={.metadata.finalizers}"];
    let held = plane.kubectl(&args).unwrap().success().unwrap();
    assert_eq!(held, r#"["belay.dev/hold"]"#);
    let refused = plane.kubectl(&["delete", "configmap", "before", "-n", &ns]).unwrap();
    let refused = refused.failure().unwrap();
    assert!(refused.contains(&format!("policy {ns}")), "{refused}");

    // Older objects get it afterwards, and the policy reports the progress.
    let (before, limit) = (("configmap/before", &*ns), Duration::from_secs(30));
    let is_held = |finalizers: &str| finalizers == r#"["belay.dev/hold"]"#;
    plane.api().wait_field(before, limit, ".metadata.finalizers", is_held).unwrap();
    let (policy, limit) = (format!("deletionpolicy/{ns}"), Duration::from_secs(60));
    let paths = ".status.conditions[?(@.type==\"Holding\")].reason .status.protectedObjects \
                 .status.heldObjects .status.last24h.denied";
    plane.api().wait_field((&policy, ""), limit, paths, |said| said == "InPlace 2 2 1").unwrap();

    // Without the policy the holds are removed, and the objects can be deleted.
    plane.delete(&["deletionpolicy", &ns], "");
    eventually("the removed holds", Duration::from_secs(60), || {
        let held = plane.api().fields("configmaps", &ns, "", ".metadata.finalizers")?.concat();
        if held.is_empty() { Ok(()) } else { Err(held.into()) }
    })
    .unwrap();
    let args = ["delete", "configmap", "before", "after", "-n", &ns, "--timeout=20s"];
    plane.kubectl(&args).unwrap().success().unwrap();
}
