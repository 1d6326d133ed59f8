//! Lint, and snapshots of the rendered chart. The snapshot of the defaults is complete.
//! The snapshot of each file in `ci/` contains the differences from the defaults.
//! Relations (tested in `policies`), and objects for Prometheus and Grafana (tested in
//! `tests/docs`) are omitted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::helm::{Render, chart, ci, helm};

/// The hint in the error of a snapshot.
pub const REWRITE: &str = "if that is meant, BELAY_UPDATE_SNAPSHOTS=1 cargo test --test chart \
                           writes it anew, and git diff shows what changes";

#[test]
fn lint_has_nothing_to_say() {
    let files = ci().into_iter().map(|(_, path)| vec![format!("--values={}", path.display())]);
    for values in files.chain([Vec::new()]) {
        let mut arguments = vec!["lint".to_owned(), "--strict".to_owned()];
        arguments.push(chart().display().to_string());
        arguments.extend(values);
        let output = helm(&arguments);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !said.contains("[WARNING]"), "{arguments:?}: {said}");
    }
}

#[test]
fn rendered_manifests_match_the_reviewed_snapshots() {
    let defaults = Render::default().text();
    let mut differs = Vec::new();
    let mut compare = |name: &str, rendered: &str| {
        if !same(name, rendered) {
            differs.push(name.to_owned());
        }
    };
    compare("defaults", &difference("", &defaults));
    for (name, path) in ci() {
        compare(&name, &difference(&defaults, &Render::default().with(&path).text()));
    }
    assert!(
        differs.is_empty(),
        "{} of tests/chart/snapshots is not what the chart renders now; {REWRITE}",
        differs.join(", ")
    );
}

/// Whether a snapshot has this text. With the variable set, writes the snapshot.
fn same(name: &str, rendered: &str) -> bool {
    let path = snapshot(name);
    if updating() {
        std::fs::write(&path, rendered).unwrap();
    }
    std::fs::read_to_string(&path).is_ok_and(|text| text == rendered)
}

/// Whether to write snapshots instead of comparing them.
pub fn updating() -> bool {
    std::env::var_os("BELAY_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1")
}

fn snapshot(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/snapshots");
    folder.join(format!("{name}.yaml"))
}

/// Kinds that other tests check. The ConfigMap is the dashboard.
const OTHERS: &[&str] = &["Relation", "PrometheusRule", "ServiceMonitor", "ConfigMap"];

/// Documents by kind and name.
fn documents(text: &str) -> BTreeMap<String, &str> {
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    let field = |document: &str, begins: &str| {
        let line = document.lines().find_map(|line| line.strip_prefix(begins));
        line.unwrap_or_default().to_owned()
    };
    let key = |document: &str| {
        let (kind, name) = (field(document, "kind: "), field(document, "  name: "));
        let looked_at = !kind.is_empty() && !OTHERS.contains(&&*kind);
        looked_at.then(|| format!("{kind} {name}"))
    };
    documents.filter_map(|document| Some((key(document)?, document))).collect()
}

fn difference(defaults: &str, rendered: &str) -> String {
    let (defaults, rendered) = (documents(defaults), documents(rendered));
    let mut text = "# What is rendered, as far as it differs from the defaults.\n".to_owned();
    for key in defaults.keys().filter(|key| !rendered.contains_key(*key)) {
        text.push_str(&format!("# without {key}\n"));
    }
    for (key, document) in &rendered {
        if defaults.get(key) != Some(document) {
            text.push_str("---\n");
            text.push_str(document);
        }
    }
    text
}

#[test]
fn a_difference_is_what_changed_what_came_and_what_went() {
    let document = |kind: &str, value: &str| {
        format!("---\n# Source: x\nkind: {kind}\nmetadata:\n  name: n\nvalue: {value}\n")
    };
    let before = document("A", "1") + &document("B", "1") + &document("C", "1");
    let after = document("A", "1") + &document("B", "2") + &document("D", "1");
    let difference = difference(&before, &after);
    let told: Vec<_> = difference
        .lines()
        .filter(|l| l.starts_with("# without") || l.starts_with("kind"))
        .collect();
    assert_eq!(told, ["# without C n", "kind: B", "kind: D"]);
}
