//! The hold under another name: the name of a previous version, or a finalizer of the user.

use serde_json::{Value, json};

use crate::harness::Chart;
use crate::harness::audit::events;
use crate::harness::chart::RELEASE;
use crate::harness::manifest::{Manifest as _, config_map};
use crate::shop::{LIMIT, Shop, objects_with, policies_in_force};
use crate::{plane, program};

const FORMER: &str = "hold.example.com/kept";

/// A ConfigMap with these finalizers, and without an annotation that contains them.
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
    // The objects as the previous version left them: a claim with other finalizers, a claim
    // with only belay's hold, and a Terminating claim.
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

    // A Terminating object gets no new finalizers. The former name is its hold: belay
    // refuses its removal by hand, and removes it when the object is released.
    assert_eq!(finalizers(&shop, "secret/password"), FORMER);
    let strip = r#"{"metadata":{"finalizers":null}}"#;
    let refused = ["patch", "secret", "password", "--type=merge", "-p", strip];
    shop.is_refused(&refused, "only belay may remove the finalizer");
    shop.kubectl(&["delete", "deployment", "web"]);
    plane.api().wait_gone(("secret/password", &shop.ns), LIMIT).unwrap();

    // A replica without the new name adds its own beside it.
    settings(&shop, "both", &[FORMER, "belay.dev/hold"]);
    renamed("configmap/both", "belay.dev/hold");

    // A hold that was not renamed yet is removed as well.
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=0"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(0).unwrap();
    settings(&shop, "late", &[FORMER]);
    chart.uninstall(&[]).unwrap().success().unwrap();
    assert_eq!(finalizers(&shop, "configmap/late"), "");
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
}
