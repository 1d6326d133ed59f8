//! Replicas that are restarted in turn, that die, and that are all stopped.

use std::time::Duration;

use serde_json::{Value, json};

use crate::World;
use crate::faulty::{LIMIT, faulty};
use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map, pod};
use crate::policy;

fn settings(name: &str, namespace: &str) -> Value {
    config_map(name).with_namespace(namespace).with(json!({"data": {"currency": "EUR"}}))
}

const HELD: &str = r#"["belay.dev/hold"]"#;

/// A patch that removes all finalizers.
fn strip() -> Value {
    json!({"metadata": {"finalizers": null}})
}

impl World {
    fn denials(&self, replica: usize, policy: &str) -> f64 {
        let policy = format!("policy=\"{policy}\"");
        self.belay.replicas[replica].sum("belay_denials_total", &[&policy])
    }

    fn finalizers(&self, namespace: &str, name: &str) -> String {
        let object = format!("configmap/{name}");
        self.plane.api().field(&object, namespace, ".metadata.finalizers").unwrap()
    }
}

#[test]
fn s18_protection_written_through_one_replica_is_honoured_on_the_other() {
    let world = faulty();
    let ns = world.plane.namespace("s18").unwrap();
    policy::protect(&world.plane, &ns, "configmaps", json!({"whileUsed": {}}));

    let always = json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    for (writes, deletes) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        let round = format!("{writes}{deletes}-{}", world.denials(deletes, &ns));
        let [used, labelled, late] = ["used", "labelled", "late"].map(|w| format!("{w}-{round}"));
        world.ask(&[writes]);
        world.plane.apply(&settings(&used, &ns)).unwrap();
        world.plane.apply(&settings(&labelled, &ns).with_protect_label("Always")).unwrap();
        world.plane.apply(&settings(&late, &ns)).unwrap();
        world.plane.patch(&format!("configmap/{late}"), &ns, &always);
        // The last change before the other replica is called: it may not have seen the user
        // yet.
        let user = pod(&used).with_volume(json!({"configMap": {"name": used}}));
        world.plane.apply(&user.with_namespace(&ns)).unwrap();

        let before = [0, 1]
            .map(|replica| world.denials(replica, &ns) + world.denials(replica, "label Always"));
        world.ask(&[deletes]);
        let says = format!("configmap \"{used}\" is in use by Pod {ns}/{used} (spec.volumes[0]");
        world.refuses_delete(&format!("configmap/{used}"), &ns, &says);
        for name in [&labelled, &late] {
            let says = format!("configmap \"{name}\" is protected; label belay.dev/protect=Always");
            world.refuses_delete(&format!("configmap/{name}"), &ns, &says);
        }
        // One replica added the hold, and the other guards it.
        assert_eq!(world.finalizers(&ns, &labelled), HELD);
        let (labelled, strip) = (format!("configmap/{labelled}"), strip());
        eventually("a refusal of the strip", LIMIT, || {
            let refusal = world.plane.api().patch(&labelled, &ns, &strip)?.failure()?;
            if refusal.contains("belay.dev/hold") { Ok(()) } else { Err(refusal.into()) }
        })
        .unwrap();

        let after = [0, 1]
            .map(|replica| world.denials(replica, &ns) + world.denials(replica, "label Always"));
        assert!(after[deletes] >= before[deletes] + 3.0, "{before:?} {after:?}");
        assert!((after[writes] - before[writes]).abs() < 0.5, "{before:?} {after:?}");
    }
    world.plane.delete(&["deletionpolicy", &ns], "");
}

#[test]
fn s18_when_the_leader_is_killed_the_other_one_keeps_the_rules_in_step() {
    let mut world = faulty();
    let ns = world.plane.namespace("s18").unwrap();
    let killed = world.belay.leader().unwrap();
    world.belay.replicas[killed].process.kill();
    world.ask(&[1 - killed]);
    // There is no leader yet, and every request is answered all the same.
    world.plane.apply(&settings("kept", &ns).with_protect_label("Always")).unwrap();
    assert_eq!(world.finalizers(&ns, "kept"), HELD);
    world.refuses_delete("configmap/kept", &ns, "\"kept\" is protected; label");

    assert_eq!(world.leader_but(killed), 1 - killed);
    let target = policy::target("apps", "deployments", &ns);
    policy::apply(&world.plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    world.kubectl(&["create", "deployment", "shop", "--image=example.test/c", "-n", &ns]);
    let refusal = world.delete_refusal("deployment/shop", &ns).unwrap();
    assert!(refusal.contains(&format!("policy {ns}")), "{refusal}");

    // The restarted replica does not become the leader.
    world.belay.replicas[killed].process.restart().unwrap();
    world.belay.replicas[killed].wait_until_ready().unwrap();
    assert_eq!(world.belay.leader().unwrap(), 1 - killed);
    // A reader that reads policies one by one does not treat the first ones as all.
    let log = world.belay.replicas[killed].process.log();
    assert!(!log.contains("this version of belay cannot read"), "{log}");
    world.plane.delete(&["deletionpolicy", &ns], "");
}

#[test]
fn s26_without_replicas_protected_objects_stay_and_other_requests_pass() {
    let mut world = faulty();
    let ns = world.plane.namespace("s26").unwrap();
    policy::protect(&world.plane, &ns, "configmaps", json!({"always": {}}));
    world.plane.apply(&settings("kept", &ns)).unwrap();
    assert_eq!(world.finalizers(&ns, "kept"), HELD);
    for secret in ["plain", "marked"] {
        world.kubectl(&["create", "secret", "generic", secret, "-n", &ns]);
    }
    let always = json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    world.plane.patch("secret/marked", &ns, &always);
    let version = |world: &World| {
        world.plane.api().field("secret/belay-tls", "belay", ".metadata.resourceVersion").unwrap()
    };
    let (certificate, registration) = (version(&world), world.registration());

    for belay in &mut world.belay.replicas {
        belay.process.kill();
    }
    world.ask(&[]);

    // Kinds without a policy, and objects without a label.
    world.kubectl(&["delete", "secret", "plain", "-n", &ns]);
    world.kubectl(&["create", "service", "clusterip", "s", "--tcp=80", "-n", &ns]);
    world.kubectl(&["delete", "service", "s", "-n", &ns]);
    // Kinds and objects that are protected.
    let closed = "failed calling webhook \"delete.belay.dev\"";
    let refusal = world.delete_refusal("configmap/kept", &ns).unwrap();
    assert!(refusal.contains(closed), "{refusal}");
    let refusal = world.delete_refusal("secret/marked", &ns).unwrap();
    assert!(refusal.contains("failed calling webhook \"label-delete.belay.dev\""), "{refusal}");
    // A change of other fields than finalizers, owners and labels is not sent to belay.
    let seen = json!({"metadata": {"annotations": {"example.test/seen": "yes"}}});
    for change in [json!({"data": {"currency": "CHF"}}), seen] {
        world.plane.patch("configmap/kept", &ns, &change);
    }
    let refusal = world.plane.api().patch("configmap/kept", &ns, &strip()).unwrap();
    let refusal = refusal.failure().unwrap();
    assert!(refusal.contains("failed calling webhook \"update.belay.dev\""), "{refusal}");
    // A new object is created, without the hold.
    world.plane.apply(&settings("made", &ns)).unwrap();
    assert_eq!(
        (world.finalizers(&ns, "made"), world.finalizers(&ns, "kept")),
        ("".into(), HELD.into())
    );

    for belay in &mut world.belay.replicas {
        belay.process.restart().unwrap();
    }
    for belay in &mut world.belay.replicas {
        belay.wait_until_ready().unwrap();
    }
    world.ask(&[0, 1]);
    // Nothing has changed: no object was re-created, and new objects are held.
    for name in ["kept", "made"] {
        let because = format!("configmap \"{name}\" is protected");
        world.refuses_delete(&format!("configmap/{name}"), &ns, &because);
    }
    world.refuses_delete("secret/marked", &ns, "\"marked\" is protected; label");
    eventually("the hold on what came meanwhile", LIMIT, || {
        let held = world.finalizers(&ns, "made");
        if held == HELD { Ok(()) } else { Err(held.into()) }
    })
    .unwrap();
    eventually("a leader", Duration::from_secs(60), || world.belay.leader()).unwrap();
    policy::wait_until_in_force(&world.plane, &ns);
    assert_eq!((version(&world), world.registration()), (certificate, registration));
    world.plane.delete(&["deletionpolicy", &ns], "");
}
