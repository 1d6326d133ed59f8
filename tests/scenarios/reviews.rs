//! The reviews of each operation in each profile of the chart. More reviews slow down the API server.

use std::path::Path;

use serde_json::json;

use crate::faulty::LIMIT;
use crate::harness::manifest::{Manifest as _, claim, object};
use crate::harness::{ControlPlane, Install, Options, eventually, policy};
use crate::{World, program};

/// The operations, with the most reviews of each in the profiles `observe`, `guarded` and `strict`.
/// A number may only become smaller.
const MOST: [(&str, [u32; 3]); 17] = [
    ("create configmap", [0, 0, 1]),
    ("data configmap", [0, 0, 0]),
    ("label configmap", [0, 0, 1]),
    ("delete configmap", [0, 0, 1]),
    ("create secret", [0, 0, 1]),
    ("data secret", [0, 0, 0]),
    ("label secret", [0, 0, 1]),
    ("delete secret", [0, 0, 1]),
    ("create claim", [0, 1, 1]),
    ("status claim", [0, 0, 0]),
    ("label claim", [1, 1, 1]),
    ("delete claim", [1, 1, 1]),
    ("create pod", [0, 0, 0]),
    ("status pod", [0, 0, 0]),
    ("label pod", [0, 0, 0]),
    ("delete pod", [0, 0, 0]),
    ("rollout of 5 pods", [0, 0, 0]),
];

const PROFILES: [&str; 3] = ["observe", "guarded", "strict"];

/// Applies the policies of a profile, and waits until they are in force.
fn apply_profile(plane: &ControlPlane, profile: &str) {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/belay").display().to_string();
    let set = format!("--set=profile={profile}");
    let args = ["template", "belay", &chart, "--namespace=belay", &set];
    let printed = plane.helm(&args).unwrap().success().unwrap();
    let is_policy = |document: &&str| document.lines().any(|line| line == "kind: DeletionPolicy");
    let policies: Vec<&str> = printed.split("---\n").filter(is_policy).collect();
    plane.apply(&policies.join("---\n")).unwrap();
    for name in plane.api().fields("deletionpolicies", "", "", ".metadata.name").unwrap() {
        policy::wait_until_in_force(plane, &name);
    }
}

/// Runs one operation of the table.
fn run(world: &World, operation: &str, ns: &str) {
    let plane = &world.plane;
    let kubectl = |args: &[&str]| drop(world.kubectl(&[args, &["-n", ns]].concat()));
    let (verb, kind) = operation.split_once(' ').unwrap();
    let kind = if kind == "claim" { "pvc" } else { kind };
    let of = format!("{kind}/a");
    match (verb, kind) {
        ("create", "configmap") => kubectl(&["create", "configmap", "a"]),
        ("create", "secret") => kubectl(&["create", "secret", "generic", "a"]),
        ("create", "pvc") => plane.apply(&claim("a").with_namespace(ns)).unwrap(),
        ("create", "pod") => {
            kubectl(&["run", "a", "--image=example.test/a"]);
            kubectl(&["wait", "pod/a", "--for=condition=Ready", "--timeout=60s"]);
        }
        ("data", _) => plane.patch(&of, ns, &json!({"data": {"key": "dmFsdWU="}})),
        ("status", "pod") => {
            plane.patch(&format!("{of}/status"), ns, &json!({"status": {"message": "x"}}));
        }
        ("status", _) => {
            let conditions = json!([{"type": "FileSystemResizePending", "status": "True"}]);
            let patch = json!({"status": {"conditions": conditions}});
            plane.patch(&format!("{of}/status"), ns, &patch);
        }
        ("label", _) => kubectl(&["label", &of, "example.test/x=y"]),
        // A deletion that ends has UPDATEs of finalizers as well.
        ("delete", _) => kubectl(&["delete", &of, "--dry-run=server"]),
        _ => world.roll_out_and_delete(ns),
    }
}

#[test]
fn no_operation_sends_more_reviews_than_the_table_has_for_its_profile() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let belay = Install::of_everything(1).on(&plane, program()).unwrap();
    let world = World { plane, belay };
    let received = || world.belay.replicas[0].sum("belay_admission_requests_total", &[]);
    let mut more = Vec::new();
    for (column, profile) in PROFILES.into_iter().enumerate() {
        apply_profile(&world.plane, profile);
        let ns = world.plane.namespace(profile).unwrap();
        let config = object("v1", "ConfigMap", "last").with_namespace(&ns);
        world.plane.apply(&config).unwrap();
        // A controller creates it in each namespace.
        eventually("the ConfigMap of the root CA", LIMIT, || {
            let root = world.plane.api().get("configmap/kube-root-ca.crt", &ns)?;
            root.map(drop).ok_or_else(|| "it does not exist".into())
        })
        .unwrap();
        for (operation, most) in MOST {
            let before = received();
            run(&world, operation, &ns);
            let reviews = received() - before;
            println!("{profile}: {operation}: {reviews}");
            if reviews > f64::from(most[column]) + 0.5 {
                more.push(format!("{profile}: {operation}: {reviews}, not {}", most[column]));
            }
        }
    }
    assert_eq!(more, Vec::<String>::new());
}
