//! A held object is deleted when it is no longer in use.

use std::time::Duration;

use serde_json::json;

use crate::harness::ControlPlane;
use crate::harness::manifest::{Manifest as _, pod};
use crate::people::field;
use crate::{policy, world};

fn gone(plane: &ControlPlane, ns: &str, object: &str) {
    plane.api().wait_gone((object, ns), Duration::from_secs(60)).unwrap();
}

fn deleted(plane: &ControlPlane, ns: &str, object: &str) -> String {
    let output = plane.api().delete(&[object], ns).unwrap();
    let stderr = output.stderr.clone();
    output.success().unwrap();
    stderr
}

#[test]
fn an_unused_object_is_deleted_at_once_and_one_of_a_pod_after_the_pod() {
    let plane = &world().plane;
    let ns = plane.namespace("release").unwrap();
    policy::protect(plane, &ns, "configmaps, secrets", json!({"whileUsed": {"onDelete": "Hold"}}));
    for name in ["unused", "used"] {
        plane.kubectl(&["create", "configmap", name, "-n", &ns]).unwrap().success().unwrap();
    }
    let pod = pod("user").with_env_from("configMapRef", "used");
    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], &pod).unwrap().success().unwrap();
    deleted(plane, &ns, "configmap/unused");
    gone(plane, &ns, "configmap/unused");

    let warning = deleted(plane, &ns, "configmap/used");
    assert!(warning.contains("Warning:"), "{warning}");
    assert_ne!(field(plane, &ns, "configmap/used", ".metadata.deletionTimestamp"), "");
    plane.kubectl(&["delete", "pod", "user", "-n", &ns]).unwrap().success().unwrap();
    gone(plane, &ns, "configmap/used");
}
