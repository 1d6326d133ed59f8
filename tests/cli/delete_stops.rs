//! When `kubectl belay delete` stops, and what it asks first.

use std::path::Path;

use serde_json::{Value, json};

use crate::broken::plane as without_belay;
use crate::deleting::{left, plan, shop};
use crate::harness::audit::text;
use crate::harness::eventually;
use crate::harness::manifest::{
    Manifest as _, admission_policy, bound_claim, config_map, object, owner, pod, reader, secret,
};
use crate::harness::rbac::{self, rule};
use crate::{LIMIT, belay, json, kubectl, lost_answer, policy, terminal, world};

#[test]
fn a_changed_cluster_stops_the_deletion() {
    let plane = without_belay();
    let ns = plane.namespace("delete-drift").unwrap();
    shop(plane, &ns);
    let folder = tempfile::tempdir().unwrap();
    let [named, whole] = ["named", "whole"].map(|name| folder.path().join(name));
    plan(plane, &named, &["deploy/web", "secret/password", "cm/settings", "-n", &ns]);
    let namespace = format!("ns/{ns}");
    plan(plane, &whole, &[&namespace]);
    let before = left(plane, &ns);
    let changes = |path: &Path| {
        let path = path.display().to_string();
        let output = belay(plane, &["delete", "--plan", &path, "--yes", "-o", "json"]);
        assert_eq!(output.code, 1, "{output:?}");
        let told = json(&output);
        assert_eq!((&told["result"], &told["deleted"]), (&"Changed".into(), &json!([])), "{told}");
        let all = told["changes"].as_array().unwrap().iter();
        let line =
            |one: &Value| format!("{} {}", text(&one["change"]), text(&one["object"]["name"]));
        all.map(line).collect::<Vec<_>>()
    };
    let late = reader("late", "secretRef", "password");
    plane.apply(&late.with_namespace(&ns)).unwrap();
    assert_eq!(changes(&named), ["NewUser late"]);
    assert_eq!(changes(&whole), ["Added late"]);
    kubectl(plane, &["delete", "pod", "late", "-n", &ns]);

    plane.apply(&config_map("more").with_namespace(&ns)).unwrap();
    assert_eq!(changes(&whole), ["Added more"]);
    kubectl(plane, &["delete", "configmap", "more", "-n", &ns]);

    kubectl(plane, &["delete", "configmap", "settings", "-n", &ns]);
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    assert_eq!(changes(&named), ["Recreated settings"]);

    // Anyone can write an owner reference.
    let other = folder.path().join("other");
    let planned = plan(plane, &other, &["cm/other", "-n", &ns]);
    let uid = text(&planned["targets"][0]["uid"]);
    let owned = |owners: Value| json!({"metadata": {"ownerReferences": owners}});
    let by_other = owner("ConfigMap", "other", uid).with(json!({"controller": true}));
    plane.patch("deploy/web", &ns, &owned(json!([by_other])));
    let added = changes(&other);
    assert!(added.iter().all(|one| one.starts_with("Added web")) && !added.is_empty(), "{added:?}");
    plane.patch("deploy/web", &ns, &owned(Value::Null));
    assert_eq!(left(plane, &ns), before);

    // An annotation, and a Pod that its ReplicaSet replaces, are no changes of a plan.
    plan(plane, &named, &["deploy/web", "secret/password", "cm/settings", "-n", &ns]);
    kubectl(plane, &["annotate", "secret", "password", "-n", &ns, "note=changed"]);
    kubectl(plane, &["delete", "pod", "-l", "app=web", "-n", &ns]);
    let path = named.display().to_string();
    let done = belay(plane, &["delete", "--plan", &path, "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!left(plane, &ns).contains("secrets/password"));
}

#[test]
fn a_new_user_of_data_stops_the_deletion() {
    let plane = without_belay();
    let ns = plane.namespace("delete-used").unwrap();
    let [volume, claim] = bound_claim(&ns, "data", &ns);
    plane.apply(&volume).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [of_volume, of_claim] = ["volume", "claim"].map(|name| folder.path().join(name));
    let stops = |path: &Path, name: &str| {
        let path = path.display().to_string();
        let output = belay(plane, &["delete", "--plan", &path, "--yes", "-o", "json"]);
        assert_eq!(output.code, 1, "{output:?}");
        let told = json(&output);
        let change = &told["changes"][0];
        let found = (&told["result"], &change["change"], &change["object"]["name"]);
        assert_eq!(found, (&"Changed".into(), &"NewUser".into(), &name.into()), "{told}");
    };
    plan(plane, &of_volume, &[&format!("pv/{ns}")]);
    plane.apply(&claim).unwrap();
    let claim = ("pvc/data", ns.as_str());
    plane.api().wait_field(claim, LIMIT, ".status.phase", |phase| phase == "Bound").unwrap();
    stops(&of_volume, "data");
    plan(plane, &of_claim, &["pvc/data", "-n", &ns]);
    // Only a scheduled Pod keeps a Terminating claim.
    plane.apply(&object("v1", "Node", &ns)).unwrap();
    let user = pod("user").with_claim("data").with_node(&ns);
    plane.apply(&user.with_namespace(&ns)).unwrap();
    stops(&of_claim, "user");
    // It is Terminating already, so a stop would save nothing.
    plane.api().delete(&["pvc/data"], &ns).unwrap().success().unwrap();
    let path = of_claim.display().to_string();
    let told = json(&belay(plane, &["delete", "--plan", &path, "--yes", "-o", "json"]));
    assert_eq!(told["result"], "Stays", "{told}");
    kubectl(plane, &["delete", "node", &ns]);
}

#[test]
fn a_missing_approval_stops_before_the_first_delete() {
    let plane = &world().plane;
    let ns = plane.namespace("delete-approval").unwrap();
    policy::protect(plane, &ns, "secrets", json!({"always": {}}));
    shop(plane, &ns);
    let before = left(plane, &ns);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let targets = ["deploy/web", "secret/password", "-n", &ns];
    let planned = plan(plane, &path, &targets);
    let approval = &planned["approvals"][0];
    assert_eq!(approval["object"]["name"], "password", "{planned:#}");
    let why = json(&belay(plane, &["why", "secret/password", "-n", &ns, "-o", "json"]));
    assert_eq!(approval["mayApprove"], why["mayApprove"]);
    assert_ne!(approval["mayApprove"], json!([]));
    assert_eq!(approval["approvers"], 1, "{approval}");
    for args in [
        &[&["delete"], &targets[..]].concat()[..],
        &["delete", "--plan", &path.display().to_string()],
    ] {
        let output = belay(plane, &[args, &["--yes", "-o", "json"]].concat());
        let told = json(&output);
        assert_eq!((output.code, &told["result"]), (1, &"Refused".into()), "{output:?}");
        assert!(text(&told["approve"][0]).contains("approve secrets/password"), "{told}");
    }
    assert_eq!(left(plane, &ns), before);
    let approve = ["approve", "secret/password", "-n", &ns, "--reason", "cleanup"];
    // It expires during the deletion.
    assert_eq!(belay(plane, &[&approve[..], &["--for", "30s"]].concat()).code, 0);
    let late = belay(plane, &[&["delete"], &targets[..], &["--yes"]].concat());
    assert_eq!((late.code, left(plane, &ns)), (1, before), "{late:?}");
    assert!(late.stdout.contains("use a shorter --timeout, or approve for longer"), "{late:?}");
    assert_eq!(belay(plane, &approve).code, 0);
    let done = belay(plane, &[&["delete"], &targets[..], &["--yes"]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!left(plane, &ns).contains("secrets/password"));
}

#[test]
fn a_plan_contains_the_missing_approvals() {
    let plane = &world().plane;
    let ns = plane.namespace("delete-two").unwrap();
    let spec = json!({"targets": [policy::target("", "secrets", &ns)],
        "protect": {"always": {}}, "approval": {"required": 2}});
    policy::apply(plane, &ns, spec);
    plane.apply(&secret("key").with_namespace(&ns)).unwrap();
    let [ann, joe] = ["two-ann", "two-joe"];
    let subjects = [ann, joe].map(rbac::user);
    let secrets = [rule("", "secrets", "get, list, approve-deletion")];
    plane.grant("two", Some(&ns), &secrets, &subjects).unwrap();
    plane.grant("two", None, &[rule("belay.dev", "*", "get, list, create")], &subjects).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let missing = || {
        let planned = plan(plane, &folder.path().join("plan"), &["secret/key", "-n", &ns]);
        let approval = &planned["approvals"][0];
        let names = approval["mayApprove"].as_array().unwrap().iter().map(text);
        let names = names.filter(|name| name.starts_with("two-")).map(str::to_owned);
        (approval["approvers"].as_u64().unwrap(), names.collect::<Vec<_>>())
    };
    assert_eq!(missing(), (2, vec![ann.to_owned(), joe.to_owned()]));
    let approve = ["approve", "secret/key", "-n", &ns, "--reason", "cleanup", "--as", ann];
    eventually("the approval", LIMIT, || belay(plane, &approve).success()).unwrap();
    assert_eq!(missing(), (1, vec![joe.to_owned()]));
}

#[test]
fn detects_a_change_just_before_the_delete() {
    let plane = without_belay();
    let ns = plane.namespace("delete-race").unwrap();
    let object = config_map("raced").with_namespace(&ns);
    let args = ["delete", "cm/raced", "-n", &ns, "--yes"];
    plane.apply(&object).unwrap();
    let (place, again) = (ns.clone(), object.clone());
    let create_again = move || {
        plane.api().delete(&["configmap", "raced"], &place).unwrap().success().unwrap();
        plane.apply(&again).unwrap();
    };
    let (stdout, codes) = lost_answer::with_interruption(plane, &args, create_again);
    assert_eq!(codes, ["409"], "{stdout}");
    assert!(stdout.contains(&format!("ConfigMap {ns}/raced was created again")), "{stdout}");
    assert!(left(plane, &ns).contains("configmaps/raced"));

    // It has another resourceVersion and the same uid.
    let labelled = object.with_labels(json!({"a": "b"}));
    let label = move || plane.apply(&labelled).unwrap();
    let (stdout, codes) = lost_answer::with_interruption(plane, &args, label);
    assert_eq!(codes, ["409", "200"], "{stdout}");
    assert!(!left(plane, &ns).contains("configmaps/raced"));
}

#[test]
fn data_is_destroyed_only_after_its_name_was_typed() {
    let plane = without_belay();
    let ns = plane.namespace("delete-data").unwrap();
    let volume_name = format!("{ns}-volume");
    let [volume, claim] = bound_claim(&ns, "data", &volume_name);
    let reclaim = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    plane.apply(&volume.with(reclaim)).unwrap();
    plane.apply(&claim).unwrap();
    let claim = ("pvc/data", ns.as_str());
    plane.api().wait_field(claim, LIMIT, ".status.phase", |phase| phase == "Bound").unwrap();
    let line = format!("delete pvc/data -n {ns}");
    let no_terminal = belay(plane, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(no_terminal.code, 2, "{no_terminal:?}");
    assert!(no_terminal.stderr.contains("add --yes"), "{no_terminal:?}");
    for typed in ["yes\n", "\n", "\u{4}"] {
        let (shown, code) = terminal::answer(plane, &line, typed);
        assert_eq!(code, 1, "{shown}");
        let says = format!("It destroys the data on volume {volume_name} for good. Type data to");
        assert!(shown.contains(&says) && shown.contains("nothing was changed"), "{shown}");
    }
    assert!(plane.api().get("pvc/data", &ns).unwrap().is_some());
    let (shown, code) = terminal::answer(plane, &line, "data\n");
    assert_eq!(code, 0, "{shown}");
    assert_eq!(plane.api().get("pvc/data", &ns).unwrap(), None);
    // Without such data, yes is enough.
    plane.apply(&config_map("free").with_namespace(&ns)).unwrap();
    let (shown, code) = terminal::answer(plane, &format!("delete cm/free -n {ns}"), "yes\n");
    assert_eq!(code, 0, "{shown}");
}

#[test]
fn a_plan_of_others_deletes_nothing_that_is_not_shown() {
    let plane = without_belay();
    let ns = plane.namespace("delete-hostile").unwrap();
    for name in ["mine", "other"] {
        plane.apply(&config_map(name).with_namespace(&ns)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let honest = plan(plane, &path, &["cm/mine", "-n", &ns]);
    let run = |plan: &str| {
        std::fs::write(&path, plan).unwrap();
        belay(plane, &["delete", "--plan", &path.display().to_string(), "--yes"])
    };
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut plan = honest.clone();
        edit(&mut plan);
        run(&plan.to_string())
    };
    let elsewhere = edited(&|plan| plan["cluster"]["uid"] = "other".into());
    assert_eq!(elsewhere.code, 1, "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("the plan is for another cluster"), "{elsewhere:?}");
    let stdout = belay(plane, &["impact", "cm/mine", "-n", &ns, "--out", "-"]);
    assert!(stdout.code == 2 && stdout.stderr.contains("name a file"), "{stdout:?}");
    for (plan, code) in [("", 2), ("[1]", 2), (r#"{"kind": "Impact"}"#, 2)] {
        assert_eq!(run(plan).code, code, "{plan}");
    }
    let half = edited(&|plan| drop(plan.as_object_mut().unwrap().remove("waves")));
    assert_eq!(half.code, 2, "{half:?}");
    let escape = edited(&|plan| plan["targets"][0]["name"] = "\u{1b}[2Jx".into());
    assert_eq!(escape.code, 1, "{escape:?}");
    assert!(!escape.stdout.contains('\u{1b}') && !escape.stderr.contains('\u{1b}'), "{escape:?}");
    assert_eq!(left(plane, &ns).len(), 3);
    // Another uid is another object.
    let uid = edited(&|plan| plan["waves"][0]["objects"][0]["object"]["uid"] = "x".into());
    assert_eq!(uid.code, 1, "{uid:?}");
    assert!(uid.stdout.contains(&format!("ConfigMap {ns}/mine")), "{uid:?}");
    // Only targets are deleted, and the printed text contains them.
    let more = edited(&|plan| {
        let mut other = plan["waves"][0]["objects"][0].clone();
        other["object"]["name"] = "other".into();
        plan["waves"][0]["objects"].as_array_mut().unwrap().push(other);
    });
    assert_eq!(more.code, 0, "{more:?}");
    assert!(more.stdout.contains("DELETE configmap/mine"), "{more:?}");
    assert!(left(plane, &ns).contains("configmaps/other"));
    assert!(!left(plane, &ns).contains("configmaps/mine"));
}

#[test]
fn the_time_limit_ends_with_the_reason() {
    let plane = without_belay();
    let ns = plane.namespace("delete-late").unwrap();
    let kept = config_map("kept").with_namespace(&ns).with_finalizers(&["x.example.test/y"]);
    plane.apply(&kept).unwrap();
    let args = ["delete", "cm/kept", "-n", &ns, "--yes", "--timeout", "2"];
    let output = belay(plane, &args);
    assert_eq!(output.code, 1, "{output:?}");
    for says in
        ["these objects still exist: configmaps/kept", "x.example.test/y", "run the same command"]
    {
        assert!(output.stdout.contains(says), "{says}: {output:?}");
    }
    let told = json(&belay(plane, &[&args[..], &["-o", "json"]].concat()));
    assert_eq!(told["result"], "TimedOut", "{told}");
    assert_eq!(told["stays"][0]["causes"][0]["finalizer"], "x.example.test/y", "{told}");
    plane.patch("cm/kept", &ns, &json!({"metadata": {"finalizers": null}}));
}

/// A refusal that no dry run shows.
#[test]
fn a_refusal_ends_the_deletion_with_the_accepted_objects() {
    let plane = without_belay();
    let ns = plane.namespace("delete-refused").unwrap();
    let kept = json!({"matchLabels": {"kept": "yes"}});
    let allows = json!({"expression": "request.dryRun == true", "message": "not today"});
    for object in admission_policy(&ns, &ns, (&["DELETE"], &["configmaps"]), kept, allows) {
        plane.apply(&object).unwrap();
    }
    let kept = config_map("kept").with_labels(json!({"kept": "yes"})).with_namespace(&ns);
    eventually("the refusal", LIMIT, || {
        plane.apply(&kept)?;
        plane.api().delete(&["configmap", "kept"], &ns)?.failure()
    })
    .unwrap();
    let finalizers = json!({"metadata": {"finalizers": ["refused.test/kept"]}});
    plane.apply(&config_map("first").with(finalizers).with_namespace(&ns)).unwrap();
    let user = reader("user", "configMapRef", "kept").without_grace_period();
    plane.apply(&user.with_namespace(&ns)).unwrap();

    let args = ["delete", "cm/first", "cm/kept", "pod/user", "-n", &ns, "--yes", "-o", "json"];
    let output = belay(plane, &args);
    let told = json(&output);
    assert_eq!((&told["result"], output.code), (&"Refused".into(), 1), "{output:?}");
    assert!(text(&told["says"]).ends_with("not today"), "{told}");
    // The Pod was deleted in the wave before.
    let names = |list: &str| {
        let all = told[list].as_array().unwrap().iter();
        all.map(|one| text(&one["name"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names("deleted"), names("accepted")), (vec!["user".into()], vec!["first".into()]));
}
