//! kubectl and helm, run as a person would.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::Result;

/// The output of a command and its exit status.
#[derive(Debug, Clone, Default)]
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
    // The caches and preferences of the developer are not used.
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
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        scope.spawn(|| out.map(|mut out| out.read_to_end(&mut stdout)));
        err.map(|mut err| err.read_to_end(&mut stderr))
    });
    record_cpu(program, &child)?;
    let code = child.wait()?.code().unwrap_or(-1);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Output { stdout: text(&stdout), stderr: text(&stderr), code })
}

/// Reports the CPU time of a child to `make test`. The system keeps the final CPU time from the end
/// of the child until the call that waits for the child.
fn record_cpu(program: &Path, child: &Child) -> Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let Some(folder) = std::env::var_os("BELAY_TEST_CPU") else { return Ok(()) };
    let _ =
        waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let stat = std::fs::read(format!("/proc/{}/stat", child.id()))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let file = format!("{name}.{}-{number}.stat", std::process::id());
    Ok(std::fs::write(Path::new(&folder).join(file), stat)?)
}
