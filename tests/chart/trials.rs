//! Tests the rendered policies of each profile with `belay test`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::helm::Render;

const PROFILES: [&str; 3] = ["observe", "guarded", "strict"];

/// The result of the tests of one profile with the policies of another.
fn tried(tests: &str, rendered: &str) -> (Option<i32>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("rendered.yaml");
    let text = Render::default().set(&format!("profile={rendered:?}")).text();
    std::fs::write(&policies, text).unwrap();
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO_BIN_EXE_belay"))
        .arg("test")
        .arg(top.join(format!("tests/chart/profiles/{tests}.yaml")))
        .arg("--policies")
        .arg(&policies)
        .arg("--output=json")
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{tests} on {rendered}: {error}: {output:?}"));
    (output.status.code(), report)
}

fn cases(report: &Value) -> Vec<&Value> {
    let tests = report["tests"].as_array().unwrap().iter();
    tests.flat_map(|test| test["cases"].as_array().unwrap()).collect()
}

#[test]
fn each_profile_does_what_its_tests_expect() {
    for profile in PROFILES {
        let (code, report) = tried(profile, profile);
        let failed: Vec<_> =
            cases(&report).into_iter().filter(|case| case["passed"] == false).collect();
        assert_eq!((code, &report["failed"]), (Some(0), &Value::from(0)), "{profile}: {failed:#?}");
    }
}

/// Each policy decides at least one case, so the tests cover it.
#[test]
fn each_policy_of_a_profile_decides_a_case() {
    for profile in PROFILES {
        let (_, report) = tried(profile, profile);
        let decided = cases(&report).into_iter().flat_map(|case| {
            case["policies"].as_array().unwrap().iter().map(|name| name.as_str().unwrap())
        });
        let decided: BTreeSet<&str> = decided.collect();
        let objects = Render::default().set(&format!("profile={profile:?}")).objects();
        let policies = objects.of("DeletionPolicy");
        assert!(policies.len() > 5, "{profile}");
        for policy in policies {
            let name = policy["metadata"]["name"].as_str().unwrap();
            assert!(decided.contains(name), "{profile}: {name} decides nothing: {decided:?}");
        }
    }
}

/// The tests of one profile fail with the policies of another.
#[test]
fn no_profile_passes_for_another() {
    for (tests, rendered) in [
        ("guarded", "observe"),
        ("strict", "guarded"),
        ("guarded", "strict"),
        ("observe", "strict"),
    ] {
        let (code, report) = tried(tests, rendered);
        assert_eq!(code, Some(1), "{tests} on {rendered}: {report:#}");
        assert_ne!(report["failed"], 0, "{tests} on {rendered}");
    }
}
