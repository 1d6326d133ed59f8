//! `--watch`: prints a report again whenever it changes.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::{Timestamp, Unit};

use super::{Format, OutputArguments, Report};
use crate::command::{CommandError, write_output};

/// The minimum time between two reads.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// The time between two reads, as a multiple of the duration of a read.
const INTERVAL_FACTOR: u32 = 9;

#[derive(Debug, Clone, Copy, Args)]
pub struct WatchArguments {
    /// Read again every 2 s, or less often in a large cluster, and print the answer again when
    /// it has changed, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
}

impl WatchArguments {
    /// Prints the report. With `--watch`, also prints every later report that differs.
    pub async fn print<R: Report>(
        self,
        output: impl Into<OutputArguments>,
        from_files: bool,
        mut read: impl AsyncFnMut() -> Result<R, CommandError>,
    ) -> Result<ExitCode, CommandError> {
        let output = output.into();
        if !self.watch {
            return read().await?.print(output);
        }
        if from_files {
            let text = "--watch reads a cluster; omit --watch, or the options that name files";
            return Err(CommandError::usage(text));
        }
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let (mut last, mut code, mut failure) = (None, 0, String::new());
        loop {
            let began = Instant::now();
            let report = tokio::select! {
                _ = &mut interrupted => break,
                report = read() => report,
            };
            match report {
                Ok(report) => {
                    failure.clear();
                    code = report.exit_code();
                    // This compares documents, because the text contains ages that always change.
                    let document = serde_json::to_string(&report).unwrap_or_default();
                    if last.as_ref() != Some(&document) {
                        let heading = heading(output.output, last.is_none());
                        match write_output(&(heading + &report.output(output)?)) {
                            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                            written => written.map_err(CommandError::Output)?,
                        }
                        last = Some(document);
                    }
                }
                Err(error) if last.is_none() => return Err(error),
                Err(error) if failure == error.to_string() => {}
                Err(error) => {
                    error.print();
                    failure = error.to_string();
                }
            }
            tokio::select! {
                _ = &mut interrupted => break,
                () = tokio::time::sleep(MIN_INTERVAL.max(began.elapsed() * INTERVAL_FACTOR)) => {}
            }
        }
        Ok(ExitCode::from(code))
    }
}

/// The line before each report except the first.
fn heading(format: Format, is_first: bool) -> String {
    let now = Timestamp::now();
    match format {
        _ if is_first => String::new(),
        Format::Yaml => "---\n".to_owned(),
        Format::Table | Format::Wide => {
            format!("\nat {}:\n", now.round(Unit::Second).unwrap_or(now))
        }
        Format::Json
        | Format::Name
        | Format::Markdown
        | Format::Junit
        | Format::Dot
        | Format::Mermaid
        | Format::Html => String::new(),
    }
}
