//! What tenants of other namespaces can't do to a deletion.

use serde_json::{Value, json};

use crate::deleting::plan;
use crate::harness::ControlPlane;
use crate::harness::audit::text;
use crate::harness::manifest::{Manifest as _, claim, config_map, object, owner, pod};
use crate::{belay, json, world};

/// The finalizer of a tenant.
const MINE: &[&str] = &["example.com/mine"];

/// A StorageClass with this name. Returns how a user types it.
fn storage_class(plane: &ControlPlane, name: &str) -> String {
    let class = object("storage.k8s.io/v1", "StorageClass", name);
    plane.apply(&class.with(json!({"provisioner": "x"}))).unwrap();
    format!("sc/{name}")
}

/// An owner reference to a cluster-scoped object.
fn owner_reference(plane: &ControlPlane, kind: &str, typed: &str) -> Value {
    let found = plane.api().get(typed, "").unwrap().unwrap();
    let [name, uid] = ["name", "uid"].map(|field| text(&found["metadata"][field]));
    owner(kind, name, uid).with(json!({"apiVersion": found["apiVersion"]}))
}

#[test]
fn h160_dependents_in_other_namespaces_do_not_stop_the_deletion() {
    let plane = &world().plane;
    let [ns, tenant] = ["delete-own", "delete-tenant"].map(|name| plane.namespace(name).unwrap());
    let (namespace, class) = (format!("ns/{ns}"), storage_class(plane, &ns));
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    for (kind, target, names) in
        [("Namespace", &namespace, ["a", "b"]), ("StorageClass", &class, ["c", "d"])]
    {
        let owner = owner_reference(plane, kind, target);
        for name in names {
            let anchor = config_map(name).with_owner(owner.clone()).with_namespace(&tenant);
            plane.apply(&anchor.with_finalizers(MINE)).unwrap();
        }
    }
    let args = ["delete", &namespace, &class, "--yes", "--timeout", "30s"];
    let output = belay(plane, &args);
    assert_eq!(output.code, 0, "{output:?}");
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("configmaps/{name} -n {tenant}"));
    let says = format!("not awaited: {a}, {b}, {c} and 1 more object in other namespaces\n");
    assert!(output.stdout.ends_with(&says), "{output:?}");
    for gone in [&namespace, &class] {
        assert_eq!(plane.api().get(gone, "").unwrap(), None);
    }
}

#[test]
fn h202_terminating_users_in_other_namespaces_do_not_stop_the_deletion() {
    let plane = &world().plane;
    let tenant = plane.namespace("delete-users").unwrap();
    let (class, node) = (storage_class(plane, &tenant), format!("node/{tenant}"));
    plane.apply(&object("v1", "Node", &tenant)).unwrap();
    let spec = json!({"spec": {"storageClassName": tenant}});
    let users = [claim("late").with(spec), pod("late").with_node(&tenant)];
    for (user, typed) in users.into_iter().zip(["pvc/late", "pod/late"]) {
        plane.apply(&user.with_finalizers(MINE).with_namespace(&tenant)).unwrap();
        plane.api().delete(&[typed], &tenant).unwrap().success().unwrap();
    }
    let args = ["delete", &class, &node, "--yes", "--timeout", "30s"];
    let output = belay(plane, &args);
    assert_eq!(output.code, 0, "{output:?}");
    let [pod, claim] = ["pods", "persistentvolumeclaims"];
    let says = format!(
        "not awaited: {pod}/late -n {tenant}, {claim}/late -n {tenant} in other namespaces\n"
    );
    assert!(output.stdout.ends_with(&says), "{output:?}");
    for gone in [&class, &node] {
        assert_eq!(plane.api().get(gone, "").unwrap(), None);
    }
}

#[test]
fn h203_new_objects_in_other_namespaces_stop_a_deletion_only_if_it_deletes_them() {
    let plane = &world().plane;
    let tenant = plane.namespace("delete-newer").unwrap();
    let class = storage_class(plane, &tenant);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    plan(plane, &path, &[&class]);
    let path = path.display().to_string();
    let delete = |more: &[&str]| {
        belay(plane, &[&["delete", "--plan", &path, "--yes", "-o", "json"], more].concat())
    };
    let changes = |told: &Value, list: &str| {
        let all = told[list].as_array().unwrap().iter();
        let line =
            |one: &Value| format!("{} {}", text(&one["change"]), text(&one["object"]["name"]));
        all.map(line).collect::<Vec<_>>()
    };
    let user = claim("user").with(json!({"spec": {"storageClassName": tenant}}));
    plane.apply(&user.with_namespace(&tenant)).unwrap();
    let output = delete(&["--dry-run", "server"]);
    let told = json(&output);
    assert_eq!((output.code, &told["result"]), (0, &"WouldDelete".into()), "{output:?}");
    assert_eq!(changes(&told, "otherChanges"), ["NewUser user"], "{told}");

    let owned = config_map("owned").with_owner(owner_reference(plane, "StorageClass", &class));
    plane.apply(&owned.with_finalizers(MINE).with_namespace(&tenant)).unwrap();
    let output = delete(&[]);
    let told = json(&output);
    assert_eq!((output.code, &told["result"]), (1, &"Changed".into()), "{output:?}");
    assert_eq!(changes(&told, "changes"), ["Added owned"], "{told}");
    let next = format!("add --ignore-namespace {tenant}");
    assert!(text(&told["changes"][0]["says"]).ends_with(&next), "{told}");
    assert!(plane.api().get(&class, "").unwrap().is_some());

    let ignore = ["--ignore-namespace", &tenant];
    let output = belay(plane, &[&["delete", "--plan", &path, "--yes"], &ignore[..]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    let says = format!(
        "changed in other namespaces: ConfigMap {tenant}/owned is not in the plan, and would be \
         deleted as well; PersistentVolumeClaim {tenant}/user needs StorageClass {tenant} \
         (spec.storageClassName)\n"
    );
    assert!(output.stdout.ends_with(&says), "{output:?}");
    assert_eq!(plane.api().get(&class, "").unwrap(), None);
}
