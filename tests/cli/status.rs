//! `belay status`.

use serde_json::json;

use crate::harness::eventually;
use crate::{LIMIT, belay, kubectl, policy, world};

#[test]
fn the_status_contains_the_policies_and_the_leader() {
    let plane = &world().plane;
    let ns = plane.namespace("status").unwrap();
    policy::protect(plane, &ns, "configmaps, pods", json!({"whileUsed": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    eventually("the count of what is protected", LIMIT, || {
        let output = belay(plane, &["status", "-o", "json"]);
        let said: serde_json::Value = serde_json::from_str(&output.stdout)?;
        let policies = said["policies"].as_array().cloned().unwrap_or_default();
        let policy = policies.iter().find(|policy| policy["name"] == ns.as_str());
        let policy = policy.ok_or_else(|| said.to_string())?;
        let led = said["leader"]["name"].is_string();
        let there = said["configurations"][0]["present"] == true;
        // The leader created both at the same time.
        let ends = ["certificate", "authority"].map(|of| said[of]["until"].as_str());
        let counted = policy["protected"] == 1 && policy["ready"] == true;
        let why = "a hold on this kind is unsafe or does not protect";
        let counted = counted && policy["notHeld"] == json!([{"resource": "pods", "why": why}]);
        if led && there && counted && ends[0].is_some() && ends[0] == ends[1] {
            Ok(())
        } else {
            Err(said.to_string().into())
        }
    })
    .unwrap();
    let table = belay(plane, &["status"]).stdout;
    assert!(table.starts_with("leader: "), "{table}");
    assert!(table.contains("\ncertificates: the serving certificate expires 2"), "{table}");
    let row = table.lines().find(|line| line.starts_with(&ns)).unwrap();
    assert!(row.contains("   Deny     yes     1   ") && row.ends_with("whileUsed"), "{table}");
}
