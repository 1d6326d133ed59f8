//! `belay approvals`.

use std::time::Duration;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, approval, object};
use crate::harness::rbac::{rule, user};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

#[test]
fn an_approval_is_listed_with_who_gave_it_and_for_how_long() {
    let plane = &world().plane;
    let ns = plane.namespace("approvals").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let none = belay(plane, &["approvals", "-n", &ns]);
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (0, "no unexpired approvals; --all lists expired ones\n")
    );
    let given = ["approve", "cm/settings", "-n", &ns, "--reason", "it was agreed", "--for=10m"];
    assert_eq!(belay(plane, &given).code, 0);
    let said = json(&belay(plane, &["approvals", "-n", &ns, "-o", "json"]));
    assert_eq!(said["kind"], "ApprovalList");
    assert_eq!(said["items"].as_array().map(Vec::len), Some(1), "{said}");
    let item = &said["items"][0];
    assert_eq!(item["object"]["typed"], format!("configmaps/settings -n {ns}"));
    assert_eq!((&item["inForce"], &item["reason"]), (&true.into(), &"it was agreed".into()));
    let table = belay(plane, &["approvals", "-n", &ns]).stdout;
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains("m left   object   it was agreed") || row.contains("s left"), "{table}");
    // `-A` is kubectl's option for all namespaces, and the default without -n.
    let all = json(&belay(plane, &["approvals", "-A", "-o", "json"]));
    let all = all["items"].as_array().unwrap();
    assert!(all.iter().any(|one| one["object"] == item["object"]), "{all:?}");
    // Elsewhere it is not listed.
    let other = json(&belay(plane, &["approvals", "-n", "default", "-o", "json"]));
    assert_eq!(other["items"].as_array().map(Vec::len), Some(0), "{other}");
}

#[test]
fn an_approval_says_what_is_deleted_with_the_object() {
    let plane = &world().plane;
    let ns = plane.namespace("approved").unwrap();
    plane.define_kind("approved.example.com", "Thing", "things").unwrap();
    for (object, says) in [
        (format!("ns/{ns}"), "for this Namespace, which is deleted with all objects in it; "),
        (
            "crd/things.approved.example.com".to_owned(),
            "for this CRD, which is deleted with all objects of its kind; ",
        ),
    ] {
        let given = belay(plane, &["approve", &object, "--reason=agreed"]);
        assert!(given.stdout.contains(says), "{given:?}");
    }
}

#[test]
fn an_approval_of_a_crd_alone_deletes_no_labelled_instance() {
    let plane = &world().plane;
    let ns = plane.namespace("approved-crd").unwrap();
    let group = "labelled.example.com";
    let crd = format!("crd/things.{group}");
    plane.define_kind(group, "Thing", "things").unwrap();
    let thing = |name: &str| object(&format!("{group}/v1"), "Thing", name).with_namespace(&ns);
    plane.apply(&thing("a")).unwrap();
    // Not the first object of a list.
    plane.apply(&thing("b").with_protect_label("Always")).unwrap();
    // Without a policy for the CRD, the API server deletes the instances without asking belay.
    let impact = json(&belay(plane, &["impact", &crd, "-o", "json"]));
    let mut objects = impact["objects"].as_array().unwrap().iter();
    let labelled = objects.find(|one| one["object"]["name"] == "b").unwrap();
    assert_eq!((&impact["verdict"], &labelled["outcome"]), (&"Allow".into(), &"Deleted".into()));
    let target = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "names": [format!("things.{group}")]});
    let protect = json!({"whileNotEmpty": {"counting": "Any"}});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": protect}));
    let approve = ["approve", &crd, "--reason=agreed"];
    assert_eq!(belay(plane, &approve).code, 0);
    eventually("the approval", LIMIT, || {
        let denied = plane.kubectl(&["delete", &crd, "--wait=false"])?.failure()?;
        let says = format!("\"b\" in namespace {ns}, which is protected; label ");
        match denied.contains(&says) && !denied.contains("is not empty") {
            true => Ok(()),
            false => Err(denied.into()),
        }
    })
    .unwrap();
    let impact = belay(plane, &["impact", &crd]);
    assert!(impact.stdout.contains("--scope content"), "{impact:?}");
    assert_eq!(belay(plane, &[&approve[..], &["--scope=content"]].concat()).code, 0);
    eventually("the deletion", LIMIT, || {
        plane.kubectl(&["delete", &crd, "--timeout=30s"])?.success()
    })
    .unwrap();
}

#[test]
fn h95_an_approval_that_cannot_be_read_is_left_out_and_named() {
    let plane = &world().plane;
    let ns = plane.namespace("h95").unwrap();
    let target = json!({"resource": "configmaps", "namespace": ns, "name": "a", "uid": "u"});
    let good = approval(&format!("{ns}-good"), target, "Object");
    plane.apply(&good).unwrap();
    let mut bad = good.clone();
    // The API server accepts `-23:60` as an offset.
    let until = jiff::Timestamp::now() - Duration::from_secs(82_800);
    let until = until.strftime("%Y-%m-%dT%H:%M:%S-23:60").to_string();
    bad["metadata"]["name"] = json!(format!("{ns}-bad"));
    bad["spec"]["expirationTime"] = json!(until);
    plane.apply(&bad).unwrap();
    let output = belay(plane, &["approvals", "-n", &ns, "-o", "json"]);
    let names = format!("left out, because they can't be read: deletionapprovals {ns}-bad\n");
    assert_eq!((output.code, output.stderr.as_str()), (0, names.as_str()), "{output:?}");
    assert_eq!(json(&output)["items"].as_array().map(Vec::len), Some(1), "{output:?}");
    plane.delete(&["deletionapproval", &format!("{ns}-bad")], "");
}

#[test]
fn usernames_do_not_control_the_terminal() {
    let plane = &world().plane;
    let ns = plane.namespace("escaped").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    // A CA can sign a certificate with any name.
    let eve = plane.user("eve\x1b[2J", Some("system:masters")).unwrap();
    assert!(eve.file_name().is_some_and(|name| name == "eve--2J.kubeconfig"), "{eve:?}");
    let reason = "--reason=agreed\x1b[2J";
    let given = belay_as(&eve, &["approve", "cm/settings", "-n", &ns, reason]);
    assert_eq!(given.code, 0, "{given:?}");
    assert!(given.stdout.contains(" by eve [2J, for this object alone"), "{given:?}");
    let why = belay_as(&eve, &["why", "cm/settings", "-n", &ns]);
    assert!(why.stdout.contains("user \"eve [2J\" can delete configmap "), "{why:?}");
    let listed = belay(plane, &["approvals", "-n", &ns]);
    assert!(listed.stdout.contains("   eve [2J   "), "{listed:?}");
    for said in [&given, &why, &listed] {
        assert!(!said.stdout.contains('\x1b') && !said.stderr.contains('\x1b'), "{said:?}");
    }
    // Output for programs contains the stored value.
    let said = json(&belay(plane, &["approvals", "-n", &ns, "-o", "json"]));
    assert_eq!(said["items"][0]["approver"], "eve\x1b[2J", "{said}");
    assert_eq!(said["items"][0]["reason"], "agreed\x1b[2J", "{said}");
}

#[test]
fn an_object_that_could_not_be_read_is_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("approvals-unread").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    assert_eq!(belay(plane, &["approve", "cm/settings", "-n", &ns, "--reason=agreed"]).code, 0);
    let nina = format!("nina-{ns}");
    plane.grant(&nina, None, &[rule("belay.dev", "*", "get, list")], &[user(&nina)]).unwrap();
    let list = ["approvals", "-n", &ns, "--as", &nina];
    let said = eventually("the rights", LIMIT, || {
        let said = belay(plane, &list);
        if said.code == 0 { Ok(said) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    assert!(said.stdout.contains("m left (object not read)"), "{said:?}");
    assert!(said.stdout.contains("not read: configmaps: forbidden for you"), "{said:?}");
    let json = json(&belay(plane, &[&list[..], &["-o", "json"]].concat()));
    assert_eq!(json["notRead"][0]["resource"], "configmaps", "{json:#}");
}
