//! `kubectl belay status --plan`, on a folder.

use super::{assert_snapshot, belay};

#[test]
fn reports_which_objects_policies_would_protect_and_hold() {
    assert_snapshot("plan.txt", 1, "status --plan -f ../plan/policies.yaml --from .");
}

#[test]
fn installed_policies_are_no_part_of_the_plan() {
    // The folder has its own policies, one of them with the same name.
    let json = belay("status --plan -f ../plan --from . -o json");
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let names: Vec<&str> =
        said["policies"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["data", "passwords", "workloads"], "{said}");
    let passwords = &said["policies"][1];
    assert_eq!((&passwords["action"], &passwords["held"]), (&"Warn".into(), &0.into()), "{said}");
    let same = belay("status --plan -f policies.yaml --from . -o yaml");
    assert_eq!(same.code, 0, "{same:?}");
    assert!(same.stdout.starts_with("apiVersion: belay.dev/v1alpha1\nkind: StatusPlan\n"));
}
