//! The undo of an object whose dependents are deleted with it.

use super::*;

const OWNERS: &str = ".metadata.ownerReferences";
const RECLAIM_POLICY: &str = ".spec.persistentVolumeReclaimPolicy";

/// A StatefulSet with a running Pod and a claim that is deleted with the set. The set, or its Pod, has
/// a finalizer. Returns the namespace, the claim and its volume.
fn kept_set(plane: &ControlPlane, ns: &str, kept: &str) -> (String, Value, String) {
    let ns = plane.namespace(ns).unwrap();
    storage_class(plane, &ns);
    plane.apply(&stateful_set(&ns).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    let claim = ("pvc/data-web-0", &*ns);
    let is_owned = |owners: &str| owners.contains("StatefulSet");
    plane.api().wait_field(claim, LIMIT, OWNERS, is_owned).unwrap();
    let claim = bound(plane, &ns, claim.0);
    let volume = format!("pv/{}", text(&claim["spec"]["volumeName"]));
    let kept_by = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    plane.api().patch(kept, &ns, &kept_by).unwrap().success().unwrap();
    (ns, claim, volume)
}

/// Removes the finalizer of an object when a field has this value.
fn free_when(plane: &ControlPlane, ns: &str, kept: &str, field: (&str, &str, &str)) {
    let (object, path, value) = field;
    let ns_of_field = if object.starts_with("pv/") { "" } else { ns };
    plane.api().wait_field((object, ns_of_field), LIMIT, path, |now| now == value).unwrap();
    free(plane, ns, kept);
}

/// The StatefulSet is a new one, and its claim has the volume.
fn is_restored(plane: &ControlPlane, ns: &str, old: &Value, claim: &Value, volume: &str) {
    let set = read(plane, ns, "sts/web");
    assert_ne!(uid(&set), uid(old));
    let now = bound(plane, ns, "pvc/data-web-0");
    assert_eq!(now["spec"]["volumeName"], claim["spec"]["volumeName"]);
    assert_eq!(now["metadata"]["ownerReferences"][0]["uid"], uid(&set), "{now}");
    assert_eq!(plane.api().field(volume, "", RECLAIM_POLICY).unwrap(), "Delete");
    wait_until_running(plane, ns, 1);
}

#[test]
fn a_claim_that_is_deleted_with_its_stateful_set_keeps_its_volume() {
    let plane = &world().plane;
    let (ns, claim, volume) = kept_set(plane, "undo-cascade", "pod/web-0");
    let old = read(plane, &ns, "sts/web");
    let delete = ["sts/web", "--cascade=foreground"];
    plane.api().delete(&delete, &ns).unwrap().success().unwrap();
    let deletion = |at: &str| !at.is_empty();
    let path = ".metadata.deletionTimestamp";
    plane.api().wait_field(("pvc/data-web-0", &ns), LIMIT, path, deletion).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    let kept = (&*volume, RECLAIM_POLICY, "Retain");
    std::thread::scope(|scope| {
        scope.spawn(|| free_when(plane, &ns, "pod/web-0", kept));
        undo_with_interruptions(plane, Kill::AfterLines, &["sts/web", "-n", &ns], &file);
    });
    is_restored(plane, &ns, &old, &claim, &volume);
}

#[test]
fn the_pods_and_claims_of_a_restored_stateful_set_stay() {
    let plane = &world().plane;
    let (ns, claim, volume) = kept_set(plane, "undo-adopt", "sts/web");
    let old = read(plane, &ns, "sts/web");
    let pod = read(plane, &ns, "pod/web-0");
    delete(plane, &ns, "sts/web");
    let args = ["undo", "sts/web", "-n", &ns, "--yes"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let undone = std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_detached = |owners: &str| owners.is_empty();
            plane.api().wait_field(("pod/web-0", &ns), LIMIT, OWNERS, is_detached).unwrap();
            free_when(plane, &ns, "sts/web", ("pvc/data-web-0", OWNERS, ""));
        });
        belay(plane, &[&args[..], &["--out", &file]].concat())
    });
    assert_eq!(undone.code, 0, "{undone:?}");
    is_restored(plane, &ns, &old, &claim, &volume);
    for (name, old) in [("pod/web-0", &pod), ("pvc/data-web-0", &claim)] {
        assert_eq!(uid(&read(plane, &ns, name)), uid(old));
    }
}

#[test]
fn an_undo_that_may_not_remove_an_owner_reference_does_not_begin() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-that-would-orphan-a-secret").unwrap();
    let target = policy::target("", "secrets", &ns);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"fromOrphaning": {}}}));
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let old = read(plane, &ns, "cm/settings");
    owned_secret(plane, &ns, "token", uid(&old));
    delete(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &file];
    let refused = belay(plane, &undo);
    let approve = format!("kubectl belay approve secrets/token -n {ns}");
    assert!(refused.code == 1 && refused.stderr.contains(&approve), "{refused:?}");
    assert!(refused.stderr.contains("nothing was changed"), "{refused:?}");
    let dry_run = belay(plane, &["undo", "cm/settings", "-n", &ns, "--dry-run"]);
    for said in [&refused, &dry_run] {
        let details = format!("Details: kubectl belay why secrets/token -n {ns}");
        assert!(said.stderr.contains(&details) && !said.stderr.contains(" … "), "{said:?}");
    }
    assert!(!Path::new(&file).exists());
    let approved = belay(plane, &["approve", "secret/token", "-n", &ns, "--reason", "undo"]);
    assert_eq!(approved.code, 0, "{approved:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| free_when(plane, &ns, "cm/settings", ("secret/token", OWNERS, "")));
        let undone = belay(plane, &undo);
        assert_eq!(undone.code, 0, "{undone:?}");
    });
    let new = read(plane, &ns, "cm/settings");
    assert_eq!(
        read(plane, &ns, "secret/token")["metadata"]["ownerReferences"][0]["uid"],
        uid(&new)
    );
}

#[test]
fn a_dependent_of_two_deleted_owners_is_kept_and_one_that_ends_late_delays_no_other() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-owners").unwrap();
    let kept = |name| config_map(name).with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept("settings")).unwrap();
    let old = read(plane, &ns, "cm/settings");
    let child = owner("ConfigMap", "settings", uid(&old));
    let owned = |owners: Vec<Value>| json!({"metadata": {"ownerReferences": owners}});
    for name in ["child", "other"] {
        plane.apply(&kept(name).with(owned(vec![child.clone()]))).unwrap();
    }
    let old_child = read(plane, &ns, "cm/child");
    let owners = owned(vec![child, owner("ConfigMap", "child", uid(&old_child))]);
    plane.apply(&secret("token").with_namespace(&ns).with(owners)).unwrap();
    let token = read(plane, &ns, "secret/token");
    for name in ["cm/settings", "cm/child", "cm/other"] {
        delete(plane, &ns, name);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &file];
    let (mut undo, mut progress) = begin(plane, &undo, "waiting for the deletion");
    free(plane, &ns, "cm/settings");
    let is_new = |now: Option<&Value>| match now.ok_or("it does not exist")? {
        now if uid(now) != uid(&old) => Ok(now.clone()),
        now => Err(now.to_string().into()),
    };
    let new = plane.api().wait(("cm/settings", &ns), LIMIT, is_new).unwrap();
    assert_eq!(uid(&read(plane, &ns, "cm/child")), uid(&old_child));
    // It waits for both at once.
    let mut line = String::new();
    while !["waiting for the deletion", "configmaps/child", "configmaps/other"]
        .iter()
        .all(|part| line.contains(part))
    {
        line.clear();
        assert_ne!(progress.read_line(&mut line).unwrap(), 0);
    }
    for name in ["cm/child", "cm/other"] {
        free(plane, &ns, name);
    }
    assert!(undo.wait().unwrap().success());
    let now = read(plane, &ns, "secret/token");
    assert_eq!(uid(&now), uid(&token));
    let child = read(plane, &ns, "cm/child");
    let owners = [&new, &child].map(|owner| json!(uid(owner)));
    let found = now["metadata"]["ownerReferences"].as_array().unwrap().iter();
    let found: Vec<_> = found.map(|owner| owner["uid"].clone()).collect();
    assert_eq!(found, owners);
}

#[test]
fn an_owner_that_can_not_be_read_is_restored_later() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-unread-owner").unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let settings = read(plane, &ns, "cm/settings");
    let owned = secret("token").with_owner(owner("ConfigMap", "settings", uid(&settings)));
    plane.apply(&owned.with_finalizers(&["undo.test/kept"]).with_namespace(&ns)).unwrap();
    delete(plane, &ns, "secret/token");
    let grant = |rules: &[Value]| plane.grant(&ns, Some(&ns), rules, &[rbac::user(&ns)]).unwrap();
    let all = rule("*", "*", "get, list, watch, create, patch");
    grant(std::slice::from_ref(&all));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let as_user = ["--yes", "--as", &ns];
    let first = ["undo", "secret/token", "-n", &ns, "--out", &file, "--timeout", "1s"];
    let late = belay(plane, &[&first[..], &as_user].concat());
    assert!(late.code == 1 && late.stdout.contains("still existed"), "{late:?}");
    free(plane, &ns, "secret/token");
    grant(&[rule("", "secrets", "*")]);
    let refuses = || match plane.api().may(&ns, "get", "configmaps", &ns) {
        Ok(()) => Err("it may read ConfigMaps".into()),
        Err(_) => Ok(()),
    };
    eventually("fewer rights", LIMIT, refuses).unwrap();
    let resume = [&["undo", "--resume", &file], &as_user[..]].concat();
    let unread = belay(plane, &resume);
    let why = "restored without its owner configmaps/settings";
    assert!(unread.code == 1 && unread.stdout.contains(why), "{unread:?}");
    assert!(read(plane, &ns, "secret/token")["metadata"]["ownerReferences"].is_null());
    grant(&[all]);
    plane
        .api()
        .may(&ns, "get", "configmaps", &ns)
        .or_else(|_| {
            eventually("more rights", LIMIT, || plane.api().may(&ns, "get", "configmaps", &ns))
        })
        .unwrap();
    let resumed = belay(plane, &resume);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let owner = &read(plane, &ns, "secret/token")["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], uid(&settings));
    free(plane, &ns, "secret/token");
}

#[test]
fn a_loss_that_is_found_later_is_in_the_file_and_in_the_report() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-late-loss").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let settings = read(plane, &ns, "cm/settings");
    delete(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let first = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &file, "--timeout", "1s"];
    assert_eq!(belay(plane, &first).code, 1);
    let owned = pod("user").with_owner(owner("ConfigMap", "settings", uid(&settings)));
    let owned = owned.without_grace_period().with_finalizers(&["undo.test/kept"]);
    plane.apply(&owned.with_namespace(&ns)).unwrap();
    delete(plane, &ns, "pod/user");
    let resume = ["undo", "--resume", &file, "--yes", "--timeout", "1s", "-o", "json"];
    let late = belay(plane, &resume);
    let line = format!("not restored: pods/user -n {ns}: the kubelet stops its containers");
    assert!(late.code == 1 && late.stderr.contains(&line), "{late:?}");
    for document in [late.stdout, std::fs::read_to_string(&file).unwrap()] {
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["lost"][0]["object"]["name"], "user", "{document}");
    }
    free(plane, &ns, "pod/user");
    free(plane, &ns, "cm/settings");
}
