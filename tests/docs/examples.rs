//! The objects of belay's kinds in the pages match the schema and its rules.

use std::process::Command;

use belay::policy::api::{Check, DeletionApproval, DeletionPolicy, Pause, Relation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::pages::pages;

/// The fields of the first value that the second one lacks. A type drops unknown
/// fields.
fn lost(written: &Value, read: &Value, at: &str) -> Vec<String> {
    match (written, read) {
        (Value::Object(fields), Value::Object(_)) => {
            let lost = |(name, value)| lost(value, &read[name], &format!("{at}.{name}"));
            fields.iter().flat_map(lost).collect()
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let pairs = items.iter().zip(others);
            pairs.flat_map(|(item, other)| lost(item, other, at)).collect()
        }
        _ if written == read => Vec::new(),
        _ => vec![format!("{at} is {written}, and read as {read}")],
    }
}

fn wrong<T: DeserializeOwned + Serialize>(
    written: &Value,
    problems: impl Fn(&T) -> Vec<String>,
) -> Vec<String> {
    match serde_json::from_value::<T>(written.clone()) {
        Err(error) => vec![error.to_string()],
        Ok(object) => {
            let read = serde_json::to_value(&object).unwrap();
            let mut wrong = lost(written, &read, "");
            wrong.extend(problems(&object));
            wrong
        }
    }
}

fn told(spec: &impl Check) -> Vec<String> {
    let problems = spec.problems().into_iter();
    problems.map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

/// Runs a PolicyTest; it must pass.
fn tried(test: &Value) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.json");
    std::fs::write(&path, test.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_belay")).arg("test").arg(&path).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    if output.status.success() { Vec::new() } else { vec![said] }
}

fn check(object: &Value) -> Vec<String> {
    match object["kind"].as_str() {
        Some("PolicyTest") => tried(object),
        Some("DeletionPolicy") => wrong::<DeletionPolicy>(object, |policy| told(&policy.spec)),
        Some("Relation") => wrong::<Relation>(object, |relation| told(&relation.spec)),
        Some("DeletionApproval") => wrong::<DeletionApproval>(object, |one| told(&one.spec)),
        Some("Pause") => wrong::<Pause>(object, |pause| told(&pause.spec)),
        other => vec![format!("belay has no kind {other:?}")],
    }
}

#[test]
fn every_example_to_apply_is_accepted() {
    let mut count = 0;
    for page in pages() {
        for block in page.blocks().iter().filter(|block| block.language == "yaml") {
            let text = block.lines.join("\n");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text)
                .unwrap_or_else(|error| panic!("{}: {error}\n{text}", page.path.display()));
            for object in objects.iter().filter(|o| o["apiVersion"] == "belay.dev/v1alpha1") {
                count += 1;
                let wrong = check(object);
                assert!(wrong.is_empty(), "{}: {wrong:#?}\n{text}", page.path.display());
            }
        }
    }
    assert!(count > 4, "{count}");
}

#[test]
fn a_refused_example_is_found() {
    let policy = |protect: &str| {
        let spec = "kind: DeletionPolicy\nmetadata: {name: p}\nspec:\n  targets: [{apiGroups: \
                    [''], resources: [pods]}]\n";
        format!("{spec}  protect: {protect}\n")
    };
    let sound: Value = serde_saphyr::from_str(&policy("{always: {}}")).unwrap();
    assert_eq!(check(&sound), [""; 0]);
    for (text, says) in [
        ("kind: Policy".to_owned(), "no kind"),
        (policy("{always: {}, allways: {}}"), "allways"),
        (policy("{whileUsed: {onDelete: Keep}}"), "Keep"),
        (policy("{}"), "no mode"),
        (
            "apiVersion: belay.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: t}\nobjects: \
             [{apiVersion: v1, kind: Secret, metadata: {name: a}}]\ncases: [{name: c, ask: {delete: \
             secret/a}, expect: {verdict: Deny}}]"
                .to_owned(),
            "expected Deny; found Allow",
        ),
    ] {
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let wrong = check(&object).join("; ");
        assert!(wrong.contains(says), "{text}: {wrong}");
    }
}
