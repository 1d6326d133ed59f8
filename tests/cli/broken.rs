//! `stuck` where something is broken, and no belay is installed.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::harness::crd::things;
use crate::harness::manifest::{
    Manifest as _, admission_policy, config_map, object, owner, pod, validating_webhook,
};
use crate::harness::{ControlPlane, Options, eventually};
use crate::stuck::{causes, delete};
use crate::{LIMIT, belay, json};

/// A control plane that the tests of this file break, each in its own way. A test may see
/// the problems of the others.
pub fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let start = || ControlPlane::start_with(&Options::default()).map_err(|e| e.to_string());
    PLANE.get_or_init(start).as_ref().unwrap()
}

/// A webhook whose Service does not exist, for writes of a resource in one
/// namespace.
pub fn dead_webhook(name: &str, ns: &str, resource: &str) -> Value {
    let client = json!({"service": {"namespace": "default", "name": "guard"}});
    validating_webhook(name, ns, ("UPDATE", resource), client)
}

/// Has the API server refuse an operation on the selected ConfigMaps of one namespace.
fn refuse(plane: &ControlPlane, name: &str, ns: &str, operation: &str, objects: Value) {
    let never = json!({"expression": "false", "message": "kept"});
    let matched: (&[&str], &[&str]) = (&[operation], &["configmaps"]);
    for object in admission_policy(name, ns, matched, objects, never) {
        plane.apply(&object).unwrap();
    }
}

#[test]
fn a_webhook_without_a_server_blocks_the_removal_of_a_finalizer() {
    let plane = plane();
    let [ns, elsewhere] = ["broken-hook", "broken-no-hook"].map(|ns| plane.namespace(ns).unwrap());
    for ns in [&ns, &elsewhere] {
        let object =
            config_map("settings").with_namespace(ns).with_finalizers(&["x.hooked.test/y"]);
        plane.apply(&object).unwrap();
    }
    plane.apply(&dead_webhook("guard", &ns, "configmaps/*")).unwrap();
    for ns in [&ns, &elsewhere] {
        delete(plane, &["configmap", "settings", "-n", ns]);
    }
    let object = format!("configmaps/settings -n {ns}");
    let all = causes(plane, &["-n", &ns], &object, "Refused");
    let said = all[0].to_string();
    assert!(said.contains("there is no Service default/guard"), "{said}");
    assert!(!said.contains("matchConditions"), "{said}");
    assert!(said.contains("kubectl delete validatingwebhookconfiguration/guard"), "{said}");
    // The API server does not call this webhook for objects in other namespaces.
    let object = format!("configmaps/settings -n {elsewhere}");
    let all = causes(plane, &["-n", &elsewhere], &object, "OwnerGone");
    assert!(all.iter().all(|one| one["cause"] != "Refused"), "{all:?}");
}

#[test]
fn a_finalizer_of_removed_kinds_is_reported_with_the_reason() {
    let plane = plane();
    let ns = plane.namespace("broken-kinds").unwrap();
    plane.apply(&things("removed.example.org", "v1", false)).unwrap();
    let object =
        config_map("settings").with_namespace(&ns).with_finalizers(&["finalizers.example.org/y"]);
    plane.apply(&object).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns]);
    let object = format!("configmaps/settings -n {ns}");
    let told = |cause: &str, what: &str| {
        eventually(what, LIMIT, || {
            let said = causes(plane, &["-n", &ns], &object, cause)[0].to_string();
            if said.contains(what) { Ok(()) } else { Err(said.into()) }
        })
        .unwrap();
    };
    // A user's tool added it, so the CRDs of its domain are the only evidence.
    told("Unknown", "still served: removed.example.org");
    delete(plane, &["crd", "things.removed.example.org"]);
    told("OwnerGone", "the API server serves no API group of example.org");
}

#[test]
fn a_finalizer_of_kinds_without_their_webhook_is_reported_with_the_reason() {
    let plane = plane();
    let ns = plane.namespace("broken-left").unwrap();
    plane.apply(&things("left.example.net", "v1", false)).unwrap();
    let object =
        config_map("settings").with_namespace(&ns).with_finalizers(&["finalizers.example.net/y"]);
    plane.apply(&object).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns]);
    let object = format!("configmaps/settings -n {ns}");
    // A user's tool added it, and the kinds of its domain are still served.
    causes(plane, &["-n", &ns], &object, "Unknown");
    let mut left = dead_webhook("left", "elsewhere", "pods");
    left["webhooks"][0]["name"] = json!("left.example.net");
    plane.apply(&left).unwrap();
    let all = causes(plane, &["-n", &ns], &object, "OwnerGone");
    let said = all[0].to_string();
    let parts = [
        "still served: left.example.net",
        "the webhook left.example.net (validatingwebhookconfiguration/left) does not answer: there \
         is no Service default/guard",
    ];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn an_api_without_a_server_keeps_every_namespace() {
    let plane = plane();
    let ns = plane.namespace("broken-api").unwrap();
    plane
        .apply(
            "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: \
             v1.gone.example.test}\nspec: {group: gone.example.test, version: v1, \
             groupPriorityMinimum: 100, versionPriority: 100, service: {namespace: default, name: \
             nobody}, insecureSkipTLSVerify: true}\n",
        )
        .unwrap();
    let broken = ("apiservice/v1.gone.example.test", "");
    let path = ".status.conditions[?(@.type==\"Available\")].status";
    plane.api().wait_field(broken, LIMIT, path, |status| status == "False").unwrap();
    let impact = json(&belay(plane, &["impact", &format!("ns/{ns}"), "-o", "json"]));
    let mut objects = impact["objects"].as_array().unwrap().iter();
    let predicted = objects.find(|one| one["object"]["kind"] == "Namespace").unwrap();
    let until = "until the API server of gone.example.test answers";
    assert_eq!((&predicted["object"]["name"], &predicted["outcome"]), (&json!(ns), &json!("Held")));
    assert!(predicted["note"].as_str().unwrap().starts_with(until), "{impact:#}");
    delete(plane, &["namespace", &ns]);
    let all = causes(plane, &["-A"], &format!("namespaces/{ns}"), "BrokenApi");
    let said = all.iter().find(|one| one["cause"] == "BrokenApi").unwrap().to_string();
    assert!(said.contains("apiservice/v1.gone.example.test: ServiceNotFound"), "{said}");
    assert!(said.contains("kubectl delete apiservice v1.gone.example.test"), "{said}");
}

#[test]
fn a_kind_without_conversion_keeps_its_namespace() {
    // While such a kind exists, the namespace controller takes minutes for every Namespace,
    // so this test has its own control plane.
    let plane = &ControlPlane::start().unwrap();
    let ns = plane.namespace("broken-kind").unwrap();
    plane.apply(&things("old.example.test", "v1", false)).unwrap();
    let thing = object("old.example.test/v1", "Thing", "one").with_namespace(&ns);
    eventually("a thing", LIMIT, || plane.apply(&thing)).unwrap();
    plane.apply(&things("old.example.test", "v2", true)).unwrap();
    delete(plane, &["namespace", &ns]);
    let all = causes(plane, &["-A"], &format!("namespaces/{ns}"), "ConversionWebhook");
    let said = all.iter().find(|one| one["cause"] == "ConversionWebhook").unwrap().to_string();
    assert!(
        said.contains("crd/things.old.example.test: there is no Service default/nobody"),
        "{said}"
    );

    // Objects stored in the served version can be listed, but writes in another version
    // fail.
    let ns = plane.namespace("broken-version").unwrap();
    plane.apply(&things("new.example.test", "v2", true)).unwrap();
    let thing = object("new.example.test/v2", "Thing", "one").with_namespace(&ns);
    let thing = thing.with_finalizers(&["x.example.test/y"]);
    eventually("a thing", LIMIT, || plane.apply(&thing)).unwrap();
    delete(plane, &["things.v2.new.example.test", "one", "-n", &ns]);
    let told = |scope: &[&str], object: &str, definition: &str| {
        let all = causes(plane, scope, object, "ConversionWebhook");
        let dead = all.iter().find(|one| one["cause"] == "ConversionWebhook").unwrap();
        let says =
            format!("no client can read {definition}: its conversion webhook does not answer");
        assert_eq!(dead["says"], says.as_str(), "{dead}");
        assert_eq!(dead["evidence"][0], "there is no Service default/nobody", "{dead}");
        let next = format!("kubectl get crd {definition} -o jsonpath={{.spec.conversion}}");
        assert!(dead["next"].as_str().unwrap().ends_with(&next), "{dead}");
    };
    let object = format!("things.new.example.test/one -n {ns}");
    told(&["-n", &ns], &object, "things.new.example.test");
    for definition in ["things.old.example.test", "things.new.example.test"] {
        delete(plane, &["crd", definition]);
        let object = format!("customresourcedefinitions.apiextensions.k8s.io/{definition}");
        told(&["-A"], &object, definition);
    }
    // A kind that can't be listed is reported, because an object of it may be stuck.
    let said = json(&belay(plane, &["stuck", "-A", "-o", "json"]));
    let unread = said["notRead"].as_array().unwrap();
    assert!(unread.iter().any(|one| one["resource"] == "things.old.example.test"), "{said}");
}

#[test]
fn a_child_with_a_refused_deletion_is_reported_with_a_command_that_shows_who_refuses() {
    let plane = plane();
    let ns = plane.namespace("broken-child").unwrap();
    plane.apply(&config_map("owner").with_namespace(&ns)).unwrap();
    let uid = plane.api().field("cm/owner", &ns, ".metadata.uid").unwrap();
    let child = config_map("child").with_namespace(&ns).with_labels(json!({"kept": "yes"}));
    plane.apply(&child.with_owner(owner("ConfigMap", "owner", &uid))).unwrap();
    let kept = json!({"matchLabels": {"kept": "yes"}});
    refuse(plane, "keep-child", &ns, "DELETE", kept);
    eventually("the policy in force", LIMIT, || {
        plane.api().delete(&["configmap", "child", "--dry-run=server"], &ns)?.failure().map(drop)
    })
    .unwrap();
    delete(plane, &["configmap", "owner", "-n", &ns, "--cascade=foreground"]);
    let object = format!("configmaps/owner -n {ns}");
    let all = causes(plane, &["-n", &ns], &object, "Foreground");
    let waits = all.iter().find(|one| one["cause"] == "Foreground").unwrap();
    assert_eq!(waits["evidence"][0], format!("ConfigMap {ns}/child is not Terminating"), "{waits}");
    // The command of the next step shows who refuses, and changes nothing.
    let (_, asks) = waits["next"].as_str().unwrap().split_once("kubectl ").unwrap();
    let refused = plane.kubectl(&asks.split(' ').collect::<Vec<_>>()).unwrap().failure().unwrap();
    assert!(refused.contains("ValidatingAdmissionPolicy 'keep-child'"), "{refused}");
    assert!(plane.api().get("configmap/child", &ns).unwrap().is_some());
}

#[test]
fn a_crd_waits_for_the_objects_of_its_kind() {
    let plane = plane();
    let ns = plane.namespace("broken-definition").unwrap();
    plane.apply(&things("kept.example.test", "v1", false)).unwrap();
    let thing = object("kept.example.test/v1", "Thing", "one").with_namespace(&ns);
    let thing = thing.with_finalizers(&["x.example.test/y"]);
    eventually("a thing", LIMIT, || plane.apply(&thing)).unwrap();
    delete(plane, &["crd", "things.kept.example.test"]);
    let name = "customresourcedefinitions.apiextensions.k8s.io/things.kept.example.test";
    // The object is deleted a moment after its kind is.
    eventually("its object", LIMIT, || {
        let all = causes(plane, &["-A"], name, "Content");
        let said = all.iter().find(|one| one["cause"] == "Content").unwrap().to_string();
        let thing = format!("Thing {ns}/one is Terminating as well");
        let parts = ["waits for its objects, of which 1 stay Terminating", thing.as_str()];
        if parts.iter().all(|part| said.contains(part)) { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();
}

#[test]
fn a_namespace_is_reported_with_who_refuses_the_deletion_of_its_content() {
    let plane = plane();
    let ns = plane.namespace("broken-policy").unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    refuse(plane, "keep", &ns, "DELETE", json!({}));
    eventually("the policy in force", LIMIT, || {
        let try_it = ["delete", "configmap", "settings", "-n", &ns, "--dry-run=server"];
        plane.kubectl(&try_it)?.failure().map(drop)
    })
    .unwrap();
    delete(plane, &["namespace", &ns]);
    let all = causes(plane, &["-A"], &format!("namespaces/{ns}"), "Refused");
    let refused = all.iter().find(|one| one["cause"] == "Refused").unwrap();
    assert!(refused.to_string().contains("ValidatingAdmissionPolicy 'keep'"), "{refused}");
    assert!(refused["next"].as_str().unwrap().contains("validatingadmissionpolicies"), "{refused}");
}

#[test]
fn a_pod_with_a_silent_node_is_reported_with_the_node() {
    let plane = plane();
    let ns = plane.namespace("broken-silent").unwrap();
    let node = format!("silent-{ns}");
    plane.apply(&object("v1", "Node", &node)).unwrap();
    let pod = pod("web").with_namespace(&ns).with_node(&node);
    eventually("the Pod", LIMIT, || plane.apply(&pod)).unwrap();
    let object = format!("pods/web -n {ns}");
    let told = |cause: &str, what: &str| {
        let all = causes(plane, &["-n", &ns], &object, cause);
        assert!(all.iter().any(|one| one.to_string().contains(what)), "{all:?}");
    };
    delete(plane, &["pod", "web", "-n", &ns, "--grace-period=30"]);
    told("NodeGone", &format!("its node {node} is not ready"));
    // A running kubelet still has to stop the Pod.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
        "reason": "KubeletReady", "message": "ready"}]}});
    plane.patch(&format!("node/{node}/status"), "", &ready);
    told("Owner", &format!("the kubelet of node {node} has not stopped it yet"));
}

#[test]
fn a_pod_without_its_node_is_reported_with_the_node() {
    let plane = plane();
    let ns = plane.namespace("broken-node").unwrap();
    // The finalizer keeps it when the collector of Pods has been there.
    let pod =
        pod("web").with_namespace(&ns).with_finalizers(&["x.example.test/y"]).with_node("ghost");
    eventually("the Pod", LIMIT, || plane.apply(&pod)).unwrap();
    delete(plane, &["pod", "web", "-n", &ns, "--grace-period=1"]);
    let all = causes(plane, &["-n", &ns], &format!("pods/web -n {ns}"), "NodeGone");
    let said = all.iter().find(|one| one["cause"] == "NodeGone").unwrap().to_string();
    assert!(said.contains("its node ghost does not exist"), "{said}");
}

#[test]
fn a_hold_left_by_an_uninstalled_belay_is_reported_with_its_removal() {
    let plane = plane();
    let ns = plane.namespace("broken-hold").unwrap();
    let object = config_map("settings").with_namespace(&ns).with_finalizers(&["belay.dev/hold"]);
    plane.apply(&object).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns]);
    let all = causes(plane, &["-n", &ns], &format!("configmaps/settings -n {ns}"), "HeldByBelay");
    let held = all.iter().find(|one| one["cause"] == "HeldByBelay").unwrap();
    assert!(
        held["says"]
            .as_str()
            .unwrap()
            .starts_with("belay is not installed, so nothing removes its hold"),
        "{held}"
    );
    let next = "kubectl belay admin uninstall --dry-run; without --dry-run, it removes belay's \
                protection from the whole cluster";
    assert_eq!(held["next"], next);
}

#[test]
fn impact_reports_a_refusal_by_another_admission() {
    let plane = plane();
    let ns = plane.namespace("broken-delete").unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    refuse(plane, &ns, &ns, "DELETE", json!({}));
    let delete = ["delete", "configmap", "settings", "-n", &ns, "--dry-run=server"];
    let refused = || plane.kubectl(&delete)?.failure();
    eventually("the refusal", LIMIT, refused).unwrap();
    let said = belay(plane, &["impact", "cm/settings", "-n", &ns]);
    assert!(said.stdout.contains("   DENIED   the API server\n") && said.code == 1, "{said:?}");
    let line = said.stdout.lines().find(|line| line.starts_with("refused "));
    assert!(line.is_some_and(|line| line.contains(&ns)), "{said:?}");
}
