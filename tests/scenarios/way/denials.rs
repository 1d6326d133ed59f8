//! Each kind of refusal: the tests follow its commands until the object is deleted.

use serde_json::{Value, json};

use super::{commands_in, passes_now, wait_until_deleted};
use crate::harness::ControlPlane;
use crate::harness::manifest::{Manifest as _, config_map, object, owner, pod};
use crate::harness::rbac::rule;
use crate::people::Person;
use crate::{policy, world};

fn apply(plane: &ControlPlane, ns: &str, manifest: &Value) {
    plane.apply_to(&["apply", "-n", ns, "-f", "-"], manifest).unwrap().success().unwrap();
}

fn user() -> Value {
    pod("user").with_env_from("configMapRef", "settings")
}

/// A policy with this mode for the ConfigMaps of a new namespace.
fn protected(prefix: &str, protect: Value) -> String {
    let plane = &world().plane;
    let ns = plane.namespace(prefix).unwrap();
    policy::protect(plane, &ns, "configmaps", protect);
    ns
}

#[test]
fn protected_is_approved_in_one_step() {
    let plane = &world().plane;
    let ns = protected("way-protected", json!({"always": {}}));
    apply(plane, &ns, &config_map("settings"));
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let delete = ["configmap", "settings"];
    let refusal = alice.delete(&delete).failure().unwrap();
    assert!(refusal.contains("(Protected)"), "{refusal}");
    let said = alice.approves_what_is_named(&refusal).remove(0).stdout;
    assert!(said.contains("enough people have approved (1 of 1)"), "{said}");
    assert!(said.contains("for this object alone"), "{said}");
    passes_now(|| alice.delete(&delete));
    wait_until_deleted(plane, &ns, "configmap/settings");
}

#[test]
fn in_use_is_reported_by_why_and_passes_once_it_is_approved() {
    let plane = &world().plane;
    let ns = protected("way-used", json!({"whileUsed": {}}));
    apply(plane, &ns, &config_map("settings"));
    apply(plane, &ns, &user());
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let delete = ["configmap", "settings"];
    let refusal = alice.delete(&delete).failure().unwrap();
    assert!(refusal.contains("(InUse)"), "{refusal}");

    // The second command of the refusal.
    let why = alice.belay(&commands_in(&refusal, "why").remove(0));
    assert_eq!(why.code, 1, "{why:?}");
    let says = format!(
        "configmap \"settings\" is in use by Pod {ns}/user \
         (spec.containers[0].envFrom[0].configMapRef.name); policy {ns} (InUse)"
    );
    assert!(why.stdout.contains(&says), "{why:?}");
    let right = format!("the RBAC verb approve-deletion on configmaps in namespace {ns}");
    assert!(why.stdout.contains(&right), "{why:?}");

    alice.approves_what_is_named(&refusal);
    let why = alice.belay(&["why", "cm/settings", "-n", &ns]);
    assert_eq!(why.code, 0, "{why:?}");
    assert!(why.stdout.contains("approved by configmaps-settings-"), "{why:?}");
    passes_now(|| alice.delete(&delete));
    wait_until_deleted(plane, &ns, "configmap/settings");
}

#[test]
fn not_empty_is_approved_with_its_content() {
    let plane = &world().plane;
    let ns = plane.namespace("way-full").unwrap();
    policy::protect_namespace(plane, &ns);
    apply(plane, &ns, &config_map("settings").with_protect_label("Always"));
    let alice = Person::worker(plane, &ns, "alice", Some(("*", "*")));
    let rules = &[rule("", "namespaces", "get, delete")];
    alice.bind("namespaces", None, rules);
    let delete = ["namespace", &ns];
    let mut refusal = String::new();
    crate::harness::eventually("the refusal", std::time::Duration::from_secs(20), || {
        refusal = alice.delete(&delete).failure()?;
        if refusal.contains("(Forbidden)") { Err(refusal.clone().into()) } else { Ok(()) }
    })
    .unwrap();
    assert!(refusal.contains("is not empty"), "{refusal}");
    alice.approves_what_is_named(&refusal);
    passes_now(|| alice.delete(&delete));
    wait_until_deleted(plane, &ns, &format!("namespace/{ns}"));
    plane.kubectl(&["delete", "deletionpolicy", &ns]).unwrap().success().unwrap();
}

#[test]
fn still_needed_is_approved() {
    let plane = &world().plane;
    let services = json!({"apiGroups": [""], "resources": ["services"],
        "namespaceSelector": {"matchLabels": {"way-needed": "yes"}}});
    let ns = protected("way-needed", json!({"whileExists": [services]}));
    let label = json!({"metadata": {"labels": {"way-needed": "yes"}}});
    plane.patch(&format!("namespace/{ns}"), "", &label);
    apply(plane, &ns, &config_map("settings"));
    let service = object("v1", "Service", "web");
    apply(plane, &ns, &service.with(json!({"spec": {"ports": [{"port": 1}]}})));
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let delete = ["configmap", "settings"];
    let refusal = alice.delete(&delete).failure().unwrap();
    assert!(refusal.contains("(StillNeeded)"), "{refusal}");
    alice.approves_what_is_named(&refusal);
    passes_now(|| alice.delete(&delete));
    wait_until_deleted(plane, &ns, "configmap/settings");
}

#[test]
fn would_orphan_is_approved() {
    let plane = &world().plane;
    let ns = protected("way-orphan", json!({"fromOrphaning": {}}));
    apply(plane, &ns, &config_map("owner"));
    let uid = plane.api().field("configmap/owner", &ns, ".metadata.uid").unwrap();
    let owners = json!({"metadata": {"ownerReferences": [owner("ConfigMap", "owner", &uid)]}});
    apply(plane, &ns, &config_map("owned").with(owners));
    let alice = Person::worker(plane, &ns, "alice", Some(("*", "*")));
    let delete = ["configmap/owner", "--cascade=orphan"];
    let mut refusal = String::new();
    crate::harness::eventually("the refusal", std::time::Duration::from_secs(20), || {
        let dry = [&delete[..], &["--dry-run=server"]].concat();
        refusal = alice.delete(&dry).failure()?;
        Ok(())
    })
    .unwrap();
    assert!(refusal.contains("(WouldOrphan)"), "{refusal}");
    alice.approves_what_is_named(&refusal);
    passes_now(|| alice.delete(&delete));
    wait_until_deleted(plane, &ns, "configmap/owner");
    assert!(plane.api().get("configmap/owned", &ns).unwrap().is_some());
}

#[test]
fn a_guarded_finalizer_is_approved() {
    let plane = &world().plane;
    let ns = protected("way-guard", json!({"fromStripping": {"finalizers": ["*"]}}));
    apply(plane, &ns, &config_map("settings").with_finalizers(&["example.dev/drop"]));
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let strip = r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.dev/drop"]}}"#;
    let strip = ["patch", "configmap", "settings", "-n", &ns, "-p", strip];
    let refusal = alice.kubectl(&strip).failure().unwrap();
    assert!(refusal.contains("(FinalizerGuarded)"), "{refusal}");
    // why answers about a plain DELETE, and also shows the guards of the object.
    let why = alice.belay(&commands_in(&refusal, "why").remove(0));
    assert!(why.stdout.contains("(fromStripping, action Deny)"), "{why:?}");
    alice.approves_what_is_named(&refusal);
    passes_now(|| alice.kubectl(&strip));
}

#[test]
fn a_hold_that_is_stripped_by_hand_is_released() {
    let plane = &world().plane;
    let ns = protected("way-hold", json!({"whileUsed": {"onDelete": "Hold"}}));
    apply(plane, &ns, &config_map("settings"));
    apply(plane, &ns, &user());
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let delete = ["configmap", "settings"];
    alice.delete(&delete).success().unwrap();
    let strip = r#"{"metadata":{"finalizers":null}}"#;
    let strip = ["patch", "configmap", "settings", "-n", &ns, "--type=merge", "-p", strip];
    let refusal = alice.kubectl(&strip).failure().unwrap();
    assert!(refusal.contains("(FinalizerGuarded)"), "{refusal}");

    // While the Pod uses it, it stays, and release reports the reason.
    let mut release = commands_in(&refusal, "release").remove(0);
    release.push("--timeout=1".to_owned());
    let waits = alice.belay(&release);
    assert_eq!(waits.code, 1, "{waits:?}");
    let user = format!("Pod {ns}/user (spec.containers[0].envFrom[0].configMapRef.name)");
    let says = format!("cannot release configmap \"settings\": it is in use by {user}");
    assert!(waits.stderr.contains(&says), "{waits:?}");
    let why = alice.belay(&["why", "configmap", "settings", "-n", &ns]);
    assert_eq!(why.code, 1, "{why:?}");
    assert!(why.stdout.contains("has been Terminating since "), "{why:?}");
    assert!(
        why.stdout
            .contains(&format!("belay keeps the hold because the object is in use by: {user}")),
        "{why:?}"
    );

    // The other way that the refusal names.
    alice.approves_what_is_named(&refusal);
    let release = alice.belay(&commands_in(&refusal, "release").remove(0));
    // It may be deleted before the command runs.
    assert!(release.code == 0 || release.stderr.contains("not found"), "{release:?}");
    wait_until_deleted(plane, &ns, "configmap/settings");
}
