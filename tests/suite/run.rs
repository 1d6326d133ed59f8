//! Runs test programs, several at a time.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use super::programs::{Program, build};
use super::progress::Progress;
use super::{Result, Selection, cpu};

/// The number of programs that run at the same time.
const PROGRAMS: usize = 2;

/// A report of a program: a line of libtest's JSON, or its end.
enum Report {
    Line(String),
    Ended { success: bool, cpu: f64 },
}

/// Builds and runs the selected tests; whether all passed.
pub fn run(selection: &Selection) -> Result<bool> {
    let mut waiting = VecDeque::from(build(selection)?);
    let total = waiting.iter().map(|program| program.tests.len()).sum();
    if total == 0 {
        return Err("no test has this text in its name, and no test program has this name".into());
    }
    let usage = cpu::Usage::begin()?;
    let mut progress = Progress::new(total);
    let (sender, reports) = channel();
    let (mut running, mut own) = (0, 0.0);
    loop {
        while let Some(next) =
            waiting.pop_front_if(|next| running < if next.alone { 1 } else { PROGRAMS })
        {
            start(next, &usage, sender.clone())?;
            running += 1;
        }
        if running == 0 {
            break;
        }
        match reports.recv_timeout(Duration::from_secs(1)) {
            Err(RecvTimeoutError::Timeout) => progress.print(),
            Err(RecvTimeoutError::Disconnected) => break,
            Ok((program, Report::Line(line))) => follow(&mut progress, &program, &line),
            Ok((program, Report::Ended { success, cpu })) => {
                own += cpu;
                if !success {
                    progress.abandon(&program);
                }
                running -= 1;
            }
        }
    }
    usage.print(own)?;
    Ok(progress.finish())
}

/// Starts a program and a thread that sends its reports.
fn start(program: Program, usage: &cpu::Usage, reports: Sender<(String, Report)>) -> Result<()> {
    let mut command = Command::new(&program.path);
    command
        .args(["-Zunstable-options", "--format=json", "--report-time", "--exact"])
        .args(&program.tests)
        // Stable libtest reports times and starts only with this.
        .env("RUSTC_BOOTSTRAP", "1")
        .env(cpu::FOLDER, usage.folder())
        // The control planes are written in Go, and a fifth of their CPU time collects
        // garbage. With these values they collect less often, and use more memory.
        .env("GOGC", "400")
        .env("GOMEMLIMIT", "700MiB")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if program.alone {
        command.arg("--test-threads=1");
    } else if program.live && std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism()?.get();
        command.arg(format!("--test-threads={}", cores + 1));
    }
    let mut child: Child = command.spawn()?;
    let output = child.stdout.take().ok_or("a test program has no output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            let _ = reports.send((program.name.clone(), Report::Line(line)));
        }
        // The times of the process can be read until it is waited for.
        let pid = Pid::from_child(&child);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let cpu = cpu::seconds(child.id()).unwrap_or(0.0);
        let success = child.wait().is_ok_and(|status| status.success());
        let _ = reports.send((program.name, Report::Ended { success, cpu }));
    });
    Ok(())
}

fn follow(progress: &mut Progress, program: &str, line: &str) {
    let Ok(event) = serde_json::from_str::<Value>(line) else { return };
    if event["type"] != "test" {
        return;
    }
    let test = format!("{program}::{}", event["name"].as_str().unwrap_or("?"));
    match event["event"].as_str() {
        Some("started") => progress.start(test),
        Some("ok" | "ignored") => progress.end(test, event["exec_time"].as_f64().unwrap_or(0.0)),
        Some("failed") => {
            progress.fail(&test, event["stdout"].as_str().unwrap_or_default());
            progress.end(test, event["exec_time"].as_f64().unwrap_or(0.0));
        }
        _ => {}
    }
}
