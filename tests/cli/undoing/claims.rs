//! The undo of the deletion of a claim.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_claim_gets_its_volume_back() {
    restore_claim("undo-claim", Kill::AfterLines);
}

#[test]
fn a_claim_gets_its_volume_back_after_lost_answers() {
    restore_claim("undo-claim-lost", Kill::BeforeAnswer);
}

fn restore_claim(ns: &str, kill: Kill) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    storage_class(plane, &ns);
    hold_claims(plane, &ns);
    plane.apply(&stateful_set(&ns).with_namespace(&ns)).unwrap();
    let old = bound(plane, &ns, "pvc/data-web-0");
    wait_until_held(plane, &ns, "pvc/data-web-0");
    wait_until_running(plane, &ns, 1);
    let owned = json!({"metadata": {"ownerReferences": [
        owner("PersistentVolumeClaim", "data-web-0", uid(&old))]}});
    plane.apply(&config_map("notes").with_namespace(&ns).with(owned)).unwrap();
    let notes = read(plane, &ns, "cm/notes");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    let old_volume = read(plane, "", &volume);
    delete(plane, &ns, "pvc/data-web-0");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    undo_with_interruptions(plane, kill, &["pvc/data-web-0", "-n", &ns], &file);
    let new = read(plane, &ns, "pvc/data-web-0");
    assert_ne!(uid(&new), uid(&old));
    assert!(new["metadata"]["deletionTimestamp"].is_null(), "{new}");
    assert_eq!((&new["status"]["phase"], &new["spec"]), (&"Bound".into(), &old["spec"]));
    let new_volume = read(plane, "", &volume);
    assert_eq!(uid(&new_volume), uid(&old_volume));
    assert_eq!(new_volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(new_volume["spec"]["claimRef"]["uid"], uid(&new));
    let volumes = plane.api().list("pv", "", "").unwrap();
    let of_class = volumes.iter().filter(|one| one["spec"]["storageClassName"] == ns.as_str());
    assert_eq!(of_class.count(), 1, "a fresh volume");
    wait_until_running(plane, &ns, 1);
    assert_eq!(new["metadata"]["ownerReferences"][0]["name"], "web");
    let kept = read(plane, &ns, "cm/notes");
    assert_eq!(uid(&kept), uid(&notes));
    assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], uid(&new));
}

#[test]
fn h145_an_undo_names_no_owner_that_an_editor_has_written() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-owner").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    claims(plane, &ns, &["data"]);
    plane.api().patch("pvc/data", &ns, &kept).unwrap().success().unwrap();
    plane.apply(&secret("master").with_namespace(&ns)).unwrap();
    let master = read(plane, &ns, "secret/master");
    let owned = json!({"metadata": {"ownerReferences": [owner("Secret", "master", uid(&master))]}});
    let user = pod("user").with_claim("data").without_grace_period().with(owned);
    plane.apply(&user.with_namespace(&ns)).unwrap();
    let is_node = |node: &str| !node.is_empty();
    plane.api().wait_field(("pod/user", &ns), LIMIT, ".spec.nodeName", is_node).unwrap();
    delete(plane, &ns, "pvc/data");
    let lists_the_pod = || {
        let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]).stdout;
        let during = format!(
            "during this wait, delete pods/user -n {ns}, and check that controllers remove the \
             finalizers of persistentvolumeclaims/data -n {ns}\n"
        );
        assert!(steps.contains(&during), "{steps}");
        assert!(!steps.contains("master") && !steps.contains("other"), "{steps}");
    };
    lists_the_pod();
    // Nor does it stop a workload that does not use the claim, or refuse to begin.
    let other = workload("Deployment", "other", &pod("other"));
    plane.apply(&other.with_namespace(&ns)).unwrap();
    let other = read(plane, &ns, "deployment/other");
    let controller = |owner: Value| json!({"metadata": {"ownerReferences": [owner.with(json!({"controller": true}))]}});
    let mut by_other = owner("Deployment", "other", uid(&other));
    by_other["apiVersion"] = "apps/v1".into();
    plane.api().patch("pod/user", &ns, &controller(by_other)).unwrap().success().unwrap();
    lists_the_pod();
    let user = read(plane, &ns, "pod/user");
    for (kind, name, uid) in [("Secret", "master", uid(&master)), ("Pod", "user", uid(&user))] {
        let owned = controller(owner(kind, name, uid));
        plane.api().patch("pvc/data", &ns, &owned).unwrap().success().unwrap();
        let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]);
        assert_eq!(steps.code, 0, "{steps:?}");
    }
}

#[test]
fn an_undo_protects_the_claims_of_other_replicas_and_changes_made_since() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-scaled").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}});
    let scaled = stateful_set(&ns).with(json!({"spec": retention}));
    plane.apply(&scaled.with_namespace(&ns)).unwrap();
    let exists = |claim: Option<&Value>| claim.map(drop).ok_or_else(|| "no claim".into());
    plane.api().wait(("pvc/data-web-0", &ns), LIMIT, exists).unwrap();
    keep(plane, &ns, "pvc/data-web-0");
    delete(plane, &ns, "pvc/data-web-0");
    let undo = ["undo", "pvc/data-web-0", "-n", &ns, "--yes", "--timeout", "1s"];
    let refused = belay(plane, &undo);
    assert!(refused.code == 1 && refused.stderr.contains("(whenScaled)"), "{refused:?}");
    let next = "run the command again, and after it kubectl patch statefulsets.apps/web";
    assert!(refused.stderr.contains(next), "{refused:?}");

    plane.apply(&config_map("settings").with_namespace(&ns).with(kept)).unwrap();
    delete(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let begin = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &begin).code, 1);
    let again = belay(plane, &begin);
    assert!(again.code == 1 && again.stderr.contains("exists already"), "{again:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let change = json!({"data": {"new": "value"}});
    plane.api().patch("cm/settings", &ns, &change).unwrap().success().unwrap();
    let resume = ["undo", "--resume", &path, "--yes", "--timeout"];
    let changed = belay(plane, &[&resume[..], &["1s"]].concat());
    assert!(changed.stderr.contains("again, which has changed"), "{changed:?}");
    free(plane, &ns, "cm/settings");
    assert_eq!(belay(plane, &[&resume[..], &["60s"]].concat()).code, 0);
    assert_eq!(read(plane, &ns, "cm/settings")["data"]["new"], "value");
}

#[test]
fn h156_a_claim_with_the_marker_of_an_undo_does_not_end_the_protection_of_its_volume() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-marker").unwrap();
    storage_class(plane, &ns);
    let data = claim("data").with_namespace(&ns).with(json!({"spec": {"storageClassName": ns}}));
    plane.apply(&data).unwrap();
    let old = bound(plane, &ns, "pvc/data");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    keep(plane, &ns, "pvc/data");
    delete(plane, &ns, "pvc/data");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", "pvc/data", "-n", &ns, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &first).code, 1);
    free(plane, &ns, "pvc/data");
    plane.api().wait_gone(("pvc/data", &ns), LIMIT).unwrap();
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let annotations = &record["objects"][0]["manifest"]["metadata"]["annotations"];
    assert!(annotations["belay.dev/restored-by"].is_string(), "{annotations}");
    plane.apply(&data.with(json!({"metadata": {"annotations": annotations}}))).unwrap();
    bound(plane, &ns, "pvc/data");
    let resumed = belay(plane, &["undo", "--resume", &path, "--yes"]);
    let why = "is not bound to the restored claim, and keeps the reclaim policy Retain";
    assert!(resumed.code == 1 && resumed.stdout.contains(why), "{resumed:?}");
    let policy = ".spec.persistentVolumeReclaimPolicy";
    assert_eq!(plane.api().field(&volume, "", policy).unwrap(), "Retain");
}

#[test]
fn a_new_undo_without_the_file_restores_what_an_interrupted_one_has_changed() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-again").unwrap();
    storage_class(plane, &ns);
    plane.apply(&stateful_set(&ns).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    let old = bound(plane, &ns, "pvc/data-web-0");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    keep(plane, &ns, "pvc/data-web-0");
    delete(plane, &ns, "pvc/data-web-0");
    let folder = tempfile::tempdir().unwrap();
    let [first, second] =
        ["first", "second"].map(|name| folder.path().join(name).display().to_string());
    let undo = |file| ["undo", "pvc/data-web-0", "-n", &ns, "--yes", "--out", file];
    // Killed when the volume has the policy Retain, and the StatefulSet has no replicas.
    assert!(lost_answer::is_killed(plane, &undo(&first), 2));
    assert_eq!(read(plane, &ns, "sts/web")["spec"]["replicas"], 0);
    let (mut undo, _progress) = begin(plane, &undo(&second), "waiting for the deletion");
    free(plane, &ns, "pvc/data-web-0");
    assert!(undo.wait().unwrap().success());
    wait_until_running(plane, &ns, 1);
    let set = read(plane, &ns, "sts/web");
    assert_eq!(set["metadata"]["annotations"]["belay.dev/undo-replicas"], Value::Null);
    let volume = read(plane, "", &volume);
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let old_policy = &volume["metadata"]["annotations"]["belay.dev/undo-reclaim-policy"];
    assert_eq!(*old_policy, Value::Null);
}

#[test]
fn a_stale_annotation_changes_no_reclaim_policy() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-stale").unwrap();
    storage_class(plane, &ns);
    let kept = claim("data").with_finalizers(&["undo.test/kept"]).with_namespace(&ns);
    plane.apply(&kept.with(json!({"spec": {"storageClassName": ns}}))).unwrap();
    let old = bound(plane, &ns, "pvc/data");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    let stale = json!({"metadata": {"annotations": {"belay.dev/undo-reclaim-policy": "Retain"}}});
    plane.api().patch(&volume, "", &stale).unwrap().success().unwrap();
    delete(plane, &ns, "pvc/data");
    let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]).stdout;
    assert!(
        steps.contains("restore the reclaim policy: ") && steps.contains("to Delete"),
        "{steps}"
    );
    let undo = begin_undo(plane, &["pvc/data", "-n", &ns]);
    free(plane, &ns, "pvc/data");
    undo.succeeds();
    let volume = read(plane, "", &volume);
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let annotation = &volume["metadata"]["annotations"]["belay.dev/undo-reclaim-policy"];
    assert!(annotation.is_null(), "{annotation}");
    free(plane, &ns, "pvc/data");
}

#[test]
fn the_claims_of_a_namespace_are_bound_before_its_limits_exist() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-limits").unwrap();
    storage_class(plane, &ns);
    let kept = claim("data").with_finalizers(&["undo.test/kept"]).with_namespace(&ns);
    plane.apply(&kept.with(json!({"spec": {"storageClassName": ns}}))).unwrap();
    let old = bound(plane, &ns, "pvc/data");
    // The claim is smaller.
    let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}});
    let limits = object("v1", "LimitRange", "limits").with(json!({"spec": {"limits": [limit]}}));
    plane.apply(&limits.with_finalizers(&["undo.test/kept"]).with_namespace(&ns)).unwrap();
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    let kept = ["pvc/data", "limitranges/limits"];
    super::namespaces::wait_until_terminating(plane, &ns, &kept);
    let undo = begin_undo(plane, &[&namespace, "--timeout", "60s"]);
    let free_of_all = json!({"metadata": {"finalizers": null}});
    let end_claim = || {
        // It would refuse the change of the claim.
        free(plane, &ns, "limitranges/limits");
        let _ended = plane.api().delete(&["limitranges/limits"], &ns).unwrap();
        plane.api().wait_gone(("limitranges/limits", &ns), LIMIT).unwrap();
        let free = || plane.api().patch("pvc/data", &ns, &free_of_all)?.success().map(drop);
        eventually("a claim without limits", LIMIT, free).unwrap();
    };
    end_claim();
    undo.succeeds();
    let new = read(plane, &ns, "pvc/data");
    assert_eq!((&new["status"]["phase"], &new["spec"]), (&"Bound".into(), &old["spec"]));
    end_claim();
}
