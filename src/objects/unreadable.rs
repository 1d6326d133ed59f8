//! An object that can't be read.

use std::fmt;

use serde::Deserialize;

use super::{Text, null_is_default};

/// An object that can't be read, with its name if it is known. It never contains the
/// message of the parser, which may quote a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Namespace (empty for a cluster-scoped object) and name; `None` if they can't be read.
    pub name: Option<(String, String)>,
    /// Why the object can't be read.
    pub flaw: Flaw,
}

/// Why an object can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The parser failed at this position.
    Malformed {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The object has more references than [`MAX_REFERENCES`].
    TooManyReferences,
}

/// The limit of references of one object: names, selectors, and the label requirements of
/// selectors. An EndpointSlice, the largest known case, has 1,000 endpoints with two
/// references each. belay assumes that an object with more references may use every
/// object that its kind can use.
pub const MAX_REFERENCES: usize = 4_000;

/// The longest stored name. Kubernetes allows 253 characters.
const MAX_NAME_BYTES: usize = 1024;

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ObjectName<'a> {
    metadata: Name<'a>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Name<'a> {
    name: Text<'a>,
    #[serde(default, deserialize_with = "null_is_default")]
    namespace: Text<'a>,
}

impl Unreadable {
    /// The object in this JSON, after the parser failed.
    pub fn new(json: &str, error: &serde_json::Error) -> Self {
        Self::with_flaw(json, Flaw::Malformed { line: error.line(), column: error.column() })
    }

    /// The object in this JSON, which has too many references.
    pub fn of_many_references(json: &str) -> Self {
        Self::with_flaw(json, Flaw::TooManyReferences)
    }

    /// An object of unknown name.
    pub fn of_unknown_name() -> Self {
        Self { name: None, flaw: Flaw::Malformed { line: 0, column: 0 } }
    }

    fn with_flaw(json: &str, flaw: Flaw) -> Self {
        let object = serde_json::from_str::<ObjectName<'_>>(json).ok();
        let metadata = object.map(|object| object.metadata);
        let metadata = metadata.filter(|metadata| {
            !metadata.name.is_empty()
                && metadata.name.len().max(metadata.namespace.len()) <= MAX_NAME_BYTES
        });
        let name =
            metadata.map(|metadata| (metadata.namespace.to_string(), metadata.name.to_string()));
        Self { name, flaw }
    }

    /// The object and the reason, as a clause.
    pub fn describe(&self) -> String {
        let flaw = self.flaw;
        match &self.name {
            Some((namespace, name)) if namespace.is_empty() => format!("{name} {flaw}"),
            Some((namespace, name)) => format!("{namespace}/{name} {flaw}"),
            None => format!("one of them {flaw}"),
        }
    }

    /// The length of its namespace and name.
    pub fn name_len(&self) -> usize {
        self.name.as_ref().map_or(0, |(namespace, name)| namespace.len() + name.len())
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { .. } => f.write_str("can't be read"),
            Self::TooManyReferences => write!(f, "has more than {MAX_REFERENCES} references"),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it {}", self.flaw)?;
        match self.flaw {
            Flaw::Malformed { line, column } => write!(f, " (line {line}, column {column})"),
            Flaw::TooManyReferences => Ok(()),
        }
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::*;

    fn unreadable(json: &str) -> Unreadable {
        let error = serde_json::from_str::<Object<'_>>(json).unwrap_err();
        Unreadable::new(json, &error)
    }

    #[test]
    fn keeps_namespace_and_name_and_nothing_of_the_body() {
        let json = r#"{"metadata":{"namespace":"shop","name":"bad","labels":["hunter2"]}}"#;
        let found = unreadable(json);
        assert_eq!(found.name, Some(("shop".to_owned(), "bad".to_owned())));
        assert!(!format!("{found} {found:?}").contains("hunter2"), "{found:?}");
        let cluster = unreadable(r#"{"metadata":{"name":"bad","namespace":null,"labels":1}}"#);
        assert_eq!(cluster.name, Some((String::new(), "bad".to_owned())));
    }

    #[test]
    fn has_no_name_if_the_name_cannot_be_read() {
        for json in [
            r#"{"metadata":{"name":["hunter2"]}}"#.to_owned(),
            r#"{"metadata":{"labels":1}}"#.to_owned(),
            r#"{"metadata":{"name":"","labels":1}}"#.to_owned(),
            r#"{"metadata":{"name":"a","labels":{}"#.to_owned(),
            format!(r#"{{"metadata":{{"name":"{}","labels":1}}}}"#, "a".repeat(2000)),
            "7".to_owned(),
        ] {
            assert_eq!(unreadable(&json).name, None, "{json}");
        }
    }
}
