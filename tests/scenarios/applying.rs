//! What people and pipelines apply: objects get the hold when they are made,
//! and nothing in a manifest takes the protection off.

use std::time::Duration;

use crate::harness::eventually;
use crate::people::Person;
use crate::{policy, world};

const HELD: &str = r#"["belay.dev/hold"]"#;

/// A ConfigMap.
fn settings(metadata: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{{metadata}}}\ndata: {{currency: EUR}}\n")
}

#[test]
fn s13_create_under_a_policy_makes_the_array_works_with_generate_name_and_adds_nothing_twice() {
    let plane = &world().plane;
    let ns = plane.namespace("s13").unwrap();
    let jane = Person::of(plane, &ns);
    let target = policy::target("", "configmaps", &ns);
    policy::apply(plane, &ns, &format!("{target}  protect: {{always: {{}}}}\n"));

    let args = ["create", "-f", "-", "-o", "jsonpath={.metadata.finalizers}"];
    for (metadata, held) in [
        ("name: none", HELD),
        ("name: empty, finalizers: []", HELD),
        ("name: nothing, finalizers: null", HELD),
        ("generateName: zz-", HELD),
        ("name: listed, finalizers: [x.dev/y]", r#"["x.dev/y","belay.dev/hold"]"#),
        ("name: held, finalizers: [belay.dev/hold]", HELD),
        ("name: labelled, labels: {belay.dev/protect: Always}", HELD),
    ] {
        let made = jane.send(&args, &settings(metadata)).success().unwrap();
        assert_eq!(made, held, "{metadata}");
    }
    // The label has a webhook of its own, so the last one was asked about
    // twice; and a server-side apply comes as a CREATE, too.
    let args = ["apply", "--server-side", "-f", "-", "-o", "jsonpath={.metadata.finalizers}"];
    for _ in 0..2 {
        let made = jane.send(&args, &settings("name: served")).success().unwrap();
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
    let target = format!(
        "  targets: [{{apiGroups: [\"\"], resources: [configmaps], objectSelector: {{matchLabels: \
         {{tier: gold}}}}, namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: \
         {ns}}}}}}}]\n"
    );
    policy::apply(plane, &ns, &format!("{target}  protect: {{always: {{}}}}\n"));
    jane.kubectl_apply(&settings("name: gold, labels: {tier: gold}"));
    jane.kubectl_apply(&settings("name: marked, labels: {belay.dev/protect: Always}"));

    // By a policy's selector and by belay's own label; alone, or in one PATCH
    // with the hold.
    for (object, label) in [("configmap/gold", "tier"), ("configmap/marked", "belay.dev/protect")] {
        let without = format!("{{\"metadata\":{{\"labels\":{{\"{label}\":null}}}}}}");
        let both =
            format!("{{\"metadata\":{{\"finalizers\":null,\"labels\":{{\"{label}\":null}}}}}}");
        for patch in [&without, &both] {
            let args = ["patch", object, "--type=merge", "-p", patch];
            let denied = jane.kubectl(&args).failure().unwrap();
            let name = object.trim_start_matches("configmap/");
            assert!(denied.contains("Error from server (Protected): "), "{denied}");
            let sentence = format!(
                "after this change of configmaps \"{name}\" ConfigMap {ns}/{name} would be protected \
                 less"
            );
            assert!(denied.contains(&sentence), "{denied}");
        }
        let (read, key) = (jane.finalizers(object), label.replace('.', "\\."));
        assert_eq!(read, HELD, "{object}");
        assert_ne!(jane.field(object, &format!(".metadata.labels.{key}")), "", "{object}");
        let denied = jane.delete(&[object]).failure().unwrap();
        assert!(denied.contains("is protected"), "{denied}");
    }
    // What nobody selects by is changed as ever.
    jane.kubectl(&["label", "configmap/gold", "team=blue"]).success().unwrap();
}

#[test]
fn s16_letting_go_is_recorded_where_the_policy_only_audits() {
    let plane = &world().plane;
    let ns = plane.namespace("s16-audit").unwrap();
    let jane = Person::of(plane, &ns);
    let target = format!(
        "  targets: [{{apiGroups: [\"\"], resources: [configmaps], objectSelector: {{matchLabels: \
         {{tier: gold}}}}, namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: \
         {ns}}}}}}}]\n"
    );
    policy::apply(plane, &ns, &format!("{target}  protect: {{always: {{}}}}\n  action: Audit\n"));
    jane.kubectl_apply(&settings("name: gold, labels: {tier: gold}"));
    assert_eq!(jane.finalizers("configmap/gold"), "");

    jane.kubectl(&["label", "configmap/gold", "tier-"]).success().unwrap();
    eventually("the audit annotation", Duration::from_secs(10), || {
        let log = plane.audit_log()?;
        let mut lines = log.lines().filter(|line| line.contains(&format!("namespaces/{ns}/")));
        let told = "update.belay.dev/would-deny\":\"after this change of configmaps";
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
    jane.may("[{apiGroups: [s39.example.com], resources: ['*'], verbs: ['*']}]");
    plane.define_kind("s39.example.com", "Database", "databases").unwrap();
    let target = policy::target("s39.example.com", "databases", &ns);
    policy::apply(plane, &ns, &format!("{target}  protect: {{always: {{}}}}\n"));

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
    // An apply that does change something strips nothing, and nothing comes.
    let said = jane.send(&["apply", "-f", "-"], &manifest.replace("size: 1", "size: 2"));
    assert_eq!(said.stderr, "");
    assert_eq!(jane.finalizers(database), r#"["s39.example.com/keep"]"#);

    // Nor does the leader put a hold on; the early no protects it.
    let denied = jane.delete(&[database]).failure().unwrap();
    assert!(denied.contains(&format!("\"db\" is protected; policy {ns}.")), "{denied}");
    assert_eq!(jane.finalizers(database), r#"["s39.example.com/keep"]"#);

    // One that lists none is held, and applying it again is no drift either.
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
    policy::apply(
        plane,
        &ns,
        &format!(
            "{target}  exclude: [{{apiGroups: [\"\"], resources: [configmaps], names: [owner, plain]}}]\n  protect: {{always: {{}}}}\n"
        ),
    );
    for name in ["kept", "owner", "plain"] {
        jane.kubectl_apply(&settings(&format!("name: {name}")));
    }
    let uid = jane.field("configmap/owner", ".metadata.uid");
    let absent = "0a0a0a0a-0000-4000-8000-000000000000";
    let patch = |owners: &[(&str, &str)]| {
        let owners = owners.iter().map(|(name, uid)| {
            format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"{name}","uid":"{uid}"}}"#)
        });
        let owners = owners.collect::<Vec<_>>().join(",");
        format!(r#"{{"metadata":{{"ownerReferences":[{owners}]}}}}"#)
    };
    let owned = |object: &str, owners: &[(&str, &str)]| {
        jane.kubectl(&["patch", object, "--type=merge", "-p", &patch(owners)])
    };
    // Nobody of that name, and somebody of that name under another uid.
    for name in ["ghost", "owner"] {
        let denied = owned("configmap/kept", &[(name, absent)]).failure().unwrap();
        let sentence = format!("configmaps \"kept\" is protected; policy {ns}.");
        assert!(denied.starts_with("Error from server (Protected): "), "{denied}");
        assert!(denied.contains(&sentence), "{denied}");
    }
    // One that is there keeps it, a dangling one beside it or not.
    owned("configmap/kept", &[("owner", &uid), ("ghost", absent)]).success().unwrap();
    // And then the end of the last one that keeps it is a DELETE, whether it
    // is taken out of the list,
    let denied = owned("configmap/kept", &[("ghost", absent)]).failure().unwrap();
    assert!(denied.contains("configmaps \"kept\" is protected"), "{denied}");
    // or deleted.
    let denied = jane.delete(&["configmap/owner"]).failure().unwrap();
    assert!(denied.contains("takes configmaps \"kept\" along, which is protected"), "{denied}");
    // What nobody protects is collected, which shows that the collector would
    // have come.
    owned("configmap/plain", &[("ghost", absent)]).success().unwrap();
    eventually("the collector", Duration::from_secs(30), || match jane.lacks("configmap/plain") {
        true => Ok(()),
        false => Err("it has not come".into()),
    })
    .unwrap();
    assert_eq!(jane.field("configmap/kept", ".metadata.deletionTimestamp"), "");
}
