//! The embedded default: certificates on first start, and a line to paste.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use serde_json::json;

use crate::harness::eventually;
use crate::harness::ports;
use crate::harness::process::Process;
use crate::program;

#[test]
fn the_printed_lines_work_when_pasted() {
    let folder = tempfile::tempdir().unwrap();
    // A folder that a shell would tear apart.
    let certs = folder.path().join("my certs");
    let [listen, probes] = ports::free().unwrap();
    let args = [
        "serve".to_owned(),
        "--standalone".to_owned(),
        format!("--cert-dir={}", certs.display()),
        format!("--listen=127.0.0.1:{listen}"),
        format!("--probes=127.0.0.1:{probes}"),
    ];
    let _belay = Process::start("standalone", program(), &args, folder.path()).unwrap();
    let mut printed = String::new();
    eventually("the welcome", Duration::from_secs(20), || {
        printed = std::fs::read_to_string(folder.path().join("standalone.log"))?;
        if printed.contains("Ctrl-C ends it") { Ok(()) } else { Err("not yet".into()) }
    })
    .unwrap();

    let lines: Vec<_> = printed.lines().filter(|l| l.trim_start().starts_with("curl ")).collect();
    let [denied, held] = lines[..] else { panic!("{printed}") };
    let run = |line: &str| {
        let output = Command::new("sh")
            .args(["-c", &format!("{line} --silent --show-error")])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["response"].clone()
    };
    let denied = run(denied);
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["status"]["code"], 403);
    assert_eq!(denied["status"]["reason"], "Protected");
    let held = run(held);
    assert_eq!(held["allowed"], true);
    assert_eq!(held["patchType"], "JSONPatch");
    let patch =
        base64::engine::general_purpose::STANDARD.decode(held["patch"].as_str().unwrap()).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&patch).unwrap(),
        json!([{"op": "add", "path": "/metadata/finalizers", "value": ["belay.dev/hold"]}])
    );
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(certs.join("tls.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner may read the key");
}

/// With the example folders there is a line for each sample, whether the sample files exist
/// or the reviews are in the lines themselves.
#[test]
fn the_lines_of_the_example_folders_work_from_any_folder() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let elsewhere = tempfile::tempdir().unwrap();
    // A file of the same name with other content.
    std::fs::create_dir(elsewhere.path().join("examples")).unwrap();
    std::fs::write(elsewhere.path().join("examples/delete-in-use.json"), "{}").unwrap();
    for folder in [Path::new(env!("CARGO_MANIFEST_DIR")), elsewhere.path()] {
        let certs = elsewhere.path().join("certs");
        let mut child = Command::new(program())
            .args(["serve", "--standalone", "--listen=127.0.0.1:0", "--probes=127.0.0.1:0"])
            .arg(format!("--cert-dir={}", certs.display()))
            .args([
                format!("--policies={examples}/policies"),
                format!("--objects={examples}/objects"),
            ])
            .current_dir(folder)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines: Vec<_> = lines.take_while(|line| !line.contains("Ctrl-C")).collect();
        let answers: Vec<_> = lines
            .iter()
            .filter(|line| line.trim_start().starts_with("curl "))
            .map(|line| {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{line} --silent")]).current_dir(folder);
                let output = shell.output().unwrap().stdout;
                serde_json::from_slice::<serde_json::Value>(&output).unwrap()["response"].clone()
            })
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let [label, in_use, held, held_by_policy] = &answers[..] else { panic!("{lines:?}") };
        assert_eq!(label["status"]["reason"], "Protected");
        assert_eq!(in_use["status"]["reason"], "InUse");
        let message = in_use["status"]["message"].as_str().unwrap();
        assert!(message.contains("StatefulSet") && message.contains("postgres-0"), "{message}");
        for held in [held, held_by_policy] {
            assert_eq!((&held["allowed"], &held["patchType"]), (&json!(true), &json!("JSONPatch")));
        }
    }
}

/// From another folder the sample files don't exist, so the reviews are in the lines
/// themselves.
#[test]
fn the_lines_work_from_any_folder_and_certificates_are_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let [listen, probes] = ports::free().unwrap();
        let mut child = Command::new(program())
            .args([
                "serve",
                "--standalone",
                &format!("--listen=127.0.0.1:{listen}"),
                &format!("--probes=127.0.0.1:{probes}"),
            ])
            .current_dir(folder.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("curl ")).unwrap();
        let output = Command::new("sh")
            .args(["-c", &format!("{line} --silent")])
            .current_dir(folder.path())
            .output()
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(start().contains("\"reason\":\"Protected\""));
    let first = std::fs::read(folder.path().join("certs/ca.crt")).unwrap();
    assert!(start().contains("\"reason\":\"Protected\""));
    assert_eq!(std::fs::read(folder.path().join("certs/ca.crt")).unwrap(), first);
}

/// An ordinary TLS Secret has no ca.crt. The existing files belong to the user.
#[test]
fn a_folder_with_a_foreign_key_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tls.key"), "mine").unwrap();
    let output = Command::new(program())
        .args(["serve", "--standalone", "--cert-dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("tls.key exists, but not all"), "{message}");
    assert_eq!(std::fs::read_to_string(folder.path().join("tls.key")).unwrap(), "mine");
}

#[test]
fn shortened_intervals_are_reported_and_those_that_lose_the_lease_are_refused() {
    let (belay, _folder) = crate::belay(&["--timing=certificates.poll=0.5"]);
    let log = belay.process.log();
    assert!(log.contains("has shortened the intervals of belay"), "{log}");

    let output = Command::new(program())
        .args(["serve", "--standalone"])
        .env("BELAY_TIMING", "lease.duration=5")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("otherwise a leader can't renew its Lease in time"), "{stderr}");
}
