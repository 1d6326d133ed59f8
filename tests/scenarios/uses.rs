//! An object in use stays, and the refusal names its user.

use std::time::Duration;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, claim, config_map, object, pod, secret};
use crate::harness::rbac::rule;
use crate::people::Person;
use crate::{policy, world};

/// Deletes an object in use, has the user deleted, and deletes it again. Of each user: its
/// name, its name in the refusal, and the advice.
fn is_kept(jane: &Person<'_>, object: &str, users: &[(&str, &str, &str)], policy: &str) {
    for (user, named, advice) in users {
        let denied = jane.refused(&[object]);
        assert!(denied.contains("Error from server (InUse): "), "{denied}");
        let sentence = format!("is in use by {named}");
        assert!(denied.contains(&sentence), "{denied}");
        assert!(denied.contains(&format!("; policy {policy}. {advice}. To override")), "{denied}");
        jane.kubectl(&["delete", user, "--timeout=30s"]).success().unwrap();
    }
    eventually(&format!("the end of {object}"), Duration::from_secs(30), || {
        jane.delete(&[object]).success().map(drop)
    })
    .unwrap();
    eventually(&format!("the end of {object}"), Duration::from_secs(30), || {
        if jane.lacks(object) { Ok(()) } else { Err("it is there".into()) }
    })
    .unwrap();
}

#[test]
fn s22_a_claim_and_a_secret_are_kept_while_pods_and_ingresses_use_them() {
    let plane = &world().plane;
    let ns = plane.namespace("s22").unwrap();
    let jane = Person::of(plane, &ns);
    let target = policy::target("", "persistentvolumeclaims, secrets, services", &ns);
    // Without holds, an unused object is deleted at once.
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);

    jane.apply(&claim("data"));
    jane.apply(&pod("db").with_claim("data"));
    is_kept(
        &jane,
        "persistentvolumeclaim/data",
        &[(
            "pod/db",
            &format!("Pod {ns}/db (spec.volumes[0].persistentVolumeClaim.claimName)"),
            &format!("To delete it, first delete Pod {ns}/db"),
        )],
        &ns,
    );

    jane.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: tls}\nstringData: {a: b}\n");
    jane.apply(&pod("reader").with_volume(json!({"secret": {"secretName": "tls"}})));
    jane.apply(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {tls: \
         [{secretName: tls}], defaultBackend: {service: {name: shop, port: {number: 80}}}}\n",
    );
    jane.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {ports: [{port: 80}]}\n",
    );
    let denied = jane.refused(&["service/shop"]);
    let sentence = format!(
        "service \"shop\" is in use by Ingress {ns}/shop (spec.defaultBackend.service.name)"
    );
    assert!(denied.contains(&sentence), "{denied}");
    // Both are named while both use it.
    let ingress = format!("Ingress {ns}/shop (spec.tls[0].secretName)");
    let both = format!("{ingress}, Pod {ns}/reader (spec.volumes[0].secret.secretName)");
    let reference = format!("remove the reference from Ingress {ns}/shop");
    let pod = format!("To delete it, first delete Pod {ns}/reader, and {reference}");
    let alone = format!("To delete it, first {reference}, or delete the Ingress");
    let users = [("pod/reader", &*both, &*pod), ("ingress/shop", &*ingress, &*alone)];
    is_kept(&jane, "secret/tls", &users, &ns);
    jane.delete(&["service/shop"]).success().unwrap();
    assert!(jane.lacks("service/shop"));
}

#[test]
fn s22_a_storage_class_is_kept_while_a_volume_names_it() {
    let plane = &world().plane;
    let ns = plane.namespace("s22-class").unwrap();
    let jane = Person::of(plane, &ns);
    jane.may(&[rule("", "persistentvolumes", "*"), rule("storage.k8s.io", "storageclasses", "*")]);
    let target = json!({"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"],
        "names": ["s22-fast"]});
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    jane.apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s22-fast}\n\
         provisioner: example.com/none\n",
    );
    jane.apply(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: s22-volume}\nspec: \
         {storageClassName: s22-fast, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], \
         hostPath: {path: /none}}\n",
    );
    let volume = "persistentvolume/s22-volume";
    is_kept(
        &jane,
        "storageclass/s22-fast",
        &[(
            volume,
            "PersistentVolume s22-volume (spec.storageClassName)",
            "Don't delete it while PersistentVolume s22-volume exists",
        )],
        &ns,
    );
    plane.delete(&["deletionpolicy", &ns], "");
}

#[test]
fn s23_the_same_kind_and_name_elsewhere_is_another_object() {
    let plane = &world().plane;
    let ns = plane.namespace("s23").unwrap();
    let other = plane.namespace("s23-other").unwrap();
    let (jane, there) = (Person::of(plane, &ns), Person::of(plane, &other));
    let both = [&ns, &other].map(|place| policy::target("", "secrets", place));
    let spec = json!({"targets": both, "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    jane.apply(&secret("tls"));
    there.apply(&secret("tls"));
    jane.apply(&pod("reader").with_volume(json!({"secret": {"secretName": "tls"}})));
    let denied = jane.refused(&["secret/tls"]);
    assert!(denied.contains("is in use by Pod "), "{denied}");
    there.delete(&["secret/tls"]).success().unwrap();
    assert!(there.lacks("secret/tls"));

    // A kind of another group with the same plural name, under the same name
    // in the same namespace.
    let group = "s23.example.com";
    plane.define_kind(group, "Secret", "secrets").unwrap();
    jane.may(&[rule(group, "*", "*")]);
    jane.apply(&object(&format!("{group}/v1"), "Secret", "tls"));
    let object = format!("secrets.{group}/tls");
    jane.delete(&[&object]).success().unwrap();
    assert!(jane.lacks(&object));
    let denied = jane.refused(&["secret/tls"]);
    assert!(denied.contains("is in use by Pod "), "{denied}");
}

#[test]
fn s23_a_re_created_object_inherits_no_approval() {
    let plane = &world().plane;
    let ns = plane.namespace("s23-again").unwrap();
    let jane = Person::of(plane, &ns);
    jane.may(&[
        rule("belay.dev", "deletionapprovals", "create"),
        rule("", "configmaps", "approve-deletion"),
    ]);
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    jane.apply(&config_map("settings"));
    let uid = jane.field("configmap/settings", ".metadata.uid");
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(20);
    let target = json!({"group": "", "resource": "configmaps", "namespace": ns,
        "name": "settings", "uid": uid});
    let spec = json!({"targetRef": target, "approver": jane.name, "reason": "it is old",
        "expirationTime": format!("{until:.0}")});
    let approval = object("belay.dev/v1alpha1", "DeletionApproval", &ns);
    let approval = approval.with(json!({"spec": spec}));
    jane.send(&["create", "-f", "-"], &approval).success().unwrap();
    eventually("the approval", Duration::from_secs(30), || {
        jane.delete(&["configmap/settings"]).success().map(drop)
    })
    .unwrap();
    assert!(jane.lacks("configmap/settings"));

    jane.apply(&config_map("settings"));
    assert_ne!(jane.field("configmap/settings", ".metadata.uid"), uid);
    let denied = jane.delete(&["configmap/settings"]).failure().unwrap();
    assert!(denied.contains("configmap \"settings\" is protected"), "{denied}");
    plane.delete(&["deletionapproval", &ns], "");
}

#[test]
fn s44_the_secret_of_a_finished_job_can_be_deleted() {
    let plane = &world().plane;
    let ns = plane.namespace("s44").unwrap();
    let jane = Person::of(plane, &ns);
    policy::protect(plane, &ns, "secrets", json!({"whileUsed": {}}));
    jane.apply(&secret("token"));
    // A suspended Job has no Pod yet, and will need the Secret all the same.
    jane.apply(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: import}\nspec:\n  suspend: true\n  \
         template:\n    spec: {restartPolicy: Never, containers: [{name: c, image: none, envFrom: \
         [{secretRef: {name: token}}]}]}\n",
    );
    let denied = jane.refused(&["secret/token"]);
    let path = "spec.template.spec.containers[0].envFrom[0].secretRef.name";
    let sentence = format!("secret \"token\" is in use by Job {ns}/import ({path})");
    assert!(denied.contains(&sentence), "{denied}");
    let resume = r#"{"spec":{"suspend":false}}"#;
    jane.kubectl(&["patch", "job/import", "--type=merge", "-p", resume]).success().unwrap();
    jane.kubectl(&["wait", "--for=condition=Complete", "job/import", "--timeout=60s"])
        .success()
        .unwrap();
    assert!(!jane.lacks("job/import"));
    // The graph gets the deletion a moment later.
    let gone = eventually("the DELETE", Duration::from_secs(30), || {
        let deleted = jane.delete(&["secret/token"]);
        if deleted.ok() { Ok(deleted) } else { Err(deleted.stderr.into()) }
    })
    .unwrap();
    assert_eq!(gone.stderr, "");
}
