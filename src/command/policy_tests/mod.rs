//! `kubectl belay test`: tests policies on files. A test contains policies, objects,
//! requests and expectations.
//!
//! ```text
//!  test_file ─► Test ─┬─► fixture: files::World ─┐
//!                     └─► request: the review    ├─► outcome ─► expect ─► report ─► text, JSON, YAML
//!                         that an API server     │   webhook::parse_review          junit
//!                         would send            ─┘   decide
//! ```
//!
//! A case becomes an AdmissionReview, which the code of the webhook parses and decides.

mod error;
mod expect;
mod fixture;
mod junit;
mod outcome;
mod report;
mod request;
mod test_file;
mod verb;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::fixture::Fixture;
pub use self::report::TestReport;
use self::report::TestResult;
use self::test_file::Test;
use super::CommandError;
use super::files::{File, FileError, read_texts, stdin_once};
use super::report::{Format, Report, View};

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0: all cases passed; 1: some failed; 2: wrong arguments or invalid file; \
                  3: a file could not be read"
)]
pub struct TestArguments {
    /// Files of kind PolicyTest, folders that contain some, or - for standard input
    #[arg(value_name = "DIR|FILE|-", required = true)]
    tests: Vec<PathBuf>,

    /// Policies beside those that the tests name, such as a rendered chart:
    /// files, folders, or - for standard input
    #[arg(long, value_name = "DIR|FILE|-")]
    policies: Vec<PathBuf>,

    /// The output format
    #[arg(
        short,
        long,
        value_name = "table|json|yaml|junit",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[Format::Junit])
    )]
    output: Format,
}

/// Runs all tests and prints the report.
pub fn run(arguments: &TestArguments) -> Result<ExitCode, CommandError> {
    let TestArguments { tests, policies, output } = arguments;
    stdin_once(tests.iter().chain(policies))?;
    let report = run_tests(&read_texts(tests)?, &read_policies(policies)?)?;
    if report.tests.is_empty() {
        return Err(CommandError::Usage(format!(
            "there is no PolicyTest in {}; next: see whether it is the right folder, and whether \
             the names of the files end in .yaml, .yml or .json",
            paths_text(tests)
        )));
    }
    report.print(*output)
}

impl Report for TestReport {
    const KIND: &'static str = "PolicyTestReport";

    fn text(&self, view: View) -> String {
        self.table(view.screen)
    }

    fn junit(&self) -> Option<String> {
        Some(junit::document(self))
    }

    /// 1 if a case failed.
    fn exit_code(&self) -> u8 {
        u8::from(self.failed > 0)
    }
}

/// Reads the files of `--policies`. It is an error if there are none.
fn read_policies(policies: &[PathBuf]) -> Result<Vec<File>, CommandError> {
    let files = read_texts(policies)?;
    if files.is_empty() && !policies.is_empty() {
        return Err(CommandError::Usage(format!(
            "there is no file of YAML or JSON in {}; name the policies to be tested",
            paths_text(policies)
        )));
    }
    Ok(files)
}

fn paths_text(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn run_tests(files: &[File], policies: &[File]) -> Result<TestReport, FileError> {
    let now = jiff::Timestamp::now().as_second();
    let mut tests = Vec::new();
    for file in files {
        for test in test_file::tests(file)? {
            tests.push(run_test(&test, policies, now)?);
        }
    }
    Ok(TestReport::new(tests))
}

fn run_test(test: &Test, policies: &[File], now: i64) -> Result<TestResult, FileError> {
    let fixture = Fixture::read(test, policies)?;
    let now = test.now.unwrap_or(now);
    let mut cases = Vec::new();
    for case in &test.cases {
        let review = request::review(&fixture, test, case)?;
        let outcome = outcome::outcome(&fixture.world, review, now)
            .map_err(|error| test.case_error(case, "ask", &error.to_string()))?;
        cases.push(report::CaseResult::new(case, test.line(case), &outcome));
    }
    Ok(TestResult { name: test.name.clone(), file: test.file().to_owned(), cases })
}
