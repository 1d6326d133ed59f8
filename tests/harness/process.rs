//! Processes that die with the test.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::wait::eventually;

/// Runs its arguments as a child, prints the child's pid, and kills it when standard input
/// ends. The test program holds the other end of that pipe and never writes to it: when the
/// program ends, by a return, a panic or SIGKILL, the kernel closes the pipe. `make test`
/// reads the CPU time of each child from a file that is empty while the child runs.
const TETHER: &str = r#"
    exec 4>&1 1>&2 3<&0
    usage=${BELAY_TEST_CPU:+"$BELAY_TEST_CPU/${0##*/}.$$"}
    [ -z "$usage" ] || : >"$usage"
    "$@" </dev/null 3<&- 4>&- &
    child=$!
    echo "$child" >&4
    exec 4>&-
    { cat <&3 >/dev/null; kill -KILL "$child" 2>/dev/null; } &
    watcher=$!
    wait "$child"
    code=$?
    # The pid is free now, and another process may soon get it.
    kill -KILL "$watcher" 2>/dev/null
    [ -z "$usage" ] || times >"$usage"
    exit "$code"
"#;

/// A program with its arguments, started and stopped at will.
pub struct Process {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log: PathBuf,
    running: Option<Running>,
}

struct Running {
    /// Closing it ends the process.
    leash: Option<ChildStdin>,
    shell: Child,
    pid: Pid,
}

impl Process {
    /// Starts it. Its output goes to `<logs>/<name>.log`.
    pub fn start(name: &str, program: &Path, args: &[String], logs: &Path) -> Result<Self> {
        Self::start_with_env(name, program, args, &[], logs)
    }

    /// Like `start`, with environment variables.
    pub fn start_with_env(
        name: &str,
        program: &Path,
        args: &[String],
        env: &[(String, String)],
        logs: &Path,
    ) -> Result<Self> {
        let mut process = Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.to_vec(),
            env: env.to_vec(),
            log: logs.join(format!("{name}.log")),
            running: None,
        };
        process.restart()?;
        Ok(process)
    }

    /// Starts it again with the same arguments; kills it first if it runs.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let log = File::options().create(true).append(true).open(&self.log)?;
        let (pid_reader, pid_writer) = std::io::pipe()?;
        let mut command = Command::new("sh");
        // The shell prints the pid to its standard output. The child's standard output goes
        // to the log with its standard error.
        command
            .arg("-c")
            .arg(TETHER)
            .arg(&self.name)
            .arg(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            // A Ctrl-C at a terminal is for the test program, which then ends these
            // processes in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(pid_writer)
            .stderr(log);
        let mut shell = command.spawn()?;
        drop(command);
        let leash = shell.stdin.take();
        let mut line = String::new();
        BufReader::new(pid_reader).read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| format!("{}: the tether did not say a pid", self.name))?;
        self.running = Some(Running { leash, shell, pid });
        Ok(())
    }

    /// The name of its log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it runs. An exit is visible here first.
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|r| matches!(r.shell.try_wait(), Ok(None)))
    }

    /// Kills it at once, as a machine that loses power would.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            // While the shell runs, the pid is not reused.
            if matches!(running.shell.try_wait(), Ok(None)) {
                let _ = kill_process(running.pid, Signal::KILL);
            }
            let _ = running.shell.wait();
            drop(running.leash.take());
        }
    }

    /// Sends a signal to it: SIGTERM, SIGSTOP, SIGCONT.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let running = self.running.as_ref().ok_or("it does not run")?;
        Ok(kill_process(running.pid, signal)?)
    }

    /// Waits until it has exited and returns its exit code.
    pub fn wait_for_exit(&mut self, limit: Duration) -> Result<i32> {
        let name = self.name.clone();
        let running = self.running.as_mut().ok_or("it does not run")?;
        let status = eventually(&format!("the end of {name}"), limit, || {
            running.shell.try_wait()?.ok_or_else(|| "it runs on".into())
        })?;
        self.running = None;
        Ok(status.code().unwrap_or(-1))
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The memory that it has in use, in KiB.
    pub fn resident(&self) -> Option<u64> {
        self.status("VmRSS:")
    }

    /// Its virtual memory in KiB.
    pub fn memory(&self) -> Option<u64> {
        self.status("VmData:")
    }

    /// The most memory it has ever had in use, in KiB.
    pub fn peak(&self) -> Option<u64> {
        self.status("VmHWM:")
    }

    /// The CPU time that it has used.
    pub fn cpu(&self) -> Option<Duration> {
        let pid = self.running.as_ref()?.pid.as_raw_nonzero();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program before the last parenthesis may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        let second = rustix::param::clock_ticks_per_second();
        Some(Duration::from_secs_f64(ticks as f64 / second as f64))
    }

    fn status(&self, field: &str) -> Option<u64> {
        let pid = self.running.as_ref()?.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
