//! Applies by users and pipelines: objects get the hold when they are created, and no
//! manifest removes the protection.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, owner};
use crate::harness::rbac::rule;
use crate::people::Person;
use crate::{policy, world};

const HELD: &str = r#"["belay.dev/hold"]"#;

/// A ConfigMap with this metadata.
fn settings(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
        "data": {"currency": "EUR"}})
}

#[test]
fn s13_create_under_a_policy_makes_the_array_works_with_generate_name_and_adds_nothing_twice() {
    let plane = &world().plane;
    let ns = plane.namespace("s13").unwrap();
    let jane = Person::of(plane, &ns);
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));

    let args = ["create", "-f", "-", "-o", "jsonpath={.metadata.finalizers}"];
    for (metadata, held) in [
        (json!({"name": "none"}), HELD),
        (json!({"name": "empty", "finalizers": []}), HELD),
        (json!({"name": "nothing", "finalizers": null}), HELD),
        (json!({"generateName": "zz-"}), HELD),
        (json!({"name": "listed", "finalizers": ["x.dev/y"]}), r#"["x.dev/y","belay.dev/hold"]"#),
        (json!({"name": "held", "finalizers": ["belay.dev/hold"]}), HELD),
        (json!({"name": "labelled", "labels": {"belay.dev/protect": "Always"}}), HELD),
    ] {
        let manifest = settings(metadata);
        let made = jane.send(&args, &manifest).success().unwrap();
        assert_eq!(made, held, "{manifest}");
    }
    // The label has its own webhook, so two webhooks were called for the last one. A
    // server-side apply is a CREATE, too.
    let args = ["apply", "--server-side", "-f", "-", "-o", "jsonpath={.metadata.finalizers}"];
    for _ in 0..2 {
        let made = jane.send(&args, &settings(json!({"name": "served"}))).success().unwrap();
        assert_eq!(made, HELD);
    }
    let denied = jane.delete(&["configmap/served"]).failure().unwrap();
    assert!(denied.contains(&format!("\"served\" is protected; policy {ns}.")), "{denied}");
}

#[test]
fn s16_letting_go_of_an_object_takes_what_deleting_it_takes() {
    let plane = &world().plane;
    let ns = plane.namespace("s16").unwrap();
    let jane = Person::of(plane, &ns);
    let gold = json!({"objectSelector": {"matchLabels": {"tier": "gold"}}});
    let target = policy::target("", "configmaps", &ns).with(gold);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    jane.kubectl_apply(&settings(json!({"name": "gold", "labels": {"tier": "gold"}})));
    jane.kubectl_apply(&settings(json!({"name": "marked"})).with_protect_label("Always"));

    // By a policy's selector and by belay's own label; without other changes, or in one
    // PATCH with the hold.
    for (object, label) in [("configmap/gold", "tier"), ("configmap/marked", "belay.dev/protect")] {
        let without = json!({"metadata": {"labels": {label: null}}});
        let both = json!({"metadata": {"finalizers": null, "labels": {label: null}}});
        for patch in [without, both] {
            let args = ["patch", object, "--type=merge", "-p", &patch.to_string()];
            let denied = jane.kubectl(&args).failure().unwrap();
            let name = object.trim_start_matches("configmap/");
            assert!(denied.contains("Error from server (Protected): "), "{denied}");
            let sentence = format!(
                "this change of the labels or annotations of configmap \"{name}\" weakens its protection"
            );
            assert!(denied.contains(&sentence), "{denied}");
        }
        let (read, key) = (jane.finalizers(object), label.replace('.', "\\."));
        assert_eq!(read, HELD, "{object}");
        assert_ne!(jane.field(object, &format!(".metadata.labels.{key}")), "", "{object}");
        let denied = jane.delete(&[object]).failure().unwrap();
        assert!(denied.contains("is protected"), "{denied}");
    }
    // Labels that no policy selects by can be changed.
    jane.kubectl(&["label", "configmap/gold", "team=blue"]).success().unwrap();
}

#[test]
fn s16_letting_go_is_recorded_where_the_policy_only_audits() {
    let plane = &world().plane;
    let ns = plane.namespace("s16-audit").unwrap();
    let jane = Person::of(plane, &ns);
    let gold = json!({"objectSelector": {"matchLabels": {"tier": "gold"}}});
    let target = policy::target("", "configmaps", &ns).with(gold);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "action": "Audit"});
    policy::apply(plane, &ns, spec);
    jane.kubectl_apply(&settings(json!({"name": "gold", "labels": {"tier": "gold"}})));
    assert_eq!(jane.finalizers("configmap/gold"), "");

    jane.kubectl(&["label", "configmap/gold", "tier-"]).success().unwrap();
    eventually("the audit annotation", Duration::from_secs(10), || {
        let log = plane.audit_log()?;
        let mut lines = log.lines().filter(|line| line.contains(&format!("namespaces/{ns}/")));
        let told = "update.belay.dev/would-deny\":\"this change of the labels ";
        match lines.any(|line| line.contains(told) && line.contains("/verdict\":\"Audit\"")) {
            true => Ok(()),
            false => Err("it is not there".into()),
        }
    })
    .unwrap();
    let (policy, limit) = (format!("deletionpolicy/{ns}"), Duration::from_secs(60));
    let paths = ".status.last24h.wouldDeny .status.last24h.denied";
    plane.api().wait_field((&policy, ""), limit, paths, |counts| counts == "1 0").unwrap();
    jane.delete(&["configmap/gold"]).success().unwrap();
    assert!(jane.lacks("configmap/gold"));
}

#[test]
fn s39_a_manifest_that_lists_finalizers_is_applied_ten_times_without_a_loop() {
    let plane = &world().plane;
    let ns = plane.namespace("s39").unwrap();
    let jane = Person::of(plane, &ns);
    jane.may(&[rule("s39.example.com", "*", "*")]);
    plane.define_kind("s39.example.com", "Database", "databases").unwrap();
    let target = policy::target("s39.example.com", "databases", &ns);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));

    let manifest = "apiVersion: s39.example.com/v1\nkind: Database\nmetadata: {name: db, \
                    finalizers: [s39.example.com/keep]}\nspec: {size: 1}\n";
    jane.kubectl_apply(manifest);
    let database = "databases.s39.example.com/db";
    let state = |object| jane.field(object, ".metadata.resourceVersion") + &jane.finalizers(object);
    let first = state(database);
    assert!(first.contains("s39.example.com/keep") && !first.contains("belay.dev"), "{first}");
    for round in 0..10 {
        let said = jane.send(&["apply", "-f", "-"], manifest).success().unwrap();
        assert_eq!(said, format!("{} unchanged\n", "database.s39.example.com/db"), "{round}");
        assert_eq!(state(database), first, "{round}");
    }
    // An apply with a change removes no finalizer, and adds none.
    let said = jane.send(&["apply", "-f", "-"], &manifest.replace("size: 1", "size: 2"));
    assert_eq!(said.stderr, "");
    assert_eq!(jane.finalizers(database), r#"["s39.example.com/keep"]"#);

    // The leader adds no hold either; admission protects it.
    let denied = jane.delete(&[database]).failure().unwrap();
    assert!(denied.contains(&format!("\"db\" is protected; policy {ns}.")), "{denied}");
    assert_eq!(jane.finalizers(database), r#"["s39.example.com/keep"]"#);

    // A manifest without finalizers is held, and applying it again shows no drift.
    let plain = "apiVersion: s39.example.com/v1\nkind: Database\nmetadata: {name: plain}\n";
    jane.kubectl_apply(plain);
    let database = "databases.s39.example.com/plain";
    let first = state(database);
    assert!(first.contains("belay.dev/hold"), "{first}");
    for _ in 0..10 {
        let said = jane.send(&["apply", "-f", "-"], plain).success().unwrap();
        assert_eq!(said, "database.s39.example.com/plain unchanged\n");
    }
    assert_eq!(state(database), first);
    plane.delete(&["deletionpolicy", &ns], "");
}

#[test]
fn s47_an_owner_that_is_not_there_is_decided_as_a_delete() {
    let plane = &world().plane;
    let ns = plane.namespace("s47").unwrap();
    let jane = Person::of(plane, &ns);
    let target = policy::target("", "configmaps", &ns);
    let names = json!(["owner", "plain"]);
    let exclude = json!([{"apiGroups": [""], "resources": ["configmaps"], "names": names}]);
    let protect = json!({"always": {}});
    let spec = json!({"targets": [target], "exclude": exclude, "protect": protect});
    policy::apply(plane, &ns, spec);
    for name in ["kept", "owner", "plain"] {
        jane.kubectl_apply(&settings(json!({"name": name})));
    }
    let uid = jane.field("configmap/owner", ".metadata.uid");
    let absent = "0a0a0a0a-0000-4000-8000-000000000000";
    let owned = |object: &str, owners: &[(&str, &str)]| {
        let owners = owners.iter().map(|(name, uid)| owner("ConfigMap", name, uid));
        let patch = json!({"metadata": {"ownerReferences": owners.collect::<Vec<_>>()}});
        jane.kubectl(&["patch", object, "--type=merge", "-p", &patch.to_string()])
    };
    // An owner that does not exist, and an owner with another uid.
    for name in ["ghost", "owner"] {
        let denied = owned("configmap/kept", &[(name, absent)]).failure().unwrap();
        let sentence = format!("delete configmap \"kept\", which is protected; policy {ns}.");
        assert!(denied.starts_with("Error from server (Protected): "), "{denied}");
        assert!(denied.contains(&sentence), "{denied}");
    }
    // An existing owner keeps it, with or without a dangling one.
    owned("configmap/kept", &[("owner", &uid), ("ghost", absent)]).success().unwrap();
    // Removing the last existing owner counts as a DELETE, whether it is removed from the
    // list,
    let denied = owned("configmap/kept", &[("ghost", absent)]).failure().unwrap();
    assert!(denied.contains("delete configmap \"kept\", which is protected"), "{denied}");
    // or deleted.
    let denied = jane.delete(&["configmap/owner"]).failure().unwrap();
    assert!(denied.contains("also deletes configmap \"kept\", which is protected"), "{denied}");
    // An unprotected object is collected, which shows that the garbage collector was
    // active.
    owned("configmap/plain", &[("ghost", absent)]).success().unwrap();
    eventually("the collector", Duration::from_secs(30), || match jane.lacks("configmap/plain") {
        true => Ok(()),
        false => Err("it has not come".into()),
    })
    .unwrap();
    assert_eq!(jane.field("configmap/kept", ".metadata.deletionTimestamp"), "");
}
