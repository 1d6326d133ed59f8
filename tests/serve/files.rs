//! Policies and objects from files: read at the start, and again when they
//! change.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::belay::http_get;
use crate::harness::{Belay, eventually};
use crate::{client, program, sample};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// A standalone belay with these folders.
fn serve(policies: &Path, objects: &Path, folder: &Path) -> Belay {
    let policies = format!("--policies={}", policies.display());
    let objects = format!("--objects={}", objects.display());
    let args = ["--standalone", "--files-poll=0.1", &policies, &objects];
    Belay::start("belay", program(), &args, folder).unwrap()
}

fn ask(belay: &Belay, path: &str, review: &str) -> Value {
    client(belay).post(path, review).json()["response"].take()
}

/// Waits until the answer to the DELETE of the claim is as expected.
fn until_allowed(belay: &Belay, allowed: bool) {
    eventually("the verdict", Duration::from_secs(20), || {
        match ask(belay, "/validate", &sample("delete-in-use.json")) {
            answer if answer["allowed"] == allowed => Ok(()),
            answer => Err(answer.to_string().into()),
        }
    })
    .unwrap();
}

fn until_logged(belay: &Belay, words: &str) {
    eventually(words, Duration::from_secs(20), || match belay.process.log() {
        log if log.contains(words) => Ok(()),
        log => Err(log.into()),
    })
    .unwrap();
}

fn has_metric(belay: &Belay, line: &str) -> bool {
    belay.metrics().unwrap().lines().any(|l| l == line)
}

/// Replaces a file as kubectl and editors do: in one step.
fn replace(path: &Path, text: &str) {
    let staged = path.with_extension("staged");
    std::fs::write(&staged, text).unwrap();
    std::fs::rename(&staged, path).unwrap();
}

#[test]
fn a_policy_file_denies_and_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let examples = Path::new(EXAMPLES);
    let deny = std::fs::read_to_string(examples.join("policies/claims-in-use.yaml")).unwrap();
    let file = policies.join("claims.yaml");
    replace(&file, &deny);
    let belay = serve(&policies, &examples.join("objects"), folder.path());

    let answer = ask(&belay, "/validate", &sample("delete-in-use.json"));
    assert_eq!(answer["allowed"], false, "{answer}");
    assert_eq!(answer["status"]["reason"], "InUse");
    let message = answer["status"]["message"].as_str().unwrap();
    for words in ["StatefulSet db/postgres", "postgres-0", "claims-in-use"] {
        assert!(message.contains(words), "{message}");
    }

    // Audit allows it. The text has the same length, so the length shows no change.
    let audit = deny.replace("  targets:", "  action: Audit\n  targets:");
    replace(&file, &audit);
    until_allowed(&belay, true);
    let warn = audit.replace("action: Audit", "action: Deny ");
    assert_eq!(warn.len(), audit.len());
    std::fs::write(&file, &warn).unwrap();
    until_allowed(&belay, false);
    replace(&file, &audit);
    until_allowed(&belay, true);

    // A broken file changes nothing, and is logged once.
    replace(&file, &format!("{audit}  settleSeconds: soon # hunter2\n"));
    let place = format!("{}:15:18: spec.settleSeconds: expected a whole number", file.display());
    until_logged(&belay, &place);
    assert!(has_metric(&belay, "belay_files_broken 1"));
    let (code, readiness) = http_get(belay.probes, "/readyz?verbose").unwrap();
    assert_eq!(code, 200, "{readiness}");
    assert!(readiness.contains("[!]files a file is invalid"), "{readiness}");
    until_allowed(&belay, true);
    // Meanwhile a new file beside it is not loaded.
    replace(&policies.join("more.yaml"), "a: [\n");
    replace(&file, &deny);
    until_logged(&belay, "more.yaml:1:4");
    let answer = ask(&belay, "/validate", &sample("delete-in-use.json"));
    assert_eq!(answer["allowed"], true, "the last good set stays: {answer}");

    std::fs::remove_file(policies.join("more.yaml")).unwrap();
    until_allowed(&belay, false);
    assert!(has_metric(&belay, "belay_files_broken 0"));
    assert!(has_metric(&belay, "belay_files_loaded_total 5"), "{}", belay.metrics().unwrap());
    let log = belay.process.log();
    assert_eq!(log.matches(&place).count(), 1, "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    assert!(log.contains(r#""policies":1"#) && log.contains(r#""objects":11"#), "{log}");
}

#[test]
fn a_dump_is_read_and_kinds_that_are_not_served_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "dump.json",
        r#"{"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
             "metadata": {"name": "data-postgres-0", "namespace": "db", "uid": "5a0c2f6e-7a4f-4f0e-8c55-0d3b6a5f1003"}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader", "namespace": "db"},
             "spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data-postgres-0"}}]}}]}"#,
    );
    write(
        "policy.yaml",
        "apiVersion: belay.dev/v1alpha1\r\nkind: DeletionPolicy\r\nmetadata: {name: claims}\r\nspec:\r\n\
         \x20 targets: [{apiGroups: ['', e.x], resources: [persistentvolumeclaims]}]\r\n\
         \x20 protect: {whileUsed: {}}\r\n",
    );
    let dump = folder.path().join("dump.json");
    let belay = serve(&folder.path().join("policy.yaml"), &dump, folder.path());
    let answer = ask(&belay, "/validate", &sample("delete-in-use.json"));
    assert_eq!(answer["status"]["reason"], "InUse", "{answer}");
    let log = belay.process.log();
    assert!(log.contains("policy claims: persistentvolumeclaims.e.x"), "{log}");
    assert!(!log.contains("policy claims: persistentvolumeclaims,"), "{log}");

    // When the dump no longer contains the Pod, the claim is unused: in a folder, a missing
    // object does not exist.
    let text = std::fs::read_to_string(&dump).unwrap();
    replace(&dump, &text.replace("data-postgres-0\"}}]", "another\"}}]"));
    until_allowed(&belay, true);
}

#[test]
fn a_broken_file_at_the_start_ends_the_program_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.yaml");
    std::fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: [a]\n").unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(program());
        command.arg("serve").args(args).current_dir(folder.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let path = file.display().to_string();
    let (code, message) = run(&["--standalone", "--objects", &path]);
    let expected = format!("error: {path}:4:9: metadata.name: expected text; put it in quotes\n");
    assert_eq!((code, message), (Some(2), expected));
    assert!(!folder.path().join("certs").exists(), "nothing was made before");
    let (code, message) = run(&["--standalone", "--policies", "nowhere"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("error: nowhere: this cannot be read"), "{message}");
    for flag in ["--policies=a", "--objects=a"] {
        let (code, message) = run(&[flag]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("--standalone"), "{message}");
    }
}
