//! `belay test`: policies tried on files. A test says which policies and
//! objects there are, what is asked, and what is expected.
//!
//! ```text
//!  file of a test ─► written ─┬─► stage (files::World) ─┐
//!                     cases   └─► request: a review ────┼─► outcome ─► expect ─► report ─► text, JSON, YAML
//!                                 as the API server     │   webhook::parse_review          junit
//!                                 would send it         ┘   decide
//! ```
//!
//! There is no second answer to what a policy does: a case becomes an
//! AdmissionReview, is read as the webhook reads one, and is decided by what
//! decides admission.

mod error;
mod expect;
mod junit;
mod outcome;
mod report;
mod request;
mod stage;
mod verb;
mod written;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

pub use self::report::Report;
use self::report::Tested;
use self::stage::Stage;
use self::written::Test;
use super::document::document;
use super::files::{File, FileError, read_texts, stdin_once};
use super::screen::{Format, Screen};
use super::{CommandError, print};

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 every case came out as expected, 1 some did not, 2 the command or a \
                        file is wrong, 3 a file could not be read"
)]
pub struct TestArguments {
    /// Tests: files of kind PolicyTest, folders in which some are, or - for
    /// standard input
    #[arg(value_name = "DIR|FILE|-", required = true)]
    tests: Vec<PathBuf>,

    /// Policies beside those that the tests name, such as a rendered chart:
    /// files, folders, or - for standard input
    #[arg(long, value_name = "DIR|FILE|-")]
    policies: Vec<PathBuf>,

    /// How the answer is written
    #[arg(
        short,
        long,
        value_name = "table|json|yaml|junit",
        default_value = "table",
        ignore_case = true
    )]
    output: Output,
}

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// One JSON document, versioned
    Json,
    /// The same as YAML
    Yaml,
    /// For what runs tests: JUnit's XML
    Junit,
}

/// Tries everything and prints what came of it.
pub fn run(arguments: &TestArguments) -> Result<ExitCode, CommandError> {
    let TestArguments { tests, policies, output } = arguments;
    stdin_once(tests.iter().chain(policies))?;
    let report = tried(&read_texts(tests)?, &given(policies)?)?;
    if report.tests.is_empty() {
        return Err(CommandError::Usage(format!(
            "there is no PolicyTest in {}; next: see whether it is the right folder, and whether \
             the names of the files end in .yaml, .yml or .json",
            shown(tests)
        )));
    }
    print(&match output {
        Output::Table => report.text(Screen::stdout()),
        Output::Junit => junit::document(&report),
        Output::Json => document(Format::Json, &report)?.unwrap_or_default(),
        Output::Yaml => document(Format::Yaml, &report)?.unwrap_or_default(),
    })?;
    Ok(ExitCode::from(u8::from(report.failed > 0)))
}

/// The policies of the command line. One who names some expects some.
fn given(policies: &[PathBuf]) -> Result<Vec<File>, CommandError> {
    let files = read_texts(policies)?;
    if files.is_empty() && !policies.is_empty() {
        return Err(CommandError::Usage(format!(
            "there is no file of YAML or JSON in {}; name the policies to be tested",
            shown(policies)
        )));
    }
    Ok(files)
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What comes of all tests in these files.
fn tried(files: &[File], policies: &[File]) -> Result<Report, FileError> {
    let now = jiff::Timestamp::now().as_second();
    let mut tests = Vec::new();
    for file in files {
        for test in written::tests(file)? {
            tests.push(try_one(&test, policies, now)?);
        }
    }
    Ok(Report::new(tests))
}

fn try_one(test: &Test, policies: &[File], now: i64) -> Result<Tested, FileError> {
    let stage = Stage::set(test, policies)?;
    let now = test.now.unwrap_or(now);
    let mut cases = Vec::new();
    for case in &test.cases {
        let review = request::review(&stage, test, case)?;
        let outcome = outcome::outcome(&stage.world, review, now)
            .map_err(|error| test.wrong(case, "ask", &error.to_string()))?;
        cases.push(report::Tried::new(case, test.line(case), &outcome));
    }
    Ok(Tested { name: test.name.clone(), file: test.file().to_owned(), cases })
}
