//! The attempts of a user who is new to finalizers, and their results.

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map};
use crate::harness::rbac::rule;
use crate::people::Person;
use crate::team::{Approver, Of, SOON, Team};
use crate::{policy, world};

const STRIP: [&str; 3] = ["--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];

#[test]
fn s49_a_finalizer_without_a_controller_hangs_and_a_guard_names_who_may_remove_it() {
    let team = Team::new(&world().plane, "s49-unknown");
    let ns = &team.ns;
    let manifest = |name: &str| config_map(name).with_finalizers(&["example.com/uncontrolled"]);
    team.apply(&manifest("plain"));
    team.deleted(&["configmap/plain"]);
    let state = team.field("configmap/plain", ".metadata");
    assert!(
        state.contains("deletionTimestamp") && state.contains("example.com/uncontrolled"),
        "{state}"
    );
    // A second DELETE changes nothing. Removing the finalizer completes the deletion.
    team.deleted(&["configmap/plain"]);
    let zoe = Person::worker(team.plane, ns, "zoe", None);
    let why = zoe.belay(&["why", "configmap/plain", "-n", ns]);
    assert_eq!(why.code, 1, "{why:?}");
    // A user who added it with kubectl is not named as its controller.
    let says = "- example.com/uncontrolled: only its own controller should remove it; belay does \
                not know this controller\n";
    assert!(why.stdout.contains(says), "{why:?}");
    // Without all reads, its controller may run, so no command removes it.
    let next = "find the controller of example.com/uncontrolled (search its documentation)";
    assert!(why.stdout.contains(next) && !why.stdout.contains("kubectl patch"), "{why:?}");
    zoe.kubectl(&[&["patch", "configmap/plain"][..], &STRIP].concat()).success().unwrap();
    team.wait_until_deleted("configmap/plain");

    // If the finalizer is guarded, an authorized user or an approval is needed.
    policy::protect(team.plane, ns, "configmaps", json!({"fromStripping": {}}));
    team.apply(&manifest("guarded"));
    team.deleted(&["configmap/guarded"]);
    let strip = || team.kubectl(&[&["patch", "configmap/guarded"][..], &STRIP].concat());
    let refused = strip().failure().unwrap();
    assert!(refused.contains("Error from server (FinalizerGuarded): "), "{refused}");
    assert!(refused.contains("example.com/uncontrolled"), "{refused}");
    let way = format!("kubectl belay approve configmaps/guarded -n {ns} --reason \"…\"");
    assert!(refused.contains(&way), "{refused}");
    team.approve(Approver::Carol, team.of("configmaps", "guarded"), "Object");
    eventually("a strip that passes", SOON, || strip().success()).unwrap();
    team.wait_until_deleted("configmap/guarded");
}

/// A parent and its child, created by jane.
fn family(team: &Team<'_>, name: &str) {
    team.apply(&config_map(name));
    let child = config_map(&format!("{name}-child"));
    team.apply(&child.with_owner(team.owner("ConfigMap", name)));
}

#[test]
fn s49_parent_and_child_under_each_propagation() {
    let team = Team::new(&world().plane, "s49-family");
    let ns = &team.ns;
    for cascade in ["background", "foreground"] {
        family(&team, cascade);
        team.deleted(&[&format!("configmap/{cascade}"), &format!("--cascade={cascade}")]);
        team.wait_until_deleted(&format!("configmap/{cascade}"));
        team.wait_until_deleted(&format!("configmap/{cascade}-child"));
    }
    family(&team, "orphan");
    team.deleted(&["configmap/orphan", "--cascade=orphan"]);
    team.wait_until_deleted("configmap/orphan");
    team.assert_exists("configmap/orphan-child");
    assert_eq!(team.field("configmap/orphan-child", ".metadata.ownerReferences"), "");

    // The same with a policy: no child is orphaned, and unused objects are deleted as
    // without a policy.
    policy::protect(team.plane, ns, "configmaps", json!({"whileUsed": {}, "fromOrphaning": {}}));
    family(&team, "guarded");
    let refused = team.refused(&["configmap/guarded", "--cascade=orphan"]);
    assert!(refused.contains("Error from server (WouldOrphan): "), "{refused}");
    let words = format!(
        "configmap \"guarded-child\" would lose its owner ConfigMap {ns}/guarded; policy {ns}. To "
    );
    assert!(refused.contains(&words), "{refused}");
    team.assert_exists("configmap/guarded");
    for cascade in ["background", "foreground"] {
        let name = format!("held-{cascade}");
        family(&team, &name);
        eventually("a DELETE that passes", SOON, || {
            team.delete(&[&format!("configmap/{name}"), &format!("--cascade={cascade}")]).success()
        })
        .unwrap();
        team.wait_until_deleted(&format!("configmap/{name}"));
        team.wait_until_deleted(&format!("configmap/{name}-child"));
    }
}

#[test]
fn s49_a_namespace_is_not_forced_away_while_protected_content_is_left() {
    let team = Team::new(&world().plane, "s49-forced");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "configmaps", json!({"always": {}}));
    team.apply(&config_map("settings"));
    team.may(&[rule("", "namespaces, namespaces/finalize", "*")]);

    // No policy is about the Namespace itself, so the protected objects in it count.
    let object = format!("namespace/{ns}");
    let refused = team.refused(&[&object]);
    assert!(
        refused
            .contains(&format!("deleting namespace \"{ns}\" also deletes configmap \"settings\"")),
        "{refused}"
    );
    let force = || {
        let mut namespace = team.plane.api().get(&object, "").unwrap().unwrap();
        namespace["spec"]["finalizers"] = json!([]);
        let path = format!("/api/v1/namespaces/{ns}/finalize");
        team.send(&["replace", "--raw", &path, "-f", "-"], &namespace)
    };
    let refused = force().failure().unwrap();
    let words = format!("namespace \"{ns}\" contains ConfigMap {ns}/settings");
    assert!(refused.contains(&words), "{refused}");
    assert_eq!(team.field(&object, ".spec.finalizers"), r#"["kubernetes"]"#);

    // With an approval of the Namespace and its content it is deleted.
    let of = Of { resource: "namespaces", group: "", name: ns, place: "" };
    team.approve(Approver::Carol, of, "Content");
    eventually("a DELETE that passes", SOON, || team.delete(&[&object]).success()).unwrap();
    team.wait_until_deleted_within(&object, SOON * 2);
}
