//! Reads whole objects, except the parts that could make them unreadable.

use serde::de::Error;
use serde_json::Value;

use super::value_reader::{ValueParts, read_parts};

/// The limit of nesting. Paths of relations have fewer steps, and the JSON parser reads at most
/// 128 levels.
const MAX_DEPTH: usize = 110;

/// Reads an object without its managedFields. Reads values below the limit of nesting as `null`.
/// Clients can write both freely, so neither may make an object unreadable.
pub fn read_shallow(json: &str) -> Result<Value, serde_json::Error> {
    read_parts(json, Level { depth: 0, metadata: false })
}

#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    /// Whether this is the metadata of the object.
    metadata: bool,
}

impl ValueParts for Level {
    fn enter<E: Error>(self) -> Result<bool, E> {
        Ok(self.depth <= MAX_DEPTH)
    }

    fn element(self) -> Option<Self> {
        Some(Self { depth: self.depth + 1, metadata: false })
    }

    fn field(self, key: &str) -> Option<Self> {
        let metadata = self.depth == 0 && key == "metadata";
        let is_read = !(self.metadata && key == "managedFields");
        is_read.then_some(Self { depth: self.depth + 1, metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_is_not_too_deep() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [1]},
            "spec": {"managedFields": [true, null, 1.5, -1], "metadata": {"managedFields": {}}}});
        let mut without = object.clone();
        without["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(read_shallow(&object.to_string()).unwrap(), without);
    }

    #[test]
    fn skips_what_is_too_deep() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let json = format!(
            r#"{{"metadata":{{"managedFields":{deep},"name":"a"}},"spec":{{"deep":{deep},"after":1}}}}"#
        );
        let read = read_shallow(&json).unwrap();
        assert_eq!((&read["metadata"]["name"], &read["spec"]["after"]), (&json!("a"), &json!(1)));
        assert!(read_shallow(r#"{"a":[}"#).is_err());
        assert!(read_shallow("{} {}").is_err());
    }
}
