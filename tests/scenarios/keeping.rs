//! deletionTimestamp is no way around a policy, and a dry run leaves no trace.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, object, owner, pod};
use crate::harness::rbac::rule;
use crate::harness::{Result, eventually};
use crate::people::Person;
use crate::team::{SOON, Team};
use crate::{policy, world};

const HELD: &str = r#"["belay.dev/hold"]"#;

/// A Pod that kwok runs, and that needs a ConfigMap.
fn reader(settings: &str) -> Value {
    pod("reader").with_env_from("configMapRef", settings)
}

#[test]
fn s14_an_update_of_a_terminating_object_adds_no_finalizer() {
    let plane = &world().plane;
    let ns = plane.namespace("s14").unwrap();
    let jane = Person::of(plane, &ns);
    // Deleted before it was protected.
    let made = config_map("late").with_finalizers(&["x.dev/y"]);
    jane.apply(&made);
    jane.apply(&config_map("alive"));
    jane.delete(&["configmap/late"]).success().unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    // The hold is added to the object that is not Terminating, so the leader has checked
    // both.
    eventually("the hold", Duration::from_secs(30), || {
        match &*jane.finalizers("configmap/alive") {
            HELD => Ok(()),
            other => Err(other.into()),
        }
    })
    .unwrap();

    let late = "configmap/late";
    let none = r#"["x.dev/y"]"#;
    assert_eq!(jane.finalizers(late), none);
    jane.kubectl(&["label", late, "team=blue"]).success().unwrap();
    jane.kubectl(&["annotate", late, "team=blue"]).success().unwrap();
    jane.kubectl(&["label", late, "belay.dev/protect=Always"]).success().unwrap();
    let made = made.with_labels(json!({"team": "red"}));
    jane.apply(&made);
    jane.send(&["replace", "-f", "-"], &made.with_protect_label("Always")).success().unwrap();
    assert_eq!(jane.finalizers(late), none);
    // It is deleted as without a policy.
    let strip = r#"{"metadata":{"finalizers":null}}"#;
    jane.kubectl(&["patch", late, "--type=merge", "-p", strip]).success().unwrap();
    assert!(jane.lacks(late));
}

#[test]
fn s15_a_second_delete_does_not_orphan_what_a_held_owner_has() {
    let plane = &world().plane;
    let ns = plane.namespace("s15").unwrap();
    let jane = Person::of(plane, &ns);
    let modes = json!({"whileUsed": {"onDelete": "Hold"}, "fromOrphaning": {}});
    policy::protect(plane, &ns, "configmaps", modes);
    jane.apply(&config_map("owner"));
    let uid = jane.field("configmap/owner", ".metadata.uid");
    let owners = json!({"metadata": {"ownerReferences": [owner("ConfigMap", "owner", &uid)]}});
    jane.apply(&config_map("kid").with(owners));
    jane.apply(&reader("owner"));

    let held = jane.delete(&["configmap/owner", "--cascade=background"]);
    assert!(held.ok(), "{}", held.stderr);
    assert_ne!(jane.field("configmap/owner", ".metadata.deletionTimestamp"), "");
    // Now that it is Terminating, each of these would change its propagation policy.
    let path = format!("/api/v1/namespaces/{ns}/configmaps/owner");
    let body = r#"{"kind":"DeleteOptions","apiVersion":"v1","orphanDependents":true}"#;
    let attempts = [
        jane.delete(&["configmap/owner", "--cascade=orphan"]),
        jane.send(&["delete", "--raw", &format!("{path}?propagationPolicy=Orphan")], ""),
        jane.send(&["delete", "--raw", &path, "-f", "-"], body),
    ];
    for attempt in attempts {
        let denied = attempt.failure().unwrap();
        assert!(denied.contains("(WouldOrphan)"), "{denied}");
        assert!(denied.contains("configmap \"kid\" would lose its owner"), "{denied}");
    }
    assert_eq!(jane.finalizers("configmap/owner"), HELD);
    assert_eq!(jane.field("configmap/kid", ".metadata.ownerReferences[0].name"), "owner");
    // A repeated DELETE changes nothing and is not an error.
    jane.delete(&["configmap/owner"]).success().unwrap();
}

/// The body of `PUT namespaces/finalize` that removes every finalizer.
fn finalized(ns: &str) -> Value {
    object("v1", "Namespace", ns).with(json!({"spec": {"finalizers": []}}))
}

#[test]
fn s15_a_namespace_without_finalizers_leaves_nothing_behind() {
    let plane = &world().plane;
    let ns = plane.namespace("s15-finalize").unwrap();
    let jane = Person::of(plane, &ns);
    jane.may(&[rule("", "namespaces, namespaces/finalize", "get, update, delete")]);
    let target = policy::target("", "configmaps", &ns);
    // A deleted object stays held for some time after its last user was deleted.
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    let spec = json!({"targets": [target], "protect": protect, "settleSeconds": 600});
    policy::apply(plane, &ns, spec.clone());
    let path = format!("/api/v1/namespaces/{ns}/finalize");
    let finalize = || jane.send(&["replace", "--raw", &path, "-f", "-"], &finalized(&ns));
    let namespace = format!("namespace/{ns}");
    let content = |how: &str| format!("contains ConfigMap {ns}/settings ({how})");
    let reader_is_gone = || {
        jane.kubectl(&["delete", "pod/reader", "--timeout=30s"]).success().unwrap();
    };

    // While protected content exists, the finalizer stays,
    jane.apply(&config_map("settings"));
    jane.apply(&reader("settings"));
    let denied = finalize().failure().unwrap();
    assert!(denied.contains("finalize.belay.dev"), "{denied}");
    assert!(denied.contains(&content("protected")), "{denied}");
    assert_eq!(jane.field(&namespace, ".spec.finalizers"), r#"["kubernetes"]"#);
    reader_is_gone();
    let denied = eventually("the end of the use", Duration::from_secs(30), || {
        let denied = finalize().failure()?;
        if denied.contains(&content("held by belay")) { Ok(denied) } else { Err(denied.into()) }
    })
    .unwrap();
    assert!(denied.contains("and wait until it no longer exists"), "{denied}");

    // and a Namespace without protected objects is deleted.
    plane.delete(&["deletionpolicy", &ns], "");
    eventually("the end of the finalizer", Duration::from_secs(60), || {
        finalize().success().map(drop)
    })
    .unwrap();
    assert_eq!(jane.field(&namespace, ".spec.finalizers"), "");
    policy::apply(plane, &ns, spec);
    jane.apply(&config_map("later"));
    jane.apply(&reader("later"));

    // From here on two DELETEs would remove the Namespace from storage, and leave its
    // content unreachable.
    jane.delete(&[&namespace]).success().unwrap();
    assert_eq!(jane.field(&namespace, ".status.phase"), "Terminating");
    let denied = jane.delete(&[&namespace]).failure().unwrap();
    assert!(denied.contains("(NotEmpty)"), "{denied}");
    let later = format!("contains ConfigMap {ns}/later (protected)");
    assert!(denied.contains(&later), "{denied}");

    // The last user was deleted, so the object may be. But the Namespace has to exist until
    // the hold is removed.
    reader_is_gone();
    jane.delete(&["configmap/later"]).success().unwrap();
    assert_ne!(jane.field("configmap/later", ".metadata.deletionTimestamp"), "");
    let denied = jane.delete(&[&namespace]).failure().unwrap();
    assert!(denied.contains(&format!("ConfigMap {ns}/later")), "{denied}");
    assert_eq!(jane.finalizers("configmap/later"), HELD);
    plane.delete(&["deletionpolicy", &ns], "");
}

#[test]
fn an_object_that_refuses_its_hold_is_named_by_the_policy() {
    let team = Team::new(&world().plane, "unheld");
    let ns = &team.ns;
    team.apply(&config_map("closed"));
    let binding = team.keep_from("system:serviceaccount:belay:belay", "configmap/closed");
    policy::protect(team.plane, ns, "configmaps", json!({"whileUsed": {}}));
    let object = format!("deletionpolicy.belay.dev/{ns}");
    let says = |words: &'static [&'static str]| {
        let says = |policy: Option<&Value>| {
            let conditions = policy.and_then(|policy| policy["status"]["conditions"].as_array());
            let holding = conditions.into_iter().flatten().find(|c| c["type"] == "Holding");
            let told = holding.map(Value::to_string).unwrap_or_default();
            if words.iter().all(|word| told.contains(word)) { Ok(()) } else { Err(told.into()) }
        };
        team.plane.api().wait((&object, ""), SOON, says).unwrap();
    };
    says(&[
        "\"Refused\"",
        "holds that the API server refuses: 1 ",
        "configmaps ",
        "/closed: ",
        "ValidatingAdmissionPolicy",
    ]);
    team.remove_binding(&binding);
    says(&["\"InPlace\""]);
}

/// The counts of a policy: denials and holds.
fn counted(policy: &str) -> Result<String> {
    let paths = ".status.last24h.denied .status.last24h.held";
    world().plane.api().field(&format!("deletionpolicy/{policy}"), "", paths)
}

/// The Events about belay's verdicts in a namespace, each with its count.
fn events(ns: &str) -> Result<Vec<String>> {
    let paths = ".reason .involvedObject.name .count";
    let mut ours = world().plane.api().fields("events", ns, "", paths)?;
    ours.retain(|event| event.contains(" always ") || event.contains(" used "));
    ours.sort();
    Ok(ours)
}

#[test]
fn s19_a_dry_run_tells_the_truth_and_writes_nothing() {
    let plane = &world().plane;
    let ns = plane.namespace("s19").unwrap();
    let exempt = format!("{ns}-exempt");
    let jane = Person::of(plane, &ns);
    let only = |name: &str, protect: Value| {
        let target = policy::target("", "configmaps", &ns).with(json!({"names": [name]}));
        json!({"targets": [target], "protect": protect})
    };
    policy::apply(plane, &ns, only("used", json!({"whileUsed": {"onDelete": "Hold"}})));
    let always = format!("{ns}-always");
    policy::apply(plane, &always, only("always", json!({"always": {}})));
    let subjects = json!({"exemptSubjects": [{"kind": "User", "name": jane.name}]});
    policy::apply(plane, &exempt, only("exempt", json!({"always": {}})).with(subjects));
    for name in ["always", "used", "exempt", "free"] {
        jane.apply(&config_map(name));
    }
    jane.apply(&reader("used"));

    let dry = |object: &str| jane.delete(&[object, "--dry-run=server"]);
    let versions = || {
        let paths = ".metadata.name .metadata.resourceVersion .metadata.deletionTimestamp \
                     .metadata.finalizers";
        plane.api().fields("configmaps", &ns, "", paths).unwrap()
    };
    let before = versions();
    let denied = dry("configmap/always").failure().unwrap();
    assert!(denied.contains("configmap \"always\" is protected"), "{denied}");
    let warned = dry("configmap/used");
    assert!(warned.stderr.contains("configmap \"used\" stays Terminating"), "{}", warned.stderr);
    assert!(warned.ok(), "{}", warned.stderr);
    assert!(dry("configmap/exempt").ok());
    assert!(dry("configmap/free").ok());
    assert_eq!(versions(), before);
    let recorded =
        || plane.api().fields("deletionapprovals", "", "", ".spec.targetRef.namespace").unwrap();
    assert!(!recorded().contains(&ns), "{:?}", recorded());

    // The same in earnest leaves one trace of each, where two would show the
    // dry run's.
    assert!(!jane.delete(&["configmap/always"]).ok());
    jane.delete(&["configmap/used"]).success().unwrap();
    jane.delete(&["configmap/exempt"]).success().unwrap();
    assert!(recorded().contains(&ns), "{:?}", recorded());
    eventually("the traces", Duration::from_secs(90), || {
        let said = (counted(&ns)?, counted(&always)?, events(&ns)?);
        match (&*said.0, &*said.1, said.2.len()) {
            ("0 1", "1 0", 2) => Ok(()),
            _ => Err(format!("{said:?}").into()),
        }
    })
    .unwrap();
    assert_eq!(events(&ns).unwrap(), ["Held used 1", "Protected always 1"]);
}

/// The API server sends no requests about these namespaces to belay, so nothing there may
/// be held: the hold would not be guarded, and would block a delete.
#[test]
fn in_namespaces_that_are_left_out_nothing_is_held() {
    let plane = &world().plane;
    let ns = plane.namespace("leftout").unwrap();
    let create = |namespace: &str| {
        let args = ["create", "configmap", "left-out", "-n", namespace];
        plane.kubectl(&args).unwrap().success().unwrap();
    };
    ["kube-system", "belay", &ns].into_iter().for_each(create);
    let target = json!({"apiGroups": [""], "resources": ["configmaps"], "names": ["left-out"]});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    let finalizers = |namespace: &str| {
        plane.api().field("configmap/left-out", namespace, ".metadata.finalizers").unwrap()
    };
    let (meant, limit) = (("configmap/left-out", &*ns), Duration::from_secs(60));
    let held = |finalizers: &str| finalizers.contains("belay.dev/hold");
    plane.api().wait_field(meant, limit, ".metadata.finalizers", held).unwrap();
    assert_eq!([finalizers("kube-system"), finalizers("belay")], ["", ""]);
    for namespace in ["kube-system", "belay"] {
        let args = ["delete", "configmap", "left-out", "-n", namespace, "--timeout=20s"];
        plane.kubectl(&args).unwrap().success().unwrap();
    }
    plane.delete(&["deletionpolicy", &ns], "");
}
