//! Protection by label, through the real API server, as kubectl shows it.

use std::time::Duration;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, object};
use crate::people::field;
use crate::team::{Approver, SOON, Team};
use crate::world;

const PROTECTED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  \
     labels: {belay.dev/protect: Always}\ndata: {currency: EUR}\n";

fn finalizers(namespace: &str, name: &str) -> String {
    field(&world().plane, namespace, &format!("configmap/{name}"), ".metadata.finalizers")
}

#[test]
fn a_labelled_object_gets_the_hold_and_is_not_deleted() {
    let plane = &world().plane;
    let ns = plane.namespace("label").unwrap();
    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], PROTECTED).unwrap().success().unwrap();
    assert_eq!(finalizers(&ns, "settings"), r#"["belay.dev/hold"]"#);

    let denied = plane.kubectl(&["delete", "configmap", "settings", "-n", &ns]).unwrap();
    // Policies of other tests may name the kind, so either webhook may refuse first.
    let denied = denied.failure().unwrap();
    let words = format!(
        "delete.belay.dev\" denied the request: configmap \"settings\" is protected; label \
         belay.dev/protect=Always. To override: kubectl belay approve configmaps/settings -n {ns} \
         --reason \"…\". Details: kubectl belay why configmaps/settings -n {ns}\n"
    );
    assert!(denied.starts_with("Error from server (Protected): admission webhook"), "{denied}");
    assert!(denied.ends_with(&words), "{denied}");
    assert_eq!(field(plane, &ns, "configmap/settings", ".metadata.deletionTimestamp"), "");

    // The call was logged and counted by belay, and annotated in the audit log.
    // Lines about kinds that are not watched as a whole share one in a second.
    let delete = ["configmap/settings", "--dry-run=server"];
    eventually("a line about it", Duration::from_secs(10), || {
        plane.api().delete(&delete, &ns)?.failure()?;
        let logs: String = world().belay.replicas.iter().map(|belay| belay.process.log()).collect();
        let found = logs.lines().any(|line| line.contains("denied") && line.contains(&ns));
        if found { Ok(()) } else { Err("it is not there".into()) }
    })
    .unwrap();
    let denials = "belay_denials_total{policy=\"label Always\",reason=\"Protected\"";
    assert!(world().belay.metric(denials) >= 1.0);
    eventually("the audit annotation", Duration::from_secs(5), || {
        let found = plane.audit_log()?.lines().any(|line| {
            line.contains(&ns) && line.contains(r#""label-delete.belay.dev/reason":"Protected""#)
        });
        if found { Ok(()) } else { Err("it is not there".into()) }
    })
    .unwrap();

    // Taking the label off is taking the protection off: it needs the same.
    let unlabel = ["label", "configmaps/settings", "-n", &ns, "belay.dev/protect-"];
    let refused = plane.kubectl(&unlabel).unwrap().failure().unwrap();
    assert!(refused.contains("update.belay.dev\" denied the request"), "{refused}");
}

#[test]
fn w23_more_protection_needs_no_approval() {
    let team = Team::new(&world().plane, "w23-label");
    let settings = object("v1", "ConfigMap", "settings");
    team.apply(&settings.with_protect_label("WhileUsed"));
    let label = |value: &str| {
        let label = format!("belay.dev/protect={value}");
        team.kubectl(&["label", "configmap/settings", &label, "--overwrite"])
    };
    label("Always").success().unwrap();
    team.kubectl(&["delete", "configmap/settings"]).failure().unwrap();
    label("WhileUsed").failure().unwrap();
}

/// Kubernetes copies the label of a Service to its Endpoints and EndpointSlice.
#[test]
fn h104_the_label_of_a_service_leaves_its_endpoints_with_it() {
    let team = Team::new(&world().plane, "h104");
    let wait_for_copies = |count: usize| {
        for kind in ["endpoints", "endpointslices"] {
            let with_label = || {
                let names =
                    team.plane.api().fields(kind, &team.ns, "belay.dev/protect", ".metadata.name");
                if names?.len() == count { Ok(()) } else { Err("not yet".into()) }
            };
            eventually(kind, SOON, with_label).unwrap();
        }
    };
    let spec = json!({"selector": {"app": "x"}, "ports": [{"port": 80}]});
    let service = object("v1", "Service", "web").with(json!({"spec": spec}));
    team.apply(&service.with_protect_label("Always"));
    wait_for_copies(1);
    team.approve(Approver::Carol, team.of("services", "web"), "Object");
    let unlabel = ["label", "services/web", "belay.dev/protect-"];
    eventually("a Service without the label", SOON, || team.kubectl(&unlabel).success()).unwrap();
    wait_for_copies(0);
    team.delete(&["service/web"]).success().unwrap();
    team.wait_until_deleted("service/web");
    team.wait_until_deleted("endpoints/web");
}

#[test]
fn an_unlabelled_object_is_not_reviewed() {
    let plane = &world().plane;
    let ns = plane.namespace("plain").unwrap();
    plane.kubectl(&["create", "configmap", "plain", "-n", &ns]).unwrap().success().unwrap();
    assert_eq!(finalizers(&ns, "plain"), "");
    plane.kubectl(&["delete", "configmap", "plain", "-n", &ns]).unwrap().success().unwrap();
}

#[test]
fn s13_create_makes_the_array_works_with_generate_name_and_adds_nothing_twice() {
    let plane = &world().plane;
    let ns = plane.namespace("create").unwrap();
    let generated = PROTECTED.replace("name: settings", "generateName: zz-");
    let args = ["create", "-n", &ns, "-f", "-", "-o", "jsonpath={.metadata.finalizers}"];
    let held = plane.apply_to(&args, &generated).unwrap().success().unwrap();
    assert_eq!(held, r#"["belay.dev/hold"]"#);

    let listed = PROTECTED.replace("  name: settings", "  name: listed\n  finalizers: [x.dev/y]");
    let held = plane.apply_to(&args, &listed).unwrap().success().unwrap();
    assert_eq!(held, r#"["x.dev/y","belay.dev/hold"]"#);

    let held_already =
        PROTECTED.replace("  name: settings", "  name: held\n  finalizers: [belay.dev/hold]");
    let held = plane.apply_to(&args, &held_already).unwrap().success().unwrap();
    assert_eq!(held, r#"["belay.dev/hold"]"#);
}

#[test]
fn a_collection_delete_names_what_it_stops_at() {
    let plane = &world().plane;
    let ns = plane.namespace("collection").unwrap();
    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], PROTECTED).unwrap().success().unwrap();
    let path = format!("/api/v1/namespaces/{ns}/configmaps?labelSelector=belay.dev/protect");
    let denied = plane.kubectl(&["delete", "--raw", &path]).unwrap().failure().unwrap();
    assert!(denied.contains("configmap \"settings\""), "{denied}");
}

#[test]
fn a_dry_run_gets_the_real_verdict_and_stores_nothing() {
    let plane = &world().plane;
    let ns = plane.namespace("dry").unwrap();
    let created = [
        "create",
        "-n",
        &ns,
        "--dry-run=server",
        "-f",
        "-",
        "-o",
        "jsonpath={.metadata.finalizers}",
    ];
    let held = plane.apply_to(&created, PROTECTED).unwrap().success().unwrap();
    assert_eq!(held, r#"["belay.dev/hold"]"#);
    assert_eq!(plane.api().get("configmap/settings", &ns).unwrap(), None);

    plane.apply_to(&["apply", "-n", &ns, "-f", "-"], PROTECTED).unwrap().success().unwrap();
    let denied = plane
        .api()
        .delete(&["configmap", "settings", "--dry-run=server"], &ns)
        .unwrap()
        .failure()
        .unwrap();
    assert!(denied.contains("is protected; label"), "{denied}");
}
