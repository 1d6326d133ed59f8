//! The hold under another name: as a version before wrote it, or a finalizer
//! that somebody ran at home.

use serde_json::{Value, json};

use crate::harness::Chart;
use crate::harness::audit::events;
use crate::harness::chart::RELEASE;
use crate::harness::manifest::{Manifest as _, config_map};
use crate::shop::{LIMIT, Shop, objects_with, policies_in_force};
use crate::{plane, program};

const FORMER: &str = "hold.example.com/kept";

/// A ConfigMap with these finalizers, and no annotation that names them, too.
fn settings(shop: &Shop<'_>, name: &str, finalizers: &[&str]) {
    let manifest = config_map(name).with_finalizers(finalizers);
    let create = ["create", "-n", &shop.ns, "-f", "-"];
    shop.plane.apply_to(&create, &manifest).unwrap().success().unwrap();
}

fn finalizers(shop: &Shop<'_>, object: &str) -> String {
    shop.field(object, ".metadata.finalizers[*]")
}

#[test]
fn s29_a_changed_finalizer_name_migrates() {
    let plane = plane();
    let shop = Shop::open(&plane);
    // As the version before has left them: a claim that others guard as well,
    // one that only belay does, and one that is on its way out.
    let put_on = |object: &str, path: &str, value: Value| {
        let path = format!("/metadata/finalizers{path}");
        plane.patch(object, &shop.ns, &json!([{"op": "add", "path": path, "value": value}]));
    };
    put_on("pvc/data-db-0", "/0", json!(FORMER));
    put_on("configmap/settings", "", json!([FORMER]));
    put_on("secret/password", "", json!([FORMER]));
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);

    let values = ["--set=profile=strict", &format!("--set=formerHolds={{{FORMER}}}")];
    let chart = Chart::install(&plane, program(), &values).unwrap();
    chart.wait_for(2).unwrap();
    policies_in_force(&plane);
    let renamed = |object: &str, whole: &str| {
        let (object, path) = ((object, &*shop.ns), ".metadata.finalizers[*]");
        plane.api().wait_field(object, LIMIT, path, |now| now == whole).unwrap();
    };
    renamed("pvc/data-db-0", "belay.dev/hold kubernetes.io/pvc-protection");
    renamed("configmap/settings", "belay.dev/hold");
    // In one write, so that it is never without.
    let written =
        |event: &&Value| event["verb"] == "patch" && event["objectRef"]["name"] == "settings";
    assert_eq!(events(&plane).iter().filter(written).count(), 1);

    // No finalizer comes to what is Terminating: the former one is the hold
    // there, which nobody takes off by hand and belay does when it may.
    assert_eq!(finalizers(&shop, "secret/password"), FORMER);
    let strip = r#"{"metadata":{"finalizers":null}}"#;
    let refused = ["patch", "secret", "password", "--type=merge", "-p", strip];
    shop.is_refused(&refused, "only belay may remove the finalizer");
    shop.kubectl(&["delete", "deployment", "web"]);
    plane.api().wait_gone(("secret/password", &shop.ns), LIMIT).unwrap();

    // A replica that has not heard of the name puts its own beside it.
    settings(&shop, "both", &[FORMER, "belay.dev/hold"]);
    renamed("configmap/both", "belay.dev/hold");

    // What nobody has renamed yet is taken off all the same.
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=0"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(0).unwrap();
    settings(&shop, "late", &[FORMER]);
    chart.uninstall(&[]).unwrap().success().unwrap();
    assert_eq!(finalizers(&shop, "configmap/late"), "");
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
}
