//! What Kubernetes' own controllers do to what policies watch over and do not
//! refuse: nothing of it is in their way, whatever names they go by.

use std::time::Duration;

use crate::deleting::{claim, goes, pod_with_claim};
use crate::harness::{ControlPlane, eventually};
use crate::people::{Person, field, is_gone};
use crate::{policy, world};

/// Every mode under which these cascades are none of belay's business: nobody
/// orphans, nothing is used from outside, and the control plane takes off its
/// own finalizers, though the policy names somebody else alone.
fn watch_over(plane: &ControlPlane, ns: &str) {
    let place =
        format!("namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {ns}}}}}");
    let removers = "removers: [{kind: User, name: somebody-else}]";
    let spec = format!(
        "  targets:\n  \
         - {{apiGroups: [\"\"], resources: [configmaps, persistentvolumeclaims, pods], {place}}}\n  \
         - {{apiGroups: [apps], resources: [deployments, replicasets], {place}}}\n  \
         - {{apiGroups: [batch], resources: [jobs], {place}}}\n  \
         protect: {{whileUsed: {{}}, fromOrphaning: {{}}, fromStripping: {{finalizers: [\"*\"], \
         {removers}}}}}\n  \
         hold: Never\n"
    );
    policy::apply(plane, ns, &spec);
}

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n\
     spec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    \
     metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: none, envFrom: \
     [{configMapRef: {name: settings}}]}]}\n";

const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: report}\n\
     spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}\n";

fn create(plane: &ControlPlane, ns: &str, manifest: &str) {
    let args = ["create", "-n", ns, "-f", "-"];
    plane.apply_to(&args, manifest).unwrap().success().unwrap();
}

#[test]
fn cascades_of_what_nobody_protects_end() {
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

    // A Job takes its finalizer off its Pods when they are counted.
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

    // The Namespace with everything that is left, and something that is used.
    create(plane, &ns, DEPLOYMENT);
    let delete = ["delete", "namespace", &ns, "--timeout=180s"];
    plane.kubectl_as(&who, &delete).unwrap().success().unwrap();
}

/// A claim that is deleted while a Pod mounts it waits on a finalizer that
/// nobody takes off by hand; its controller does when the Pod is gone.
fn finalizer_of_a_claim(plane: &ControlPlane, ns: &str) {
    let who = Person::editor(plane, ns).kubeconfig;
    // From `whileUsed` the claim would be kept in the first place.
    create(plane, ns, &claim(ns, "data"));
    let delete = ["delete", "pvc", "data", "-n", ns, "--wait=false"];
    let pod = pod_with_claim(ns, "shop", "data");
    create(plane, ns, &pod);
    eventually("the claim in use", Duration::from_secs(30), || {
        plane.kubectl(&[&delete[..], &["--dry-run=server"]].concat())?.failure().map(drop)
    })
    .unwrap();
    let only = serde_json::json!({"spec": {"protect": {"whileUsed": null}}});
    plane.patch(&format!("deletionpolicy/{ns}"), "", &only);
    policy::in_force(plane, ns);
    plane.kubectl_as(&who, &delete).unwrap().success().unwrap();

    let none = "{\"metadata\":{\"finalizers\":null}}";
    let strip = ["patch", "pvc", "data", "-n", ns, "--type=merge", "-p", none];
    let refused = plane.kubectl_as(&who, &strip).unwrap().failure().unwrap();
    let reason = format!(
        "the finalizer kubernetes.io/pvc-protection of persistentvolumeclaims \"data\" is not \
         yours to take off; policy {ns}."
    );
    assert!(refused.contains(&reason), "{refused}");
    assert_ne!(field(plane, ns, "pvc/data", ".metadata.deletionTimestamp"), "");
    let left = is_gone(plane, ns, "pvc/data");
    assert!(left.is_err());
    plane.kubectl(&["delete", "pod", "shop", "-n", ns]).unwrap().success().unwrap();
    goes(plane, ns, "pvc/data");
}
