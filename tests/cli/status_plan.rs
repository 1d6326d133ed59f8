//! `belay status --plan`, with belay in the cluster and without.

use std::fs;

use serde_json::{Value, json};

use crate::broken::plane as without_belay;
use crate::harness::manifest::{Manifest as _, config_map, deletion_policy};
use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, json, policy, world};

/// Two ConfigMaps, one of them a hook of Helm, and in a file a policy for them
/// with this spec.
fn prepared(plane: &ControlPlane, ns: &str, spec: Value) -> (tempfile::TempDir, String) {
    plane.apply(&config_map("settings").with_namespace(ns)).unwrap();
    let hook = json!({"metadata": {"annotations": {"helm.sh/hook": "pre-install"}}});
    plane.apply(&config_map("hook").with_namespace(ns).with(hook)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    fs::write(&path, deletion_policy(ns, spec).to_string()).unwrap();
    (folder, path.display().to_string())
}

#[test]
fn a_plan_needs_nothing_of_belay_in_the_cluster() {
    let plane = without_belay();
    let ns = plane.namespace("plan").unwrap();
    let maps = policy::target("", "configmaps", &ns);
    let gadgets = json!({"apiGroups": ["plan.test"], "resources": ["gadgets"]});
    let spec = json!({"targets": [maps, gadgets], "protect": {"whileUsed": {}}});
    let (_folder, file) = prepared(plane, &ns, spec);
    let said = belay(plane, &["status", "--plan", "-f", &file, "-o", "json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let said = json(&said);
    assert_eq!(said["kind"], "StatusPlan", "{said}");
    let policy = &said["policies"][0];
    assert_eq!((&policy["protected"], &policy["held"]), (&json!(2), &json!(1)), "{said}");
    assert_eq!(policy["unknownKinds"], json!(["gadgets.plan.test"]), "{said}");
    let why = "it is a hook, which its tool deletes";
    let not_held = json!([{"resource": "configmaps", "why": why, "objects": 1}]);
    assert_eq!(policy["notHeld"], not_held, "{said}");
    let table = belay(plane, &["status", "--plan", "-f", &file]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("POLICY") && lines[0].contains("HOLDS"), "{table}");
    assert!(lines[1].starts_with(&ns) && lines[1].contains("   2           1      "), "{table}");
    assert_eq!(lines[2], format!("  not held: configmaps (1): {why}"), "{table}");
    assert!(lines[3].starts_with("  unknown kinds: gadgets.plan.test; "), "{table}");
}

#[test]
fn a_plan_predicts_the_result() {
    let plane = &world().plane;
    let ns = plane.namespace("plan-kept").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}});
    let (_folder, file) = prepared(plane, &ns, spec.clone());
    let said = belay(plane, &["status", "--plan", "-f", &file, "-o", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let plan = json(&said)["policies"][0].clone();
    assert_eq!((&plan["protected"], &plan["held"]), (&json!(2), &json!(1)), "{plan}");
    let unheld = plane.api().get("cm/settings", &ns).unwrap().unwrap().to_string();
    assert!(!unheld.contains("belay.dev/hold"), "a plan changes nothing: {unheld}");

    policy::apply(plane, &ns, spec);
    eventually("what was planned", LIMIT, || {
        let output = belay(plane, &["status", "-o", "json"]);
        let said: Value = serde_json::from_str(&output.stdout)?;
        let policies = said["policies"].as_array().cloned().unwrap_or_default();
        let policy = policies.iter().find(|policy| policy["name"] == ns.as_str());
        let policy = policy.ok_or_else(|| said.to_string())?;
        let same = |field: &str| policy[field] == plan[field];
        if same("protected") && same("held") { Ok(()) } else { Err(policy.to_string().into()) }
    })
    .unwrap();
}
