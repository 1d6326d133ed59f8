//! The objects that one delete cascades to, and those that wait in it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{
    self, Manifest as _, bound_claim, config_map, object, pod, reader, secret, workload,
};
use crate::harness::rbac::rule;
use crate::people::Person;
use crate::team::{Approver, Of, SOON, Team};
use crate::{policy, world};

/// A volume for a claim, and the claim.
fn claim(ns: &str, name: &str) -> [Value; 2] {
    bound_claim(ns, name, &format!("{ns}-{name}"))
}

fn apply_claim(team: &Team<'_>, name: &str) {
    for object in claim(&team.ns, name) {
        team.plane.apply(&object).unwrap();
    }
}

/// Waits until objects match a condition or a JSON path.
fn until(team: &Team<'_>, object: &str, condition: &str) {
    let args = ["wait", object, &format!("--for={condition}"), "--timeout=60s"];
    team.kubectl(&args).success().unwrap();
}

/// Pods of a StatefulSet or a Deployment that use a claim.
fn using(kind: &str, name: &str, claim: &str) -> Value {
    let more = if kind == "StatefulSet" { json!({"serviceName": "x"}) } else { json!({}) };
    let pod = pod(name).with_claim(claim).without_grace_period();
    workload(kind, name, &pod).with(json!({"spec": more}))
}

#[test]
fn s03_an_approved_namespace_is_deleted_with_all_its_content() {
    let team = Team::new(&world().plane, "s03");
    let ns = &team.ns;
    let (always, used) = (format!("{ns}-always"), format!("{ns}-used"));
    let target = policy::target("", "configmaps", ns);
    policy::apply(team.plane, &always, json!({"targets": [target], "protect": {"always": {}}}));
    let target = policy::target("", "secrets, persistentvolumeclaims", ns);
    policy::apply(team.plane, &used, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    policy::protect_namespace(team.plane, ns);
    team.may(&[rule("", "namespaces", "delete")]);

    apply_claim(&team, "data");
    team.apply(&config_map("settings"));
    team.apply(&secret("password"));
    team.apply(&using("Deployment", "db", "data"));
    team.apply(&reader("reader", "secretRef", "password"));
    until(&team, "pvc/data", "jsonpath={.status.phase}=Bound");

    let object = format!("namespace/{ns}");
    let refused = team.refused(&[&object]);
    assert!(refused.contains(&format!("namespace \"{ns}\" is not empty: ")), "{refused}");
    let way = format!("kubectl belay approve namespaces/{ns} --scope content --reason \"…\"");
    assert!(refused.contains(&way), "{refused}");
    team.assert_exists(&object);

    let of = Of { resource: "namespaces", group: "", name: ns, place: "" };
    team.approve(Approver::Carol, of, "Content");
    eventually("a DELETE that passes", SOON, || team.delete(&[&object]).success()).unwrap();
    // The namespace controller starts five seconds later, and works in rounds.
    team.wait_until_deleted_within(&object, Duration::from_secs(120));
}

#[test]
fn s11_a_cascade_that_waits_on_what_is_held_ends_when_that_is_released() {
    let team = Team::new(&world().plane, "s11");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "secrets", json!({"whileUsed": {"onDelete": "Hold"}}));
    team.apply(&config_map("parent"));
    team.apply(&secret("child").with_owner(team.owner("ConfigMap", "parent")));
    team.apply(&reader("user", "secretRef", "child"));

    let parent = ["configmap/parent", "--cascade=foreground"];
    eventually("a webhook about the owner", SOON, || {
        let dry = team.deleted(&[&parent[..], &["--dry-run=server"]].concat());
        if dry.contains("Warning: ") { Ok(()) } else { Err(dry.into()) }
    })
    .unwrap();
    let warning = team.deleted(&parent);
    assert!(warning.contains("Warning: "), "{warning}");
    assert!(warning.contains(&format!("Pod {ns}/user no longer uses it")), "{warning}");
    team.was_kept("secret/child");
    // The parent waits for its child, and the child for its user.
    assert!(team.field("configmap/parent", ".metadata").contains("foregroundDeletion"));
    team.deleted(&["pod/user"]);
    team.wait_until_deleted("secret/child");
    team.wait_until_deleted("configmap/parent");
    // A refused garbage collector retries again and again, more and more slowly; one whose
    // DELETE was allowed has no reason to.
    let asked = team.deletes_by("generic-garbage-collector", "/child");
    assert!((1..=4).contains(&asked), "the collector asked {asked} times");
}

#[test]
fn s11_what_is_always_protected_outlives_its_owner_until_a_person_deletes_it() {
    let team = Team::new(&world().plane, "s11-always");
    let ns = &team.ns;
    team.apply(&config_map("parent").with_finalizers(&["example.com/last"]));
    team.apply(&secret("child").with_owner(team.owner("ConfigMap", "parent")));
    team.deleted(&["configmap/parent"]);
    // The policy is created when the owner is already Terminating.
    policy::protect(team.plane, ns, "secrets", json!({"always": {}}));
    team.finish("configmap/parent");

    team.collector_asks("/child");
    team.assert_exists("secret/child");
    let refused = team.refused(&["secret/child"]);
    let way = format!("To override: kubectl belay approve secrets/child -n {ns} --reason \"…\"");
    assert!(refused.contains("secret \"child\" is protected; policy "), "{refused}");
    assert!(refused.contains(&way), "{refused}");
    // The garbage collector retries later each time, so the refusal of the approver names
    // the command. The binding keeps the collector from being faster than the user.
    team.keep_collector_from("secret/child");
    let erin = Person::worker(team.plane, ns, "erin", Some(("", "secrets")));
    let missing = "its owner ConfigMap parent does not exist, ";
    let why_says = |says: String| {
        let why = erin.belay(&["why", "secret/child", "-n", ns]);
        assert!(why.stdout.contains(&says), "{why:?}");
    };
    why_says(format!("{missing}so the garbage collector tries to delete it\n"));
    let said = erin.approves_what_is_named(&refused).remove(0).stdout;
    let delete = format!("kubectl delete secrets/child -n {ns}\n");
    let says = "and the garbage collector, which was refused, waits longer before each retry; \
                next: delete it now: ";
    assert!(said.ends_with(&format!("{missing}{says}{delete}")), "{said}");
    let says = "so the garbage collector deletes it; after a refusal, it waits longer before each \
                retry; to delete it now: ";
    why_says(format!("{missing}{says}{delete}"));
    let typed: Vec<&str> = delete.split_whitespace().skip(1).collect();
    eventually("a DELETE that passes", SOON, || erin.kubectl(&typed).success()).unwrap();
    team.wait_until_deleted("secret/child");
}

/// Another owner that waits for a refused garbage collector: one that is deleted in the
/// foreground. An owner that is not Terminating does not wait.
#[test]
fn s11_an_owner_in_the_foreground_waits_for_the_approved_object() {
    let team = Team::new(&world().plane, "s11-foreground");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "secrets", json!({"always": {}}));
    let erin = Person::worker(team.plane, ns, "erin", Some(("", "secrets")));
    let approved = |object: &str| {
        erin.belay(&["approve", object, "-n", ns, "--reason", "x"]).success().unwrap()
    };
    let secret = |name: &str, owner: &str| {
        team.apply(&secret(name).with_owner(team.owner("ConfigMap", owner)));
    };
    team.apply(&config_map("living"));
    secret("kept", "living");
    let said = approved("secret/kept");
    assert!(!said.contains("now delete it"), "{said}");

    // The parent waits for a slow child, and gets another one.
    team.apply(&config_map("parent"));
    let slow = config_map("slow").with_finalizers(&["example.com/slow"]);
    team.apply(&slow.with_owner(team.owner("ConfigMap", "parent")));
    team.deleted(&["configmap/parent", "--cascade=foreground"]);
    // Later it would be refused: it would take the other child along.
    team.collector_asks("/slow");
    secret("child", "parent");
    // After the first child, the garbage collector lists the remaining ones.
    team.finish("configmap/slow");
    team.collector_asks("/child");
    team.assert_exists("secret/child");
    // The binding keeps it from retrying before the user does.
    team.keep_collector_from("secret/child");
    let said = approved("secret/child");
    let says = "its owner ConfigMap parent is being deleted and waits for it, and the garbage \
                collector, which was refused, waits longer before each retry; next: delete it \
                now: kubectl delete ";
    assert!(said.contains(says), "{said}");
    let delete = ["delete", "secret/child", "-n", ns, "--wait=false"];
    eventually("a DELETE that passes", SOON, || erin.kubectl(&delete).success()).unwrap();
    team.wait_until_deleted("configmap/parent");
}

#[test]
fn s12_foreground_deletion_keeps_a_used_object_until_its_user_is_deleted() {
    let team = Team::new(&world().plane, "s12");
    let ns = &team.ns;
    let target = policy::target("", "secrets", ns);
    let hold = format!("{ns}-hold");
    let spec = json!({"targets": [target], "protect": {"whileUsed": {"onDelete": "Hold"}}});
    policy::apply(team.plane, &hold, spec);
    team.apply(&config_map("root"));
    let owner = team.owner("ConfigMap", "root");
    team.apply(&secret("key").with_owner(owner.clone()));
    // A slow user that is deleted as well.
    let slow = reader("slow", "secretRef", "key").with_finalizers(&["example.com/busy"]);
    team.apply(&slow.with_owner(owner));

    team.deleted(&["configmap/root", "--cascade=foreground"]);
    team.was_kept("secret/key");
    let (slow, deletion) = (("pod/slow", &**ns), ".metadata.deletionTimestamp");
    team.plane.api().wait_field(slow, SOON, deletion, |at| !at.is_empty()).unwrap();
    team.finish("pod/slow");
    team.wait_until_deleted("secret/key");
    team.wait_until_deleted("configmap/root");

    // A user that is not deleted as well: if a policy refuses, it refuses at the root,
    // before any object is Terminating.
    team.plane.delete(&["deletionpolicy", &hold], "");
    policy::protect(team.plane, ns, "secrets", json!({"whileUsed": {}}));
    team.apply(&config_map("again"));
    team.apply(&secret("lock").with_owner(team.owner("ConfigMap", "again")));
    team.apply(&reader("outside", "secretRef", "lock"));
    let refused = eventually("a refusal", SOON, || {
        team.delete(&["configmap/again", "--cascade=foreground", "--dry-run=server"]).failure()
    })
    .unwrap();
    let words = format!(
        "deleting configmap \"again\" also deletes secret \"lock\", which is in use by Pod \
         {ns}/outside (spec.containers[0].envFrom[0].secretRef.name); policy {ns}. To delete \
         configmap \"again\", first delete Pod {ns}/outside. "
    );
    assert!(refused.contains(&words), "{refused}");
    team.refused(&["configmap/again", "--cascade=foreground"]);
    team.assert_exists("configmap/again");
    team.assert_exists("secret/lock");
}

#[test]
fn s35_one_command_deletes_a_stateful_set_and_its_claim_without_a_retry() {
    let team = Team::new(&world().plane, "s35");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "persistentvolumeclaims", json!({"whileUsed": {}}));
    for (name, order) in [("first", ["sts/first", "pvc/first"]), ("last", ["pvc/last", "sts/last"])]
    {
        apply_claim(&team, name);
        team.apply(&using("StatefulSet", name, name));
        until(&team, &format!("pod/{name}-0"), "condition=Ready");
        let output = team.kubectl(&[&["delete", "--wait=false"][..], &order].concat());
        if name == "first" {
            // The claim waits for the Pods that go.
            output.success().unwrap();
        } else {
            let refused = output.failure().unwrap();
            let words = format!(
                "persistentvolumeclaim \"last\" is in use by StatefulSet {ns}/last (Pod last-0, \
                 spec.volumes[0].persistentVolumeClaim.claimName); policy {ns}. \
                 To delete it, first delete StatefulSet {ns}/last. "
            );
            assert!(refused.contains(&words), "{refused}");
            team.assert_exists("pvc/last");
            team.wait_until_deleted("sts/last");
            team.wait_until_deleted("pod/last-0");
            team.deleted(&["pvc/last"]);
        }
        team.wait_until_deleted(&format!("pvc/{name}"));
    }
}

/// The StatefulSet waits for the claims that it owns, and needs them itself.
#[test]
fn s35_a_stateful_set_that_owns_its_claims_is_deleted_in_the_foreground() {
    let team = Team::new(&world().plane, "s35-owned");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "persistentvolumeclaims", json!({"whileUsed": {}}));
    apply_owning_set(&team);
    team.deleted(&["sts/db", "--cascade=foreground"]);
    team.wait_until_deleted("sts/db");
    team.wait_until_deleted("pvc/data-db-0");
}

/// Applies a StatefulSet that owns its claim, and waits until it does.
fn apply_owning_set(team: &Team<'_>) {
    let [volume, _] = claim(&team.ns, "data-db-0");
    team.plane.apply(&volume).unwrap();
    let claim = manifest::claim("data").with(json!({"spec": {"storageClassName": ""}}));
    let template = json!({"metadata": {"name": "data"}, "spec": claim["spec"]});
    let spec = json!({"serviceName": "x", "volumeClaimTemplates": [template],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}});
    let set = workload("StatefulSet", "db", &pod("db").without_grace_period());
    team.apply(&set.with(json!({"spec": spec})));
    eventually("the Pod", SOON, || {
        let args = ["wait", "pod/db-0", "--for=condition=Ready", "--timeout=5s"];
        team.kubectl(&args).success()
    })
    .unwrap();
    eventually("the owner of the claim", SOON, || {
        let owner = team.field("pvc/data-db-0", ".metadata.ownerReferences[0].kind");
        if owner == "StatefulSet" { Ok(()) } else { Err(owner.into()) }
    })
    .unwrap();
}

#[test]
fn s35_a_stateful_set_with_retain_leaves_its_claims() {
    let team = Team::new(&world().plane, "s35-retained");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "persistentvolumeclaims", json!({"fromOrphaning": {}}));
    apply_owning_set(&team);
    let none = r#"{"metadata":{"ownerReferences":null}}"#;
    team.kubectl(&["patch", "pvc/data-db-0", "--type=merge", "-p", none]).failure().unwrap();
    // The advice does not lead to the deletion of the claim.
    let orphan = team.delete(&["sts/db", "--cascade=orphan"]);
    let advice = "Keep statefulset.apps \"db\", or first set \
                  spec.persistentVolumeClaimRetentionPolicy.whenDeleted to Retain; don't \
                  use --cascade=background: it also deletes persistentvolumeclaim \"data-db-0\".";
    let refused = orphan.failure().unwrap();
    assert!(refused.contains(advice), "{refused}");
    let retain = r#"{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain"}}}"#;
    team.kubectl(&["patch", "sts/db", "--type=merge", "-p", retain]).success().unwrap();
    eventually("a claim without an owner", SOON, || {
        match team.field("pvc/data-db-0", ".metadata.ownerReferences").as_str() {
            "" => Ok(()),
            owners => Err(owners.into()),
        }
    })
    .unwrap();
    eventually("a DELETE that passes", SOON, || {
        team.delete(&["sts/db", "--cascade=orphan"]).success().map(drop)
    })
    .unwrap();
    team.wait_until_deleted("sts/db");
    team.assert_exists("pvc/data-db-0");
}

#[test]
fn s41_objects_deleted_at_once_need_no_further_action_under_hold() {
    let team = Team::new(&world().plane, "s41");
    let ns = &team.ns;
    let used = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::protect(team.plane, ns, "persistentvolumeclaims, secrets", used);
    let all = all_at_once(&team);
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    for object in ["deployment/web", "pvc/data", "secret/key"] {
        team.wait_until_deleted(object);
    }
}

#[test]
fn s41_an_early_delete_is_denied_and_a_retry_passes_under_deny() {
    let team = Team::new(&world().plane, "s41-deny");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "persistentvolumeclaims, secrets", json!({"whileUsed": {}}));
    // The order of concurrent DELETEs is random. The test makes sure that one is too early
    // and refused.
    team.apply(&secret("early"));
    team.apply(&reader("reader", "secretRef", "early"));
    let refused = team.refused(&["secret/early", "pod/reader"]);
    assert!(refused.contains(&format!("is in use by Pod {ns}/reader")), "{refused}");
    team.wait_until_deleted("pod/reader");
    eventually("a retry that passes", SOON, || team.delete(&["secret/early"]).success()).unwrap();
    for refused in all_at_once(&team).into_iter().filter_map(Result::err) {
        assert!(refused.contains(&format!("is in use by Deployment {ns}/web")), "{refused}");
    }
    team.wait_until_deleted("deployment/web");
    eventually("the end of the Pods", SOON, || {
        let pods = team.plane.api().fields("pods", ns, "", ".metadata.name")?;
        if pods.is_empty() { Ok(()) } else { Err(pods.concat().into()) }
    })
    .unwrap();
    for object in ["pvc/data", "secret/key"] {
        // The graph gets the deletion of the last Pod a moment later.
        eventually("a retry that passes", SOON, || {
            team.kubectl(&["delete", object, "--ignore-not-found", "--wait=false"]).success()
        })
        .unwrap();
        team.wait_until_deleted(object);
    }
}

/// A Deployment with a claim and a Secret, all deleted concurrently by one user in the
/// foreground. Returns the result of each DELETE.
fn all_at_once(team: &Team<'_>) -> Vec<Result<String, String>> {
    apply_claim(team, "data");
    team.apply(&secret("key"));
    let pod = reader("web", "secretRef", "key").with_claim("data");
    team.apply(&workload("Deployment", "web", &pod));
    until(team, "deployment/web", "condition=Available");
    let objects = ["deployment/web", "pvc/data", "secret/key"];
    std::thread::scope(|scope| {
        let delete = |object| scope.spawn(move || team.delete(&[object, "--cascade=foreground"]));
        let running: Vec<_> = objects.map(delete).into_iter().collect();
        let outputs = running.into_iter().map(|one| one.join().unwrap());
        outputs
            .map(|output| if output.ok() { Ok(output.stderr) } else { Err(output.stderr) })
            .collect()
    })
}

#[test]
fn s43_a_claim_is_kept_for_the_pod_that_an_operator_will_make_again() {
    let team = Team::new(&world().plane, "s43");
    let ns = &team.ns;
    let (group, plural) = (team.group(), "databases");
    team.plane.define_kind(&group, "Database", plural).unwrap();
    team.may(&[rule(&group, "*", "*")]);
    policy::protect(team.plane, ns, "persistentvolumeclaims", json!({"whileUsed": {}}));
    apply_claim(&team, "data");
    let database = object(&format!("{group}/v1"), "Database", "db");
    eventually("the kind", SOON, || team.send(&["apply", "-f", "-"], &database).success()).unwrap();
    let uid = team.field(&format!("{plural}.{group}/db"), ".metadata.uid");
    let owner = json!({"apiVersion": format!("{group}/v1"), "kind": "Database", "name": "db", "uid": uid,
            "controller": true});
    // The finalizer keeps the Pod Terminating for as long as the test wants.
    let pod = pod("db-0").with_claim("data").without_grace_period();
    let pod = pod.with_finalizers(&["example.com/drain"]);
    team.apply(&pod.with(json!({"metadata": {"ownerReferences": [owner]}})));
    team.deleted(&["pod/db-0"]);
    assert_ne!(team.field("pod/db-0", ".metadata.deletionTimestamp"), "");
    // Replicas may see the Pod before its owner.
    let used = format!("is in use by Database {ns}/db");
    let refused = eventually("a refusal that names the owner", SOON, || {
        let refused = team.delete(&["pvc/data", "--dry-run=server"]).failure()?;
        if refused.contains(&used) { Ok(refused) } else { Err(refused.into()) }
    })
    .unwrap();
    assert!(refused.contains("(Pod db-0, spec.volumes[0]"), "{refused}");
    team.assert_exists("pvc/data");

    // Without the operator's resource nothing re-creates the Pod, and the claim waits for
    // this one.
    team.deleted(&[&format!("{plural}.{group}/db")]);
    eventually("a DELETE that passes", SOON, || team.delete(&["pvc/data"]).success()).unwrap();
    team.was_kept("pvc/data");
    team.finish("pod/db-0");
    team.wait_until_deleted("pvc/data");
}
