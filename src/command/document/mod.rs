//! What programs read: one document an answer, versioned, in which the same
//! things have the same names whichever command prints it. docs/json.md is made
//! from these types, and from what stands above their fields.
//!
//! What holds for all of them: a list is always there, a field that says nothing
//! is not, and what stands above a field says when that is.

mod object;
mod schema;
mod verdict;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::object::Object;
pub use self::schema::{Kind, kind};
pub use self::verdict::ReportedVerdict;
use super::CommandError;
use super::screen::Format;
use crate::cluster::Unread;
use crate::policy::Source;

/// Nothing of the documents of one version changes its meaning or goes away.
pub const VERSION: &str = "belay.dev/v1alpha1";

/// What is printed as a document.
pub trait Content: Serialize + JsonSchema {
    /// The kind that the document says it is.
    const KIND: &'static str;
}

/// Versioned like an object of belay's API, though it is none that an API server
/// would store.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

/// The content of a document that is a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// All approvals.
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

impl From<Unread> for NotRead {
    fn from(Unread { resource, why }: Unread) -> Self {
        Self { resource, why: why.to_string() }
    }
}

/// The name of a policy; of the label what messages call it.
pub fn policy_name(source: &Source) -> String {
    match source {
        Source::Policy(name) => name.clone(),
        Source::Label(_) => source.to_string(),
    }
}

/// An answer for a program; none: a person is to read it.
pub fn document<T: Content>(format: Format, content: &T) -> Result<Option<String>, CommandError> {
    let document = Document { api_version: VERSION, kind: T::KIND, content };
    let unwritten = |error: String| CommandError::Output(std::io::Error::other(error));
    match format {
        Format::Table => Ok(None),
        Format::Json => serde_json::to_string_pretty(&document)
            .map(|text| Some(escaped(&text) + "\n"))
            .map_err(|error| unwritten(error.to_string())),
        Format::Yaml => serde_saphyr::to_string(&document)
            .map(|text| Some(text.trim_end().to_owned() + "\n"))
            .map_err(|error| unwritten(error.to_string())),
    }
}

/// JSON without the control characters that it allows and a terminal may obey.
/// They are in its strings alone, and mean the same when they are escaped.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_control() && c != '\n' {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::screen::Screen;
    use serde_json::json;

    #[test]
    fn programs_get_a_versioned_document() {
        #[derive(Serialize, JsonSchema)]
        struct Item {
            name: &'static str,
            says: &'static str,
        }
        impl Content for List<Item> {
            const KIND: &'static str = "ThingList";
        }
        let items = vec![Item { name: "yes", says: "a: b\nc" }, Item { name: "1", says: "# x" }];
        let not_read =
            vec![NotRead { resource: "secrets".to_owned(), why: "forbidden".to_owned() }];
        let list = List { items, not_read };
        let expected = json!({
            "apiVersion": "belay.dev/v1alpha1",
            "kind": "ThingList",
            "items": [{"name": "yes", "says": "a: b\nc"}, {"name": "1", "says": "# x"}],
            "notRead": [{"resource": "secrets", "why": "forbidden"}],
        });
        let text = document(Format::Json, &list).unwrap().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        let text = document(Format::Yaml, &list).unwrap().unwrap();
        assert!(text.starts_with("apiVersion: belay.dev/v1alpha1\nkind: ThingList\n"), "{text}");
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), expected, "{text}");
        assert_eq!(document(Format::Table, &list).unwrap(), None);
    }

    #[test]
    fn documents_have_no_control_characters_and_mean_what_was_written() {
        #[derive(Serialize, JsonSchema)]
        struct Said {
            text: String,
        }
        impl Content for Said {
            const KIND: &'static str = "Said";
        }
        let text = "one\u{1b}[2J\u{9b}2J\u{7f}\r\ntwo\ttabs\n".to_owned();
        for format in [Format::Json, Format::Yaml] {
            let written = document(format, &Said { text: text.clone() }).unwrap().unwrap();
            assert_eq!(Screen::pipe().clean(&written), written, "{written:?}");
            let read: serde_json::Value = match format {
                Format::Json => serde_json::from_str(&written).unwrap(),
                _ => serde_saphyr::from_str(&written).unwrap(),
            };
            assert_eq!(read["text"], text.as_str(), "{written:?}");
        }
    }
}
