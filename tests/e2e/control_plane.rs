//! The control plane that the other tests use.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::manifest::{Manifest as _, claim, object};
use crate::harness::{ControlPlane, Fault, Install, Options, Result, eventually};
use crate::{program, world};

#[test]
fn nodes_are_ready_and_pods_run_end_and_are_re_created() {
    let plane = &world().plane;
    let ns = plane.namespace("pods").unwrap();
    let manifest = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  serviceName: db\n  \
        selector: {matchLabels: {app: db}}\n  template:\n    metadata: {labels: {app: db}}\n    \
        spec: {containers: [{name: main, image: db}]}\n";
    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], manifest).unwrap().success().unwrap();
    let runs = |before: &str| {
        let (pod, paths) = (("pod/db-0", &*ns), ".metadata.uid .status.phase");
        let is_met = |now: &str| now.ends_with(" Running") && now != before;
        plane.api().wait_field(pod, Duration::from_secs(30), paths, is_met).unwrap()
    };
    let first = runs("");
    // With a grace period, and with a kubelet that has to agree.
    plane.kubectl(&["delete", "pod", "db-0", "-n", &ns]).unwrap().success().unwrap();
    // The same Pod is re-created.
    runs(&first);
}

#[test]
fn a_claim_is_bound_by_the_host_path_provisioner() {
    let plane = &world().plane;
    let ns = plane.namespace("claim").unwrap();
    let class = object("storage.k8s.io/v1", "StorageClass", &ns);
    plane.apply(&class.with(json!({"provisioner": "kubernetes.io/host-path"}))).unwrap();
    let claim = claim("data").with_namespace(&ns);
    plane.apply(&claim.with(json!({"spec": {"storageClassName": ns}}))).unwrap();
    let (claim, limit) = (("pvc/data", &*ns), Duration::from_secs(30));
    plane.api().wait_field(claim, limit, ".status.phase", |phase| phase == "Bound").unwrap();
}

#[test]
fn rbac_is_on_and_users_are_real() {
    let plane = &world().plane;
    let alice = plane.user("alice", None).unwrap();
    let refused = plane.kubectl_as(&alice, &["get", "secrets"]).unwrap().failure().unwrap();
    assert!(refused.contains("User \"alice\" cannot list resource \"secrets\""), "{refused}");
}

/// A separate control plane: two replicas, and every fault of the network and the processes
/// between them.
#[test]
fn faults_can_be_made_and_mended() {
    let options = Options { service_account_credentials: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options).unwrap();
    // An API server that has just started does not know RBAC yet.
    let install = Install { replicas: 2, may_be_forbidden: true, ..Install::default() };
    let belay = install.on(&plane, program()).unwrap();
    plane
        .apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, labels: {belay.dev/protect: Always}}\n")
        .unwrap();
    let delete = |plane: &ControlPlane| {
        plane
            .kubectl(&["delete", "configmap", "kept", "--dry-run=server"])
            .unwrap()
            .failure()
            .unwrap()
    };

    // Each new connection is to the next replica.
    eventually("denials by both replicas", Duration::from_secs(30), || {
        // A request may be on a connection just as it is cut.
        let _ = delete(&plane);
        plane.proxy.cut_open();
        let denied =
            "belay_denials_total{policy=\"label Always\",reason=\"Protected\",action=\"Deny\"}";
        let denies =
            |one: usize| -> Result<bool> { Ok(belay.replicas[one].metrics()?.contains(denied)) };
        match (denies(0)?, denies(1)?) {
            (true, true) => Ok(()),
            both => Err(format!("{both:?}").into()),
        }
    })
    .unwrap();

    // Without a network, labelled objects stay because of failurePolicy Fail.
    plane.proxy.set_fault(Fault::Cut);
    let message = delete(&plane);
    assert!(message.contains("failed calling webhook"), "{message}");
    plane.proxy.set_fault(Fault::Slow(Duration::from_millis(300)));
    let denied = || {
        eventually("a denial", Duration::from_secs(60), || match delete(&plane) {
            message if message.contains("is protected; label") => Ok(()),
            message => Err(message.into()),
        })
        .unwrap();
    };
    let start = Instant::now();
    denied();
    assert!(start.elapsed() > Duration::from_millis(300));
    plane.proxy.set_fault(Fault::None);

    // A paused process answers again after it is resumed.
    let manager = plane.controller_manager.as_ref().unwrap();
    manager.signal(rustix::process::Signal::STOP).unwrap();
    manager.signal(rustix::process::Signal::CONT).unwrap();

    // Data outlives restarts of the API server and of etcd.
    plane.api_server().kill();
    assert!(plane.api().is_ready().is_err());
    plane.etcd().restart().unwrap();
    plane.api_server().restart().unwrap();
    plane.wait_until_serving().unwrap();
    eventually("a denial after the restarts", Duration::from_secs(60), || match delete(&plane) {
        message if message.contains("is protected; label") => Ok(()),
        message => Err(message.into()),
    })
    .unwrap();
}
