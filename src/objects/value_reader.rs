//! Reads the chosen parts of a JSON value.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Text;

/// Chooses which parts of a JSON value to read.
pub trait ValueParts: Copy {
    /// Called before each value. If it returns `false`, the value is skipped and read as `null`.
    fn enter<E: Error>(self) -> Result<bool, E>;

    /// The value of a text.
    fn text(self, text: &str) -> Value {
        text.into()
    }

    /// The parts of each element of a list; `None` if the list is read as empty.
    fn element(self) -> Option<Self>;

    /// The parts of a field of a map; `None` if the field is left out.
    fn field(self, key: &str) -> Option<Self>;
}

/// Reads the parts of a value. Skips all others without recursion and without storing them.
pub fn read_parts(json: &str, parts: impl ValueParts) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = ValueReader(parts).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct ValueReader<P>(P);

impl<'de, P: ValueParts> DeserializeSeed<'de> for ValueReader<P> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0.enter()? {
            true => deserializer.deserialize_any(self),
            false => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null),
        }
    }
}

impl<'de, P: ValueParts> Visitor<'de> for ValueReader<P> {
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
        Ok(self.0.text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        match self.0.element() {
            Some(parts) => {
                while let Some(element) = list.next_element_seed(ValueReader(parts))? {
                    elements.push(element);
                }
            }
            None => while list.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<Text<'_>>()? {
            match self.0.field(&key) {
                Some(parts) => {
                    fields.insert(key.to_string(), map.next_value_seed(ValueReader(parts))?);
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(fields))
    }
}
