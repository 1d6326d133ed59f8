//! The tour of the README: six commands on a real control plane with their real output.
//! `BELAY_WRITE_DOCS=1 cargo test --test cli tour` writes it into the README; without that,
//! the test compares the README with the output.

use serde_json::json;

use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, kubectl, policy, world};

const BEGIN: &str = "<!-- The tour is written by tests/cli/tour.rs. -->\n";
const END: &str = "<!-- End of the tour. -->\n";

/// A command of the tour: its arguments, and its exit code.
const TOUR: &[(&str, i32)] = &[
    ("impact secret/db-creds -n shop", 1),
    ("used-by secret/db-creds -n shop", 1),
    ("why secret/db-creds -n shop", 1),
    ("approve secret/db-creds -n shop --reason \"rotated, CHG-1042\"", 0),
    ("approvals -n shop", 0),
    ("stuck -n shop --longer-than 1s", 1),
];

const SHOP: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: db-creds, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old-settings, namespace: shop, finalizers: [db.example.net/drop]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: postgres, namespace: shop}
spec:
  serviceName: postgres
  selector: {matchLabels: {app: postgres}}
  template:
    metadata: {labels: {app: postgres}}
    spec:
      containers:
      - name: postgres
        image: postgres
        env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db-creds, key: password}}}]
";

/// The arguments of a line, as a shell would take them.
fn arguments(line: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for (at, part) in line.split('"').enumerate() {
        // Text between quotes is one word.
        match at % 2 {
            1 => all.push(part),
            _ => all.extend(part.split_whitespace()),
        }
    }
    all
}

fn prepare(plane: &ControlPlane) {
    // As the reader does it: the outputs contain the field manager.
    plane.apply_to(&["apply", "-f", "-"], SHOP).unwrap().success().unwrap();
    let target = policy::target("", "secrets", "shop");
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, "secrets-in-use", spec);
    eventually("a user that belay knows of", LIMIT, || {
        let delete = ["delete", "secret", "db-creds", "-n", "shop", "--dry-run=server"];
        let refused = plane.kubectl(&delete)?.failure()?;
        // After the Pod exists as well, nothing changes.
        if refused.contains("Pod postgres-0") { Ok(()) } else { Err(refused.into()) }
    })
    .unwrap();
    kubectl(plane, &["delete", "configmap", "old-settings", "-n", "shop", "--wait=false"]);
    eventually("something stuck", LIMIT, || {
        let said = belay(plane, &arguments("stuck -n shop --longer-than 1s"));
        if said.code == 1 { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
}

/// The text without the parts that differ between runs: times, durations, and name suffixes
/// that the API server generates.
pub fn steady(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words = line.split_whitespace().map(|word| {
            let bare = word.trim_matches([',', ';', '(', ')', ':', '.']);
            let is_time = bare.contains('T') && bare.ends_with('Z') && bare.starts_with("20");
            let is_age = bare.starts_with(|c: char| c.is_ascii_digit())
                && bare.ends_with(['s', 'm', 'h', 'd'])
                && bare.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c));
            match bare.rsplit_once('-') {
                _ if is_time => word.replace(bare, "TIME"),
                _ if is_age => word.replace(bare, "AGE"),
                Some((begin @ "secrets-db-creds", _)) => word.replace(bare, begin),
                _ => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_tour_of_the_readme_is_what_the_commands_print() {
    let plane = &world().plane;
    prepare(plane);
    let mut tour = String::from("```text\n");
    for (at, (line, code)) in TOUR.iter().enumerate() {
        let said = belay(plane, &arguments(line));
        assert_eq!((said.code, said.stderr.as_str()), (*code, ""), "{line}: {said:?}");
        let blank = if at > 0 { "\n" } else { "" };
        tour.push_str(&format!("{blank}$ kubectl belay {line}\n{}", said.stdout));
    }
    tour.push_str("```\n");

    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the README has a place for the tour");
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("BELAY_WRITE_DOCS").is_some() {
        std::fs::write(&path, [before, BEGIN, &tour, END, after].concat()).unwrap();
        return;
    }
    assert_eq!(
        steady(written),
        steady(&tour),
        "the README is not what the commands print; next: BELAY_WRITE_DOCS=1 cargo test --test cli \
         tour"
    );
}

#[test]
fn text_that_differs_between_runs_is_replaced() {
    let one =
        "approved until 2026-11-22T02:36:18Z (30m)\nsecrets-db-creds-x7k2p   29m left   web-0";
    let two = "approved until 2027-01-02T12:00:00Z (9m58s)\nsecrets-db-creds-aaaaa  1h left web-0";
    assert_eq!(steady(one), steady(two));
    assert_ne!(steady(one), steady(&two.replace("web-0", "web-1")));
    assert_eq!(arguments("a --reason \"b c\" d"), ["a", "--reason", "b c", "d"]);
}
