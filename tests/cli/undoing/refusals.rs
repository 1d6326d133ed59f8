//! What an undo refuses.

use std::path::Path;

use serde_json::{Value, json};

use super::*;

#[test]
fn an_undo_that_would_wait_for_approvals_does_not_begin() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-approvals").unwrap();
    delete_held_settings(plane, &ns, 2, &[]);
    let before = read(plane, &ns, "cm/settings");
    let rights = [rule("*", "*", "get, list, watch, create, patch")];
    plane.grant(&ns, None, &rights, &[rbac::user(&ns)]).unwrap();
    let account = format!("system:serviceaccount:{ns}:default");
    grant_in(plane, &ns, &account);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path];
    let unlisted =
        format!("and yours does not count: {account} is a service account that approval");
    for (user, why) in [
        (&[][..], "its deletion needs 1 more approval beside yours; nothing was changed"),
        (&["--as", &ns][..], "approve-deletion"),
        (&["--as", &account][..], &unlisted),
    ] {
        let refused = belay(plane, &[&undo[..], user].concat());
        assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
        assert!(!Path::new(&path).exists());
    }
    assert_eq!(uid(&read(plane, &ns, "cm/settings")), uid(&before));
    assert_eq!(approvals_of(plane, uid(&before)), [Value::Null; 0]);
}

#[test]
fn refuses_with_the_reason_if_undo_is_impossible() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-refused").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    let owners = ["living", "leaving"].map(|name| {
        plane.apply(&config_map(name).with_namespace(&ns)).unwrap();
        owner("ConfigMap", name, uid(&read(plane, &ns, &format!("cm/{name}"))))
    });
    let owned = json!({"metadata": {"ownerReferences": owners}});
    for object in [
        pod("web"),
        config_map("settings").with(owned),
        object("batch/v1", "Job", "once")
            .with(json!({"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "none"}]}}}})),
    ] {
        plane.apply(&object.with_namespace(&ns).with(kept.clone())).unwrap();
    }
    for name in ["pod/web", "cm/settings", "job/once"] {
        delete(plane, &ns, name);
    }
    let undo = |args: &[&str]| belay(plane, &[&["undo", "-n", &ns], args].concat());
    for (name, why) in [
        ("cm/living", "is not Terminating, so there is nothing to undo"),
        ("pod/web", "can't be undone: the kubelet stops its containers"),
        ("job/once", "can't be undone: a new Job would run again"),
    ] {
        let refused = undo(&[name, "--yes"]);
        assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    }
    let gone = undo(&["pvc/gone", "--yes"]);
    assert!(gone.code == 3 && gone.stderr.contains("can't be restored"), "{gone:?}");
    let asked = undo(&["cm/settings"]);
    assert!(asked.code == 2 && asked.stderr.contains("add --yes"), "{asked:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let dry = undo(&["cm/settings", "--dry-run", "--out", &path]);
    assert!(dry.code == 0 && dry.stdout.contains("create configmaps/settings"), "{dry:?}");
    assert!(!Path::new(&path).exists());
    let user = ["--context=test", "--as=admin of shops", "--installation=belay/belay"];
    grant_in(plane, &ns, "admin of shops");
    let late = ["cm/settings", "--yes", "--out", &path, "--timeout", "1s"];
    let late = undo(&[&late[..], &user].concat());
    let next = format!("undo --resume {path} --context=test --as='admin of shops'\n");
    assert!(late.code == 1 && late.stdout.contains(&next), "{late:?}");
    // Its finalizer is removed, and another object takes the name.
    free(plane, &ns, "cm/settings");
    plane.api().wait_gone(("cm/settings", &ns), LIMIT).unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let resume = ["undo", "--resume", &path, "--yes"];
    let taken = belay(plane, &resume);
    assert!(taken.code == 1 && taken.stdout.contains("another object has its name"), "{taken:?}");
    plane.api().delete(&["cm/settings"], &ns).unwrap().success().unwrap();
    // One owner is another object now, and one is Terminating.
    plane.api().delete(&["cm/living"], &ns).unwrap().success().unwrap();
    plane.apply(&config_map("living").with_namespace(&ns)).unwrap();
    keep(plane, &ns, "cm/leaving");
    delete(plane, &ns, "cm/leaving");
    let record = std::fs::read(&path).unwrap();
    assert_eq!(belay(plane, &resume).code, 0);
    let new = &read(plane, &ns, "cm/settings")["metadata"];
    assert_eq!(
        (&new["finalizers"][0], &new["ownerReferences"]),
        (&"undo.test/kept".into(), &Value::Null)
    );
    std::fs::write(&path, record).unwrap();
    delete(plane, &ns, "cm/settings");
    let again = belay(plane, &resume);
    assert!(again.code == 1 && again.stderr.contains("was deleted again"), "{again:?}");
}

#[test]
fn a_claim_whose_volume_is_terminating_can_not_be_undone() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-volume").unwrap();
    claims(plane, &ns, &["data"]);
    let old = bound(plane, &ns, "pvc/data");
    keep(plane, &ns, "pvc/data");
    delete(plane, "", &format!("pv/{}", text(&old["spec"]["volumeName"])));
    delete(plane, &ns, "pvc/data");
    let refused = belay(plane, &["undo", "pvc/data", "-n", &ns, "--yes"]);
    assert!(refused.code == 1 && refused.stderr.contains("is Terminating too"), "{refused:?}");
    let why = belay(plane, &["why", "pvc/data", "-n", &ns]).stdout;
    let step = "if the deletion is a mistake: copy the data to another volume before ";
    assert!(why.contains(step), "{why}");
    read(plane, &ns, "pvc/data");
    free(plane, &ns, "pvc/data");
}

#[test]
fn an_undo_that_could_not_finish_does_not_begin() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-unable").unwrap();
    let kept = ["undo.test/kept"];
    let name = |object: &Value| text(&object["metadata"]["name"]).to_owned();
    plane.apply(&config_map("parent").with_namespace(&ns)).unwrap();
    let parent = read(plane, &ns, "cm/parent");
    let owned =
        json!({"metadata": {"ownerReferences": [owner("ConfigMap", "parent", uid(&parent))]}});
    let settings = config_map("settings").with_namespace(&ns).with(owned).with_finalizers(&kept);
    plane.apply(&settings).unwrap();
    let old = read(plane, &ns, "cm/settings");
    owned_secret(plane, &ns, "token", uid(&old));
    // The garbage collector deletes its dependent.
    plane.api().delete(&["cm/parent"], &ns).unwrap().success().unwrap();
    eventually("the cascade", LIMIT, || {
        match read(plane, &ns, "cm/settings")["metadata"]["deletionTimestamp"].is_string() {
            true => Ok(()),
            false => Err("it is not Terminating".into()),
        }
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--timeout", "60s"];
    for (user, resources, verbs, code, why) in [
        ("reader", "*", "get, list, watch", 1, "you may not create configmaps"),
        ("creator", "*", "get, list, watch, create", 1, "you may not patch secrets"),
        ("blind", "configmaps", "*", 3, "and such objects could be lost"),
    ] {
        let user = format!("{ns}-{user}");
        plane.grant(&user, None, &[rule("*", resources, verbs)], &[rbac::user(&user)]).unwrap();
        let refused = belay(plane, &[&undo[..], &["--as", &user]].concat());
        assert!(refused.code == code && refused.stderr.contains(why), "{refused:?}");
        assert!(!Path::new(&path).exists());
    }
    let late = belay(plane, &[&undo[..undo.len() - 1], &["1s"]].concat());
    assert_eq!(late.code, 1, "{late:?}");
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "60s"];
    let blind = format!("{ns}-blind");
    let refused = belay(plane, &[&resume[..], &["--as", &blind]].concat());
    let why = "and such objects could be lost";
    assert!(refused.code == 3 && refused.stderr.contains(why), "{refused:?}");
    let file = std::fs::read_to_string(&path).unwrap();
    let cluster: Value = serde_json::from_str(&file).unwrap();
    let elsewhere = file.replace(text(&cluster["cluster"]["uid"]), "elsewhere");
    std::fs::write(&path, elsewhere).unwrap();
    let refused = belay(plane, &resume);
    let why = "the file is for another cluster";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    std::fs::write(&path, file).unwrap();
    free(plane, &ns, "cm/settings");
    assert_eq!(belay(plane, &resume).code, 0);
    // With its deleted owner, the garbage collector would delete it again.
    let new = read(plane, &ns, "cm/settings");
    assert!(new["metadata"]["ownerReferences"].is_null(), "{new}");

    let web = workload("Deployment", "web", &pod("web").without_grace_period());
    plane.apply(&web.with_namespace(&ns)).unwrap();
    let set = eventually("a ReplicaSet", LIMIT, || {
        plane.api().list("replicasets", &ns, "")?.pop().ok_or("none".into())
    });
    let set = format!("rs/{}", name(&set.unwrap()));
    let template = json!({"volumeClaimTemplate": {"spec": claim("scratch")["spec"]}});
    let user = pod("user").with_volume(json!({"name": "scratch", "ephemeral": template}));
    plane.apply(&user.with_namespace(&ns)).unwrap();
    let exists = |claim: Option<&Value>| claim.map(drop).ok_or_else(|| "no claim".into());
    plane.api().wait(("pvc/user-scratch", &ns), LIMIT, exists).unwrap();
    for (object, why) in [
        (set.as_str(), "its controller deployments.apps/web"),
        ("pvc/user-scratch", "it belongs to Pod user, and is deleted with it"),
    ] {
        keep(plane, &ns, object);
        delete(plane, &ns, object);
        let refused = belay(plane, &["undo", object, "-n", &ns, "--yes", "--timeout", "1s"]);
        assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    }
    // A Terminating Deployment creates no ReplicaSet.
    keep(plane, &ns, "deploy/web");
    delete(plane, &ns, "deploy/web");
    let steps = belay(plane, &["undo", &set, "-n", &ns, "--dry-run"]);
    assert_eq!(steps.code, 0, "{steps:?}");
}

#[test]
fn an_undo_that_may_not_read_an_owner_does_not_begin() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-owners-unread").unwrap();
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", &ns);
    plane.apply(&role).unwrap();
    let role = read(plane, "", &format!("clusterrole/{ns}"));
    let mut owner = owner("ClusterRole", &ns, uid(&role));
    owner["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    let settings = config_map("settings").with_namespace(&ns).with(owned);
    plane.apply(&settings.with_finalizers(&["undo.test/kept"])).unwrap();
    delete(plane, &ns, "cm/settings");
    plane.grant(&ns, Some(&ns), &[rule("*", "*", "*")], &[rbac::user(&ns)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--as", &ns];
    let refused = belay(plane, &undo);
    let why = "you may not get clusterroles.rbac.authorization.k8s.io";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    assert!(!Path::new(&path).exists());
    free(plane, &ns, "cm/settings");
}

#[test]
fn refuses_to_undo_a_custom_resource_of_a_terminating_crd() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-crd").unwrap();
    plane.define_kind("undo-crd.example.com", "Book", "books").unwrap();
    let book = object("undo-crd.example.com/v1", "Book", "main").with_namespace(&ns);
    plane.apply(&book.with_finalizers(&["undo.test/kept"])).unwrap();
    let name = "books.undo-crd.example.com/main";
    plane.api().delete(&["crd/books.undo-crd.example.com"], "").unwrap().success().unwrap();
    super::namespaces::wait_until_terminating(plane, &ns, &[name]);
    let refused = belay(plane, &["undo", name, "-n", &ns, "--yes"]);
    let why = "CustomResourceDefinition books.undo-crd.example.com is Terminating";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    // It stays: other tests list all kinds, and the end of one would make a list fail.
}

#[test]
fn a_kind_that_ends_during_the_read_has_no_objects() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-ended").unwrap();
    let group = format!("{ns}.example.com");
    plane.define_kind(&group, "Book", "books").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    delete(plane, &ns, "cm/settings");
    let list = format!("GET /apis/{group}/v1/");
    let is_list = move |request: &[u8]| {
        let line = String::from_utf8_lossy(request);
        line.starts_with(&list) && line.lines().next().unwrap().contains("/books")
    };
    let (ended, received) = std::sync::mpsc::channel();
    let end = move || {
        plane.api().delete(&[&format!("crd/books.{group}")], "").unwrap().success().unwrap();
        let list = format!("/apis/{group}/v1/books");
        eventually("the end of the kind", LIMIT, || {
            let read = plane.kubectl(&["get", "--raw", &list])?;
            if read.stderr.contains("NotFound") { Ok(()) } else { Err(format!("{read:?}").into()) }
        })
        .unwrap();
        ended.send(()).unwrap();
    };
    let undo = ["undo", "cm/settings", "-n", &ns, "--dry-run"];
    let (said, _) = lost_answer::with_interruption_at(plane, &undo, is_list, end);
    assert!(received.try_recv().is_ok(), "nothing has listed the kind: {said:?}");
    assert!(said.code == 0 && said.stdout.contains("To undo the deletion of "), "{said:?}");
    free(plane, &ns, "cm/settings");
}

#[test]
fn of_an_object_in_a_terminating_namespace_why_names_the_undo_of_the_namespace() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-inside").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    delete(plane, "", &format!("ns/{ns}"));
    super::namespaces::wait_until_terminating(plane, &ns, &["cm/settings"]);
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]).stdout;
    let next = format!("if the deletion is a mistake: kubectl belay undo namespaces/{ns}\n");
    assert!(why.contains(&next), "{why}");
    free(plane, &ns, "cm/settings");
}

#[test]
fn refuses_an_impossible_undo_before_it_requires_a_confirmation() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-unasked").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let undo = ["undo", "cm/settings", "-n", &ns];
    let refused = belay(plane, &undo);
    assert!(refused.code == 1 && refused.stderr.contains("is not Terminating"), "{refused:?}");
    delete(plane, &ns, "cm/settings");
    let unasked = belay(plane, &undo);
    assert!(unasked.code == 2 && unasked.stderr.contains("add --yes"), "{unasked:?}");
    free(plane, &ns, "cm/settings");
}
