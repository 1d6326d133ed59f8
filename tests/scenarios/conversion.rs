//! A kind whose objects can't be read.

use serde_json::{Value, json};

use crate::faulty::{LIMIT, faulty};
use crate::harness::crd::things;
use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, object};
use crate::{World, policy};

impl World {
    /// Waits until a condition of a policy is this, with this reason.
    fn wait_for_condition(&self, policy: &str, condition: &str, expected: &str) {
        let policy = format!("deletionpolicy/{policy}");
        let is = |found: Option<&Value>| {
            let all = found.and_then(|policy| policy["status"]["conditions"].as_array());
            let one = all.and_then(|all| all.iter().find(|one| one["type"] == condition));
            let text = |field: &str| one.and_then(|one| one[field].as_str()).unwrap_or_default();
            let said = format!("{} {}", text("status"), text("reason"));
            if said == expected { Ok(()) } else { Err(said.into()) }
        };
        self.plane.api().wait((&policy, ""), LIMIT, is).unwrap();
    }
}

#[test]
fn s46_with_a_dead_conversion_webhook_only_verdicts_that_need_its_kind_fail_closed() {
    let mut world = faulty();
    let [operators, others] = ["s46", "s46"].map(|name| world.plane.namespace(name).unwrap());
    world.plane.apply(&things("s46.example.test", "v1", false)).unwrap();
    world.kubectl(&[
        "wait",
        "crd",
        "things.s46.example.test",
        "--for=condition=Established",
        "--timeout=60s",
    ]);

    // An operator stays while custom resources exist, the custom resources stay, and
    // objects in other namespaces are not affected.
    let maps = |namespace: &str| policy::target("", "configmaps", namespace);
    let kind = json!({"apiGroups": ["s46.example.test"], "resources": ["things"]});
    let itself = policy::target("s46.example.test", "things", &operators);
    for (name, target, protect) in [
        ("s46-needs", maps(&operators), json!({"whileExists": [kind]})),
        ("s46-itself", itself, json!({"always": {}})),
        ("s46-elsewhere", maps(&others), json!({"always": {}})),
    ] {
        policy::apply(&world.plane, name, json!({"targets": [target], "protect": protect}));
    }
    for (name, namespace) in [("operator", &operators), ("kept", &others)] {
        world.kubectl(&["create", "configmap", name, "-n", namespace]);
    }
    let thing = object("s46.example.test/v1", "Thing", "one").with_namespace(&others);
    eventually("a thing", LIMIT, || world.plane.apply(&thing)).unwrap();
    let operator = "configmap/operator";
    world.refuses_delete(operator, &operators, "policy s46-needs");
    assert!(world.belay.metric("belay_failed_watches") < 0.5);

    // The storage version changes, and the stored objects can't be converted.
    world.plane.apply(&things("s46.example.test", "v2", true)).unwrap();
    for name in ["s46-needs", "s46-itself"] {
        world.wait_for_condition(name, "Watching", "False Failed");
        world.wait_for_condition(name, "Ready", "False NotWatched");
    }
    eventually("the metric", LIMIT, || match world.belay.metric("belay_failed_watches") {
        2.0.. => Ok(()),
        failed => Err(format!("{failed} failed").into()),
    })
    .unwrap();
    let elsewhere_is_well = |world: &World| {
        policy::wait_until_in_force(&world.plane, "s46-elsewhere");
        world.refuses_delete("configmap/kept", &others, "policy s46-elsewhere");
        world.kubectl(&["create", "configmap", "free", "-n", "default"]);
        world.kubectl(&["delete", "configmap", "free", "-n", "default"]);
    };
    let path = ".status.conditions[?(@.type==\"Watching\")].message";
    let cause = "conversion webhook for s46.example.test/v1, Kind=Thing failed";
    let named = |said: &str| said.starts_with("things.s46.example.test: ") && said.contains(cause);
    let policy = ("deletionpolicy/s46-needs", "");
    world.plane.api().wait_field(policy, LIMIT, path, named).unwrap();
    elsewhere_is_well(&world);
    world.refuses_delete(operator, &operators, "policy s46-needs");

    // Replicas that have never read one of them are ready, and report it as unread.
    for belay in &mut world.belay.replicas {
        belay.process.restart().unwrap();
    }
    for belay in &mut world.belay.replicas {
        belay.wait_until_ready().unwrap();
    }
    world.ask(&[0, 1]);
    world.refuses_delete(operator, &operators, "belay can't check this request for");
    world.refuses_delete(operator, &operators, "things.s46.example.test");
    world.refuses_delete(operator, &operators, "Repair the conversion webhook of this kind");
    elsewhere_is_well(&world);
    world.wait_for_condition("s46-needs", "Watching", "False Failed");
    for replica in [0, 1] {
        assert!(world.belay.replicas[replica].sum("belay_failed_watches", &[]) > 0.5);
        let log = world.belay.replicas[replica].process.log();
        let broken = |line: &str| line.contains("a watch has failed") && line.contains("\"things.");
        assert!(log.lines().any(broken), "{log}");
    }

    // Mended, everything is known again, and the last thing lets the operator
    // go.
    world.plane.apply(&things("s46.example.test", "v2", false)).unwrap();
    policy::wait_until_in_force(&world.plane, "s46-needs");
    world.refuses_delete(operator, &operators, "policy s46-needs");
    world.kubectl(&["delete", "thing", "one", "-n", &others]);
    eventually("the end of the operator", LIMIT, || {
        world.plane.api().delete(&[operator], &operators)?.success()
    })
    .unwrap();
    world.plane.delete(&["deletionpolicy", "s46-needs", "s46-itself", "s46-elsewhere"], "");
    world.kubectl(&["delete", "crd", "things.s46.example.test", "--wait=false"]);
}
