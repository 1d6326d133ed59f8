//! The types that the reports of several commands share, so that the reports use the same names.
//! docs/json.md is generated from these types and from the comments on their fields.
//!
//! A list is always present. A field without a value is omitted, and its comment says when.

mod blocker;
mod object;
mod verdict;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::blocker::BlockerReport;
pub use self::object::Object;
pub use self::verdict::ReportedVerdict;
use crate::cluster::UnreadKind;
use crate::objects::ApiError;
use crate::policy::PolicySource;
use crate::policy::api::GROUP;

/// The content of a document that is a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// Failed reads. The answer may be incomplete.
    pub not_read: Vec<FailedRead>,
}

/// A failed read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedRead {
    /// The plural name of the kind with its group, or a description.
    pub resource: String,
    /// The reason.
    pub why: String,
}

impl FailedRead {
    /// The failed read of a kind.
    pub fn new(resource: &str, error: &ApiError) -> Self {
        Self { resource: resource.to_owned(), why: error.reason_for_user() }
    }

    /// Merges the failed reads with the same reason into one that contains the number of kinds,
    /// unless `verbose`. belay's own kinds form their own groups, because verdicts depend on them.
    pub fn grouped(all: &[Self], verbose: bool) -> Vec<Self> {
        let is_belay_kind = |unread: &Self| unread.resource.ends_with(&format!(".{GROUP}"));
        let mut groups: Vec<Vec<&Self>> = Vec::new();
        for unread in all {
            let same = |group: &&mut Vec<&Self>| {
                !verbose
                    && group[0].why == unread.why
                    && is_belay_kind(group[0]) == is_belay_kind(unread)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(unread),
                None => groups.push(vec![unread]),
            }
        }
        let merged = |group: Vec<&Self>| match group[..] {
            [one] => one.clone(),
            _ => Self {
                resource: match is_belay_kind(group[0]) {
                    true => format!("{} kinds of {GROUP}", group.len()),
                    false => format!("{} kinds", group.len()),
                },
                why: format!("{}; --verbose lists them", group[0].why),
            },
        };
        groups.into_iter().map(merged).collect()
    }

    /// The line about objects that may explain a state and could not be read; empty without any.
    pub fn evidence_line(resources: &[&str], verbose: bool) -> Option<String> {
        let names = match resources {
            [] => return None,
            [_, _, _, _, ..] if !verbose => {
                format!("{} kinds; --verbose lists them", resources.len())
            }
            few => few.join(", "),
        };
        Some(format!("incomplete, because belay could not read: {names}"))
    }

    /// The line for the text output.
    pub fn line(&self) -> String {
        format!("not read: {}: {}", self.resource, self.why)
    }
}

impl From<UnreadKind> for FailedRead {
    fn from(UnreadKind { resource, why }: UnreadKind) -> Self {
        Self::new(&resource, &why)
    }
}

/// The name of a policy; for a label, the text that messages use.
pub fn policy_name(source: &PolicySource) -> String {
    match source {
        PolicySource::Policy(name) => name.clone(),
        PolicySource::Label(_) => source.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_kinds_with_the_same_reason_are_one_line() {
        let forbidden = ApiError::Forbidden("User \"eve\" cannot list it".to_owned());
        let late = ApiError::Other("late".to_owned());
        let all: Vec<FailedRead> = [
            ("nodes", &forbidden),
            ("pauses.belay.dev", &forbidden),
            ("pods", &late),
            ("relations.belay.dev", &forbidden),
            ("secrets", &forbidden),
        ]
        .map(|(resource, why)| FailedRead::new(resource, why))
        .into();
        let lines = |verbose| {
            FailedRead::grouped(&all, verbose).iter().map(FailedRead::line).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(false),
            [
                "not read: 2 kinds: forbidden for you; --verbose lists them",
                "not read: 2 kinds of belay.dev: forbidden for you; --verbose lists them",
                "not read: pods: late",
            ]
        );
        assert_eq!(lines(true).len(), 5);
        assert_eq!(lines(true)[4], "not read: secrets: forbidden for you");
    }
}
