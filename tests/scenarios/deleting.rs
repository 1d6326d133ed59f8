//! DELETE, as people send it: CRDs, Namespaces, and everything of a kind.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, bound_claim, claim, object, pod};
use crate::harness::rbac::{rule, user};
use crate::harness::{ControlPlane, eventually};
use crate::people::{Person, field};
use crate::{policy, world};

const LAMPS: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
     metadata: {name: lamps.s01.example.com}\n\
     spec:\n  group: s01.example.com\n  scope: Namespaced\n  names: {kind: Lamp, plural: lamps}\n  \
     versions:\n  - {name: v1, served: true, storage: true, schema: &any {openAPIV3Schema: \
     {type: object}}}\n  - {name: v1beta1, served: true, storage: false, schema: *any}\n";

#[test]
fn s01_a_crd_with_objects_stays_and_one_without_is_deleted() {
    let plane = &world().plane;
    let ns = plane.namespace("s01").unwrap();
    plane.apply(LAMPS).unwrap();
    let established = ["wait", "crd/lamps.s01.example.com", "--for=condition=Established"];
    plane.kubectl(&established).unwrap().success().unwrap();
    let verbs = "get, list, watch, delete";
    let crds = rule("apiextensions.k8s.io", "customresourcedefinitions", verbs);
    plane.grant("s01-dora", None, &[crds], &[user("s01-dora")]).unwrap();
    let dora = plane.user("s01-dora", None).unwrap();
    let target = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "names": ["lamps.s01.example.com"]});
    let protect = json!({"whileNotEmpty": {"counting": "Any"}});
    policy::apply(plane, "s01", json!({"targets": [target], "protect": protect}));

    let delete = ["delete", "crd", "lamps.s01.example.com"];
    for version in ["v1", "v1beta1"] {
        let api_version = format!("s01.example.com/{version}");
        let lamp = object(&api_version, "Lamp", &format!("of-{version}"));
        plane.apply(&lamp.with_namespace(&ns)).unwrap();
        let denied = plane.kubectl_as(&dora, &delete).unwrap().failure().unwrap();
        assert_eq!(
            denied,
            format!(
                "Error from server (NotEmpty): admission webhook \"delete.belay.dev\" denied the \
                 request: customresourcedefinition.apiextensions.k8s.io \
                 \"lamps.s01.example.com\" is not empty: it contains Lamp \
                 {ns}/of-{version}, perhaps others; policy s01. To delete it, first delete Lamp \
                 {ns}/of-{version}; list all of them: kubectl belay impact \
                 customresourcedefinitions.apiextensions.k8s.io/lamps.s01.example.com. To \
                 override: kubectl belay approve \
                 customresourcedefinitions.apiextensions.k8s.io/lamps.s01.example.com --reason \
                 \"…\". Details: kubectl belay why \
                 customresourcedefinitions.apiextensions.k8s.io/lamps.s01.example.com\n"
            )
        );
        let path = ".metadata.deletionTimestamp";
        assert_eq!(field(plane, &ns, "crd/lamps.s01.example.com", path), "");
        let lamp = format!("lamps.{version}.s01.example.com/of-{version}");
        plane.kubectl(&["delete", &lamp, "-n", &ns]).unwrap().success().unwrap();
    }
    plane.kubectl_as(&dora, &delete).unwrap().success().unwrap();
}

/// Applies a claim and waits until it is bound.
fn apply_bound_claim(plane: &ControlPlane, ns: &str) {
    for object in bound_claim(ns, "data", ns) {
        plane.apply(&object).unwrap();
    }
    eventually("the claim bound", Duration::from_secs(60), || {
        let phase = field(plane, ns, "pvc/data", ".status.phase");
        if phase == "Bound" { Ok(()) } else { Err(phase.into()) }
    })
    .unwrap();
}

#[test]
fn s02_a_namespace_with_a_bound_claim_or_a_protected_object_is_not_begun() {
    namespaces_are_not_begun(&world().plane);
}

/// Scenario 2, and scenario 3 for a Namespace without protected objects, which is deleted.
pub fn namespaces_are_not_begun(plane: &ControlPlane) {
    let ns = plane.namespace("s02").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    apply_bound_claim(plane, &ns);
    policy::protect_namespace(plane, &ns);
    let delete = ["delete", "namespace", &ns];
    let denied = plane.kubectl_as(&who, &delete).unwrap().failure().unwrap();
    assert_eq!(
        denied,
        format!(
            "Error from server (NotEmpty): admission webhook \"delete.belay.dev\" denied the \
             request: namespace \"{ns}\" is not empty: it contains PersistentVolumeClaim {ns}/data \
             (bound); policy {ns}. To delete it, first delete PersistentVolumeClaim \
             {ns}/data. To override: kubectl belay approve namespaces/{ns} --reason \"…\". \
             Details: kubectl belay why namespaces/{ns}\n"
        )
    );
    let begun =
        |ns: &str| field(plane, ns, &format!("namespace/{ns}"), ".metadata.deletionTimestamp");
    assert_eq!(begun(&ns), "");
    let run = |args: &[&str]| plane.kubectl_as(&who, args).unwrap().success().unwrap();
    plane.apply(&pod_with_claim(&ns, "shop", "data")).unwrap();
    run(&["delete", "pvc", "data", "-n", &ns, "--wait=false"]);
    // A further DELETE of the claim does nothing.
    let advice = format!(
        "To delete it, first find out what keeps PersistentVolumeClaim {ns}/data Terminating: \
         kubectl belay why persistentvolumeclaims/data -n {ns}. "
    );
    eventually("the advice", Duration::from_secs(20), || {
        let denied = plane.kubectl_as(&who, &delete)?.failure()?;
        if denied.contains(&advice) { Ok(()) } else { Err(denied.into()) }
    })
    .unwrap();
    run(&["delete", "pod", "shop", "-n", &ns]);
    run(&[&delete[..], &["--timeout=90s"]].concat());

    // No policy is about this Namespace; one is about objects in it.
    let ns = plane.namespace("s02").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    plane.kubectl(&["create", "configmap", "settings", "-n", &ns]).unwrap().success().unwrap();
    let shop = pod("shop").with_env_from("configMapRef", "settings").with_node("node-0");
    plane.apply(&shop.with_namespace(&ns)).unwrap();
    let target = policy::target("", "configmaps", &ns);
    let protect = |mode: &str| {
        let spec = json!({"targets": [target], "protect": {mode: {}}, "hold": "Never"});
        policy::apply(plane, &ns, spec);
    };
    protect("always");
    let delete = ["delete", "namespace", &ns];
    let denied = plane.kubectl_as(&who, &delete).unwrap().failure().unwrap();
    let reason = format!(
        "denied the request: deleting namespace \"{ns}\" also deletes configmap \"settings\", \
         which is protected; policy {ns}. To override: kubectl belay approve namespaces/{ns} \
         --scope content --reason \"…\". Details: kubectl belay why namespaces/{ns}\n"
    );
    assert!(denied.ends_with(&reason), "{denied}");
    assert_eq!(begun(&ns), "");
    // Now it is protected only from its users, which are deleted with it.
    protect("whileUsed");
    let args = [&delete[..], &["--timeout=120s"]].concat();
    plane.kubectl_as(&who, &args).unwrap().success().unwrap();
}

#[test]
fn s04_of_all_claims_only_the_protected_one_stays_and_the_message_names_it() {
    let plane = &world().plane;
    let ns = plane.namespace("s04").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    policy::protect(plane, &ns, "persistentvolumeclaims", json!({"whileUsed": {}}));
    for name in ["cache", "data", "scratch"] {
        plane.apply(&claim(name).with_namespace(&ns)).unwrap();
    }
    plane.apply(&pod_with_claim(&ns, "shop", "data")).unwrap();
    eventually("the Pod, in the graph", Duration::from_secs(20), || {
        plane.api().delete(&["pvc", "data", "--dry-run=server"], &ns)?.failure().map(drop)
    })
    .unwrap();

    let all = ["delete", "pvc", "--all", "-n", &ns, "--wait=false"];
    let output = plane.kubectl_as(&who, &all).unwrap();
    assert_eq!(
        output.stderr,
        format!(
            "Error from server (InUse): admission webhook \"delete.belay.dev\" denied the request: \
             persistentvolumeclaim \"data\" is in use by Pod {ns}/shop (spec.volumes[0]\
             .persistentVolumeClaim.claimName); policy {ns}. To delete it, first delete Pod \
             {ns}/shop. To override: kubectl belay approve \
             persistentvolumeclaims/data -n {ns} --reason \"…\". Details: kubectl belay why \
             persistentvolumeclaims/data -n {ns}\n"
        )
    );
    assert_eq!(output.code, 1);
    for name in ["cache", "scratch"] {
        let line = format!("persistentvolumeclaim \"{name}\" deleted");
        assert!(output.stdout.contains(&line), "{}", output.stdout);
    }
    assert_eq!(field(plane, &ns, "pvc/data", ".metadata.deletionTimestamp"), "");
    // The others wait for the release, or are already deleted.
    for object in ["pvc/cache", "pvc/scratch"] {
        let left = plane.api().get(object, &ns).unwrap();
        let left = left.is_some_and(|left| left["metadata"]["deletionTimestamp"].is_null());
        assert!(!left, "{object} is not Terminating");
    }
    plane.delete(&["deletionpolicy", &ns], "");
}

/// A Pod on the node, which mounts a claim.
pub fn pod_with_claim(ns: &str, name: &str, claim: &str) -> Value {
    pod(name).with_namespace(ns).with_node("node-0").with_claim(claim)
}

/// Waits until an object is out of storage.
pub fn wait_until_deleted(plane: &ControlPlane, ns: &str, object: &str) {
    plane.api().wait_gone((object, ns), Duration::from_secs(120)).unwrap();
}
