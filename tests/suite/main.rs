//! `make test`: builds all tests, runs them and shows the progress.
//!
//! ```text
//! suite [--quick] [--only PATTERN]
//! ```
//!
//! Several test programs run at the same time, and each runs its own tests in
//! parallel. Tests in modules named `load` run at the end, one after the other.

mod cpu;
mod programs;
mod progress;
mod run;

use std::process::ExitCode;

/// The error of every function here: a sentence.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Which tests to run.
#[derive(Default)]
struct Selection {
    /// Leave out programs that need a control plane.
    quick: bool,
    /// Run only tests whose name contains this text, or of programs with this name.
    only: Option<String>,
}

fn main() -> ExitCode {
    match selection().and_then(|selection| run::run(&selection)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn selection() -> Result<Selection> {
    let mut selection = Selection::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--quick" => selection.quick = true,
            "--only" => selection.only = args.next().filter(|pattern| !pattern.is_empty()),
            _ => {
                return Err(format!(
                    "unknown argument {arg}; usage: suite [--quick] [--only PATTERN]"
                )
                .into());
            }
        }
    }
    Ok(selection)
}
