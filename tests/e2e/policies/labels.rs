//! The API server refuses values of the label that protect nothing.

use std::time::Duration;

use serde_json::{Value, json};

use super::installed;
use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map, object};

/// An object whose label has a wrong value since before the check existed.
pub fn stored() -> Value {
    config_map("labelled-before").with_namespace("default").with_protect_label("always")
}

#[test]
fn unknown_values_of_the_label_are_refused_for_all_kinds() {
    let (plane, _) = installed();
    let ns = plane.namespace("labels").unwrap();
    let account = object("v1", "ServiceAccount", "robot").with_namespace(&ns);
    let wrong = |value: &str| account.clone().with_protect_label(value);
    let refused = |output: crate::harness::kubectl::Output| {
        let says = "would protect nothing: set it to Always or WhileUsed or remove it";
        let refusal = output.failure()?;
        if refusal.contains(says) { Ok(()) } else { Err(refusal.into()) }
    };
    let create = |value: &str| plane.apply_to(&["create", "-f", "-"], &wrong(value));
    eventually("the check", Duration::from_secs(30), || refused(create("always")?)).unwrap();
    refused(create("").unwrap()).unwrap();
    create("WhileUsed").unwrap().success().unwrap();

    let label = |object: &str, ns: &str, label: &str| {
        plane.kubectl(&["label", "--overwrite", object, "-n", ns, label]).unwrap()
    };
    refused(label("serviceaccount/robot", &ns, "belay.dev/protect=Never")).unwrap();
    for right in ["belay.dev/protect=Always", "team=blue", "belay.dev/protect-"] {
        label("serviceaccount/robot", &ns, right).success().unwrap();
    }
    // The stored value does not block other changes of its object.
    let old = "configmap/labelled-before";
    label(old, "default", "team=blue").success().unwrap();
    plane.patch(old, "default", &json!({"data": {"a": "b"}}));
    refused(label(old, "default", "belay.dev/protect=never")).unwrap();
    label(old, "default", "belay.dev/protect=Always").success().unwrap();
}
