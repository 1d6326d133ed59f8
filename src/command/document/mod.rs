//! The parts that the reports of several commands have in common, so that the same things have
//! the same names in all of them. docs/json.md is made from these types and from the comments on
//! their fields.
//!
//! A list is always present. A field without a value is left out; its comment says when.

mod blocker;
mod object;
mod verdict;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::blocker::BlockerReport;
pub use self::object::Object;
pub use self::verdict::ReportedVerdict;
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
