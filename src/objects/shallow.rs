//! Reads whole objects, except the parts that could make them unreadable.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Text;

/// The limit of nesting. Paths of relations have fewer steps, and the JSON parser reads at most
/// 128 levels.
const MAX_DEPTH: usize = 110;

/// Reads an object without its managedFields. Reads values below the limit of nesting as `null`.
/// Clients can write both freely, so neither may make an object unreadable.
pub fn read_shallow(json: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = Level { depth: 0, metadata: false }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    /// Whether this is the metadata of the object.
    metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            deserializer.deserialize_ignored_any(IgnoredAny)?;
            return Ok(Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let child = Self { depth: self.depth + 1, metadata: false };
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(child)? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<Text<'_>>()? {
            if self.metadata && key == "managedFields" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let metadata = self.depth == 0 && key == "metadata";
            let value = map.next_value_seed(Self { depth: self.depth + 1, metadata })?;
            fields.insert(key.to_string(), value);
        }
        Ok(Value::Object(fields))
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
