//! The slim view of one object.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::{HOLD, PROTECT_LABEL, Text};

/// What a verdict needs of an object, borrowed from its JSON. Every other
/// field is skipped while parsing and never stored.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Object<'a> {
    /// `apiVersion`, for example `apps/v1`.
    pub api_version: Text<'a>,
    /// `kind`, for example `Deployment`.
    pub kind: Text<'a>,
    /// `metadata`, as far as it is needed.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: Metadata<'a>,
}

/// The part of an object's metadata that verdicts read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Metadata<'a> {
    /// `metadata.name`; empty while `generateName` has not been filled in.
    #[serde(deserialize_with = "null_is_default")]
    pub name: Text<'a>,
    /// `metadata.namespace`; empty for a cluster-scoped object.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: Text<'a>,
    /// `metadata.uid`; empty before the object is stored.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: Text<'a>,
    /// `metadata.labels`.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<Text<'a>, Text<'a>>,
    /// `metadata.finalizers`; `None` when the array is absent, which a JSON
    /// patch that adds to it has to know.
    pub finalizers: Option<Vec<Text<'a>>>,
    /// `metadata.ownerReferences`.
    #[serde(deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference<'a>>,
    /// `metadata.deletionTimestamp`: present on a Terminating object.
    pub deletion_timestamp: Option<Text<'a>>,
}

/// One owner reference.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct OwnerReference<'a> {
    /// `apiVersion` of the owner.
    pub api_version: Text<'a>,
    /// `kind` of the owner.
    pub kind: Text<'a>,
    /// `name` of the owner.
    pub name: Text<'a>,
    /// `uid` of the owner.
    pub uid: Text<'a>,
    /// Whether a foreground deletion of the owner waits for this dependent.
    #[serde(default)]
    pub block_owner_deletion: Option<bool>,
}

impl Object<'_> {
    /// The value of the label `belay.dev/protect`, if the object carries it.
    pub fn protect_label(&self) -> Option<&str> {
        self.metadata.labels.get(PROTECT_LABEL).map(Text::as_str)
    }

    /// Whether the object carries the hold.
    pub fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().flatten().any(|f| f == HOLD)
    }

    /// Whether the object has a deletionTimestamp.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// Kubernetes writes an empty map or list as `null` when a client did.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_needed_and_skips_the_rest() {
        let object: Object<'_> = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"Secret","data":{"password":"aHVudGVyMg=="},
                "metadata":{"name":"a","namespace":"b","uid":"u","labels":{"belay.dev/protect":"Always"},
                            "finalizers":["x/y","belay.dev/hold"],"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
        )
        .unwrap();
        assert_eq!(object.protect_label(), Some("Always"));
        assert!(object.is_held());
        assert!(object.is_terminating());
        assert!(!format!("{object:?}").contains("aHVudGVyMg"), "a body was kept");
    }

    #[test]
    fn null_means_empty() {
        let object: Object<'_> = serde_json::from_str(
            r#"{"metadata":{"name":null,"labels":null,"finalizers":null,"ownerReferences":null}}"#,
        )
        .unwrap();
        assert!(object.metadata.labels.is_empty());
        assert!(object.metadata.finalizers.is_none());
        assert!(object.metadata.owner_references.is_empty());
    }
}
