//! The CPU time that the tests took, by program.

use std::collections::BTreeMap;
use std::fs::{DirEntry, read_dir};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Result;

/// The variable with the folder into which the harness writes the CPU time of the processes
/// that it starts.
pub const FOLDER: &str = "BELAY_TEST_CPU";

/// The CPU time of the programs that the tests start.
pub struct Usage {
    folder: PathBuf,
}

impl Usage {
    pub fn begin() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("belay-test-cpu-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prints CPU seconds and processes of each program. `own` is the CPU time of the test
    /// programs themselves.
    pub fn print(&self, own: f64) -> Result<()> {
        self.wait_for_processes();
        let mut programs: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        let mut total = own;
        let mut add = |program: &str, seconds: f64| {
            let (all, processes) = programs.entry(program.to_owned()).or_default();
            *all += seconds;
            *processes += 1;
            total += seconds;
        };
        for file in read_dir(&self.folder)? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let program = name.split('.').next().unwrap_or(&name);
            let program = if program.starts_with("belay") { "belay" } else { program };
            let times = std::fs::read_to_string(file.path())?;
            add(
                program,
                match name.ends_with(".stat") {
                    true => stat_seconds(&times)?,
                    // The output of the shell's `times`: its own time, and that of its child.
                    false => times.split_whitespace().filter_map(shell_seconds).sum(),
                },
            );
        }
        println!("CPU: {total:.0} s");
        println!("{own:8.1} s  test programs");
        for (program, (seconds, processes)) in programs {
            println!("{seconds:8.1} s  {program}, {processes} processes");
        }
        Ok(())
    }

    /// Processes end a moment after the test program that started them.
    fn wait_for_processes(&self) {
        let is_running = |file: std::io::Result<DirEntry>| {
            file.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.len() == 0)
        };
        let are_running =
            || read_dir(&self.folder).is_ok_and(|files| files.into_iter().any(is_running));
        for _ in 0..100 {
            if !are_running() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The CPU seconds of a process without its children.
pub fn seconds(pid: u32) -> Result<f64> {
    stat_seconds(&std::fs::read_to_string(format!("/proc/{pid}/stat"))?)
}

/// The time in user and kernel mode in `/proc/PID/stat`. Fields count after the name.
fn stat_seconds(stat: &str) -> Result<f64> {
    let (_, fields) = stat.rsplit_once(')').ok_or("a process has no stat")?;
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    Ok(f64::from(ticks) / rustix::param::clock_ticks_per_second() as f64)
}

/// The seconds of "1m2.34s".
fn shell_seconds(text: &str) -> Option<f64> {
    let (minutes, seconds) = text.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}
