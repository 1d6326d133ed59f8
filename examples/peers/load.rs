//! The load generator: oha, over TLS, with connections that stay open.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::Result;

/// The number of connections. Each sends one request at a time.
const CONNECTIONS: &str = "25";

/// oha, and the CA that it trusts.
pub struct LoadGenerator {
    pub oha: PathBuf,
    pub ca: PathBuf,
}

impl LoadGenerator {
    fn command(&self, url: &str, body: &Path) -> Command {
        let mut command = Command::new(&self.oha);
        command.args(["--no-tui", "-m", "POST", "-T", "application/json", "-D"]).arg(body);
        command.arg("--cacert").arg(&self.ca);
        command.arg(url);
        command
    }

    /// Sends one review and returns the text of the answer.
    pub fn answer(&self, url: &str, body: &Path) -> Result<String> {
        let output = self.command(url, body).arg("--debug").output()?;
        // oha prints the bytes as a Rust literal, with escaped quotes.
        Ok(String::from_utf8_lossy(&output.stdout).replace('\\', ""))
    }

    /// Sends the review again and again for some seconds. Returns the number of answers and the
    /// seconds until the last answer.
    pub fn run(&self, url: &str, body: &Path, seconds: u32) -> Result<(f64, f64)> {
        let time = format!("{seconds}s");
        let mut command = self.command(url, body);
        // `-w`: the end of the time interrupts no request, so each is counted with its CPU time.
        command.args(["-z", &time, "-w", "-c", CONNECTIONS, "--output-format", "json"]);
        let output = command.output()?;
        let error = || {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            format!("oha failed on {url}: {text}")
        };
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| error())?;
        let answers = report["statusCodeDistribution"]["200"].as_f64().ok_or_else(error)?;
        let total = report["summary"]["total"].as_f64().ok_or_else(error)?;
        let others =
            report["statusCodeDistribution"].as_object().map_or(0, |codes| codes.len() - 1);
        let errors = report["errorDistribution"].as_object().map_or(0, |errors| errors.len());
        if others + errors > 0 {
            return Err(format!("not every answer of {url} is 200: {report}").into());
        }
        Ok((answers, total))
    }
}
