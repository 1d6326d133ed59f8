//! `stuck` where a running webhook refuses the removal of a finalizer.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::broken::plane;
use crate::harness::belay::Belay;
use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map, validating_webhook};
use crate::stuck::{causes, delete};
use crate::{LIMIT, program};

/// Removes the only finalizer of a ConfigMap.
const STRIP: &str = "[{\"op\": \"remove\", \"path\": \"/metadata/finalizers/0\"}]";

#[test]
fn a_running_webhook_that_refuses_is_reported_with_its_address_and_message() {
    let plane = plane();
    let ns = plane.namespace("refused").unwrap();
    // A webhook at a URL. To the API server, belay is a webhook like any other.
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.yaml");
    let policy = "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {name: guard}\n\
                  spec:\n  targets: [{apiGroups: [\"\"], resources: [configmaps]}]\n  protect: \
                  {fromStripping: {removers: [{kind: User, name: nobody}]}}\n";
    std::fs::write(&policies, policy).unwrap();
    let serve = ["--standalone", &format!("--policies={}", policies.display())];
    let webhook = Belay::start("guard", program(), &serve, folder.path()).unwrap();
    let address = webhook.listen.to_string();
    plane.proxy.route(&address, &[webhook.listen]);
    let authority = std::fs::read(&webhook.ca).unwrap();
    let authority = base64::engine::general_purpose::STANDARD.encode(authority);
    let client = json!({"url": format!("https://{address}/validate"), "caBundle": authority});
    plane.apply(&validating_webhook("far", &ns, ("UPDATE", "configmaps"), client)).unwrap();
    // Nothing shows which controller owns this finalizer.
    let object = config_map("settings").with_namespace(&ns).with_finalizers(&["legacy/keep"]);
    plane.apply(&object).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns]);
    let object = format!("configmaps/settings -n {ns}");
    let perhaps = |all: &[Value]| {
        let far = |one: &&Value| one["says"].as_str().unwrap().contains("far.example.test");
        all.iter().find(far).cloned()
    };
    let all = causes(plane, &["-n", &ns], &object, "Unknown");
    let may = perhaps(&all).unwrap();
    let evidence = may["evidence"][0].as_str().unwrap();
    assert!(evidence.contains(&format!("it is at {address}, outside the cluster")), "{may}");
    assert!(evidence.ends_with("the request is refused (failurePolicy Fail)"), "{may}");

    // The command of the next step shows whether the webhook refuses, and changes nothing.
    let next = may["next"].as_str().unwrap();
    let (words, patch) = next.split_once("kubectl ").unwrap().1.split_once(" -p '").unwrap();
    let words: Vec<&str> = words.split(' ').chain(["-p", patch.trim_end_matches('\'')]).collect();
    assert!(words.contains(&"--dry-run=server"), "{next}");
    let refused = eventually("the refusal", LIMIT, || plane.kubectl(&words)?.failure()).unwrap();
    let says = "admission webhook \"far.example.test\" denied the request";
    assert!(refused.contains(says), "{refused}");

    // An operator reports a refusal in an Event.
    let patch = ["patch", "configmap", "settings", "-n", &ns, "--type=json", "-p", STRIP];
    let refused = plane.kubectl(&patch).unwrap().failure().unwrap();
    let uid = plane.api().field("configmap/settings", &ns, ".metadata.uid").unwrap();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "settings.1",
        "namespace": ns}, "type": "Warning", "reason": "Failed", "message": refused.trim(),
        "source": {"component": "legacy-operator"}, "involvedObject": {"apiVersion": "v1",
        "kind": "ConfigMap", "namespace": ns, "name": "settings", "uid": uid}});
    plane.apply(&event).unwrap();
    // An Event from before the DELETE explains nothing.
    let times =
        json!({"metadata": {"name": "settings.0"}, "lastTimestamp": "2020-01-01T00:00:00Z"});
    plane.apply(&event.clone().with(times)).unwrap();
    let all = causes(plane, &["-n", &ns], &object, "Refused");
    assert_eq!(all[0]["evidence"].as_array().unwrap().len(), 1, "{all:?}");
    assert_eq!(all[0]["says"], "a controller that works on its deletion was refused", "{all:?}");
    let event = all[0]["evidence"][0].as_str().unwrap();
    assert!(
        event.starts_with("Event Failed by legacy-operator: ") && event.contains(says),
        "{event}"
    );
    let next = "ask the owner of the webhook far.example.test; to see it: kubectl get \
                validatingwebhookconfiguration/far -o yaml";
    assert_eq!(all[0]["next"], next);
    // The possible refusal is no longer reported.
    assert!(perhaps(&all).is_none(), "{all:?}");
    drop(webhook);
}
