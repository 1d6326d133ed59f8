//! kubectl and helm, run as a person would.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Result;

/// What a command printed and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Output {
    pub fn ok(&self) -> bool {
        self.code == 0
    }

    /// The standard output of a command that has to succeed.
    pub fn success(self) -> Result<String> {
        if self.ok() {
            Ok(self.stdout)
        } else {
            Err(format!("exit {}: {}", self.code, self.stderr).into())
        }
    }

    /// The standard error of a command that has to fail.
    pub fn failure(self) -> Result<String> {
        if self.ok() {
            Err(format!("it succeeded: {}", self.stdout).into())
        } else {
            Ok(self.stderr)
        }
    }
}

/// Runs a program under a kubeconfig, with `input` on its standard input.
pub fn run(
    program: &Path,
    kubeconfig: &Path,
    args: &[&str],
    input: Option<&str>,
) -> Result<Output> {
    // Caches and preferences of whoever runs the tests stay out of them.
    let home = kubeconfig.parent().unwrap_or(kubeconfig);
    let mut child = Command::new(program)
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", home)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    Ok(Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code().unwrap_or(-1),
    })
}
