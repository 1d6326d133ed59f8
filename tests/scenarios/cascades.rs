//! What the controllers of Kubernetes do to objects of policies with modes that don't
//! apply: belay does not block them, under any of their names.

use std::fmt::Display;
use std::time::Duration;

use serde_json::json;

use crate::deleting::{pod_with_claim, wait_until_deleted};
use crate::harness::manifest::{Manifest as _, claim};
use crate::harness::{ControlPlane, eventually};
use crate::people::{Person, field, is_gone};
use crate::{policy, world};

/// The modes that don't apply to these cascades: no dependent is orphaned, no object is
/// used from outside, and the control plane removes its own finalizers, although the policy
/// names another account.
fn watch_over(plane: &ControlPlane, ns: &str) {
    let targets = [
        policy::target("", "configmaps, persistentvolumeclaims, pods", ns),
        policy::target("apps", "deployments, replicasets", ns),
        policy::target("batch", "jobs", ns),
    ];
    let removers = json!([{"kind": "User", "name": "somebody-else"}]);
    let protect = json!({"whileUsed": {}, "fromOrphaning": {},
        "fromStripping": {"finalizers": ["*"], "removers": removers}});
    policy::apply(plane, ns, json!({"targets": targets, "protect": protect, "hold": "Never"}));
}

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n\
     spec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    \
     metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: none, envFrom: \
     [{configMapRef: {name: settings}}]}]}\n";

const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: report}\n\
     spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}\n";

fn create(plane: &ControlPlane, ns: &str, manifest: &(impl Display + ?Sized)) {
    let args = ["create", "-n", ns, "-f", "-"];
    plane.apply_to(&args, manifest).unwrap().success().unwrap();
}

#[test]
fn cascades_of_unprotected_objects_end() {
    cascades_end(&world().plane);
}

/// A Deployment each way, a Job with its Pods, a claim after its Pod, and the
/// Namespace with all of it.
pub fn cascades_end(plane: &ControlPlane) {
    let ns = plane.namespace("cascades").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    watch_over(plane, &ns);
    plane.kubectl(&["create", "configmap", "settings", "-n", &ns]).unwrap().success().unwrap();
    for cascade in ["background", "foreground"] {
        let wait = ["rollout", "status", "deployment/web", "-n", &ns, "--timeout=90s"];
        create(plane, &ns, DEPLOYMENT);
        plane.kubectl(&wait).unwrap().success().unwrap();
        let cascade = format!("--cascade={cascade}");
        let delete = ["delete", "deployment", "web", "-n", &ns, &cascade, "--timeout=90s"];
        plane.kubectl_as(&who, &delete).unwrap().success().unwrap();
        eventually("the Deployment's own gone", Duration::from_secs(90), || {
            let left = |kind| plane.api().fields(kind, &ns, "app=web", ".metadata.name");
            let left = [left("replicasets")?, left("pods")?].concat();
            if left.is_empty() { Ok(()) } else { Err(left.join(" ").into()) }
        })
        .unwrap();
    }

    // The Job controller removes its finalizer from Pods after it has counted them.
    create(plane, &ns, JOB);
    eventually("the Job's Pod counted", Duration::from_secs(90), || {
        let paths = ".status.phase .metadata.finalizers";
        let said = plane.api().fields("pods", &ns, "job-name=report", paths)?;
        if said == ["Succeeded "] { Ok(()) } else { Err(said.concat().into()) }
    })
    .unwrap();
    let delete = ["delete", "job", "report", "-n", &ns, "--timeout=90s"];
    plane.kubectl_as(&who, &delete).unwrap().success().unwrap();

    finalizer_of_a_claim(plane, &ns);

    // The Namespace with all remaining objects, and an object in use.
    create(plane, &ns, DEPLOYMENT);
    let delete = ["delete", "namespace", &ns, "--timeout=180s"];
    plane.kubectl_as(&who, &delete).unwrap().success().unwrap();
}

/// A claim that is deleted while a Pod mounts it waits for a finalizer that users may not
/// remove. Its controller removes it after the Pod was deleted.
fn finalizer_of_a_claim(plane: &ControlPlane, ns: &str) {
    let who = Person::editor(plane, ns).kubeconfig;
    // With `whileUsed` the claim would be kept from the start.
    create(plane, ns, &claim("data").with_namespace(ns));
    let delete = ["delete", "pvc", "data", "-n", ns, "--wait=false"];
    let pod = pod_with_claim(ns, "shop", "data");
    create(plane, ns, &pod);
    eventually("the claim in use", Duration::from_secs(30), || {
        plane.kubectl(&[&delete[..], &["--dry-run=server"]].concat())?.failure().map(drop)
    })
    .unwrap();
    let only = json!({"spec": {"protect": {"whileUsed": null}}});
    plane.patch(&format!("deletionpolicy/{ns}"), "", &only);
    policy::wait_until_in_force(plane, ns);
    plane.kubectl_as(&who, &delete).unwrap().success().unwrap();

    let none = "{\"metadata\":{\"finalizers\":null}}";
    let strip = ["patch", "pvc", "data", "-n", ns, "--type=merge", "-p", none];
    let refused = plane.kubectl_as(&who, &strip).unwrap().failure().unwrap();
    let reason = format!(
        "you may not remove the finalizer kubernetes.io/pvc-protection from \
         persistentvolumeclaim \"data\"; policy {ns}."
    );
    assert!(refused.contains(&reason), "{refused}");
    assert_ne!(field(plane, ns, "pvc/data", ".metadata.deletionTimestamp"), "");
    let left = is_gone(plane, ns, "pvc/data");
    assert!(left.is_err());
    plane.kubectl(&["delete", "pod", "shop", "-n", ns]).unwrap().success().unwrap();
    wait_until_deleted(plane, ns, "pvc/data");
}
