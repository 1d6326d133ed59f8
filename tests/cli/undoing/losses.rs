//! What else ends with the target, or meanwhile: nothing of it is lost.

use serde_json::{Value, json};

use super::*;

const RECLAIM_POLICY: &str = ".spec.persistentVolumeReclaimPolicy";

/// Deletes claims that Pods protect. Returns their names with their volumes.
pub fn delete_claims(plane: &ControlPlane, ns: &str, names: &[&str]) -> Vec<(String, Value)> {
    let claims = names.iter().map(|name| format!("pvc/{name}"));
    let with_volume = |name: String| {
        let volume = bound(plane, ns, &name)["spec"]["volumeName"].clone();
        (name, volume)
    };
    let claims: Vec<_> = claims.map(with_volume).collect();
    claims.iter().for_each(|(name, _)| delete(plane, ns, name));
    claims
}

/// The claims are new ones with their volumes, whose policy is as before.
pub fn have_their_volumes(plane: &ControlPlane, ns: &str, claims: &[(String, Value)]) {
    for (name, volume) in claims {
        let claim = bound(plane, ns, name);
        assert_eq!(claim["spec"]["volumeName"], *volume, "{name}");
        assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
        let volume = format!("pv/{}", text(volume));
        assert_eq!(plane.api().field(&volume, "", RECLAIM_POLICY).unwrap(), "Delete");
    }
}

/// Starts a StatefulSet with two Pods, each with a claim.
pub fn start_two_replicas(plane: &ControlPlane, ns: &str) {
    storage_class(plane, ns);
    let parallel = json!({"spec": {"replicas": 2, "podManagementPolicy": "Parallel"}});
    plane.apply(&stateful_set(ns).with(parallel).with_namespace(ns)).unwrap();
    wait_until_running(plane, ns, 2);
}

/// The path of a file in a folder.
pub fn file_in(folder: &tempfile::TempDir) -> String {
    folder.path().join("undo.json").display().to_string()
}

#[test]
fn the_other_terminating_claims_of_a_stopped_workload_are_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-siblings").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0", "data-web-1"]);
    let undone = belay(plane, &["undo", "pvc/data-web-0", "-n", &ns, "--yes"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    have_their_volumes(plane, &ns, &claims);
    wait_until_running(plane, &ns, 2);
}

#[test]
fn a_claim_with_the_name_of_an_ephemeral_one_keeps_its_volume() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-ephemeral").unwrap();
    start_two_replicas(plane, &ns);
    // The claim of this ephemeral volume would have the name of the second claim.
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": ns,
        "resources": {"requests": {"storage": "1Mi"}}}});
    let volumes = json!([{"name": "1", "ephemeral": {"volumeClaimTemplate": template}}]);
    let pending = pod("data-web").with(json!({"spec": {"volumes": volumes}}));
    plane.apply(&pending.with_namespace(&ns)).unwrap();
    let claims = delete_claims(plane, &ns, &["data-web-0", "data-web-1"]);
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let undone = belay(plane, &["undo", "pvc/data-web-0", "-n", &ns, "--yes", "--out", &file]);
    // The controller of ephemeral volumes creates its claim as soon as the name is free.
    assert_eq!(undone.code, 1, "{undone:?}");
    assert!(undone.stdout.contains(": another object has its name; next: compare"), "{undone:?}");
    plane.api().delete(&["pod/data-web", "--force", "--grace-period=0"], &ns).unwrap();
    plane.api().wait_gone(("pvc/data-web-1", &ns), LIMIT).unwrap();
    let undone = belay(plane, &["undo", "--resume", &file, "--yes"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    have_their_volumes(plane, &ns, &claims);
    wait_until_running(plane, &ns, 2);
}

#[test]
fn the_claims_of_all_pods_of_a_stopped_workload_are_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-templates").unwrap();
    claims(plane, &ns, &["old", "new"]);
    let using = |claim: &str| {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        pod("web").with(json!({"spec": {"volumes": [volume]}})).without_grace_period()
    };
    let fields = json!({"spec": {"replicas": 2, "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"}}});
    let set = |claim: &str| workload("StatefulSet", "web", &using(claim)).with(fields.clone());
    plane.apply(&set("old").with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 2);
    plane.apply(&set("new").with_namespace(&ns)).unwrap();
    plane.api().delete(&["pod/web-0"], &ns).unwrap().success().unwrap();
    let path = ".spec.volumes[0].persistentVolumeClaim.claimName";
    plane.api().wait_field(("pod/web-0", &ns), LIMIT, path, |claim| claim == "new").unwrap();
    wait_until_running(plane, &ns, 2);
    let claims = delete_claims(plane, &ns, &["old", "new"]);
    let undone = belay(plane, &["undo", "pvc/new", "-n", &ns, "--yes"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    have_their_volumes(plane, &ns, &claims);
}

#[test]
fn the_other_terminating_claim_of_a_pod_that_the_user_deletes_is_restored() {
    restore_claims_of_a_pod("undo-pair", "Running");
}

#[test]
fn the_other_terminating_claim_of_a_pod_that_has_succeeded_is_restored() {
    restore_claims_of_a_pod("undo-succeeded", "Succeeded");
}

fn restore_claims_of_a_pod(ns: &str, phase: &str) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    claims(plane, &ns, &["data", "log"]);
    let volumes = ["data", "log"]
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let user = pod("user").with(json!({"spec": {"volumes": volumes}})).without_grace_period();
    plane.apply(&user.with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    let status = json!({"status": {"phase": phase}}).to_string();
    let patch = ["patch", "pod/user", "-n", &ns, "--subresource=status", "--type=merge", "-p"];
    plane.kubectl(&[&patch[..], &[&status]].concat()).unwrap().success().unwrap();
    let claims = delete_claims(plane, &ns, &["data", "log"]);
    let undo = begin_undo(plane, &["pvc/data", "-n", &ns]);
    plane.api().delete(&["pod/user"], &ns).unwrap().success().unwrap();
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
}

#[test]
fn the_terminating_claims_of_a_restored_workload_keep_their_volumes() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-unowned").unwrap();
    storage_class(plane, &ns);
    let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}});
    plane.apply(&stateful_set(&ns).with(json!({"spec": retention})).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    keep(plane, &ns, "pod/web-0");
    let cascade = ["sts/web", "--cascade=foreground"];
    plane.api().delete(&cascade, &ns).unwrap().success().unwrap();
    let claims = delete_claims(plane, &ns, &["data-web-0"]);
    let undo = begin_undo(plane, &["sts/web", "-n", &ns]);
    free(plane, &ns, "pod/web-0");
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
    wait_until_running(plane, &ns, 1);
}

#[test]
fn a_change_in_the_last_moment_is_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-moment").unwrap();
    let namespace = format!("ns/{ns}");
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept.with(json!({"data": {"mode": "old"}}))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    for (target, place, mode) in [("cm/settings", &*ns, "new"), (&namespace, "", "newer")] {
        delete(plane, place, target);
        super::namespaces::wait_until_terminating(plane, &ns, &["cm/settings"]);
        let undo = ["undo", target, "-n", &ns, "--yes", "--out", &file];
        let (mut undo, _progress) = begin(plane, &undo, "waiting for the deletion");
        let change = json!({"data": {"mode": mode}});
        plane.api().patch("cm/settings", &ns, &change).unwrap().success().unwrap();
        free(plane, &ns, "cm/settings");
        assert!(undo.wait().unwrap().success());
        assert_eq!(read(plane, &ns, "cm/settings")["data"]["mode"], mode);
    }
    free(plane, &ns, "cm/settings");
}

/// A Terminating StatefulSet without replicas that owns a claim. The undo has begun, and the claim has
/// lost its owner reference. Returns the volume of the claim, and the file.
fn detached_claim(plane: &ControlPlane, ns: &str, folder: &tempfile::TempDir) -> (Value, String) {
    claims(plane, ns, &["data"]);
    let volume = bound(plane, ns, "pvc/data")["spec"]["volumeName"].clone();
    let none = json!({"spec": {"replicas": 0}});
    let set = workload("StatefulSet", "web", &pod("web")).with(none).with_namespace(ns);
    plane.apply(&set.with_finalizers(&["undo.test/kept"])).unwrap();
    let mut owner = owner("StatefulSet", "web", uid(&read(plane, ns, "sts/web")));
    owner["apiVersion"] = "apps/v1".into();
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    plane.api().patch("pvc/data", ns, &owned).unwrap().success().unwrap();
    delete(plane, ns, "sts/web");
    let file = file_in(folder);
    let undo = ["undo", "sts/web", "-n", ns, "--yes", "--out", &file, "--timeout", "1s"];
    let late = belay(plane, &undo);
    assert!(late.code == 1 && late.stdout.contains("still existed at the end"), "{late:?}");
    (volume, file)
}

#[test]
fn a_detached_claim_that_is_deleted_meanwhile_is_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-detached").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (volume, file) = detached_claim(plane, &ns, &folder);
    delete_gone(plane, &ns, "pvc/data");
    // An administrator clears the reservation of the volume.
    let free_volume = json!({"spec": {"claimRef": null}});
    let name = format!("pv/{}", text(&volume));
    plane.api().patch(&name, "", &free_volume).unwrap().success().unwrap();
    free(plane, &ns, "sts/web");
    let resumed = belay(plane, &["undo", "--resume", &file, "--yes"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    have_their_volumes(plane, &ns, &[("pvc/data".to_owned(), volume)]);
    read(plane, &ns, "sts/web");
}

/// Deletes an object, and waits until it does not exist.
pub fn delete_gone(plane: &ControlPlane, ns: &str, name: &str) {
    plane.api().delete(&[name], ns).unwrap().success().unwrap();
    plane.api().wait_gone((name, ns), LIMIT).unwrap();
}

#[test]
fn a_detached_claim_whose_volume_is_deleted_can_be_created_by_the_user() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-replaced").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (volume, file) = detached_claim(plane, &ns, &folder);
    delete_gone(plane, &ns, "pvc/data");
    delete_gone(plane, "", &format!("pv/{}", text(&volume)));
    free(plane, &ns, "sts/web");
    let resume = ["undo", "--resume", &file, "--yes"];
    let lost = belay(plane, &resume);
    let why = format!("volume {} of persistentvolumeclaims/data", text(&volume));
    assert!(lost.code == 1 && lost.stdout.contains(&why), "{lost:?}");
    assert!(!lost.stdout.contains("has the data"), "{lost:?}");
    assert_eq!(plane.api().get("sts/web", &ns).unwrap(), None);
    claims(plane, &ns, &["data"]);
    bound(plane, &ns, "pvc/data");
    let resumed = belay(plane, &resume);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    read(plane, &ns, "sts/web");
}

#[test]
fn objects_that_the_garbage_collector_deletes_before_they_are_detached_are_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-collected").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let old = read(plane, &ns, "cm/settings");
    owned_secret(plane, &ns, "token", uid(&old));
    let content = json!({"stringData": {"key": "value"}});
    plane.api().patch("secret/token", &ns, &content).unwrap().success().unwrap();
    claims(plane, &ns, &["data"]);
    let owned =
        json!({"metadata": {"ownerReferences": [owner("ConfigMap", "settings", uid(&old))]}});
    plane.api().patch("pvc/data", &ns, &owned).unwrap().success().unwrap();
    let volume = bound(plane, &ns, "pvc/data")["spec"]["volumeName"].clone();
    delete(plane, &ns, "cm/settings");
    let (file, _folder) = killed_undo(plane, &["cm/settings", "-n", &ns]);
    free(plane, &ns, "cm/settings");
    for name in ["pvc/data", "secret/token"] {
        plane.api().wait_gone((name, &ns), LIMIT).unwrap();
    }
    let resumed = belay(plane, &["undo", "--resume", &file, "--yes"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    have_their_volumes(plane, &ns, &[("pvc/data".to_owned(), volume)]);
    let secret = read(plane, &ns, "secret/token");
    assert_eq!(secret["data"]["key"], "dmFsdWU=");
    let new = read(plane, &ns, "cm/settings");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], uid(&new));
}

#[test]
fn claims_that_never_existed_are_not_missing() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-ordered").unwrap();
    storage_class(plane, &ns);
    let nowhere = json!({"replicas": 3, "template": {"spec": {"nodeSelector": {"no": "such"}}}});
    let set = stateful_set(&ns).with(json!({"spec": nowhere})).with_namespace(&ns);
    plane.apply(&set.with_finalizers(&["undo.test/kept"])).unwrap();
    bound(plane, &ns, "pvc/data-web-0");
    delete(plane, &ns, "sts/web");
    let undo = begin_undo(plane, &["sts/web", "-n", &ns]);
    free(plane, &ns, "sts/web");
    undo.succeeds();
    read(plane, &ns, "sts/web");
}

/// A custom resource without status subresource keeps its status, and the kind can be any word.
fn restore_custom_resource(ns: &str, kind: &str, plural: &str) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    plane.define_kind("undo.example.com", kind, plural).unwrap();
    let content = json!({"spec": {"a": 1}, "status": {"joined": ["one", "two"]}});
    let main = object("undo.example.com/v1", kind, "main").with(content.clone());
    let kept = main.with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let name = format!("{plural}.undo.example.com/main");
    delete(plane, &ns, &name);
    let undo = begin_undo(plane, &[&name, "-n", &ns]);
    free(plane, &ns, &name);
    undo.succeeds();
    let restored = read(plane, &ns, &name);
    assert_eq!((&restored["spec"], &restored["status"]), (&content["spec"], &content["status"]));
    free(plane, &ns, &name);
}

#[test]
fn a_custom_resource_without_status_subresource_keeps_its_status() {
    restore_custom_resource("undo-custom", "Ledger", "ledgers");
}

#[test]
fn a_custom_resource_of_another_group_with_the_kind_namespace_keeps_its_spec() {
    restore_custom_resource("undo-other-namespace", "Namespace", "namespaces");
}

/// The command could not restore its manifest exactly. All other objects are restored.
#[test]
fn h174_a_deep_custom_resource_stops_only_its_own_undo() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-deep").unwrap();
    plane.define_kind("undo-deep.example.com", "Maze", "mazes").unwrap();
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let maze = object("undo-deep.example.com/v1", "Maze", "main").with(json!({"spec": {"a": "@"},
        "metadata": {"finalizers": ["undo.test/kept"]}}));
    let file = plane.folder().join(format!("{ns}.json"));
    std::fs::write(&file, maze.to_string().replace("\"@\"", &nested)).unwrap();
    let path = format!("/apis/undo-deep.example.com/v1/namespaces/{ns}/mazes");
    let create = ["create", "--raw", &path, "-f", file.to_str().unwrap()];
    plane.kubectl(&create).unwrap().success().unwrap();
    let settings = config_map("settings").with_namespace(&ns);
    plane.apply(&settings.with_finalizers(&["undo.test/kept"])).unwrap();
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    plane.kubectl(&["delete", "mazes", "main", "-n", &ns, "--wait=false"]).unwrap();
    let steps = belay(plane, &["undo", &namespace, "--dry-run"]);
    assert!(steps.code == 0 && steps.stdout.contains("configmaps/settings"), "{steps:?}");
    assert!(steps.stdout.contains("nested too deeply"), "{steps:?}");
    let free = r#"{"metadata":{"finalizers":null}}"#;
    for object in ["mazes/main", "cm/settings"] {
        let patch = ["patch", object, "-n", &ns, "--type=merge", "-p", free];
        plane.kubectl(&patch).unwrap().success().unwrap();
    }
}
