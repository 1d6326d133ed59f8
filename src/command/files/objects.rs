//! Adds the fields to a document that an API server would set.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::FileError;
use super::documents::Document;
use super::reader::{Strictness, read};
use super::tree::Node;
use crate::cluster::ObjectKey;
use crate::objects::{KindId, Kinds, Object, is_namespace};
use crate::policy::NAME_LABEL;

/// Checks the metadata of a document and returns its key. `default_namespace` is the namespace
/// of a document without one.
pub fn key(
    kinds: &Kinds,
    kind: KindId,
    document: &Document,
    default_namespace: &str,
) -> Result<ObjectKey, FileError> {
    let name = document.name()?.to_owned();
    let object: Result<Object<'_>, _> = read(&document.node, "", Strictness::IgnoreUnknown);
    object.map_err(|error| document.type_error(&error))?;
    let deletion_time = document.node.at(&["metadata", "deletionTimestamp"]);
    let is_invalid =
        |node: &&Node| node.text().is_some_and(|text| text.parse::<Timestamp>().is_err());
    if let Some(node) = deletion_time.filter(is_invalid) {
        let message = "metadata.deletionTimestamp: expected a time such as \
                    2026-01-01T00:00:00Z";
        return Err(document.error(node.position, message));
    }
    let namespace = document.node.at(&["metadata", "namespace"]).and_then(Node::text);
    let namespace = match kinds.info(kind).namespaced {
        false => "",
        true => namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(default_namespace),
    };
    Ok((kind, namespace.to_owned(), name))
}

/// The object, with the fields that an API server would set.
pub fn complete(kinds: &Kinds, (kind, namespace, name): &ObjectKey, document: Document) -> Value {
    let is_crd = document.is_crd();
    let mut object = Value::from(document.node.content);
    let info = kinds.info(*kind);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".to_owned(), namespace.as_str().into());
        }
        if metadata.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
            let uid = uid(&[&info.group, &info.kind, namespace, name]);
            metadata.insert("uid".to_owned(), uid.into());
        }
        if is_namespace(&info.group, &info.resource) {
            let labels = metadata.entry("labels").or_insert_with(|| Map::new().into());
            if labels.is_null() {
                *labels = Map::new().into();
            }
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(NAME_LABEL.to_owned(), name.as_str().into());
            }
        }
    }
    // A manifest has no status. In a cluster, the CRD would be established.
    if let (true, Some(fields)) = (is_crd, object.as_object_mut())
        && !fields.contains_key("status")
    {
        let status = serde_json::json!({"conditions": [{"type": "Established", "status": "True"}]});
        fields.insert("status".to_owned(), status);
    }
    object
}

/// A Namespace that contains objects and that no document describes.
pub fn namespace(name: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "uid": uid(&["", "Namespace", "", name]),
            "labels": {NAME_LABEL: name},
        },
    })
}

/// A uid for an object without one. The same parts give the same uid on every machine (FNV-1a,
/// in the form of a UUID).
fn uid(parts: &[&str]) -> String {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let separator = std::iter::once(&0);
    for byte in parts.iter().flat_map(|part| part.as_bytes().iter().chain(separator.clone())) {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let hex = format!("{hash:032x}");
    // Version 8 is for custom schemes.
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::files::documents::{File, parse};

    #[test]
    fn a_cluster_scoped_object_loses_a_namespace_that_it_cannot_have() {
        let text = "{apiVersion: v1, kind: Node, metadata: {name: a, namespace: b, uid: u}}";
        let documents = parse(&File { name: "f".into(), text: text.to_owned() }).unwrap();
        let document = documents.into_iter().next().unwrap();
        let kinds = Kinds::default();
        let key = key(&kinds, kinds.find("", "Node").unwrap(), &document, "x").unwrap();
        assert_eq!(key.1, "");
        let metadata = complete(&kinds, &key, document)["metadata"].take();
        assert_eq!(metadata, serde_json::json!({"name": "a", "uid": "u"}));
    }

    #[test]
    fn a_generated_uid_is_a_uuid_and_never_changes() {
        let uid = super::uid(&["", "Secret", "db", "creds"]);
        assert_eq!(uid, super::uid(&["", "Secret", "db", "creds"]));
        assert_eq!(uid.len(), 36);
        assert_ne!(uid, super::uid(&["", "Secret", "dbc", "reds"]));
    }
}
