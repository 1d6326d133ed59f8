//! The report as JUnit XML, which CI systems read.

use std::fmt::Write as _;

use super::report::{TestReport, TestResult};

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

/// Escapes text for elements and attributes. A character that XML 1.0 does not allow
/// becomes U+FFFD. Line ends and tabs are escaped, because attributes would turn them
/// into spaces.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_of_users_is_escaped_in_markup() {
        for (text, written) in [
            ("plain", "plain"),
            ("a <b> & \"c\" 'd'", "a &lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;"),
            ("]]>", "]]&gt;"),
            ("&amp;", "&amp;amp;"),
            ("a\nb\tc\rd", "a&#10;b&#9;c&#13;d"),
            ("\u{1b}[31m\u{0}\u{ffff}", "\u{fffd}[31m\u{fffd}\u{fffd}"),
            ("größer …", "größer …"),
        ] {
            assert_eq!(escape(text), written, "{text:?}");
        }
    }
}
