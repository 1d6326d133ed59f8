//! The life of an installation.

use serde_json::{Value, json};

use crate::harness::audit::{audited, forbidden};
use crate::harness::chart::RELEASE;
use crate::harness::{Chart, ControlPlane, Load, eventually};
use crate::shop::{LIMIT, Shop, objects_with, policies_in_force};
use crate::{plane, program};

/// The rules and CA bundles of both webhook configurations.
fn registration(plane: &ControlPlane) -> String {
    let paths = ".webhooks[*].name .webhooks[*].rules .webhooks[*].clientConfig.caBundle";
    let kinds = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];
    kinds.map(|kind| plane.api().fields(kind, "", "", paths).unwrap().join("\n")).join("\n")
}

/// How often the leader has repaired the webhook configurations.
fn repairs(chart: &Chart) -> f64 {
    let mut sum = 0.0;
    for replica in chart.kubelet.replicas() {
        let text = replica.metrics().unwrap();
        let lines = text.lines().filter(|l| l.starts_with("belay_registration_repairs_total"));
        sum += lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
    }
    sum
}

/// How long each webhook configuration was in the state of a replacement: from the last PUT
/// of the administrator to the next patch of belay.
fn gaps(plane: &ControlPlane) -> Vec<jiff::SignedDuration> {
    let events = audited(plane);
    let time = |event: &Value| event["stageTimestamp"].as_str().unwrap().parse::<jiff::Timestamp>();
    let gap = |resource: &str| {
        let of = |event: &&Value, verb: &str| {
            event["objectRef"]["resource"] == resource && event["verb"] == verb
        };
        let emptied = events.iter().rev().find(|event| of(event, "update"))?;
        let emptied = time(emptied).unwrap();
        let filled = events.iter().filter(|event| of(event, "patch")).map(|e| time(e).unwrap());
        Some(filled.filter(|filled| *filled > emptied).min()?.duration_since(emptied))
    };
    ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
        .into_iter()
        .filter_map(gap)
        .collect()
}

/// Closer to production: a connection that the API server has not used for this time is
/// closed, possibly when it is about to use it.
const DRAIN: &str = "--set=webhook.drainSeconds=3";

#[test]
fn s29_it_is_installed_upgraded_under_load_and_uninstalled_and_nothing_is_left_or_lost() {
    let plane = plane();
    let shop = Shop::open(&plane);
    let mut chart = Chart::install(&plane, program(), &[DRAIN]).unwrap();
    chart.wait_for(2).unwrap();
    policies_in_force(&plane);
    assert!(
        chart.notes.contains("kubectl delete validatingwebhookconfiguration"),
        "{}",
        chart.notes
    );

    // Existing objects and new objects are protected.
    shop.holds("pvc/data-db-0", true);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");
    shop.is_refused(&["delete", "namespace", &shop.ns], "namespaces");
    shop.is_refused(&["delete", "storageclass", "disk"], "storageclasses");
    shop.kubectl(&["create", "configmap", "precious"]);
    let label = json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    plane.patch("configmap/precious", &shop.ns, &label);
    shop.holds("configmap/precious", true);

    let tested = plane.helm(&["test", RELEASE, "-n", RELEASE, "--timeout=2m"]).unwrap();
    tested.success().unwrap();
    assert_eq!(objects_with(&plane, "belay-selftest"), Vec::<String>::new());
    // One Event, which the API server deletes automatically.
    let events = plane.api().list("events", "", "belay.dev/protect").unwrap();
    assert_eq!(events.len(), 1, "{events:?}");

    // The next version is installed while users work.
    let ns = plane.namespace("load").unwrap();
    let load = Load::start(&plane, &ns).unwrap();
    load.wait_for_answers().unwrap();
    let before = registration(&plane);
    chart.next_version("0.1.1", program()).unwrap();
    // As if the previous version had had fewer columns.
    let path = ".spec.versions[0].additionalPrinterColumns[*].name";
    let columns = || plane.api().field("crd/deletionpolicies.belay.dev", "", path).unwrap();
    let whole = columns();
    let less = r#"[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns/0"}]"#;
    let patch = ["patch", "crd", "deletionpolicies.belay.dev", "--type=json", "-p", less];
    plane.kubectl(&patch).unwrap().success().unwrap();
    chart.deploy("upgrade", &[DRAIN, "--set=webhook.timeoutSeconds=6"]).unwrap().success().unwrap();
    assert_eq!(columns(), whole);
    load.wait_for_answers().unwrap();
    let timeouts = |plane: &ControlPlane| {
        let configuration = format!("validatingwebhookconfiguration/{RELEASE}");
        plane.api().field(&configuration, "", ".webhooks[0].timeoutSeconds").unwrap()
    };
    assert_eq!((timeouts(&plane), registration(&plane)), ("6".to_owned(), before.clone()));
    let replicas = chart.wait_for(2).unwrap();
    let (label, image) = ("app.kubernetes.io/component=webhook", ".spec.containers[0].image");
    let images = plane.api().fields("pods", RELEASE, label, image).unwrap().join(" ");
    assert!(images.split(' ').all(|image| image.ends_with(":0.1.1")), "{images} {replicas:?}");
    // A rollback, and the same in the way of Helm 3.
    let back = ["rollback", RELEASE, "1", "-n", RELEASE, "--wait", "--timeout=4m"];
    plane.helm(&back).unwrap().success().unwrap();
    assert_eq!((timeouts(&plane), registration(&plane)), ("5".to_owned(), before.clone()));
    load.wait_for_answers().unwrap();
    let old_way = [DRAIN, "--server-side=false", "--set=webhook.timeoutSeconds=7"];
    chart.deploy("upgrade", &old_way).unwrap().success().unwrap();
    assert_eq!((timeouts(&plane), registration(&plane)), ("7".to_owned(), before.clone()));
    load.wait_for_answers().unwrap();
    let answered = load.end().unwrap();
    println!("{answered} answers, none of them wrong");

    // A forced replacement removes the rules and CA bundles until the leader has restored
    // them, which is counted. The hold stays meanwhile.
    chart.wait_for(2).unwrap();
    let counted = repairs(&chart);
    // The same values, so that the replicas stay and their count does.
    let forced = [&old_way[..], &["--force-replace"]].concat();
    let said = chart.deploy("upgrade", &forced).unwrap();
    if said.ok() {
        eventually("the rules", LIMIT, || {
            let now = registration(&plane);
            if now == before { Ok(()) } else { Err(now.into()) }
        })
        .unwrap();
        assert!(repairs(&chart) > counted);
        println!("--force-replace: without rules for {:?}", gaps(&plane));
    } else {
        panic!("{}", said.stderr);
    }
    shop.holds("pvc/data-db-0", true);
    shop.is_refused(&["delete", "pvc", "data-db-0"], "in use by StatefulSet");

    assert_eq!(forbidden(&plane), Vec::<String>::new());
    let gone = chart.uninstall(&[]).unwrap().success().unwrap();
    assert!(gone.contains("uninstalled"), "{gone}");
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
    // The definitions stay on purpose, and the namespace is the person's.
    let ours = format!("app.kubernetes.io/instance\":\"{RELEASE}\"");
    eventually("the end of everything", LIMIT, || {
        let kept = ["get", "all,cm,secret,lease,sa,role,rolebinding", "-n", RELEASE, "-o", "name"];
        let kept = plane.kubectl(&kept)?.success()?;
        let kept: Vec<&str> = kept.lines().collect();
        let ours = objects_with(&plane, &ours);
        let own = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
        if kept == own && ours.is_empty() {
            Ok(())
        } else {
            Err(format!("{kept:?} {ours:?}").into())
        }
    })
    .unwrap();
    for left in ["pvc/data-db-0", "configmap/settings", "secret/password", "configmap/precious"] {
        assert_eq!(shop.field(left, ".metadata.deletionTimestamp"), "", "{left}");
    }
    // No request is sent to belay any longer.
    shop.kubectl(&["delete", "configmap", "precious"]);
}
