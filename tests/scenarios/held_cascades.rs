//! What one delete takes along, and what waits in it.

use std::time::Duration;

use crate::harness::eventually;
use crate::people::Person;
use crate::team::{Approver, Of, SOON, Team, owned_by, pod};
use crate::{policy, world};

/// A claim and the volume that it is bound to from the start.
fn claim(ns: &str, name: &str) -> String {
    let capacity = "{storage: 1Gi}";
    format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {ns}-{name}}}\nspec:\n  \
         capacity: {capacity}\n  accessModes: [ReadWriteOnce]\n  storageClassName: ''\n  hostPath: \
         {{path: /nowhere}}\n  claimRef: {{namespace: {ns}, name: {name}}}\n---\n\
         apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}, namespace: {ns}}}\n\
         spec: {{accessModes: [ReadWriteOnce], storageClassName: '', volumeName: {ns}-{name}, \
         resources: {{requests: {capacity}}}}}\n"
    )
}

/// Waits until objects are as a condition or a JSON path says.
fn until(team: &Team<'_>, object: &str, condition: &str) {
    let args = ["wait", object, &format!("--for={condition}"), "--timeout=60s"];
    team.kubectl(&args).success().unwrap();
}

/// Pods that use a claim, made by a StatefulSet or a Deployment.
fn using(kind: &str, name: &str, claim: &str) -> String {
    let more = if kind == "StatefulSet" { "  serviceName: x\n" } else { "" };
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{more}  selector: \
         {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: \
         {name}}}}}\n    \
         spec:\n      terminationGracePeriodSeconds: 0\n      containers: [{{name: main, image: \
         x}}]\n      \
         volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]\n"
    )
}

#[test]
fn s03_an_approved_namespace_goes_and_nothing_inside_is_in_its_way() {
    let team = Team::new(&world().plane, "s03");
    let ns = &team.ns;
    let (always, used) = (format!("{ns}-always"), format!("{ns}-used"));
    let target = policy::target("", "configmaps", ns);
    policy::apply(team.plane, &always, &format!("{target}  protect: {{always: {{}}}}\n"));
    let target = policy::target("", "secrets, persistentvolumeclaims", ns);
    policy::apply(team.plane, &used, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    let whole =
        format!("  targets: [{{apiGroups: [\"\"], resources: [namespaces], names: [{ns}]}}]\n");
    policy::apply(team.plane, ns, &format!("{whole}  protect: {{whileNotEmpty: {{}}}}\n"));
    team.may("[{apiGroups: [''], resources: [namespaces], verbs: [delete]}]");

    team.plane.apply(&claim(ns, "data")).unwrap();
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n");
    team.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: password}\n");
    team.apply(&using("Deployment", "db", "data"));
    team.apply(&pod("reader", "secretRef", "password"));
    until(&team, "pvc/data", "jsonpath={.status.phase}=Bound");

    let object = format!("namespace/{ns}");
    let refused = team.refused(&[&object]);
    assert!(refused.contains(&format!("namespaces \"{ns}\" is not empty: ")), "{refused}");
    let way = format!("kubectl belay approve namespaces/{ns} --reason \"…\" --scope content");
    assert!(refused.contains(&way), "{refused}");
    team.stands(&object);

    let of = Of { resource: "namespaces", group: "", name: ns, place: "" };
    team.approve(Approver::Carol, of, "Content");
    eventually("a DELETE that passes", SOON, || team.delete(&[&object]).success()).unwrap();
    // The namespace controller begins five seconds later, and asks in rounds.
    team.goes_within(&object, Duration::from_secs(120));
}

#[test]
fn s11_a_cascade_that_waits_on_what_is_held_ends_when_that_is_released() {
    let team = Team::new(&world().plane, "s11");
    let ns = &team.ns;
    let target = policy::target("", "secrets", ns);
    let spec = format!("{target}  protect: {{whileUsed: {{onDelete: Hold}}}}\n");
    policy::apply(team.plane, ns, &spec);
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parent}\n");
    let owner = owned_by("ConfigMap", "parent", &team.field("configmap/parent", ".metadata.uid"));
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: child, ";
    team.apply(&format!("{secret}{owner}}}\n"));
    team.apply(&pod("user", "secretRef", "child"));

    let warning = team.deleted(&["configmap/parent", "--cascade=foreground"]);
    assert!(warning.contains("Warning: "), "{warning}");
    assert!(warning.contains(&format!("Pod {ns}/user no longer needs it")), "{warning}");
    team.was_kept("secret/child");
    // The parent waits for its child, and the child for its user.
    assert!(team.field("configmap/parent", ".metadata").contains("foregroundDeletion"));
    team.deleted(&["pod/user"]);
    team.goes("secret/child");
    team.goes("configmap/parent");
    // A collector that is refused asks again and again, more and more slowly;
    // one whose DELETE was let through has no reason to.
    let asked = team.deletes_by("generic-garbage-collector", "/child");
    assert!((1..=4).contains(&asked), "the collector asked {asked} times");
}

#[test]
fn s11_what_is_always_protected_outlives_its_owner_until_a_person_deletes_it() {
    let team = Team::new(&world().plane, "s11-always");
    let ns = &team.ns;
    let parent = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parent, finalizers: \
    [example.com/last]}\n";
    team.apply(parent);
    let owner = owned_by("ConfigMap", "parent", &team.field("configmap/parent", ".metadata.uid"));
    team.apply(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: child, {owner}}}\n"));
    team.deleted(&["configmap/parent"]);
    // The policy comes when the owner is on its way already.
    let target = policy::target("", "secrets", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{always: {{}}}}\n"));
    let strip =
        ["patch", "configmap/parent", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
    team.kubectl(&strip).success().unwrap();
    team.goes("configmap/parent");

    team.collector_asks("/child");
    team.stands("secret/child");
    let refused = team.refused(&["secret/child"]);
    let way = format!("Way out: kubectl belay approve secrets/child -n {ns} --reason \"…\"");
    assert!(refused.contains("secrets \"child\" is protected; policy "), "{refused}");
    assert!(refused.contains(&way), "{refused}");
    // The collector tries again later each time; so a person who approves reads what to
    // type. It is kept from being faster than the person.
    team.keep_collector_from("secret/child");
    let erin = Person::worker(team.plane, ns, "erin", Some(("", "secrets")));
    let said = erin.approves_what_is_named(&refused).remove(0).stdout;
    let delete = format!("kubectl delete secrets/child -n {ns}\n");
    let says = "its owner ConfigMap parent is gone, and the garbage collector was refused and tries \
                again ever later; now delete it: ";
    assert!(said.ends_with(&format!("{says}{delete}")), "{said}");
    let typed: Vec<&str> = delete.split_whitespace().skip(1).collect();
    eventually("a DELETE that passes", SOON, || erin.kubectl(&typed).success()).unwrap();
    team.goes("secret/child");
}

/// The other owner that waits for a collector which was refused: one that is
/// deleted in the foreground. And an owner that lives waits for nobody.
#[test]
fn s11_an_owner_in_the_foreground_is_told_to_wait_for_what_was_approved() {
    let team = Team::new(&world().plane, "s11-foreground");
    let ns = &team.ns;
    let target = policy::target("", "secrets", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{always: {{}}}}\n"));
    let erin = Person::worker(team.plane, ns, "erin", Some(("", "secrets")));
    let approved = |object: &str| {
        erin.belay(&["approve", object, "-n", ns, "--reason", "x"]).success().unwrap()
    };
    let secret = |name: &str, owner: &str| {
        let owner =
            owned_by("ConfigMap", owner, &team.field(&format!("cm/{owner}"), ".metadata.uid"));
        team.apply(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, {owner}}}\n"));
    };
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: living}\n");
    secret("kept", "living");
    let said = approved("secret/kept");
    assert!(!said.contains("now delete it"), "{said}");

    // The parent waits for a child that takes its time, and one more comes.
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parent}\n");
    let owner = owned_by("ConfigMap", "parent", &team.field("configmap/parent", ".metadata.uid"));
    let slow = format!("name: slow, finalizers: [example.com/slow], {owner}");
    team.apply(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{{slow}}}\n"));
    team.deleted(&["configmap/parent", "--cascade=foreground"]);
    // Later it would be refused: it would take the other child along.
    team.collector_asks("/slow");
    secret("child", "parent");
    // When that one is through, the collector looks who else is in the way.
    let none = r#"{"metadata":{"finalizers":null}}"#;
    team.kubectl(&["patch", "configmap/slow", "--type=merge", "-p", none]).success().unwrap();
    team.collector_asks("/child");
    team.stands("secret/child");
    // It is kept from asking again before the person does.
    team.keep_collector_from("secret/child");
    let said = approved("secret/child");
    let says = "its owner ConfigMap parent is being deleted and waits for it, and the garbage \
                collector was refused and tries again ever later; now delete it: kubectl delete ";
    assert!(said.contains(says), "{said}");
    let delete = ["delete", "secret/child", "-n", ns, "--wait=false"];
    eventually("a DELETE that passes", SOON, || erin.kubectl(&delete).success()).unwrap();
    team.goes("configmap/parent");
}

#[test]
fn s12_foreground_deletion_keeps_what_is_used_until_its_user_is_gone() {
    let team = Team::new(&world().plane, "s12");
    let ns = &team.ns;
    let target = policy::target("", "secrets", ns);
    let hold = format!("{ns}-hold");
    policy::apply(
        team.plane,
        &hold,
        &format!("{target}  protect: {{whileUsed: {{onDelete: Hold}}}}\n"),
    );
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: root}\n");
    let owner = owned_by("ConfigMap", "root", &team.field("configmap/root", ".metadata.uid"));
    team.apply(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: key, {owner}}}\n"));
    // A user that goes along, and takes its time.
    let slow = format!("name: slow, finalizers: [example.com/busy], {owner}");
    team.apply(&pod("slow", "secretRef", "key").replace("name: slow", &slow));

    team.deleted(&["configmap/root", "--cascade=foreground"]);
    team.was_kept("secret/key");
    assert_ne!(team.field("pod/slow", ".metadata.deletionTimestamp"), "");
    let finish = ["patch", "pod/slow", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
    team.kubectl(&finish).success().unwrap();
    team.goes("pod/slow");
    team.goes("secret/key");
    team.goes("configmap/root");

    // A user that does not go along: where a policy says no, it says so at the
    // root, before anything is Terminating.
    team.plane.delete(&["deletionpolicy", &hold], "");
    policy::apply(team.plane, ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: again}\n");
    let owner = owned_by("ConfigMap", "again", &team.field("configmap/again", ".metadata.uid"));
    team.apply(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: lock, {owner}}}\n"));
    team.apply(&pod("outside", "secretRef", "lock"));
    let refused = eventually("a refusal", SOON, || {
        team.delete(&["configmap/again", "--cascade=foreground", "--dry-run=server"]).failure()
    })
    .unwrap();
    let words = format!(
        "configmaps \"again\" takes secrets \"lock\" along, which is in use by Pod {ns}/outside \
         (spec.containers[0].envFrom[0].secretRef.name); policy {ns}. Way out: "
    );
    assert!(refused.contains(&words), "{refused}");
    team.refused(&["configmap/again", "--cascade=foreground"]);
    team.stands("configmap/again");
    team.stands("secret/lock");
}

#[test]
fn s35_a_stateful_set_and_its_claim_go_with_one_command_and_no_retry() {
    let team = Team::new(&world().plane, "s35");
    let ns = &team.ns;
    let target = policy::target("", "persistentvolumeclaims", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    for (name, order) in [("first", ["sts/first", "pvc/first"]), ("last", ["pvc/last", "sts/last"])]
    {
        team.plane.apply(&claim(ns, name)).unwrap();
        team.apply(&using("StatefulSet", name, name));
        until(&team, &format!("pod/{name}-0"), "condition=Ready");
        let output = team.kubectl(&[&["delete", "--wait=false"][..], &order].concat());
        if name == "first" {
            // The claim waits for the Pods that go.
            output.success().unwrap();
        } else {
            let refused = output.failure().unwrap();
            let words = format!(
                "persistentvolumeclaims \"last\" is in use by StatefulSet {ns}/last (Pod last-0, \
                 spec.volumes[0].persistentVolumeClaim.claimName); policy {ns}. Way out: "
            );
            assert!(refused.contains(&words), "{refused}");
            team.stands("pvc/last");
            team.goes("sts/last");
            team.goes("pod/last-0");
            team.deleted(&["pvc/last"]);
        }
        team.goes(&format!("pvc/{name}"));
    }
}

/// The StatefulSet waits for the claims that it owns, and needs them itself.
#[test]
fn s35_a_stateful_set_that_owns_its_claims_goes_in_the_foreground() {
    let team = Team::new(&world().plane, "s35-owned");
    let ns = &team.ns;
    let target = policy::target("", "persistentvolumeclaims", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    apply_owning_set(&team);
    team.deleted(&["sts/db", "--cascade=foreground"]);
    team.goes("sts/db");
    team.goes("pvc/data-db-0");
}

/// Applies a StatefulSet that owns its claim, and waits until it does.
fn apply_owning_set(team: &Team<'_>) {
    let volume = claim(&team.ns, "data-db-0");
    team.plane.apply(volume.split("---").next().unwrap()).unwrap();
    let set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: \
    db}\nspec:\n  serviceName: x\n  \
               selector: {matchLabels: {app: db}}\n  persistentVolumeClaimRetentionPolicy: \
               {whenDeleted: Delete}\n  template:\n    metadata: {labels: {app: db}}\n    spec: \
               {terminationGracePeriodSeconds: 0, containers: [{name: main, image: x}]}\n  \
               volumeClaimTemplates:\n  - metadata: {name: data}\n    spec: {accessModes: \
               [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}}\n";
    team.apply(set);
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
fn s35_a_stateful_set_leaves_its_claims_when_it_is_told_to_retain_them() {
    let team = Team::new(&world().plane, "s35-retained");
    let ns = &team.ns;
    let target = policy::target("", "persistentvolumeclaims", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{fromOrphaning: {{}}}}\n"));
    apply_owning_set(&team);
    let none = r#"{"metadata":{"ownerReferences":null}}"#;
    team.kubectl(&["patch", "pvc/data-db-0", "--type=merge", "-p", none]).failure().unwrap();
    let retain = r#"{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain"}}}"#;
    team.kubectl(&["patch", "sts/db", "--type=merge", "-p", retain]).success().unwrap();
    eventually("a claim without an owner", SOON, || {
        match team.field("pvc/data-db-0", ".metadata.ownerReferences").as_str() {
            "" => Ok(()),
            owners => Err(owners.into()),
        }
    })
    .unwrap();
}

#[test]
fn s41_what_is_deleted_all_at_once_goes_with_no_further_action_under_hold() {
    let team = Team::new(&world().plane, "s41");
    let ns = &team.ns;
    let target = policy::target("", "persistentvolumeclaims, secrets", ns);
    let spec = format!("{target}  protect: {{whileUsed: {{onDelete: Hold}}}}\n");
    policy::apply(team.plane, ns, &spec);
    let all = all_at_once(&team);
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    for object in ["deployment/web", "pvc/data", "secret/key"] {
        team.goes(object);
    }
}

#[test]
fn s41_what_comes_too_early_is_denied_and_a_retry_passes_under_deny() {
    let team = Team::new(&world().plane, "s41-deny");
    let ns = &team.ns;
    let target = policy::target("", "persistentvolumeclaims, secrets", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    // Who comes first among those at once is anybody's guess; what surely comes
    // too early is refused.
    team.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: early}\n");
    team.apply(&pod("reader", "secretRef", "early"));
    let refused = team.refused(&["secret/early", "pod/reader"]);
    assert!(refused.contains(&format!("is in use by Pod {ns}/reader")), "{refused}");
    team.goes("pod/reader");
    eventually("a retry that passes", SOON, || team.delete(&["secret/early"]).success()).unwrap();
    for refused in all_at_once(&team).into_iter().filter_map(Result::err) {
        assert!(refused.contains(&format!("is in use by Deployment {ns}/web")), "{refused}");
    }
    team.goes("deployment/web");
    eventually("the end of the Pods", SOON, || {
        let pods = team.plane.api().fields("pods", ns, "", ".metadata.name")?;
        if pods.is_empty() { Ok(()) } else { Err(pods.concat().into()) }
    })
    .unwrap();
    for object in ["pvc/data", "secret/key"] {
        // The graph learns a moment later that the last Pod is gone.
        eventually("a retry that passes", SOON, || {
            team.kubectl(&["delete", object, "--ignore-not-found", "--wait=false"]).success()
        })
        .unwrap();
        team.goes(object);
    }
}

/// A Deployment with a claim and a Secret, all deleted by one person at one
/// time in the foreground; what each DELETE came to.
fn all_at_once(team: &Team<'_>) -> Vec<Result<String, String>> {
    team.plane.apply(&claim(&team.ns, "data")).unwrap();
    team.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\n");
    let secret = "containers: [{name: main, image: x, envFrom: [{secretRef: {name: key}}]}]";
    team.apply(
        &using("Deployment", "web", "data").replace("containers: [{name: main, image: x}]", secret),
    );
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
    let schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    let crd = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: \
         {plural}.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: \
         {plural}, \
         singular: database, kind: Database}}\n  versions: [{{name: v1, served: true, storage: \
         true, \
         schema: {schema}}}]\n"
    );
    team.plane.apply(&crd).unwrap();
    team.may(&format!("[{{apiGroups: ['{group}'], resources: ['*'], verbs: ['*']}}]"));
    let target = policy::target("", "persistentvolumeclaims", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    team.plane.apply(&claim(ns, "data")).unwrap();
    let database = format!("apiVersion: {group}/v1\nkind: Database\nmetadata: {{name: db}}\n");
    eventually("the kind", SOON, || team.send(&["apply", "-f", "-"], &database).success()).unwrap();
    let uid = team.field(&format!("{plural}.{group}/db"), ".metadata.uid");
    let owner = format!(
        "ownerReferences: [{{apiVersion: {group}/v1, kind: Database, name: db, uid: {uid}}}]"
    );
    // The finalizer keeps the Pod Terminating for as long as the test wants.
    team.apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: db-0, finalizers: [example.com/drain], \
        {owner}}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  containers: [{{name: main, image: \
         x}}]\n  volumes: \
         [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]\n"
    ));
    team.deleted(&["pod/db-0"]);
    assert_ne!(team.field("pod/db-0", ".metadata.deletionTimestamp"), "");
    // Replicas may know the Pod before they know its owner.
    let used = format!("is in use by Database {ns}/db");
    let refused = eventually("a refusal that names the owner", SOON, || {
        let refused = team.delete(&["pvc/data", "--dry-run=server"]).failure()?;
        if refused.contains(&used) { Ok(refused) } else { Err(refused.into()) }
    })
    .unwrap();
    assert!(refused.contains("(Pod db-0, spec.volumes[0]"), "{refused}");
    team.stands("pvc/data");

    // Without the operator's resource nothing makes the Pod again, and the
    // claim waits for this one.
    team.deleted(&[&format!("{plural}.{group}/db")]);
    eventually("a DELETE that passes", SOON, || team.delete(&["pvc/data"]).success()).unwrap();
    team.was_kept("pvc/data");
    let finish = ["patch", "pod/db-0", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
    team.kubectl(&finish).success().unwrap();
    team.goes("pvc/data");
}
