//! The cost of ordinary work: requests that no policy can refuse are not sent to belay.

use serde_json::json;

use crate::World;
use crate::faulty::{LIMIT, faulty};
use crate::harness::eventually;
use crate::policy;

impl World {
    /// Creates a Deployment, rolls it out twice and deletes it.
    pub fn roll_out_and_delete(&self, namespace: &str) {
        self.create_deployment(namespace);
        let image = "shop=example.test/shop:2";
        self.kubectl(&["set", "image", "deployment/shop", image, "-n", namespace]);
        let args = ["rollout", "status", "deployment/shop", "-n", namespace, "--timeout=120s"];
        self.kubectl(&args);
        let delete = ["delete", "deployment/shop", "--cascade=foreground", "-n", namespace];
        self.kubectl(&delete);
    }

    fn create_deployment(&self, namespace: &str) {
        let image = "--image=example.test/shop:1";
        let create = ["create", "deployment", "shop", image, "--replicas=5", "-n", namespace];
        self.kubectl(&create);
        let args = ["rollout", "status", "deployment/shop", "-n", namespace, "--timeout=120s"];
        self.kubectl(&args);
    }

    /// Waits until the condition of a webhook has these words.
    fn wait_for_match_condition(&self, webhook: &str, words: &str) {
        eventually("the condition", LIMIT, || {
            let configuration = "validatingwebhookconfiguration/belay";
            let configuration = self.plane.api().get(configuration, "")?.ok_or("missing")?;
            let mut webhooks = configuration["webhooks"].as_array().into_iter().flatten();
            let conditions = webhooks.find(|one| one["name"] == webhook);
            let conditions = conditions.ok_or("no webhook")?["matchConditions"].to_string();
            if conditions.contains(words) { Ok(()) } else { Err(conditions.into()) }
        })
        .unwrap();
    }

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
fn a_rollout_in_a_namespace_that_no_policy_names_sends_no_review_and_needs_no_belay() {
    let world = faulty();
    let plane = &world.plane;
    let [shop, other] =
        ["rollout-shop", "rollout-other"].map(|name| plane.namespace(name).unwrap());
    let pods = policy::target("", "pods", &shop);
    let above = policy::target("apps", "replicasets, deployments", &shop);
    let protect = json!({"always": {}, "fromOrphaning": {}, "fromStripping": {}});
    policy::apply(plane, &shop, json!({"targets": [pods, above], "protect": protect}));
    // The graph learns that Deployments and ReplicaSets own protected Pods.
    world.create_deployment(&shop);
    world.wait_for_match_condition("delete.belay.dev", &format!("'apps/deployments/{shop}'"));

    let before = OPERATIONS.map(|operation| world.reviews(operation));
    world.roll_out_and_delete(&other);
    let after = OPERATIONS.map(|operation| world.reviews(operation));
    assert_eq!(format!("{after:?}"), format!("{before:?}"), "reviews: {OPERATIONS:?}");

    // The namespace does not depend on belay, although the webhooks have failurePolicy Fail.
    world.ask(&[]);
    world.roll_out_and_delete(&other);
    let refusal = world.delete_refusal("deployment/shop", &shop).unwrap();
    assert!(refusal.contains("failed calling webhook \"delete.belay.dev\""), "{refusal}");
    world.ask(&[0, 1]);

    // The policy protects its namespace, and a second policy another one as soon as it is Ready.
    world.refuses_delete("deployment/shop", &shop, &format!("policy {shop}"));
    world.create_deployment(&other);
    let spec = json!({"targets": [policy::target("apps", "deployments", &other)],
        "protect": {"always": {}}});
    policy::apply(plane, &other, spec);
    let refusal = world.delete_refusal("deployment/shop", &other).unwrap();
    assert!(refusal.contains(&format!("policy {other}")), "{refusal}");
    // So does a policy that is moved to other namespaces.
    let third = plane.namespace("rollout-third").unwrap();
    world.create_deployment(&third);
    let spec = json!({"targets": [policy::target("apps", "deployments", &third)],
        "protect": {"always": {}}});
    policy::apply(plane, &other, spec);
    let refusal = world.delete_refusal("deployment/shop", &third).unwrap();
    assert!(refusal.contains(&format!("policy {other}")), "{refusal}");
    // A policy for all namespaces removes the condition of its kinds.
    let everywhere = json!({"apiGroups": [""], "resources": ["pods"]});
    policy::apply(plane, "everywhere", json!({"targets": [everywhere], "protect": {"always": {}}}));
    let pod = plane.api().fields("pods", &third, "", ".metadata.name").unwrap().remove(0);
    world.refuses_delete(&format!("pod/{pod}"), &third, "policy everywhere");
    for name in [&*shop, &*other, "everywhere"] {
        plane.delete(&["deletionpolicy", name], "");
    }
}

#[test]
fn an_update_that_moves_an_object_into_a_policy_by_its_labels_is_reviewed() {
    let world = faulty();
    let plane = &world.plane;
    let ns = plane.namespace("rollout-labels").unwrap();
    let database = json!({"matchLabels": {"tier": "database"}});
    let target = json!({"apiGroups": ["apps"], "resources": ["deployments"],
        "objectSelector": database});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    world.wait_for_match_condition("delete.belay.dev", "?labels[?'tier']");
    // The webhook for holds is asked about each new object, because another webhook may add labels.
    let without_create = || ["update", "delete"].map(|operation| world.reviews(operation));
    let before = without_create();
    world.roll_out_and_delete(&ns);
    assert_eq!(format!("{:?}", without_create()), format!("{before:?}"));

    world.create_deployment(&ns);
    let updates = world.reviews("update");
    world.kubectl(&["label", "deployment/shop", "tier=database", "-n", &ns]);
    assert!(world.reviews("update") >= updates + 1.0, "the UPDATE was not reviewed");
    let refusal = world.delete_refusal("deployment/shop", &ns).unwrap();
    assert!(refusal.contains(&format!("policy {ns}")), "{refusal}");
    // An UPDATE that moves it out is refused.
    let out = plane.kubectl(&["label", "deployment/shop", "tier-", "-n", &ns]).unwrap();
    let refusal = out.failure().unwrap();
    assert!(refusal.contains(&format!("policy {ns}")), "{refusal}");
    plane.delete(&["deletionpolicy", &ns], "");
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
