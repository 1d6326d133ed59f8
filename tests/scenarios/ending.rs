//! An object that is deleted while it is in use stays until it is not.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map, pod, secret, workload};
use crate::people::Person;
use crate::team::SOON;
use crate::{policy, world};

/// A Deployment of one Pod that reads a ConfigMap, with this in its Pod's spec.
fn deployment(settings: &str, spec: Value) -> Value {
    let pod = pod("web").with_volume(json!({"configMap": {"name": settings}}));
    let deployment = workload("Deployment", "web", &pod.with(json!({"spec": spec})));
    let strategy = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    deployment.with(json!({"spec": {"replicas": 1, "strategy": strategy}}))
}

#[test]
fn s38_a_re_created_pod_finds_its_held_settings() {
    let plane = &world().plane;
    let ns = plane.namespace("s38").unwrap();
    let jane = Person::of(plane, &ns);
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    for name in ["web-1", "web-2"] {
        jane.apply(&config_map(name).with(json!({"data": {"a": "b"}})));
    }
    jane.apply(&deployment("web-1", json!({})));
    jane.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).success().unwrap();
    let pods = || {
        let paths = ".metadata.name .status.phase .spec.volumes[0].configMap.name \
                     .metadata.deletionTimestamp";
        plane.api().fields("pods", &ns, "app=web", paths).unwrap()
    };
    // The only Pod that runs, if it reads the old ConfigMap and is not Terminating.
    let running = |pods: &[String]| {
        let mut pods = pods.iter().filter(|pod| pod.contains(" Running "));
        let name = pods.next()?.strip_suffix(" Running web-1 ")?.to_owned();
        if pods.next().is_none() { Some(name) } else { None }
    };
    let name = running(&pods()).unwrap();

    // The new Pods find no node, so the rollout stays incomplete, and the ConfigMap of the
    // old Pods is pruned.
    jane.apply(&deployment("web-2", json!({"nodeSelector": {"none": "such"}})));
    eventually("the new Pod", Duration::from_secs(30), || {
        let now = pods().join(", ");
        if now.contains(" Pending ") { Ok(()) } else { Err(now.into()) }
    })
    .unwrap();
    let pruned = jane.delete(&["configmap/web-1"]);
    assert!(pruned.ok(), "{}", pruned.stderr);
    assert_eq!(
        pruned.stderr,
        format!(
            "Warning: configmap \"web-1\" stays Terminating until Deployment {ns}/web no longer uses \
             it; policy {ns}\n"
        )
    );

    jane.kubectl(&["delete", &format!("pod/{name}"), "--timeout=30s"]).success().unwrap();
    eventually("the Pod that is re-created", Duration::from_secs(60), || {
        let now = pods();
        let again = running(&now).is_some_and(|other| other != name);
        if again { Ok(()) } else { Err(now.join(", ").into()) }
    })
    .unwrap();
    // It is Terminating, and whole.
    assert_ne!(jane.field("configmap/web-1", ".metadata.deletionTimestamp"), "");
    assert_eq!(jane.field("configmap/web-1", ".data.a"), "b");
}

#[test]
fn s45_a_delete_of_a_held_object_warns_with_its_users() {
    let plane = &world().plane;
    let ns = plane.namespace("s45").unwrap();
    let jane = Person::of(plane, &ns);
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    jane.apply(&config_map("settings"));
    for name in ["a", "b"] {
        jane.apply(&pod(name).with_env_from("configMapRef", "settings"));
    }
    let waits = format!(
        "Warning: configmap \"settings\" stays Terminating until Pod {ns}/a, Pod {ns}/b no longer \
         use it; policy {ns}\n"
    );
    let says_so = |more: &[&str]| {
        let deleted = jane.delete(&[&["configmap/settings"], more].concat());
        if deleted.stderr == waits { deleted.success() } else { Err(deleted.stderr.into()) }
    };
    eventually("belay knows of both Pods", SOON, || says_so(&["--dry-run=server"])).unwrap();
    says_so(&[]).unwrap();
    assert_ne!(jane.field("configmap/settings", ".metadata.deletionTimestamp"), "");
    assert_eq!(jane.finalizers("configmap/settings"), r#"["belay.dev/hold"]"#);
    let policy = format!("deletionpolicy/{ns}");
    let counted = |said: &str| said.starts_with("1 ") && said.contains("settings");
    let paths = ".status.last24h.held .status.recent[0].target";
    plane.api().wait_field((&policy, ""), Duration::from_secs(60), paths, counted).unwrap();
    eventually("the Event on what is held", Duration::from_secs(60), || {
        let paths = ".involvedObject.name .reason .type .message";
        let mut events = plane.api().fields("events", &ns, "", paths)?;
        events.retain(|event| event.starts_with("settings Held "));
        let said = events.join(" ");
        if said.contains(&format!("Pod {ns}/a")) { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();

    // An unused object is deleted without a warning.
    jane.apply(&config_map("free"));
    let deleted = jane.delete(&["configmap/free"]);
    assert_eq!((deleted.code, &*deleted.stderr), (0, ""));
}

/// The API server stops the DELETE of all Pods of a Terminating Namespace at the first denial.
#[test]
fn a_namespace_ends_although_an_object_owns_what_its_neighbour_uses() {
    let plane = &world().plane;
    let ns = plane.namespace("neighbours").unwrap();
    let jane = Person::of(plane, &ns);
    let spec = json!({"targets": [policy::target("", "secrets", &ns)],
        "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    jane.apply(&pod("a").without_grace_period());
    let uid = jane.field("pod/a", ".metadata.uid");
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid}]);
    let owned = json!({"metadata": {"ownerReferences": owner}});
    jane.apply(&secret("key").with(owned));
    jane.apply(&pod("b").with_env_from("secretRef", "key").without_grace_period());
    eventually("a denial", SOON, || {
        let denied = jane.delete(&["pod/a", "--dry-run=server"]).failure()?;
        if denied.contains("in use by Pod") { Ok(()) } else { Err(denied.into()) }
    })
    .unwrap();
    plane.kubectl(&["delete", "namespace", &ns, "--timeout=120s"]).unwrap().success().unwrap();
}
