//! Times that the API server stores but can't read back.

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, pod, secret, workload};
use crate::team::Team;
use crate::{policy, world};

/// The API server accepts them, and writes other years than 0000 to 9999.
const TIMES: [&str; 2] = ["9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"];

fn patch(team: &Team<'_>, object: &str, patch: &Value) {
    let patch = patch.to_string();
    team.kubectl(&["patch", object, "--type=merge", "-p", &patch]).success().unwrap();
}

/// Writes a time into all managedFields of an object.
fn write_time(team: &Team<'_>, object: &str, time: &str) {
    let stored = team.plane.api().get(object, &team.ns).unwrap().unwrap();
    let mut managers = stored["metadata"]["managedFields"].clone();
    for manager in managers.as_array_mut().unwrap() {
        manager["time"] = json!(time);
    }
    let annotations = json!({"time": time});
    patch(
        team,
        object,
        &json!({"metadata": {"annotations": annotations, "managedFields": managers}}),
    );
    // What belay is up against: a patch of anything else is rejected.
    let other = ["annotate", object, "other=x"];
    let rejected = team.kubectl(&other).failure().unwrap();
    assert!(rejected.contains("parsing time"), "{rejected}");
}

/// belay adds, removes and requests the removal of its hold with patches.
#[test]
fn h131_a_time_that_the_api_server_cannot_read_neither_keeps_nor_prevents_a_hold() {
    let team = Team::new(&world().plane, "h131");
    let hold = json!({"whileUsed": {"onDelete": "Hold"}});
    let deployment = |name: &str| {
        let replicas = json!({"spec": {"replicas": 0}});
        workload("Deployment", name, &pod("web")).with(replicas)
    };
    let template = json!({"spec": {"template": {"metadata": {"creationTimestamp": TIMES[0]}}}});

    // Before the policy, which adds the hold.
    team.apply(&config_map("older").with(json!({"data": {"color": "blue"}})));
    write_time(&team, "configmap/older", TIMES[0]);
    let targets = [
        policy::target("", "configmaps, secrets", &team.ns),
        policy::target("apps", "deployments", &team.ns),
    ];
    policy::apply(team.plane, &team.ns, json!({"targets": targets, "protect": hold}));
    team.wait_for_hold("configmap/older");
    let times = team.field("configmap/older", ".metadata.managedFields[*].time");
    assert!(times.starts_with("20") && !times.contains(' '), "{times}");

    for (name, time) in ["late", "early"].into_iter().zip(TIMES) {
        // The API server quotes the object in its answer to a patch.
        team.apply(&config_map(name).with(json!({"data": {"color": "<".repeat(100_000)}})));
        let object = format!("configmap/{name}");
        team.wait_for_hold(&object);
        write_time(&team, &object, time);
    }
    // belay reads only the metadata of a Secret.
    team.apply(&secret("token").with(json!({"stringData": {"key": "value"}})));
    team.wait_for_hold("secret/token");
    write_time(&team, "secret/token", TIMES[0]);
    team.apply(&deployment("web"));
    team.wait_for_hold("deployment/web");
    patch(&team, "deployment/web", &template);

    // The use of a held object ends after a request of its user.
    team.apply(&pod("reader").with_env_from("configMapRef", "early"));
    team.deleted(&["configmap/early"]);
    let release = ["release", "configmap/early", "-n", &team.ns, "--timeout=1"];
    let waits = team.belay(&release);
    assert!(!waits.stderr.contains("cannot ask belay"), "{waits:?}");
    assert!(!team.lacks("configmap/early"), "{waits:?}");
    let others = ["configmap/late", "configmap/older", "secret/token", "deployment/web"];
    team.deleted(&[&["pod/reader"], &others[..]].concat());
    for object in ["configmap/early"].iter().chain(&others) {
        team.wait_until_deleted(object);
    }
}
