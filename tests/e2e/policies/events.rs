//! Only belay reports Events as belay: `denials` and `why` believe them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::installed;
use crate::harness::api::Api;
use crate::harness::eventually;
use crate::harness::kubectl::Output;
use crate::harness::manifest::{Manifest as _, object};
use crate::harness::rbac::{rule, user};

const REFUSAL: &str = "only belay may write, change or delete Events of belay";

/// An Event about an object of a namespace.
fn event(ns: &str, name: &str, fields: Value) -> Value {
    let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": ns});
    let fields = json!({"involvedObject": about, "type": "Warning"}).with(fields);
    object("v1", "Event", name).with_namespace(ns).with(fields)
}

fn create(config: &Path, ns: &str, event: &Value) -> Output {
    Api::of(config).unwrap().create(event, ns).unwrap()
}

#[test]
fn h122_only_belay_reports_events_as_belay() {
    let (plane, _) = installed();
    let ns = plane.namespace("events").unwrap();
    let (editor, belay) = (format!("editor-{ns}"), format!("belay-{ns}"));
    let [config, own] = [&editor, &belay].map(|name| plane.user(name, None).unwrap());
    let verbs = "create, get, patch, update, delete";
    let events = [rule(", events.k8s.io", "events", verbs)];
    plane.grant("events", Some(&ns), &events, &[user(&editor), user(&belay)]).unwrap();
    let status = [rule("belay.dev", "deletionpolicies/status", "patch")];
    plane.grant(&belay, None, &status, &[user(&belay)]).unwrap();
    for user in [&editor, &belay] {
        eventually("the right", Duration::from_secs(30), || {
            plane.api().may(user, "create", "events", &ns)
        })
        .unwrap();
    }

    let forged = event(&ns, "forged", json!({"reportingComponent": "belay"}));
    eventually("the check", Duration::from_secs(30), || {
        let refusal = create(&config, &ns, &forged).failure()?;
        if refusal.contains(REFUSAL) { Ok(()) } else { Err(refusal.into()) }
    })
    .unwrap();
    let refused = |object: &Value| {
        let refusal = create(&config, &ns, object).failure().unwrap();
        assert!(refusal.contains(REFUSAL), "{refusal}");
    };
    refused(&event(&ns, "source", json!({"source": {"component": "belay"}})));
    // The other API of the same objects.
    let other = json!({
        "reportingController": "belay", "reportingInstance": "belay-0", "action": "Delete",
        "reason": "Denied", "type": "Warning", "eventTime": "2026-11-25T00:00:00.000000Z",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": ns},
    });
    refused(&object("events.k8s.io/v1", "Event", "other").with_namespace(&ns).with(other));

    // Events of others pass. Events of belay pass from belay, and no other user changes them.
    create(&config, &ns, &event(&ns, "mine", json!({"reportingComponent": "mine"})))
        .success()
        .unwrap();
    let by_belay = event(&ns, "own", json!({"reportingComponent": "belay"}));
    eventually("belay's right", Duration::from_secs(30), || create(&own, &ns, &by_belay).success())
        .unwrap();
    for (name, patch) in [
        ("own", r#"{"count": 99999}"#),
        ("own", r#"{"reportingComponent": "kubelet"}"#),
        ("mine", r#"{"reportingComponent": "belay"}"#),
    ] {
        let args = ["patch", "event", name, "-n", &ns, "--type=merge", "-p", patch];
        let refusal = plane.kubectl_as(&config, &args).unwrap().failure().unwrap();
        assert!(refusal.contains(REFUSAL), "{refusal}");
    }
    let delete = |config: &Path, name: &str| {
        plane.kubectl_as(config, &["delete", "event", name, "-n", &ns]).unwrap()
    };
    let refusal = delete(&config, "own").failure().unwrap();
    assert!(refusal.contains(REFUSAL), "{refusal}");
    delete(&config, "mine").success().unwrap();
    // The end of a Namespace deletes them.
    let controller = "system:serviceaccount:kube-system:namespace-controller";
    let args = ["delete", "event", "own", "-n", &ns, "--as", controller];
    plane.kubectl(&args).unwrap().success().unwrap();
}
