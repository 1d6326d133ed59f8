//! `kubectl belay test`: the shipped tests, the messages of failing tests, and refused
//! input.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::{assert_snapshot, belay, fed};
use crate::harness::manifest::deletion_policy;

/// One policy, one object and one case, to be changed.
const SMALL: &str = r#"apiVersion: belay.dev/v1alpha1
kind: PolicyTest
metadata: {name: small}
objects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}
cases:
- name: it stays
  ask: {delete: cm/a, namespace: shop}
  expect: {verdict: Deny}
"#;

#[test]
fn the_tests_that_are_shipped_pass() {
    assert_snapshot("tests.txt", 0, "test ../../../../examples/tests");
}

#[test]
fn a_failure_contains_the_expectation_and_the_whole_message() {
    assert_snapshot("tests-failing.txt", 1, "test ../trials/failing.yaml");
    assert_snapshot("tests-failing.junit.xml", 1, "test ../trials/failing.yaml -o junit");
    assert_snapshot("tests-failing-yaml.txt", 1, "test ../trials/failing.yaml -o yaml");
}

#[test]
fn programs_get_every_case() {
    let json = belay("test ../trials/failing.yaml ../../../../examples/tests -o json");
    assert_eq!(json.code, 1, "{json:?}");
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(said["apiVersion"], "belay.dev/v1alpha1");
    assert_eq!(said["kind"], "PolicyTestReport");
    assert_eq!(said["failed"], 3);
    let tests = said["tests"].as_array().unwrap();
    let count = |test: &serde_json::Value| test["cases"].as_array().unwrap().len();
    let cases: usize = tests.iter().map(count).sum();
    assert_eq!(said["passed"].as_u64().unwrap() + 3, cases as u64);
    let case = &tests[0]["cases"][1];
    assert_eq!(case["passed"], false);
    assert_eq!(case["line"], 11);
    assert_eq!(case["verdict"], "Deny");
    assert_eq!(case["reason"], "InUse");
    assert_eq!(case["policies"], serde_json::json!(["claims-in-use"]));
    assert_eq!(case["wrong"][0]["expected"], "Allow");
    assert!(case["message"].as_str().unwrap().contains("To override: "), "{case}");
}

/// Without a policy the case fails. With the policy of another file it passes. With a
/// different policy it fails again.
#[test]
fn policies_may_come_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let test = folder.path().join("small.yaml");
    std::fs::write(&test, SMALL).unwrap();
    let line = format!("test {}", test.display());
    assert_eq!(belay(&line).code, 1);
    let policy = |action: &str| {
        let targets = json!([{"apiGroups": [""], "resources": ["configmaps"]}]);
        let spec = json!({"targets": targets, "protect": {"always": {}}, "action": action});
        deletion_policy("p", spec).to_string()
    };
    for (action, code) in [("Deny", 0), ("Audit", 1)] {
        let said = fed(&format!("{line} --policies -"), &policy(action));
        assert_eq!(said.code, code, "{action}: {said:?}");
    }
}

#[test]
fn a_test_from_standard_input_is_reported_with_its_place() {
    assert_eq!(fed("test -", SMALL).code, 1);
    for (from, to, says) in [
        ("cm/a", "cm/b", "standard input:8:17: cases[0].ask.delete: there is no configmaps/b"),
        ("verdict: Deny", "", "standard input:9:11: cases[0].expect: the case has no expectations"),
        ("verdict", "verdicts", "standard input:9:12: cases[0].expect: there is no field verdicts"),
        ("PolicyTest", "PolicyTests", "standard input:2:7: kind: in files the group belay.dev has"),
        (
            "objects:",
            "policies: [nowhere.yaml]\nobjects:",
            "standard input:4:12: nowhere.yaml: this",
        ),
        (": a, namespace: shop}}", ": [", "standard input:"),
    ] {
        let said = fed("test -", &SMALL.replacen(from, to, 1));
        assert_eq!(said.code, 2, "{from}: {said:?}");
        assert!(said.stderr.starts_with(&format!("error: {says}")), "{from}: {said:?}");
        assert_eq!((said.stdout.as_str(), said.stderr.lines().count()), ("", 1), "{said:?}");
    }
}

/// The first file exists and can't be read; the others are mistakes.
#[test]
fn unreadable_files_and_mistakes_have_different_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("loop")).unwrap();
    symlink("round.yaml", path("loop/round.yaml")).unwrap();
    std::fs::create_dir(path("named")).unwrap();
    let objects = "objects:\n- ../loop\n";
    std::fs::write(path("named/a.yaml"), SMALL.replacen("objects:\n", objects, 1)).unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    std::fs::create_dir(path("void")).unwrap();
    let policies = "policies: [../empty]\nobjects:\n";
    std::fs::write(path("void/a.yaml"), SMALL.replacen("objects:\n", policies, 1)).unwrap();
    for (name, code, says) in [
        ("loop", 3, "round.yaml: this cannot be read ("),
        ("named", 3, "a.yaml:5:3: "),
        ("nowhere", 2, "nowhere: this cannot be read ("),
        ("named/a.yaml/x", 2, "x: this cannot be read ("),
        ("empty", 2, "there is no PolicyTest in "),
        ("void", 2, "a.yaml:4:12: policies[0]: there is no file of YAML or JSON in this folder"),
    ] {
        let said = belay(&format!("test {}", path(name).display()));
        assert_eq!(said.code, code, "{name}: {said:?}");
        assert!(said.stderr.contains(says), "{name}: {said:?}");
        let errors = said.stderr.lines().filter(|line| !line.starts_with("hint: ")).count();
        assert_eq!((said.stdout.as_str(), errors), ("", 1), "{said:?}");
    }
}
