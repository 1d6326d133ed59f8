//! The registration and belay's own CRDs, deleted by accident.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::faulty::{LIMIT, faulty};
use crate::harness::install::print;
use crate::harness::manifest::deletion_policy;
use crate::harness::{ControlPlane, eventually};
use crate::{World, policy, program};

fn config_map(plane: &ControlPlane, namespace: &str, name: &str) {
    plane.kubectl(&["create", "configmap", name, "-n", namespace]).unwrap().success().unwrap();
}

fn always(world: &World, namespace: &str) {
    policy::protect(&world.plane, namespace, "configmaps", json!({"always": {}}));
}

impl World {
    /// Waits until each replica reports this line and this readiness.
    fn all_say(&self, line: &str, ready: bool) {
        eventually(line, LIMIT, || {
            for belay in &self.belay.replicas {
                let said = belay.readiness();
                if said.0 != ready || !said.1.contains(line) {
                    return Err(format!("{said:?}").into());
                }
            }
            Ok(())
        })
        .unwrap();
    }

    /// A metric of the leader.
    fn leader_metric(&self, name: &str, words: &[&str]) -> f64 {
        self.belay.replicas[self.belay.leader().unwrap()].sum(name, words)
    }

    /// The content of both webhook configurations as installed.
    fn skeleton(&self) -> String {
        let arguments = ["admin", "manifests", "--service=belay/belay", "--watch-everything"];
        print(program(), &arguments).unwrap()
    }
}

#[test]
fn s42_a_deleted_webhook_configuration_is_reported_and_not_recreated() {
    let world = faulty();
    let ns = world.plane.namespace("s42").unwrap();
    always(&world, &ns);
    let configuration = "validatingwebhookconfiguration/belay";
    world.kubectl(&["delete", configuration]);

    let missing = ["configuration=\"validating\""];
    eventually("the metric", LIMIT, || {
        let says = world.leader_metric("belay_registration_missing", &missing);
        if says > 0.5 { Ok(()) } else { Err("nothing is missing".into()) }
    })
    .unwrap();
    // belay answers what it is asked, so it is ready, and says what it is not
    // asked.
    world
        .all_say("[!]registration a webhook configuration or one of its webhooks is missing", true);
    let api = world.plane.api();
    eventually("the Event", LIMIT, || {
        let paths = ".involvedObject.name .reason .involvedObject.kind .type";
        let mut events = api.fields("events", "belay", "", paths)?;
        events.retain(|event| event.starts_with("belay Missing "));
        let expected = ["belay Missing ValidatingWebhookConfiguration Warning"];
        if events == expected { Ok(()) } else { Err(format!("{events:?}").into()) }
    })
    .unwrap();
    let policy = format!("deletionpolicy/{ns}");
    let path = ".status.conditions[?(@.type==\"Ready\")].reason";
    api.wait_field((&policy, ""), LIMIT, path, |reason| reason == "ConfigurationMissing").unwrap();

    // The leader continues with the other configuration, and this one stays deleted.
    let other = world.plane.namespace("s42").unwrap();
    let target = policy::target("apps", "daemonsets", &other);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    world.plane.apply(&deletion_policy(&other, spec)).unwrap();
    let mutating = ("mutatingwebhookconfiguration/belay", "");
    let has_rule = |webhooks: &str| webhooks.contains("\"daemonsets\"");
    api.wait_field(mutating, LIMIT, ".webhooks", has_rule).unwrap();
    assert_eq!(api.get(configuration, "").unwrap(), None);

    // Installed again, it is filled in again.
    world.plane.apply(&world.skeleton()).unwrap();
    policy::wait_until_in_force(&world.plane, &ns);
    policy::wait_until_in_force(&world.plane, &other);
    world.all_say("[+]registration ok", true);
    assert!(world.leader_metric("belay_registration_missing", &missing) < 0.5);
    config_map(&world.plane, &ns, "kept");
    world.refuses_delete("configmap/kept", &ns, &format!("policy {ns}"));
    world.plane.delete(&["deletionpolicy", &ns, &other], "");
}

#[test]
fn s42_emptied_rules_are_restored_and_counted() {
    let world = faulty();
    let ns = world.plane.namespace("s42").unwrap();
    always(&world, &ns);
    config_map(&world.plane, &ns, "kept");
    let repairs = |side: &str| {
        let side = format!("configuration=\"{side}\"");
        world.leader_metric("belay_registration_repairs_total", &[&side])
    };
    for (side, kind) in [
        ("validating", "validatingwebhookconfiguration"),
        ("mutating", "mutatingwebhookconfiguration"),
    ] {
        let before = repairs(side);
        let configuration = format!("{kind}/belay");
        let rules = ".webhooks[*].name .webhooks[*].rules";
        let full = world.plane.api().field(&configuration, "", rules).unwrap();
        // The result of `kubectl replace` or of a forced install.
        let skeleton = world.skeleton();
        let own = skeleton
            .split("---\n")
            .find(|part| part.to_lowercase().contains(&format!("kind: {kind}\n")));
        let replace = ["replace", "-f", "-"];
        let emptied = Instant::now();
        world.plane.apply_to(&replace, own.unwrap()).unwrap().success().unwrap();
        let limit = Duration::from_secs(5);
        let configuration = (&*configuration, "");
        world.plane.api().wait_field(configuration, limit, rules, |now| now == full).unwrap();
        println!("{side}: put back within {:?}, one kubectl included", emptied.elapsed());
        eventually("the count", LIMIT, || {
            let more = repairs(side) - before;
            if (more - 1.0).abs() < 0.5 { Ok(()) } else { Err(format!("{more}").into()) }
        })
        .unwrap();
    }
    world.refuses_delete("configmap/kept", &ns, &format!("policy {ns}"));
    world.plane.delete(&["deletionpolicy", &ns], "");
}

#[test]
fn a_vanished_policy_kind_freezes_and_withdraws_nothing() {
    let world = faulty();
    let ns = world.plane.namespace("frozen").unwrap();
    always(&world, &ns);
    config_map(&world.plane, &ns, "kept");
    let held = || {
        let held = world.plane.api().field("configmap/kept", &ns, ".metadata.finalizers");
        assert_eq!(held.unwrap(), r#"["belay.dev/hold"]"#);
        world.refuses_delete("configmap/kept", &ns, &format!("policy {ns}"));
    };
    held();
    let withdrawn = || world.belay.metric("belay_hold_changes_total{change=\"removed\"");
    let before = (world.registration(), withdrawn());
    let policy = world.kubectl(&["get", "deletionpolicy", &ns, "-o", "yaml"]);

    world.kubectl(&["delete", "crd", "deletionpolicies.belay.dev", "--timeout=60s"]);
    world
        .all_say("[!]policy-kinds policies cannot be read, because their kind is not served", true);
    held();
    assert_eq!((world.registration(), withdrawn()), before);

    // The CRDs are re-created first, and the policies some time later.
    world.plane.apply(&print(program(), &["admin", "crds"]).unwrap()).unwrap();
    world.kubectl(&[
        "wait",
        "crd",
        "deletionpolicies.belay.dev",
        "--for=condition=Established",
        "--timeout=60s",
    ]);
    held();
    assert_eq!((world.registration(), withdrawn()), before);
    // It contains its old uid, which kubectl removes.
    world.plane.apply_to(&["apply", "-f", "-"], &policy).unwrap().success().unwrap();
    eventually("the end of the freeze", LIMIT, || {
        held();
        assert_eq!((world.registration(), withdrawn()), before);
        match world
            .belay
            .replicas
            .iter()
            .all(|one| one.readiness().1.contains("[+]policy-kinds ok"))
        {
            true => Ok(()),
            false => Err("it lasts".into()),
        }
    })
    .unwrap();
    policy::wait_until_in_force(&world.plane, &ns);
    held();
    assert_eq!((world.registration(), withdrawn()), before);
    world.plane.delete(&["deletionpolicy", &ns], "");
}
