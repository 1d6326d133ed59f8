//! The command lines and outputs of the program without a cluster.
//!
//! Outputs are compared with reviewed files; `BELAY_UPDATE_SNAPSHOTS=1 cargo test --test
//! cli` writes them again.

mod bad_input;
mod impact;
mod picture;
mod removed;
mod status_plan;
mod stuck;
mod trials;
mod used_by;
mod why;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::fits;

/// The result of a command.
#[derive(Debug)]
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Where the files of these tests are.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/offline").join(name)
}

/// `kubectl belay …`, in the folder of the files, without the environment of this machine.
pub fn belay(line: &str) -> Said {
    fed(line, "")
}

fn started(line: &str, stderr: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kubectl-belay"))
        .args(line.split_whitespace())
        .current_dir(folder("world"))
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

/// The same, with this on standard input.
pub fn fed(line: &str, input: &str) -> Said {
    let mut child = started(line, Stdio::piped());
    // A program that does not read its input may end first, which is no failure.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = Said {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    fits(&line.split_whitespace().collect::<Vec<_>>(), &said.stdout);
    said
}

/// The exit code of the command if its output is closed early, as `| head` does.
pub fn unread(line: &str, input: &str) -> i32 {
    let mut child = started(line, Stdio::piped());
    // It prints only after it has read the input below.
    drop((child.stdout.take(), child.stderr.take()));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait().unwrap().code().unwrap()
}

/// Checks that the command prints the snapshot of this name and ends with this code.
pub fn assert_snapshot(name: &str, code: i32, line: &str) {
    let said = belay(line);
    assert_eq!((said.code, said.stderr.as_str()), (code, ""), "{line}: {said:?}");
    is_as_in(name, line, &said.stdout);
}

/// Checks the output of a command against a reviewed snapshot.
pub fn is_as_in(name: &str, line: &str, text: &str) {
    let path = folder("snapshots").join(name);
    if std::env::var_os("BELAY_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let looked_at = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, looked_at, "{line}: if that is meant, rewrite {name}");
}
