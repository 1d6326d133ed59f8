//! The cost of ordinary work: requests that no policy can refuse are not sent to belay.

use serde_json::json;

use crate::World;
use crate::faulty::{LIMIT, faulty};
use crate::harness::eventually;
use crate::policy;

impl World {
    /// The received reviews of an operation, of all replicas.
    fn reviews(&self, operation: &str) -> f64 {
        let operation = format!("operation=\"{operation}\"");
        let of =
            |one: &crate::harness::Belay| one.sum("belay_admission_requests_total", &[&operation]);
        self.belay.replicas.iter().map(of).sum()
    }
}

/// The operations whose reviews belay receives.
const OPERATIONS: [&str; 3] = ["create", "update", "delete"];

#[test]
fn a_rollout_in_a_namespace_that_no_policy_names_sends_no_review() {
    let world = faulty();
    let plane = &world.plane;
    let [shop, other] =
        ["rollout-shop", "rollout-other"].map(|name| plane.namespace(name).unwrap());
    let pods = policy::target("", "pods", &shop);
    let above = policy::target("apps", "replicasets, deployments", &shop);
    let protect = json!({"always": {}, "fromOrphaning": {}, "fromStripping": {}});
    policy::apply(plane, &shop, json!({"targets": [pods, above], "protect": protect}));
    let create = |ns: &str| {
        let image = "--image=example.test/shop:1";
        world.kubectl(&["create", "deployment", "shop", image, "--replicas=5", "-n", ns]);
        world.kubectl(&["rollout", "status", "deployment/shop", "-n", ns, "--timeout=120s"]);
    };
    // The graph learns that Deployments and ReplicaSets own protected Pods.
    create(&shop);
    let names = |webhook: &str| {
        let field = ".webhooks[*].name .webhooks[*].matchConditions[*].name";
        let configuration = "validatingwebhookconfiguration/belay";
        let text = plane.api().field(configuration, "", field)?;
        if text.contains(webhook) && text.contains("namespaces-of-policies") {
            Ok(())
        } else {
            Err(text.into())
        }
    };
    eventually("the condition", LIMIT, || names("delete.belay.dev")).unwrap();

    let before = OPERATIONS.map(|operation| world.reviews(operation));
    create(&other);
    world.kubectl(&["set", "image", "deployment/shop", "shop=example.test/shop:2", "-n", &other]);
    world.kubectl(&["rollout", "status", "deployment/shop", "-n", &other, "--timeout=120s"]);
    world.kubectl(&["delete", "deployment/shop", "--cascade=foreground", "-n", &other]);
    let after = OPERATIONS.map(|operation| world.reviews(operation));
    assert_eq!(format!("{after:?}"), format!("{before:?}"), "reviews: {OPERATIONS:?}");

    // The policy protects its namespace, and a second policy another one.
    world.refuses_delete("deployment/shop", &shop, &format!("policy {shop}"));
    create(&other);
    let spec = json!({"targets": [policy::target("apps", "deployments", &other)],
        "protect": {"always": {}}});
    policy::apply(plane, &other, spec);
    world.refuses_delete("deployment/shop", &other, &format!("policy {other}"));
    // A policy for all namespaces removes the condition of its kinds.
    let everywhere = json!({"apiGroups": [""], "resources": ["pods"]});
    policy::apply(plane, "everywhere", json!({"targets": [everywhere], "protect": {"always": {}}}));
    let pod = plane.api().fields("pods", &other, "", ".metadata.name").unwrap().remove(0);
    world.refuses_delete(&format!("pod/{pod}"), &other, "policy everywhere");
    for name in [&*shop, &*other, "everywhere"] {
        plane.delete(&["deletionpolicy", name], "");
    }
}

#[test]
fn a_rollout_of_20_protected_pods_sends_no_update_review() {
    // No other test changes objects on this control plane meanwhile.
    let world = faulty();
    let ns = world.plane.namespace("rollout").unwrap();
    let pods = policy::target("", "pods", &ns);
    let above = policy::target("apps", "replicasets, deployments", &ns);
    let protect = json!({"whileUsed": {}, "fromOrphaning": {}, "fromStripping": {}});
    policy::apply(&world.plane, &ns, json!({"targets": [pods, above], "protect": protect}));
    world.kubectl(&[
        "create",
        "deployment",
        "shop",
        "--image=example.test/shop:1",
        "--replicas=20",
        "-n",
        &ns,
    ]);
    let rolled_out = ["rollout", "status", "deployment/shop", "-n", &ns, "--timeout=120s"];
    world.kubectl(&rolled_out);

    let before = OPERATIONS.map(|operation| world.reviews(operation));
    world.kubectl(&["set", "image", "deployment/shop", "shop=example.test/shop:2", "-n", &ns]);
    world.kubectl(&rolled_out);
    eventually("the new Pods alone", LIMIT, || {
        let images = world.plane.api().fields("pods", &ns, "", ".spec.containers[0].image")?;
        let all = images.len() == 20 && images.iter().all(|image| image == "example.test/shop:2");
        if all { Ok(()) } else { Err(images.join(" ").into()) }
    })
    .unwrap();
    let after = OPERATIONS.map(|operation| world.reviews(operation));
    assert!((after[1] - before[1]).abs() < 0.5, "UPDATE reviews: {before:?} {after:?}");
    // One new ReplicaSet, and 20 Pods that went: so reviews do arrive, and are
    // counted.
    assert!(after[0] >= before[0] + 1.0, "CREATE reviews: {before:?} {after:?}");
    assert!(after[2] >= before[2] + 20.0, "DELETE reviews: {before:?} {after:?}");

    // An UPDATE that a policy could refuse does arrive.
    let label = json!({"metadata": {"labels": {"example.test/x": "y"}}});
    world.plane.patch("deployment/shop", &ns, &label);
    assert!(world.reviews("update") >= after[1] + 1.0);
    world.plane.delete(&["deletionpolicy", &ns], "");
}
