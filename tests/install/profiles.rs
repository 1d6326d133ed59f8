//! The behaviour of each profile, as users see it.

use crate::harness::audit::forbidden;
use crate::harness::{Chart, ControlPlane, Options};
use crate::shop::{Shop, policies_in_force, strict};
use crate::{plane, program};

#[test]
fn observe_refuses_only_for_labelled_objects_and_records_other_denials() {
    let plane = plane();
    let shop = Shop::open(&plane);
    let args = ["--set=profile=observe", "--set=replicas=1"];
    let chart = Chart::install(&plane, program(), &args).unwrap();
    chart.wait_for(1).unwrap();
    policies_in_force(&plane);
    // No object is held, and the delete of a claim in use is allowed. It is a dry run, so
    // that it can be repeated.
    let delete = ["delete", "pvc", "data-db-0", "--dry-run=server"];
    shop.kubectl(&delete);
    shop.holds("pvc/data-db-0", false);
    // The log and the metrics contain the denials that action Deny would cause.
    shop.kubectl(&["delete", "namespace", &shop.ns, "--dry-run=server"]);
    let replica = &chart.kubelet.replicas()[0];
    let metrics = replica.metrics().unwrap();
    let audited = metrics
        .lines()
        .filter(|line| line.starts_with("belay_denials_total") && line.contains("action=\"Audit\""))
        .count();
    assert!(audited > 0, "{metrics}");
    // The label works in every profile.
    shop.kubectl(&["create", "configmap", "precious"]);
    let label = serde_json::json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    plane.patch("configmap/precious", &shop.ns, &label);
    shop.is_refused(&["delete", "configmap", "precious"], "is protected; label");
}

#[test]
fn strict_holds_what_is_mounted_and_keeps_every_namespace_that_has_something_in_it() {
    let plane = plane();
    let (_chart, shop) = strict(&plane, &[]);
    for object in ["configmap/settings", "pvc/data-db-0"] {
        shop.holds(object, true);
    }
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
    let ns = plane.namespace("busy").unwrap();
    plane.kubectl(&["create", "configmap", "anything", "-n", &ns]).unwrap().success().unwrap();
    shop.is_refused(&["delete", "namespace", &ns, "--dry-run=server"], "namespaces");

    // A Secret that a Deployment reads waits until it does not.
    let deleted =
        plane.kubectl(&["delete", "secret", "password", "-n", &shop.ns, "--wait=false"]).unwrap();
    assert!(deleted.stderr.contains("stays Terminating until"), "{deleted:?}");
    assert_ne!(shop.field("secret/password", ".metadata.deletionTimestamp"), "");
    shop.kubectl(&["delete", "deployment", "web"]);
    let gone = ["wait", "--for=delete", "secret/password", "--timeout=60s"];
    shop.kubectl(&gone);
    assert_eq!(forbidden(&plane), Vec::<String>::new());
}

#[test]
fn back_from_strict_in_two_steps_no_hold_is_left_where_belay_may_not_write() {
    let plane = plane();
    let (chart, shop) = strict(&plane, &[]);

    let first = ["--set=profile=strict", "--set=policies.secretsInUse.action=Audit"];
    chart.deploy("upgrade", &first).unwrap().success().unwrap();
    let none = [
        "wait",
        "deletionpolicy/belay-secrets-in-use",
        "--for=jsonpath={.status.heldObjects}=0",
        "--timeout=90s",
    ];
    plane.kubectl(&none).unwrap().success().unwrap();
    shop.holds("secret/password", false);
    // As described in the guide.
    let second = ["--reuse-values", "--set=policies.secretsInUse=null", "--set=profile=guarded"];
    chart.deploy("upgrade", &second).unwrap().success().unwrap();
    policies_in_force(&plane);
    shop.holds("configmap/settings", false);
    shop.holds("pvc/data-db-0", true);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
    chart.uninstall(&[]).unwrap().success().unwrap();
    shop.holds("pvc/data-db-0", false);
}

/// A file of values that the chart brings for its tests.
fn values(name: &str) -> String {
    format!("--values={}/charts/belay/ci/{name}-values.yaml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn as_much_as_many_depend_on_and_then_as_little_as_there_can_be() {
    let nodes = Options { nodes: 3, ..Options::default() };
    let plane = ControlPlane::start_with(&nodes).unwrap();
    let monitoring = "monitoring.coreos.com";
    plane.define_kind(monitoring, "ServiceMonitor", "servicemonitors").unwrap();
    plane.define_kind(monitoring, "PrometheusRule", "prometheusrules").unwrap();
    let chart = Chart::install(&plane, program(), &[&values("ha")]).unwrap();
    chart.wait_for(3).unwrap();
    policies_in_force(&plane);
    let mut places = plane.api().fields("pods", "belay", "", ".spec.nodeName").unwrap();
    places.sort();
    places.dedup();
    assert_eq!(places, ["node-0", "node-1", "node-2"], "one on each node");
    let shop = Shop::open(&plane);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");

    chart.deploy("upgrade", &["--reset-values", &values("minimal")]).unwrap().success().unwrap();
    chart.wait_for(1).unwrap();
    policies_in_force(&plane);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
    assert_eq!(forbidden(&plane), Vec::<String>::new());
    chart.uninstall(&[]).unwrap().success().unwrap();
    shop.holds("pvc/data-db-0", false);
}
