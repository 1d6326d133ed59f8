//! The parts that the reports of several commands have in common, so that the same things have
//! the same names in all of them. docs/json.md is made from these types and from the comments on
//! their fields.
//!
//! A list is always present. A field without a value is left out; its comment says when.

mod blocker;
mod object;
mod verdict;

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::blocker::BlockerReport;
pub use self::object::Object;
pub use self::verdict::ReportedVerdict;
use super::CommandError;
use super::report::{OutputArguments, Report, View};
use crate::cluster::Unread;
use crate::policy::Source;

/// The content of a document that is a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// Failed reads. The answer may be incomplete.
    pub not_read: Vec<NotRead>,
}

/// A report on one object, for commands that take several.
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

    /// The highest of the reports, or 3 if an object could not be read.
    fn exit_code(&self) -> u8 {
        let unread = if self.not_read.is_empty() { 0 } else { 3 };
        self.items.iter().map(Report::exit_code).fold(unread, u8::max)
    }
}

/// Prints the report on one object as its own document, and others as a list.
pub fn print_each<R: ObjectReport>(
    mut items: Vec<R>,
    not_read: Vec<NotRead>,
    output: impl Into<OutputArguments>,
) -> Result<ExitCode, CommandError> {
    if not_read.is_empty() && items.len() == 1 {
        return items.swap_remove(0).print(output);
    }
    List { items, not_read }.print(output)
}

/// A failed read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotRead {
    /// The plural name of the kind with its group, or a description.
    pub resource: String,
    /// The reason.
    pub why: String,
}

impl NotRead {
    /// In a line, for people.
    pub fn line(&self) -> String {
        format!("not read: {}: {}", self.resource, self.why)
    }
}

impl From<Unread> for NotRead {
    fn from(Unread { resource, why }: Unread) -> Self {
        Self { resource, why: why.to_string() }
    }
}

/// The name of a policy, or for the label the name that messages use.
pub fn policy_name(source: &Source) -> String {
    match source {
        Source::Policy(name) => name.clone(),
        Source::Label(_) => source.to_string(),
    }
}
