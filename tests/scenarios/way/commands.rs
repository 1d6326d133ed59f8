//! The messages of commands that can't do what the user requests, or not without help.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{passes_now, wait_until_deleted};
use crate::harness::kubectl::run;
use crate::harness::manifest::{Manifest as _, config_map, pod};
use crate::harness::rbac::rule;
use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::people::Person;
use crate::{policy, world};

/// A namespace with a ConfigMap protected by `always`, with these approval terms.
fn settings(prefix: &str, approval: Value) -> String {
    let plane = &world().plane;
    let ns = plane.namespace(prefix).unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "approval": approval});
    policy::apply(plane, &ns, spec);
    plane.kubectl(&["create", "configmap", "settings", "-n", &ns]).unwrap().success().unwrap();
    ns
}

#[test]
fn a_user_who_may_not_approve_sees_the_required_rights() {
    let plane = &world().plane;
    let ns = settings("way-rights", json!({}));
    let bob = Person::worker(plane, &ns, "bob", None);
    let refused = bob.belay(&["approve", "cm/settings", "-n", &ns, "--reason", "x"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let name = &bob.name;
    assert_eq!(
        refused.stderr,
        format!(
            "error: {name} may not approve-deletion of configmaps settings in namespace {ns}: this \
             needs the RBAC verb approve-deletion\nhint: ask a person who has it, or have an \
             administrator bind the RBAC verb approve-deletion on configmaps in namespace {ns} to \
             {name}\n"
        )
    );
    // A user without rights for belay is shown the other command, too.
    let eve = Person::user(plane, &ns, "eve");
    eve.bind("read", Some(&ns), &[rule("", "configmaps", "get")]);
    let mut refused = eve.belay(&["approve", "cm/settings", "-n", &ns, "--reason", "x"]);
    eventually("the right to read", Duration::from_secs(20), || {
        refused = eve.belay(&["approve", "cm/settings", "-n", &ns, "--reason", "x"]);
        if refused.code == 1 { Ok(()) } else { Err(format!("{refused:?}").into()) }
    })
    .unwrap();
    assert!(
        refused.stderr.contains("the RBAC verb create on deletionapprovals.belay.dev"),
        "{refused:?}"
    );
    let why = eve.belay(&["why", "cm/settings", "-n", &ns]);
    assert_eq!(why.code, 1, "{why:?}");
    assert!(why.stdout.contains("ask a person with the RBAC verb delete on configmaps"), "{why:?}");
}

#[test]
fn an_approval_lasts_no_longer_than_the_policy_allows_and_two_people_are_two() {
    let plane = &world().plane;
    let ns = settings("way-two", json!({"required": 2, "maxDurationSeconds": 600}));
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let bob = Person::worker(plane, &ns, "bob", Some(("", "configmaps")));
    let delete = ["configmap", "settings"];
    let refusal = alice.delete(&delete).failure().unwrap();
    assert!(refusal.contains("(2 people must approve)"), "{refusal}");
    let said = alice.approves_what_is_named(&refusal).remove(0).stdout;
    let lasts = format!(" (10m, because policy {ns} allows no longer approval; to extend it, ");
    assert!(said.contains(&lasts) && !said.contains("30m"), "{said}");
    let missing = format!(
        "1 more person must approve: policy {ns} requires 2, approved so far by {}; ",
        alice.name
    );
    assert!(said.contains(&missing), "{said}");
    // A second approval of the same person does not count.
    let again = alice.approves_what_is_named(&refusal).remove(0).stdout;
    assert!(again.contains("1 more person must approve"), "{again}");
    let why = alice.belay(&["why", "cm/settings", "-n", &ns]);
    assert!(
        why.stdout.contains(&format!("(needs 2 approvals, so far by {}; ", alice.name)),
        "{why:?}"
    );
    assert_eq!(why.code, 1, "{why:?}");

    let said = bob.approves_what_is_named(&refusal).remove(0).stdout;
    assert!(said.contains("enough people have approved (2 of 2)"), "{said}");
    passes_now(|| alice.delete(&delete));
    wait_until_deleted(plane, &ns, "configmap/settings");
}

#[test]
fn releases_only_terminating_objects_and_force_requires_an_approval_and_the_name() {
    let plane = &world().plane;
    let ns = plane.namespace("way-force").unwrap();
    // No hold becomes effective for ten minutes: only a forced release is quicker.
    let target = policy::target("", "configmaps", &ns);
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    let spec = json!({"targets": [target], "protect": protect, "settleSeconds": 600});
    policy::apply(plane, &ns, spec);
    plane.kubectl(&["create", "configmap", "settings", "-n", &ns]).unwrap().success().unwrap();
    let alice = Person::worker(plane, &ns, "alice", Some(("", "configmaps")));
    let release = |more: &[&str]| {
        alice.belay(&[&["release", "configmaps/settings", "-n", &ns, "--timeout=1"], more].concat())
    };
    let refused = release(&[]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("is not Terminating"), "{refused:?}");

    let delete = ["configmap", "settings"];
    alice.delete(&delete).success().unwrap();
    let refused = release(&["--force=other"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let refused = release(&["--force=settings"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("0 of 1 people have approved it"), "{refused:?}");

    let approve = ["approve", "configmaps/settings", "-n", &ns, "--reason", "x", "--for", "5m"];
    assert_eq!(alice.belay(&approve).code, 0);
    let forced = || {
        let output = release(&["--force=settings"]);
        if output.stderr.contains("configmap \"settings\" not found") {
            return crate::harness::kubectl::Output { code: 0, ..output };
        }
        output
    };
    passes_now(forced);
    wait_until_deleted(plane, &ns, "configmap/settings");
}

#[test]
fn why_speaks_json_and_knows_the_names_that_kubectl_knows() {
    let plane = &world().plane;
    let ns = settings("way-json", json!({}));
    let alice = Person::worker(plane, &ns, "alice", None);
    let json = alice.belay(&["why", "cm", "settings", "-n", &ns, "-o", "json"]);
    assert_eq!(json.code, 1, "{json:?}");
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(said["object"]["typed"], format!("configmaps/settings -n {ns}"));
    assert_eq!(said["deletable"], false);
    assert_eq!(said["subject"], alice.name);
    assert_eq!(said["blockers"][0]["reason"], "Protected");
    assert_eq!(said["blockers"][0]["approval"]["required"], 1);
    for (typed, code) in [
        ("ConfigMap/settings", 1),
        ("configmaps.v1./settings", 1),
        ("cm/none", 3),
        ("wat/x", 3),
        ("cm", 2),
    ] {
        let why = alice.belay(&["why", typed, "-n", &ns]);
        assert_eq!(why.code, code, "{typed}: {why:?}");
    }
}

#[test]
fn while_belay_is_dead_its_work_is_done_by_hand() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut belay = Install::of_everything(1).on(&plane, crate::program()).unwrap();
    let ns = plane.namespace("dead").unwrap();
    policy::protect(&plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    plane.kubectl(&["create", "configmap", "settings", "-n", &ns]).unwrap().success().unwrap();
    let pod = pod("user").with_env_from("configMapRef", "settings");
    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], &pod).unwrap().success().unwrap();
    let delete = ["configmap", "settings"];
    plane.delete(&delete, &ns);
    let bob = plane.user("bob", None).unwrap();
    let bind = ["create", "rolebinding", "bob", "-n", &ns, "--clusterrole=admin", "--user=bob"];
    plane.kubectl(&bind).unwrap().success().unwrap();
    plane
        .apply(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: \
             rules}\nrules: [{apiGroups: [belay.dev], resources: [\"*\"], verbs: [get, list]}]\n",
        )
        .unwrap();
    let bind = ["create", "clusterrolebinding", "bob", "--clusterrole=rules", "--user=bob"];
    plane.kubectl(&bind).unwrap().success().unwrap();
    // It is killed: its Lease is still valid, and its webhooks stay.
    belay.replicas.iter_mut().for_each(|replica| replica.process.kill());
    let release = |who: &Path, more: &[&str]| {
        let args = [&["release", "cm/settings", "-n", &ns][..], more].concat();
        run(Path::new(env!("CARGO_BIN_EXE_kubectl-belay")), who, &args, None).unwrap()
    };
    // Each of these is one command, which works at once without further knowledge.
    let admin = plane.kubeconfig();
    let kept = release(admin, &["--timeout=30"]);
    assert_eq!(kept.code, 1, "{kept:?}");
    let says = format!(
        "cannot release configmap \"settings\": it is in use by Pod {ns}/user (spec.containers[0]"
    );
    assert!(kept.stderr.contains(&says), "{kept:?}");
    assert_eq!(release(admin, &["--dry-run"]).code, 1, "the Pod uses it");
    let end = ["delete", "pod", "user", "-n", &ns, "--grace-period=0", "--force"];
    plane.kubectl(&end).unwrap().success().unwrap();
    let would = release(admin, &["--dry-run"]);
    assert_eq!(would.code, 0, "{would:?}");
    let says = format!(
        "the hold of ConfigMap {ns}/settings would be removed: nothing needs it; the API server \
         would then delete the object\n"
    );
    assert_eq!(would.stdout, says);
    // A user who may not impersonate belay's account sees who may.
    let kept = release(&bob, &["--timeout=5s"]);
    assert_eq!(kept.code, 3, "{kept:?}");
    let says = "the RBAC verb impersonate on serviceaccounts belay in namespace belay";
    assert!(kept.stderr.contains(says), "{kept:?}");
    let done = release(admin, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    let says = "belay has no leader, so this was done as system:serviceaccount:belay:belay";
    assert!(done.stdout.contains(says), "{done:?}");
    wait_until_deleted(&plane, &ns, "configmap/settings");

    // After a full uninstall, objects may still have its hold.
    let configurations = "validatingwebhookconfiguration,mutatingwebhookconfiguration";
    plane.kubectl(&["delete", configurations, "belay"]).unwrap().success().unwrap();
    plane.kubectl(&["delete", "clusterrolebinding", "belay"]).unwrap().success().unwrap();
    let left = config_map("settings").with_finalizers(&["belay.dev/hold"]);
    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], &left).unwrap().success().unwrap();
    plane.delete(&delete, &ns);
    let kinds = ["deletionpolicies", "deletionapprovals", "relations", "pauses"];
    for kind in kinds {
        let kind = format!("{kind}.belay.dev");
        plane.kubectl(&["delete", "crd", &kind]).unwrap().success().unwrap();
    }
    let lost = release(admin, &[]);
    assert_eq!(lost.code, 3, "{lost:?}");
    let uninstalled =
        "belay is not installed in this cluster: the API server does not serve its kinds\n";
    let next = "hint: kubectl belay admin crds | kubectl apply -f -, and try again";
    assert!(lost.stderr.contains(&format!("{uninstalled}{next}")), "{lost:?}");
    let belay = |args: &[&str]| {
        run(Path::new(env!("CARGO_BIN_EXE_kubectl-belay")), admin, args, None).unwrap()
    };
    let status = belay(&["status"]);
    assert_eq!(status.code, 3, "{status:?}");
    let next = "hint: helm install belay charts/belay --namespace belay";
    assert!(status.stderr.contains(&format!("{uninstalled}{next}")), "{status:?}");
    // Other commands print `kubectl belay why …` as the next step, so it works without belay.
    let why = belay(&["why", "cm/settings", "-n", &ns]);
    assert_eq!(why.code, 1, "{why:?}");
    let says = "belay is not installed, so nothing removes its hold\n";
    assert!(why.stdout.contains(says) && why.stdout.ends_with(uninstalled), "{why:?}");
    let why = belay(&["why", "sa/default", "-n", &ns]);
    assert!(why.code == 0 && why.stdout.contains("can delete serviceaccount"), "{why:?}");
    assert!(why.stdout.ends_with(uninstalled), "{why:?}");
    let crds = std::process::Command::new(crate::program()).args(["admin", "crds"]).output();
    plane.apply(&String::from_utf8(crds.unwrap().stdout).unwrap()).unwrap();
    // A new kind is served a moment after its CRD was created.
    eventually("the release, after belay's kinds are there", Duration::from_secs(30), || {
        release(admin, &[]).success().map(drop)
    })
    .unwrap();
    wait_until_deleted(&plane, &ns, "configmap/settings");
}

/// A ServiceAccount that owns the ConfigMap, whose policy requires this approval: the namespace, and
/// alice, who may approve everything there.
fn owner_of_settings(prefix: &str, approval: Value) -> (String, Person<'static>) {
    let plane = &world().plane;
    let ns = settings(prefix, approval);
    let alice = Person::worker(plane, &ns, "alice", Some(("*", "*")));
    alice.kubectl(&["create", "serviceaccount", "owner", "-n", &ns]).success().unwrap();
    let uid = plane.api().field("sa/owner", &ns, ".metadata.uid").unwrap();
    let owned = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "name": "owner", "uid": uid}]}});
    let owned = ["patch", "cm", "settings", "-n", &ns, "-p", &owned.to_string()];
    alice.kubectl(&owned).success().unwrap();
    (ns, alice)
}

#[test]
fn an_approval_of_only_the_owner_reports_how_many_people_must_approve_the_content() {
    let (ns, alice) = owner_of_settings("way-along-two", json!({"required": 2}));
    let said = alice.belay(&["approve", "sa/owner", "-n", &ns, "--reason", "x"]).success().unwrap();
    let next =
        "which is protected; 2 people must approve with --scope content; next: kubectl belay";
    assert!(said.contains(next), "{said}");
}

#[test]
fn an_approval_of_only_the_owner_reports_what_it_does_not_cover() {
    let plane = &world().plane;
    let (ns, alice) = owner_of_settings("way-along", json!({}));
    let approve = |more: &[&str]| {
        let args = [&["approve", "sa/owner", "-n", &ns, "--reason", "x"][..], more].concat();
        alice.belay(&args).success().unwrap()
    };
    let said = approve(&[]);
    let says = format!(
        "it still cannot be deleted: deleting serviceaccount \"owner\" also deletes configmap \
         \"settings\", which is protected; next: kubectl belay approve serviceaccounts/owner -n \
         {ns} --scope content --reason \"…\"\n"
    );
    assert!(said.contains(&says) && !said.contains("needs no approval"), "{said}");
    // Typed as the kind spells it, it is the same scope.
    let said = approve(&["--scope", "Content"]);
    assert!(!said.contains("it still cannot be deleted"), "{said}");
    passes_now(|| alice.kubectl(&["delete", "sa", "owner", "-n", &ns]));
    wait_until_deleted(plane, &ns, "configmap/settings");
}
