//! The JSON output of the commands whose text output is tested with the scenarios.
//! [`crate::fits`] checks each document against its schema.

use serde_json::json;

use crate::{belay, json, kubectl, policy, world};

#[test]
fn release_of_an_object_without_a_hold_is_an_answer_and_no_error() {
    let plane = &world().plane;
    let ns = plane.namespace("programs").unwrap();
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let typed = format!("configmaps/settings -n {ns}");
    let release = ["release", "cm/settings", "-n", &ns];
    let said = belay(plane, &[&release[..], &["-o", "json"]].concat());
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    let said = json(&said);
    assert_eq!((&said["kind"], &said["state"]), (&"Released".into(), &"NotHeld".into()), "{said}");
    assert_eq!(said["object"]["typed"], typed.as_str(), "{said}");
    assert_eq!(said["object"]["uid"].as_str().map(str::len), Some(36), "{said}");
    // For a person it is an error, in the same words.
    let text = belay(plane, &release);
    let line = said["lines"][0].as_str().unwrap();
    assert_eq!((text.code, text.stdout.as_str()), (1, ""), "{text:?}");
    assert_eq!(text.stderr, format!("error: {}\n", line.replace("; next: ", "\nhint: ")));
}

#[test]
fn a_dry_run_of_a_release_lists_every_object() {
    let plane = &world().plane;
    let ns = plane.namespace("programs-all").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "kept", "-n", &ns]);
    let said = belay(plane, &["admin", "uninstall", "--dry-run", "-o", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let said = json(&said);
    assert_eq!((&said["kind"], &said["dryRun"]), (&"Uninstalled".into(), &true.into()));
    let left = said["left"].as_array().unwrap();
    let typed = format!("configmaps/kept -n {ns}");
    let kept = left.iter().find(|one| one["object"]["typed"] == typed.as_str());
    assert_eq!(kept.unwrap_or_else(|| panic!("{said}"))["cause"], "Untouched");
}

#[test]
fn a_self_test_is_reported_by_its_stages() {
    let plane = &world().plane;
    let said = belay(plane, &["admin", "selftest", "-n", "default", "-o", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let said = json(&said);
    assert_eq!((&said["kind"], &said["passed"]), (&"Selftest".into(), &true.into()), "{said}");
    assert_eq!(said["stages"].as_array().map(Vec::len), Some(3), "{said}");
}
