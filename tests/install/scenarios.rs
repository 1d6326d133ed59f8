//! Scenarios with their own tests elsewhere, repeated with the installation of the chart,
//! with the commands in its notes and refusals.

use std::process::Command;

use serde_json::json;

use crate::harness::chart::RELEASE;
use crate::harness::manifest::{Manifest as _, claim};
use crate::harness::{Chart, ControlPlane, eventually};
use crate::shop::{LIMIT, Shop, policies_in_force};
use crate::{plane, program};

const CONFIGURATIONS: &str = "validatingwebhookconfiguration,mutatingwebhookconfiguration";

fn installed(plane: &ControlPlane) -> Chart {
    let chart = Chart::install(plane, program(), &[]).unwrap();
    chart.wait_for(2).unwrap();
    policies_in_force(plane);
    chart
}

#[test]
fn s20_a_forced_replacement_and_a_prune_are_denied_and_an_administrator_passes_with_one_command() {
    let plane = plane();
    let _chart = installed(&plane);
    let shop = Shop::open(&plane);
    let ns = &shop.ns;
    let claim = |name: &str| {
        let spec =
            json!({"storageClassName": "disk", "resources": {"requests": {"storage": "1Mi"}}});
        claim(name).with_namespace(ns).with_labels(json!({"app": "db"})).with(json!({"spec": spec}))
    };
    let words = format!("in use by StatefulSet {ns}/db");
    shop.is_refused(&["delete", "pvc", "data-db-0", "--dry-run=server"], &words);
    let uid = shop.field("pvc/data-db-0", ".metadata.uid");
    let replace = ["replace", "--force", "-f", "-"];
    let prune = [
        "apply",
        "--prune",
        "-l",
        "app=db",
        "--prune-allowlist=core/v1/PersistentVolumeClaim",
        "-n",
        ns,
        "-f",
        "-",
    ];
    // The claims of a StatefulSet are in no manifest. A prune deletes only applied objects.
    plane.apply_to(&["apply", "-f", "-"], &claim("data-db-0")).unwrap().success().unwrap();
    for (what, manifest) in [(&replace[..], claim("data-db-0")), (&prune[..], claim("spare"))] {
        let said = plane.apply_to(what, &manifest).unwrap().failure().unwrap();
        assert!(said.contains(&words), "{said}");
        assert!(
            said.contains("To override: ") && said.contains("kubectl belay approve "),
            "{said}"
        );
        assert_eq!(shop.field("pvc/data-db-0", ".metadata.uid"), uid);
        assert_eq!(shop.field("pvc/data-db-0", ".metadata.deletionTimestamp"), "");
    }

    // The command in the refusal works.
    let approve = ["approve", "persistentvolumeclaims/data-db-0", "-n", ns, "--reason", "a test"];
    let approved =
        Command::new(program()).args(approve).env("KUBECONFIG", plane.kubeconfig()).output();
    let approved = approved.unwrap();
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
    eventually("the approved delete", LIMIT, || {
        let delete = ["delete", "pvc", "data-db-0", "-n", ns, "--wait=false"];
        plane.kubectl(&delete)?.success().map(drop)
    })
    .unwrap();
}

#[test]
fn s26_without_pods_protected_objects_stay_and_the_command_in_the_notes_works() {
    let plane = plane();
    let shop = Shop::open(&plane);
    let chart = installed(&plane);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=0"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(0).unwrap();
    plane.proxy.cut_open();

    // Unprotected objects work as before.
    shop.kubectl(&["create", "service", "clusterip", "s", "--tcp=80"]);
    shop.kubectl(&["delete", "service", "s"]);
    shop.kubectl(&["scale", "deployment", "web", "--replicas=2"]);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "failed calling webhook \"delete.belay.dev\"");
    assert_eq!(shop.field("pvc/data-db-0", ".metadata.deletionTimestamp"), "");

    // The night has one line.
    let line = format!("kubectl delete {CONFIGURATIONS} {RELEASE}");
    assert!(chart.notes.contains(&line), "{}", chart.notes);
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    plane.kubectl(&words).unwrap().success().unwrap();
    shop.kubectl(&["delete", "pvc", "data-db-0", "--dry-run=server"]);
}

#[test]
fn s42_a_deleted_webhook_configuration_is_reported_until_an_upgrade_recreates_it() {
    let plane = plane();
    let shop = Shop::open(&plane);
    let chart = installed(&plane);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
    let delete = ["delete", "validatingwebhookconfiguration", RELEASE];
    plane.kubectl(&delete).unwrap().success().unwrap();
    let missing = || -> f64 {
        let mut most = 0.0_f64;
        for replica in chart.kubelet.replicas() {
            let text = replica.metrics().unwrap_or_default();
            let lines = text.lines().filter(|line| {
                line.starts_with("belay_registration_missing{configuration=\"validating\"}")
            });
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            most = values.fold(most, f64::max);
        }
        most
    };
    let says = |expected: f64| {
        eventually("the metric", LIMIT, || {
            let now = missing();
            if (now - expected).abs() < 0.5 { Ok(()) } else { Err(format!("{now}").into()) }
        })
        .unwrap();
    };
    says(1.0);
    let configuration = format!("validatingwebhookconfiguration/{RELEASE}");
    assert_eq!(plane.api().get(&configuration, "").unwrap(), None);

    chart.deploy("upgrade", &[]).unwrap().success().unwrap();
    says(0.0);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
}
