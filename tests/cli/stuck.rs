//! Objects that are really stuck, where only their finalizers or owners are broken.

use std::path::Path;

use serde_json::{Value, json};

use crate::broken::dead_webhook;
use crate::harness::manifest::{
    Manifest as _, bound_claim, config_map, object, owner, pod, workload,
};
use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

/// Waits until `stuck` reports the cause for an object.
pub fn causes(plane: &ControlPlane, scope: &[&str], object: &str, cause: &str) -> Vec<Value> {
    causes_to(plane.kubeconfig(), scope, object, cause)
}

/// Like `causes`, as the user of a kubeconfig.
pub fn causes_to(kubeconfig: &Path, scope: &[&str], object: &str, cause: &str) -> Vec<Value> {
    let args = [&["stuck", "--longer-than=1s", "-o", "json"][..], scope].concat();
    let mut found = Vec::new();
    eventually(&format!("{object}: {cause}"), LIMIT, || {
        let output = belay_as(kubeconfig, &args);
        let said: Value =
            serde_json::from_str(&output.stdout).map_err(|_| output.stderr.clone())?;
        let items = said["items"].as_array().cloned().unwrap_or_default();
        let item = items.iter().find(|item| item["object"]["typed"] == object);
        let all =
            item.and_then(|item| item["causes"].as_array()).ok_or_else(|| said.to_string())?;
        if output.code != 1 || !all.iter().any(|one| one["cause"] == cause) {
            return Err(format!("exit {}: {all:?}", output.code).into());
        }
        found.clone_from(all);
        Ok(())
    })
    .unwrap();
    found
}

/// Sends a DELETE and does not wait.
pub fn delete(plane: &ControlPlane, args: &[&str]) {
    kubectl(plane, &[&["delete", "--wait=false"][..], args].concat());
}

/// Creates the ConfigMap settings with a finalizer of this manager, and deletes it.
fn deleted_settings(plane: &ControlPlane, ns: &str, manager: &str, finalizer: &str) {
    let object = config_map("settings").with_namespace(ns).with_finalizers(&[finalizer]);
    let manager = format!("--field-manager={manager}");
    let apply = ["apply", "--server-side", &manager, "-f", "-"];
    plane.apply_to(&apply, &object).unwrap().success().unwrap();
    delete(plane, &["configmap", "settings", "-n", ns]);
}

#[test]
fn a_finalizer_without_a_controller_is_found_and_the_named_command_works() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-owner").unwrap();
    deleted_settings(plane, &ns, "db-operator", "db.example.test/drop");
    let object = format!("configmaps/settings -n {ns}");
    let all = causes(plane, &["-n", &ns], &object, "OwnerGone");
    assert_eq!(all.len(), 1, "{all:?}");
    let said = all[0].to_string();
    assert!(said.contains("was added by db-operator. Its controller was not found"), "{said}");
    assert!(said.contains("the API server serves no API group of example.test"), "{said}");

    // The table contains the same, and the command of the next step works.
    let table = belay(plane, &["stuck", "-n", &ns, "--longer-than=1s"]);
    assert_eq!(table.code, 1, "{table:?}");
    let first = table.stdout.lines().nth(1).unwrap();
    assert!(first.starts_with("configmaps/settings   "), "{table:?}");
    assert!(first.ends_with("a finalizer whose controller was not found"), "{table:?}");
    assert!(!table.stdout.contains('\x1b') && table.stderr.is_empty(), "{table:?}");
    kubectl(plane, &patch_of(all[0]["next"].as_str().unwrap()));
    assert_eq!(plane.api().get("configmap/settings", &ns).unwrap(), None);
    let nothing = belay(plane, &["stuck", "-n", &ns, "--longer-than=1s"]);
    assert_eq!((nothing.code, nothing.stderr.as_str()), (0, ""), "{nothing:?}");
    assert!(nothing.stdout.starts_with("nothing in namespace "), "{nothing:?}");
}

/// The arguments of the patch that a next step names.
fn patch_of(next: &str) -> Vec<&str> {
    let (_, command) = next.split_once("kubectl patch ").unwrap();
    let (words, patch) = command.split_once(" -p '").unwrap();
    let patch = patch.trim_end_matches('\'');
    ["patch"].into_iter().chain(words.split(' ')).chain(["-p", patch]).collect()
}

/// Creates an Event about a refused request for the ConfigMap settings with this uid.
fn report_refusal(plane: &ControlPlane, ns: &str, (name, uid, time): (&str, &str, &str)) {
    let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "settings",
        "namespace": ns, "uid": uid});
    let message = format!("admission webhook \"guard.test\" denied the request: {name}");
    let fields = json!({"involvedObject": about, "reportingComponent": "db-operator",
        "reason": "Failed", "message": message, "lastTimestamp": time});
    let event = object("v1", "Event", name).with_namespace(ns).with(fields);
    let path = format!("/api/v1/namespaces/{ns}/events");
    let created = plane.apply_to(&["create", "--raw", &path, "-f", "-"], &event);
    created.unwrap().success().unwrap();
}

#[test]
fn only_events_about_this_object_since_its_deletion_are_causes() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-since").unwrap();
    deleted_settings(plane, &ns, "db-operator", "db.example.test/drop");
    let uid = plane.api().field("cm/settings", &ns, ".metadata.uid").unwrap();
    report_refusal(plane, &ns, ("past", &uid, "2020-01-01T00:00:00Z"));
    report_refusal(plane, &ns, ("namesake", "another-uid", "2099-01-01T00:00:00Z"));
    let object = format!("configmaps/settings -n {ns}");
    let said = |cause: &str| {
        let causes = json!(causes(plane, &["-n", &ns], &object, cause)).to_string();
        [causes, belay(plane, &["why", "configmaps/settings", "-n", &ns]).stdout]
    };
    for text in said("OwnerGone") {
        assert!(!text.contains("denied the request"), "{text}");
    }
    report_refusal(plane, &ns, ("present", &uid, "2099-01-01T00:00:00Z"));
    for text in said("Refused") {
        assert!(text.contains("denied the request: present"), "{text}");
        assert!(!text.contains("past") && !text.contains("namesake"), "{text}");
    }
}

/// The API server accepts the time, and writes it with five digits of the year.
#[test]
fn h133_an_event_with_an_unreadable_time_is_named_and_hides_no_other() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-event").unwrap();
    deleted_settings(plane, &ns, "db-operator", "db.example.test/drop");
    let uid = plane.api().field("cm/settings", &ns, ".metadata.uid").unwrap();
    for (name, time) in [("odd", "9999-12-31T23:59:59-23:59"), ("other", "2099-01-01T00:00:00Z")] {
        report_refusal(plane, &ns, (name, &uid, time));
    }
    causes(plane, &["-n", &ns], &format!("configmaps/settings -n {ns}"), "Refused");
    let named = format!("incomplete, because belay could not read: events/odd -n {ns}\n");
    let stuck = belay(plane, &["stuck", "-n", &ns, "--longer-than=1s"]);
    assert!(stuck.stdout.contains(&named), "{stuck:?}");
    let why = belay(plane, &["why", "configmaps/settings", "-n", &ns]);
    assert!(why.stdout.contains(&named) && why.stdout.contains("denied the request"), "{why:?}");
}

#[test]
fn a_guarded_finalizer_needs_the_approval_that_the_next_step_names() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-guarded").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"fromStripping": {}}));
    deleted_settings(plane, &ns, "db-operator", "db.example.test/drop");
    let object = format!("configmaps/settings -n {ns}");
    let all = causes(plane, &["-n", &ns], &object, "OwnerGone");
    let next = all[0]["next"].as_str().unwrap();
    let approve =
        format!("resources: kubectl belay approve {object} --reason \"…\", and then: kubectl ");
    assert!(next.contains(&approve), "{next}");
    let patch = patch_of(next);
    let refused = plane.kubectl(&patch).unwrap().failure().unwrap();
    assert!(refused.contains("(FinalizerGuarded)"), "{refused}");
    let approved = belay(
        plane,
        &["approve", "configmaps/settings", "-n", &ns, "--reason", "the drop is done"],
    );
    assert_eq!(approved.code, 0, "{approved:?}");
    eventually("the patch passes", LIMIT, || plane.kubectl(&patch)?.success()).unwrap();
    assert_eq!(plane.api().get("configmap/settings", &ns).unwrap(), None);
}

#[test]
fn an_object_that_was_just_deleted_is_not_stuck() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-late").unwrap();
    let object = config_map("settings").with_namespace(&ns).with_finalizers(&["x.example.test/y"]);
    plane.apply(&object).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns]);
    let early = belay(plane, &["stuck", "-n", &ns]);
    assert_eq!(early.code, 0, "{early:?}");
    causes(plane, &["-n", &ns], &format!("configmaps/settings -n {ns}"), "OwnerGone");
}

#[test]
fn held_objects_are_reported_with_their_users() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-held").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let pod =
        pod("web").with_namespace(&ns).with_volume(json!({"configMap": {"name": "settings"}}));
    // The controller creates the service account that a Pod needs.
    eventually("the Pod", LIMIT, || plane.apply(&pod)).unwrap();
    let settings = ("configmap/settings", &*ns);
    let held = |finalizers: &str| finalizers.contains("belay.dev/hold");
    plane.api().wait_field(settings, LIMIT, ".metadata.finalizers", held).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns]);
    let object = format!("configmaps/settings -n {ns}");
    let all = causes(plane, &["-n", &ns], &object, "HeldByBelay");
    let says = all[0]["says"].as_str().unwrap();
    assert!(
        says.starts_with("belay keeps the hold because the object is in use by: Pod ")
            && says.contains("/web (spec.volumes[0]"),
        "{says}"
    );
    assert_eq!(all[0]["next"], format!("kubectl belay why {object}"));

    // belay refuses the removal of the hold by hand and reports it in an Event. The Event
    // takes precedence over webhooks that may refuse.
    let strip = "[{\"op\": \"remove\", \"path\": \"/metadata/finalizers/0\"}]";
    let patch = ["patch", "configmap", "settings", "-n", &ns, "--type=json", "-p", strip];
    let refused = plane.kubectl(&patch).unwrap().failure().unwrap();
    assert!(refused.contains("only belay may remove the finalizer belay.dev/hold"), "{refused}");
    let all = causes(plane, &["-n", &ns], &object, "Refused");
    let order: Vec<&Value> = all.iter().map(|one| &one["cause"]).collect();
    assert_eq!(order, ["Refused", "HeldByBelay"], "{all:?}");
    assert_eq!(all[0]["says"], "belay refused a request to remove a finalizer", "{all:?}");
    let event = all[0]["evidence"][0].as_str().unwrap();
    assert!(event.starts_with("Event FinalizerGuarded by belay: "), "{event}");
    delete(plane, &["pod", "web", "-n", &ns, "--grace-period=0", "--force"]);
}

#[test]
fn a_namespace_and_an_owner_wait_for_what_is_below_them() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-below").unwrap();
    plane.apply(&config_map("owner").with_namespace(&ns)).unwrap();
    let uid = plane.api().field("cm/owner", &ns, ".metadata.uid").unwrap();
    let child = config_map("child").with_namespace(&ns).with_finalizers(&["x.example.test/y"]);
    plane.apply(&child.with_owner(owner("ConfigMap", "owner", &uid))).unwrap();
    delete(plane, &["configmap", "owner", "-n", &ns, "--cascade=foreground"]);
    let all = causes(plane, &["-n", &ns], &format!("configmaps/owner -n {ns}"), "Foreground");
    let said = all[0].to_string();
    let waits = format!("waits for the deletion of ConfigMap {ns}/child");
    assert!(said.contains(&waits), "{said}");

    delete(plane, &["namespace", &ns]);
    // The content is visible at once. The conditions follow later.
    eventually("what the namespace controller says", LIMIT, || {
        let all = causes(plane, &["-A"], &format!("namespaces/{ns}"), "Content");
        let said = all[0].to_string();
        let parts = ["x.example.test/y in 1 resource instances", "is Terminating as well"];
        if parts.iter().all(|part| said.contains(part)) { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();
    // `stuck -n` also reports the Namespace itself.
    causes(plane, &["-n", &ns], &format!("namespaces/{ns}"), "Content");
}

#[test]
fn the_state_of_the_controller_of_a_finalizer_is_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-operator").unwrap();
    let operator = workload("Deployment", "queue-operator", &pod("queue"));
    plane.apply(&operator.with_namespace(&ns)).unwrap();
    deleted_settings(plane, &ns, "queue-operator", "queue.example.test/drain");
    let object = format!("configmaps/settings -n {ns}");
    let told = |cause: &str| {
        let all = causes(plane, &["-n", &ns], &object, cause);
        assert_eq!(all.len(), 1, "{all:?}");
        let text = |field: &str| all[0][field].as_str().unwrap().to_owned();
        (text("says"), text("next"))
    };
    // Once its Pod is ready.
    let (says, next) = told("Owner");
    let likely =
        format!("was added by queue-operator. Likely controller: Deployment {ns}/queue-operator, ");
    assert!(says.ends_with(&format!("{likely}1 ready Pod")), "{says}");
    let then = "if that workload is the controller: kubectl";
    assert_eq!(next, format!("{then} logs deploy/queue-operator -n {ns}"));

    kubectl(plane, &["scale", "deploy/queue-operator", "-n", &ns, "--replicas=0"]);
    let (says, next) = told("OwnerDown");
    assert!(says.ends_with(&format!("{likely}0 ready Pods")), "{says}");
    assert_eq!(next, format!("{then} describe deploy/queue-operator -n {ns}"));

    delete(plane, &["deploy/queue-operator", "-n", &ns]);
    let (says, _) = told("OwnerGone");
    assert!(says.ends_with("was added by queue-operator. Its controller was not found"), "{says}");
}

/// The command reads a Pod as a whole, and the client that added a finalizer from its metadata.
#[test]
fn the_client_that_added_a_finalizer_to_a_pod_is_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-writer").unwrap();
    let object = pod("u").with_namespace(&ns).with_finalizers(&["queue.example.test/drain"]);
    let apply = ["apply", "--server-side", "--field-manager=drainer", "-f", "-"];
    plane.apply_to(&apply, &object).unwrap().success().unwrap();
    delete(plane, &["pod/u", "-n", &ns, "--grace-period=0", "--force"]);
    let all = causes(plane, &["-n", &ns], &format!("pods/u -n {ns}"), "OwnerGone");
    let gone = all.iter().find(|one| one["cause"] == "OwnerGone").unwrap();
    assert!(gone["says"].as_str().unwrap().contains("was added by drainer. "), "{gone}");
}

#[test]
fn a_claim_and_its_volume_wait_for_who_uses_them() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-claim").unwrap();
    let volume = format!("{ns}-data");
    for object in bound_claim(&ns, "data", &volume) {
        plane.apply(&object).unwrap();
    }
    let pod = pod("web").with_namespace(&ns).with_claim("data");
    eventually("the Pod", LIMIT, || plane.apply(&pod)).unwrap();
    let running = ["wait", "pod/web", "-n", &ns, "--for=jsonpath={.status.phase}=Running"];
    kubectl(plane, &[&running[..], &["--timeout=90s"]].concat());
    delete(plane, &["pvc", "data", "-n", &ns]);
    delete(plane, &["pv", &volume]);

    let object = format!("persistentvolumeclaims/data -n {ns}");
    let claim = &causes(plane, &["-n", &ns], &object, "InUse")[0];
    assert_eq!(claim["says"], "Pod web uses it", "{claim}");
    assert_eq!(claim["next"], format!("kubectl describe pods/web -n {ns}"));
    let step = format!(
        "to end the use, delete Pod web; then the data of volume {volume} is destroyed, unless its \
         reclaimPolicy is Retain"
    );
    assert_eq!(claim["evidence"][1], step, "{claim}");
    let text = belay(plane, &["stuck", "-n", &ns, "--longer-than=1s"]).stdout;
    // The volume is Terminating as well, so `undo` would refuse.
    let undo = "  if the deletion is a mistake: copy the data to another volume before ";
    assert!(text.contains(undo), "{text}");
    let volume = &causes(plane, &["-A"], &format!("persistentvolumes/{volume}"), "InUse")[0];
    assert_eq!(volume["says"], format!("the claim {ns}/data is bound to it"), "{volume}");

    // Without users they are deleted, and `stuck` reports nothing more.
    delete(plane, &["pod", "web", "-n", &ns, "--grace-period=0", "--force"]);
    eventually("nothing that is stuck", LIMIT, || {
        let said = belay(plane, &["stuck", "-n", &ns, "--longer-than=1s"]);
        if said.code == 0 { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
}

#[test]
fn a_webhook_that_cannot_be_asked_lets_no_namespace_go() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-end").unwrap();
    plane.apply(&dead_webhook("last", &ns, "namespaces/finalize")).unwrap();
    delete(plane, &["namespace", &ns]);
    let all = causes(plane, &["-A"], &format!("namespaces/{ns}"), "Refused");
    let refused = all.iter().find(|one| one["cause"] == "Refused").unwrap();
    let next = refused["next"].as_str().unwrap();
    assert!(next.ends_with("kubectl delete validatingwebhookconfiguration/last"), "{refused}");
    // The command of the next step works.
    delete(plane, &["validatingwebhookconfiguration/last"]);
    let wait = ["wait", "namespace", &ns, "--for=delete", "--timeout=90s"];
    kubectl(plane, &wait);
}

#[test]
fn a_user_without_read_access_does_not_see_a_clean_result() {
    let plane = &world().plane;
    let ns = plane.namespace("stuck-blind").unwrap();
    let eve = plane.user(&format!("eve-{ns}"), None).unwrap();
    let blind = belay_as(&eve, &["stuck", "-n", &ns, "--verbose"]);
    assert_eq!(blind.code, 3, "{blind:?}");
    assert!(blind.stdout.starts_with("nothing that was read in namespace "), "{blind:?}");
    assert!(blind.stdout.contains("\nnot read: configmaps: forbidden for you\n"), "{blind:?}");
    let said = json(&belay_as(&eve, &["stuck", "-n", &ns, "-o", "json"]));
    assert_eq!(said["items"].as_array().map(Vec::len), Some(0), "{said}");
}
