//! The undo of the deletion of a Namespace or a ServiceAccount.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_namespace_is_restored_with_what_still_exists() {
    restore_namespace("undo-namespace", Kill::AfterLines);
}

#[test]
fn a_namespace_is_restored_with_what_still_exists_after_lost_answers() {
    restore_namespace("undo-namespace-lost", Kill::BeforeAnswer);
}

fn restore_namespace(ns: &str, kill: Kill) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    storage_class(plane, &ns);
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    let class = json!({"spec": {"storageClassName": ns}});
    plane.apply(&claim("data").with_namespace(&ns).with(class).with(kept.clone())).unwrap();
    let old = bound(plane, &ns, "pvc/data");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    let owned = json!({"metadata": {"ownerReferences": [
        owner("PersistentVolumeClaim", "data", uid(&old))]}});
    let content = json!({"stringData": {"key": "value"}}).with(kept.clone());
    plane.apply(&secret("owned").with_namespace(&ns).with(content).with(owned)).unwrap();
    let service = |name: &str, address: Value| {
        let spec = json!({"spec": {"ports": [{"port": 80}], "clusterIP": address}});
        object("v1", "Service", name).with(spec)
    };
    let other = plane.namespace("undo-thief").unwrap();
    let api = service("api", Value::Null).with_namespace(&ns).with(kept.clone());
    plane.apply(&api).unwrap();
    let address = read(plane, &ns, "svc/api")["spec"]["clusterIP"].clone();
    // It would refuse the claim.
    let limit = json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Mi"}});
    let limits = object("v1", "LimitRange", "limits").with(json!({"spec": {"limits": [limit]}}));
    plane.apply(&limits.with_namespace(&ns).with(kept.clone())).unwrap();
    let web = workload("StatefulSet", "web", &pod("web").with_claim("data"));
    plane.apply(&web.with_namespace(&ns).with(kept)).unwrap();
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    let names = ["svc/api", "pvc/data", "secret/owned", "sts/web", "limitrange/limits"];
    wait_until_terminating(plane, &ns, &names);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    let copy = folder.path().join("copy.json");
    std::thread::scope(|scope| {
        // The controller of the finalizer, which finishes after the data is safe.
        scope.spawn(|| {
            let policy = ".spec.persistentVolumeReclaimPolicy";
            let is_kept = |policy: &str| policy == "Retain";
            plane.api().wait_field((&volume, ""), LIMIT, policy, is_kept).unwrap();
            std::fs::copy(&file, &copy).unwrap();
            for name in names {
                free(plane, &ns, name);
                if name == "svc/api" {
                    // Another tenant takes the address.
                    plane.api().wait_gone((name, &ns), LIMIT).unwrap();
                    plane.apply(&service("thief", address.clone()).with_namespace(&other)).unwrap();
                }
            }
        });
        undo_with_interruptions(plane, kill, &[&namespace], &file);
    });
    let new = read(plane, &ns, "pvc/data");
    assert_ne!(uid(&new), uid(&old));
    assert_eq!(
        (&new["status"]["phase"], &new["spec"]["volumeName"]),
        (&"Bound".into(), &old["spec"]["volumeName"])
    );
    let owned = read(plane, &ns, "secret/owned");
    assert_eq!(owned["data"]["key"], "dmFsdWU=");
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], uid(&new));
    assert_ne!(read(plane, &ns, "svc/api")["spec"]["clusterIP"], address);
    // Its controller would have created the claim.
    let written = std::fs::read_to_string(&copy).unwrap();
    let place = |name: &str| written.find(&format!("\"typed\":\"{name} -n {ns}\"")).unwrap();
    assert!(place("persistentvolumeclaims/data") < place("statefulsets.apps/web"));
    // The controller of the finalizer has to remove it again, and the limit refuses each change.
    plane.api().delete(&["limitrange/limits"], &ns).unwrap().success().unwrap();
    free(plane, &ns, "limitrange/limits");
    plane.api().wait_gone(("limitrange/limits", &ns), LIMIT).unwrap();
    for name in names.into_iter().filter(|name| !name.starts_with("limitrange")) {
        free(plane, &ns, name);
    }
}

/// Waits until objects of a Namespace are Terminating.
pub fn wait_until_terminating(plane: &ControlPlane, ns: &str, names: &[&str]) {
    eventually("the deletion of the content", LIMIT, || {
        for name in names {
            let object = plane.api().get(name, ns)?.ok_or("it does not exist")?;
            if !object["metadata"]["deletionTimestamp"].is_string() {
                return Err(object.to_string().into());
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_controller_of_a_deployment_creates_its_replica_set_in_a_restored_namespace() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-rollout").unwrap();
    plane.apply(&workload("Deployment", "web", &pod("web")).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    let set = plane.api().list("replicasets", &ns, "").unwrap().pop().unwrap();
    let names = ["deploy/web", &format!("rs/{}", text(&set["metadata"]["name"]))];
    for name in names {
        keep(plane, &ns, name);
    }
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    wait_until_terminating(plane, &ns, &names);
    let undo = begin_undo(plane, &[&namespace]);
    for name in names {
        free(plane, &ns, name);
    }
    undo.succeeds();
    wait_until_running(plane, &ns, 1);
}

#[test]
fn the_claims_of_a_stateful_set_get_their_volumes_back_with_its_namespace() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-stateful").unwrap();
    storage_class(plane, &ns);
    plane
        .apply(&stateful_set(&ns).with_namespace(&ns).with(json!({"spec": {"replicas": 2}})))
        .unwrap();
    wait_until_running(plane, &ns, 2);
    let claims = ["pvc/data-web-0", "pvc/data-web-1"];
    let old = claims.map(|claim| bound(plane, &ns, claim));
    let names = [&claims[..], &["sts/web"]].concat();
    for name in &names {
        keep(plane, &ns, name);
    }
    delete(plane, "", &format!("ns/{ns}"));
    wait_until_terminating(plane, &ns, &names);
    let volumes = old.each_ref().map(|claim| format!("pv/{}", text(&claim["spec"]["volumeName"])));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    let policy = ".spec.persistentVolumeReclaimPolicy";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for volume in &volumes {
                let is_kept = |policy: &str| policy == "Retain";
                plane.api().wait_field((volume, ""), LIMIT, policy, is_kept).unwrap();
            }
            for name in &names {
                free(plane, &ns, name);
            }
        });
        undo_with_interruptions(plane, Kill::BeforeAnswer, &[&format!("ns/{ns}")], &file);
    });
    let set = read(plane, &ns, "sts/web");
    assert_eq!(set["spec"]["replicas"], 2);
    for ((name, old), volume) in claims.iter().zip(&old).zip(&volumes) {
        let new = bound(plane, &ns, name);
        assert_eq!(new["spec"]["volumeName"], old["spec"]["volumeName"]);
        assert_eq!(new["metadata"]["ownerReferences"][0]["uid"], uid(&set), "{new}");
        assert_eq!(plane.api().field(volume, "", policy).unwrap(), "Delete");
    }
    wait_until_running(plane, &ns, 2);
    for name in &names {
        free(plane, &ns, name);
    }
}

#[test]
fn a_stateful_set_whose_claim_is_lost_waits_with_its_namespace_for_a_new_claim() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-lost").unwrap();
    storage_class(plane, &ns);
    plane.apply(&stateful_set(&ns).with_namespace(&ns)).unwrap();
    bound(plane, &ns, "pvc/data-web-0");
    keep(plane, &ns, "sts/web");
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    plane.api().wait_gone(("pvc/data-web-0", &ns), LIMIT).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", &namespace, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &first).code, 1);
    free(plane, &ns, "sts/web");
    plane.api().wait_gone((&namespace, ""), LIMIT).unwrap();
    let resume = ["undo", "--resume", &path, "--yes"];
    let lost = belay(plane, &resume);
    let why = format!("persistentvolumeclaims/data-web-0 -n {ns}: it does not exist");
    assert!(lost.code == 1 && lost.stdout.contains(&why), "{lost:?}");
    assert_eq!(plane.api().get("sts/web", &ns).unwrap(), None);
    plane.apply(&claim("data-web-0").with_namespace(&ns)).unwrap();
    assert_eq!(belay(plane, &resume).code, 0);
    read(plane, &ns, "sts/web");
    free(plane, &ns, "sts/web");
}

#[test]
fn a_claim_that_is_deleted_already_gets_its_released_volume_back_with_its_namespace() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-released").unwrap();
    storage_class(plane, &ns);
    plane.apply(&stateful_set(&ns).with_namespace(&ns)).unwrap();
    let web = workload("Deployment", "web", &reader("web", "configMapRef", "settings"));
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    plane.apply(&web.with_namespace(&ns)).unwrap();
    let old = bound(plane, &ns, "pvc/data-web-0");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    plane.api().patch(&volume, "", &retain).unwrap().success().unwrap();
    let names = ["sts/web", "deploy/web"];
    for name in names {
        keep(plane, &ns, name);
    }
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    let phase = ".status.phase";
    plane.api().wait_field((&volume, ""), LIMIT, phase, |phase| phase == "Released").unwrap();
    plane.api().wait_gone(("cm/settings", &ns), LIMIT).unwrap();
    let shown = belay(plane, &["undo", &namespace, "--dry-run"]);
    let lost = format!("not restored: configmaps/settings -n {ns}: it does not exist");
    assert!(shown.code == 0 && shown.stdout.contains(&lost), "{shown:?}");
    // The volume has the policy already.
    assert!(!shown.stdout.contains("reclaim policy"), "{shown:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("the file", LIMIT, || {
                if file.exists() { Ok(()) } else { Err("there is none".into()) }
            })
            .unwrap();
            for name in names {
                free(plane, &ns, name);
            }
        });
        let out = file.display().to_string();
        let undone = belay(plane, &["undo", &namespace, "--yes", "--out", &out]);
        assert_eq!(undone.code, 0, "{undone:?}");
    });
    let new = bound(plane, &ns, "pvc/data-web-0");
    assert_eq!(new["spec"]["volumeName"], old["spec"]["volumeName"]);
    assert_eq!(
        plane.api().field(&volume, "", ".spec.persistentVolumeReclaimPolicy").unwrap(),
        "Retain"
    );
    for name in names {
        free(plane, &ns, name);
    }
}

#[test]
fn h143_nothing_is_restored_into_a_namespace_of_another_user() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-taken").unwrap();
    let namespace = format!("ns/{ns}");
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    plane.apply(&secret("token").with_namespace(&ns).with(kept)).unwrap();
    let old = read(plane, "", &namespace);
    delete(plane, "", &namespace);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let begin = ["undo", &namespace, "--yes", "--out", &path, "--timeout", "1s"];
    let late = belay(plane, &begin);
    assert!(late.code == 1 && late.stdout.contains("undo --resume"), "{late:?}");
    free(plane, &ns, "secret/token");
    plane.api().wait_gone((&namespace, ""), LIMIT).unwrap();
    // Former members of the Namespace know its uid.
    let forged = json!({"metadata": {"annotations": {"belay.dev/restored-from": uid(&old)}}});
    plane.apply(&object("v1", "Namespace", &ns).with(forged)).unwrap();
    let taken = belay(plane, &["undo", "--resume", &path, "--yes"]);
    assert!(taken.code == 1 && taken.stdout.contains("so nothing was restored"), "{taken:?}");
    assert_eq!(plane.api().get("secret/token", &ns).unwrap(), None);
}

#[test]
fn h149_a_dependent_in_another_namespace_can_be_ignored_by_the_undo_of_a_namespace() {
    let plane = &world().plane;
    let [ns, tenant] = ["undo-foreign", "undo-tenant"].map(|name| plane.namespace(name).unwrap());
    let namespace = read(plane, "", &format!("ns/{ns}"));
    let owned =
        json!({"metadata": {"ownerReferences": [owner("Namespace", &ns, uid(&namespace))]}});
    let settings = config_map("settings").with_namespace(&ns).with(owned.clone());
    plane.apply(&settings.with_finalizers(&["undo.test/kept"])).unwrap();
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", &ns).with(owned.clone());
    plane.apply(&role).unwrap();
    // A claim can name a claim of another namespace as its source. Because of this policy, the
    // command reads the claims of all namespaces.
    let target = policy::target("", "persistentvolumeclaims", &ns);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    plane.apply(&claim("tenants-own").with_namespace(&tenant).with(owned)).unwrap();
    // The API server can't apply a patch to an object with such a time (H131).
    let mut fields = read(plane, &tenant, "pvc/tenants-own")["metadata"]["managedFields"].clone();
    for entry in fields.as_array_mut().unwrap() {
        entry["time"] = "9999-12-31T23:59:59-23:59".into();
    }
    let unreadable = json!({"metadata": {"annotations": {"a": "b"}, "managedFields": fields}});
    plane.api().patch("pvc/tenants-own", &tenant, &unreadable).unwrap().success().unwrap();
    delete(plane, "", &format!("ns/{ns}"));
    let dry_run = ["undo", &format!("ns/{ns}"), "--dry-run", "--ignore-namespace", &tenant];
    let steps = belay(plane, &dry_run);
    assert!(steps.code == 0 && steps.stdout.contains("configmaps/settings"), "{steps:?}");
    assert!(!steps.stdout.contains("as a dependent"), "{steps:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let begin = ["undo", &format!("ns/{ns}"), "--yes", "--out", &path, "--timeout", "1s"];
    let refused = belay(plane, &begin);
    let why = "cannot patch persistentvolumeclaim \"tenants-own\"";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    let next = format!("have this repaired, or add --ignore-namespace {tenant}");
    assert!(refused.stderr.contains(&next), "{refused:?}");
    let begun = belay(plane, &[&begin[..], &["--ignore-namespace", &tenant]].concat());
    assert!(begun.code == 1 && begun.stdout.contains("still existed at the end"), "{begun:?}");
    let role = format!("clusterrole/{ns}");
    assert!(read(plane, "", &role)["metadata"]["ownerReferences"].is_null());
    free(plane, &ns, "cm/settings");
    let resumed = belay(plane, &["undo", "--resume", &path, "--yes", "--timeout", "60s"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let restored = read(plane, "", &format!("ns/{ns}"));
    let owner = &read(plane, "", &role)["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(owner, uid(&restored));
}

#[test]
fn workloads_wait_for_claims_that_can_not_be_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-missing").unwrap();
    let other = plane.namespace("undo-other").unwrap();
    storage_class(plane, &ns);
    let class = json!({"spec": {"storageClassName": ns}});
    plane.apply(&claim("data").with_namespace(&ns).with(class.clone())).unwrap();
    let old = bound(plane, &ns, "pvc/data");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    plane.apply(&workload("Deployment", "web", &pod("web")).with_namespace(&ns)).unwrap();
    let names = ["pvc/data", "deploy/web"];
    let free_all = || names.iter().for_each(|name| free(plane, &ns, name));
    names.iter().for_each(|name| keep(plane, &ns, name));
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    wait_until_terminating(plane, &ns, &names);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", &namespace, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &first).code, 1);
    free_all();
    plane.api().wait_gone((&namespace, ""), LIMIT).unwrap();
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "60s"];
    // Killed when the Namespace exists.
    assert!(lost_answer::is_killed(plane, &resume, 1));
    let lacks_data = |why: &str| {
        let output = belay(plane, &resume);
        assert!(output.code == 1 && output.stdout.contains(why), "{output:?}");
        assert!(
            output.stdout.contains("not created, because a claim above is missing"),
            "{output:?}"
        );
        assert_eq!(plane.api().get("deploy/web", &ns).unwrap(), None);
    };

    plane.apply(&claim("data").with_namespace(&ns)).unwrap();
    lacks_data("another object has its name");
    let policy = ".spec.persistentVolumeReclaimPolicy";
    assert_eq!(plane.api().field(&volume, "", policy).unwrap(), "Retain");
    plane.api().delete(&["pvc/data"], &ns).unwrap().success().unwrap();
    plane.api().wait_gone(("pvc/data", &ns), LIMIT).unwrap();

    let reserve = |namespace: &str| {
        let claim = json!({"namespace": namespace, "uid": null});
        let claim = json!({"spec": {"claimRef": claim}});
        plane.api().patch(&volume, "", &claim).unwrap().success().unwrap();
    };
    reserve(&other);
    let name = old["spec"]["volumeName"].clone();
    let stolen = claim("data").with_namespace(&other).with(class);
    plane.apply(&stolen.with(json!({"spec": {"volumeName": name}}))).unwrap();
    let stolen = bound(plane, &other, "pvc/data");
    lacks_data(&format!("volume {} is reserved for another claim", text(&name)));
    assert_eq!(read(plane, "", &volume)["spec"]["claimRef"]["uid"], uid(&stolen));

    plane.api().delete(&["pvc/data"], &other).unwrap().success().unwrap();
    plane.api().wait_gone(("pvc/data", &other), LIMIT).unwrap();
    reserve(&ns);
    let restored = belay(plane, &resume);
    assert_eq!(restored.code, 0, "{restored:?}");
    assert_eq!(bound(plane, &ns, "pvc/data")["spec"]["volumeName"], name);
    read(plane, &ns, "deploy/web");
    free_all();
}

#[test]
fn the_undo_of_a_namespace_approves_within_the_terms_of_its_held_content() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-terms").unwrap();
    let spec = json!({"targets": [policy::target("", "configmaps", &ns)],
        "approval": {"maxDurationSeconds": 600}, "protect": {"whileUsed": {"onDelete": "Hold"}}});
    policy::apply(plane, &ns, spec);
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let user = reader("web", "configMapRef", "settings").with_finalizers(&["undo.test/kept"]);
    plane.apply(&user.with_namespace(&ns)).unwrap();
    wait_until_held(plane, &ns, "cm/settings");
    // The namespace controller waits for the Pod before it deletes other content.
    delete(plane, &ns, "cm/settings");
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let late = belay(plane, &["undo", &namespace, "--yes", "--out", &path, "--timeout", "1s"]);
    let old = read(plane, "", &namespace);
    let approvals = approvals_of(plane, uid(&old));
    assert_eq!(approvals.len(), 1, "{late:?}");
    assert!(late.stderr.contains("(10m, because policy "), "{late:?}");
    // belay releases the ConfigMap, although its user still exists.
    plane.api().wait_gone(("cm/settings", &ns), LIMIT).unwrap();
}
