//! Reads whole objects, except the parts that could make them unreadable.

use std::collections::BTreeMap;

use serde::de::Error;
use serde_json::Value;
use serde_json::value::RawValue;

use super::lossy_reader::read_lossy;
use super::value_reader::{ValueParts, read_parts};

/// The deepest level that is read. Paths of relations have fewer steps, and the JSON parser reads
/// at most 128 levels.
const MAX_DEPTH: usize = 110;

/// Reads an object without its managedFields. Reads values nested deeper than `MAX_DEPTH` as
/// `null`, and replaces values that serde_json can't read. Clients can write all these values, so
/// they must not make an object unreadable.
pub fn read_tolerant(json: &str) -> Result<Value, serde_json::Error> {
    read_level(json, Level { depth: 0, metadata: false, managed_fields: false })
}

/// Like [`read_tolerant`], with the managedFields.
pub fn read_tolerant_with_managed_fields(json: &str) -> Result<Value, serde_json::Error> {
    read_level(json, Level { depth: 0, metadata: false, managed_fields: true })
}

fn read_level(json: &str, level: Level) -> Result<Value, serde_json::Error> {
    read_lossy(json, |json| read_parts(json, level))
}

/// Reads an object exactly, except its managedFields. Fails if another value is nested too deeply
/// or can't be read by serde_json.
pub fn read_without_managed_fields(json: &str) -> Result<Value, serde_json::Error> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(json)?;
    let metadata = fields.remove("metadata");
    let mut object: Value = serde_json::from_str(&serde_json::to_string(&fields)?)?;
    if let Some(metadata) = metadata {
        let mut metadata: BTreeMap<String, &RawValue> = serde_json::from_str(metadata.get())?;
        metadata.remove("managedFields");
        object["metadata"] = serde_json::from_str(&serde_json::to_string(&metadata)?)?;
    }
    Ok(object)
}

#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    /// Whether this is the metadata of the object.
    metadata: bool,
    /// Whether managedFields are read.
    managed_fields: bool,
}

impl ValueParts for Level {
    fn enter<E: Error>(self) -> Result<bool, E> {
        Ok(self.depth <= MAX_DEPTH)
    }

    fn element(self) -> Option<Self> {
        Some(Self { depth: self.depth + 1, metadata: false, ..self })
    }

    fn field(self, key: &str) -> Option<Self> {
        let metadata = self.depth == 0 && key == "metadata";
        let is_read = self.managed_fields || !(self.metadata && key == "managedFields");
        is_read.then_some(Self { depth: self.depth + 1, metadata, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_all_fields_except_managed_fields_of_the_metadata() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [1]},
            "spec": {"managedFields": [true, null, 1.5, -1], "metadata": {"managedFields": {}}}});
        let mut without = object.clone();
        without["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(read_tolerant(&object.to_string()).unwrap(), without);
    }

    #[test]
    fn h144_an_exact_read_needs_no_managed_fields() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let (fields, value) = (deep(9_990), deep(100));
        let object = |spec: &str| {
            format!(r#"{{"spec":{spec},"metadata":{{"managedFields":{fields},"name":"a"}}}}"#)
        };
        let read = read_without_managed_fields(&object(&value)).unwrap();
        assert_eq!((&read["metadata"], &read["spec"].to_string()), (&json!({"name": "a"}), &value));
        assert!(read_without_managed_fields(&object(&deep(200))).is_err());
    }

    #[test]
    fn h173_reads_objects_with_values_that_serde_json_cannot_read() {
        let json = r#"{"metadata":{"name":"a"},"spec":{"\ud800":"\udc00","number":1e999}}"#;
        let expected = json!({"metadata": {"name": "a"},
            "spec": {"\u{fffd}": "\u{fffd}", "number": null}});
        assert_eq!(read_tolerant(json).unwrap(), expected);
        assert!(read_without_managed_fields(json).is_err());
    }

    #[test]
    fn skips_values_that_are_nested_too_deeply() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let json = format!(
            r#"{{"metadata":{{"managedFields":{deep},"name":"a"}},"spec":{{"deep":{deep},"after":1}}}}"#
        );
        let read = read_tolerant(&json).unwrap();
        assert_eq!((&read["metadata"]["name"], &read["spec"]["after"]), (&json!("a"), &json!(1)));
        let kept = &read_tolerant_with_managed_fields(&json).unwrap()["metadata"]["managedFields"];
        assert!(kept.is_array());
        assert!(read_tolerant(r#"{"a":[}"#).is_err());
        assert!(read_tolerant("{} {}").is_err());
    }
}
