//! The report of tests, as data and as text.

use schemars::JsonSchema;
use serde::Serialize;

use super::expect::Mismatch;
use super::outcome::Outcome;
use super::test_file::Case;
use crate::command::document::ReportedVerdict;
use crate::command::screen::{Field, Screen, Table, Tone};

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestReport {
    /// The number of passed cases.
    pub passed: usize,
    /// The number of failed cases.
    pub failed: usize,
    /// The tests, in the order of the files.
    pub tests: Vec<TestResult>,
}

/// The result of one test.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestResult {
    /// The name.
    pub name: String,
    /// The file.
    pub file: String,
    /// The cases, in the order of the file.
    pub cases: Vec<CaseResult>,
}

/// The result of one case.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseResult {
    /// The name.
    pub name: String,
    /// The line of the case.
    pub line: usize,
    /// Whether the case passed.
    pub passed: bool,
    /// The verdict on the request.
    pub verdict: ReportedVerdict,
    /// The reason of the refusal. Absent if nothing blocks the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// All messages. Absent if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The differences.
    pub wrong: Vec<Mismatch>,
}

impl CaseResult {
    /// The result of the case in this line.
    pub fn new(case: &Case, line: usize, outcome: &Outcome) -> Self {
        let wrong = case.expect.compare(outcome);
        Self {
            name: case.name.clone(),
            line,
            passed: wrong.is_empty(),
            verdict: outcome.verdict.decision.into(),
            reason: outcome.reason(),
            policies: outcome.policies(),
            message: outcome.message(),
            wrong,
        }
    }

    /// The verdict with its reason: `Deny InUse`.
    fn verdict_text(&self) -> String {
        let reason = self.reason.map_or(String::new(), |reason| format!(" {reason}"));
        format!("{:?}{reason}", self.verdict)
    }

    /// The reasons for a failure, one per line: the mismatches, then all messages that
    /// they don't contain.
    pub fn why(&self) -> Vec<String> {
        let differs = |wrong: &Mismatch| {
            let Mismatch { what, expected, found } = wrong;
            match *what {
                "message" if self.message.is_empty() => {
                    format!("{what}: expected \"{expected}\"; found no message")
                }
                "message" => format!("{what}: expected \"{expected}\"; found {found}"),
                _ => format!("{what}: expected {expected}; found {found}"),
            }
        };
        let mut lines: Vec<String> = self.wrong.iter().map(differs).collect();
        if !self.wrong.iter().any(|wrong| wrong.what == "message") {
            lines.push(match self.message.as_str() {
                "" => "belay returns no message".to_owned(),
                message => format!("belay answers: {message}"),
            });
        }
        lines
    }
}

impl TestReport {
    /// Counts the passed and failed cases.
    pub fn new(tests: Vec<TestResult>) -> Self {
        let cases = || tests.iter().flat_map(|test| &test.cases);
        let passed = cases().filter(|case| case.passed).count();
        Self { passed, failed: cases().count() - passed, tests }
    }

    /// The table: a line for each case, the reasons below failed cases, and the summary.
    pub fn table(&self, screen: Screen) -> String {
        let mut table = Table::new(&["RESULT", "TEST", "VERDICT", "CASE"]);
        for TestResult { name, file, cases } in &self.tests {
            for case in cases {
                let (tone, word) = match case.passed {
                    true => (Tone::Good, "pass"),
                    false => (Tone::Bad, "FAIL"),
                };
                table.row([
                    Field::toned(tone, word),
                    name.as_str().into(),
                    case.verdict_text().into(),
                    case.name.as_str().into(),
                ]);
                if !case.passed {
                    let lines = case.why().into_iter().chain([format!("{file}:{}", case.line)]);
                    table.below(&lines.map(|line| screen.paragraph(4, &line)).collect::<String>());
                }
            }
        }
        let tone = if self.failed == 0 { Tone::Good } else { Tone::Bad };
        table.text(screen) + &screen.paint(tone, &self.summary()) + "\n"
    }

    fn summary(&self) -> String {
        let count = |number: usize, singular: &str| match number {
            1 => format!("1 {singular}"),
            _ => format!("{number} {singular}s"),
        };
        let (tests, cases) = (self.tests.len(), self.passed + self.failed);
        format!(
            "{}, {}: {} passed, {} failed",
            count(tests, "test"),
            count(cases, "case"),
            self.passed,
            self.failed
        )
    }
}
