//! The reports of commands that take several objects.

use std::process::ExitCode;

use super::{OutputArguments, Report, View};
use crate::command::CommandError;
use crate::command::document::{FailedRead, List};

/// A report on one object, for commands that accept several objects.
pub trait ObjectReport: Report {
    /// The kind of the document with several reports.
    const LIST: &'static str;
}

impl<R: ObjectReport> Report for List<R> {
    const KIND: &'static str = R::LIST;

    fn text(&self, view: View) -> String {
        let texts = self.items.iter().map(|report| report.text(view));
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The highest exit code of the reports, at least 3 if an object could not be read.
    fn exit_code(&self) -> u8 {
        let unread = if self.not_read.is_empty() { 0 } else { 3 };
        self.items.iter().map(Report::exit_code).fold(unread, u8::max)
    }
}

/// Prints a single report as its own document, and several reports as a list.
pub fn print_each<R: ObjectReport>(
    mut items: Vec<R>,
    not_read: Vec<FailedRead>,
    output: impl Into<OutputArguments>,
) -> Result<ExitCode, CommandError> {
    if not_read.is_empty() && items.len() == 1 {
        return items.swap_remove(0).print(output);
    }
    List { items, not_read }.print(output)
}
