//! The report as JUnit XML, which CI systems read.

use std::fmt::Write as _;

use super::report::{TestReport, TestResult};
use crate::command::xml::escape;

pub fn document(report: &TestReport) -> String {
    let cases = report.passed + report.failed;
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"belay\" \
         tests=\"{cases}\" failures=\"{}\" errors=\"0\">\n",
        report.failed
    );
    report.tests.iter().for_each(|test| write_suite(test, &mut text));
    text.push_str("</testsuites>\n");
    text
}

fn write_suite(test: &TestResult, text: &mut String) {
    let TestResult { name, file, cases } = test;
    let failed = cases.iter().filter(|case| !case.passed).count();
    let (name, file) = (escape(name), escape(file));
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "  <testsuite name=\"{name}\" file=\"{file}\" tests=\"{}\" failures=\"{failed}\" \
         errors=\"0\" skipped=\"0\">",
        cases.len()
    );
    for case in cases {
        let _ = write!(
            text,
            "    <testcase name=\"{}\" classname=\"{name}\" file=\"{file}\" line=\"{}\"",
            escape(&case.name),
            case.line
        );
        if case.passed {
            text.push_str("/>\n");
            continue;
        }
        let why = case.why();
        let first = why.first().map_or("", String::as_str);
        let _ = write!(
            text,
            ">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>\n",
            case.wrong.first().map_or("", |wrong| wrong.what),
            escape(first),
            escape(&why.join("\n"))
        );
    }
    text.push_str("  </testsuite>\n");
}
