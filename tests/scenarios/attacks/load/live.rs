//! Live reads and release passes while a tenant makes them expensive.

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::team::{SOON, Team};
use crate::{policy, program};

/// ReplicaSets of the attacker.
const LARGE: usize = 15;

/// The memory that a replica may use at most, in MiB. The chart's limit is 512.
const MOST: u64 = 250;

/// A ReplicaSet without Pods that reads a ConfigMap and has this in its
/// template.
fn replica_set(name: &str, reads: &str, filling: &str) -> ReplicaSet {
    let labels = json!({"app": name});
    let container = json!({"name": "c", "image": "none", "args": [filling],
        "envFrom": [{"configMapRef": {"name": reads}}, {"secretRef": {"name": reads}}]});
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    }))
    .unwrap()
}

/// Creates ReplicaSets of 1.1 MB, of which the API server writes 6.6 MB: JSON escapes each
/// `<`.
fn make_large(team: &Team<'_>) {
    let filling = "<".repeat(1_100_000);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sets: Api<ReplicaSet> = Api::namespaced(team.plane.client().await.unwrap(), &team.ns);
        for number in 0..LARGE {
            let reads = if number == LARGE / 2 { "used" } else { "other" };
            let set = replica_set(&format!("large-{number}"), reads, &filling);
            sets.create(&PostParams::default(), &set).await.unwrap();
        }
    });
}

#[test]
fn h08_large_objects_are_read_live_within_little_memory() {
    let plane = ControlPlane::start_with(&Options::default()).unwrap();
    let belay = Install::of_everything(1).on(&plane, program()).unwrap();
    let team = Team::new(&plane, "h08");
    let ns = &team.ns;
    // Without a hold a verdict reads live; with one, a release pass does.
    let maps = policy::target("", "configmaps", ns);
    let live = json!({"targets": [maps], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(&plane, &format!("{ns}-maps"), live);
    let secrets = policy::target("", "secrets", ns);
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    let held = json!({"targets": [secrets], "protect": protect, "settleSeconds": 0});
    policy::apply(&plane, &format!("{ns}-secrets"), held);
    let peak = || belay.replicas[0].process.peak().unwrap() / 1024;
    for name in ["used", "free-0", "free-1", "free-2", "free-3"] {
        team.kubectl(&["create", "configmap", name]).success().unwrap();
        team.kubectl(&["create", "secret", "generic", name]).success().unwrap();
    }
    let before = peak();
    make_large(&team);
    let watched = peak();

    let mut after = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let team = &team;
            scope.spawn(move || {
                let name = format!("free-{number}");
                team.deleted(&[&format!("secret/{name}")]);
                eventually("a DELETE of an unused object", SOON, || {
                    team.delete(&[&format!("configmap/{name}")]).success()
                })
                .unwrap();
            });
        }
        let refused = team.refused(&["configmap/used"]);
        assert!(refused.contains("is in use by ReplicaSet"), "{refused}");
        team.deleted(&["secret/used"]);
    });
    after.push(peak());
    team.was_kept("secret/used");
    for number in 0..4 {
        team.wait_until_deleted(&format!("secret/free-{number}"));
    }
    after.push(peak());
    eprintln!("h08: MiB at most {before}, with the watch {watched}, with live reads {after:?}");
    for most in after {
        assert!(most < MOST, "the replica used {most} MiB");
    }
}
