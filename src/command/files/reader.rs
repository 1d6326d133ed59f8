//! Deserializes a tree into a type with serde. Errors contain the position in the file.

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Expected, IntoDeserializer as _, Unexpected};

use super::tree::{Content, MapEntry, Node, Position};
use super::yaml::escape_key;

/// Which fields are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Unknown fields are skipped.
    IgnoreUnknown,
    /// Unknown fields are errors.
    RejectUnknown,
    /// Unknown fields and fields without a value are errors. In a policy, `always:` without a
    /// value would look as if it enabled the mode, but enable nothing.
    RejectEmpty,
}

/// Reads a node. `field` is the path of the node in its document, for errors.
pub fn read<'n, T: Deserialize<'n>>(
    node: &'n Node,
    field: &str,
    strictness: Strictness,
) -> Result<T, ReadError> {
    T::deserialize(Reader { node, strictness }).map_err(|e| e.at(node.position).within(field))
}

/// A value that does not fit its type.
#[derive(Debug)]
pub struct ReadError {
    pub position: Option<Position>,
    path: String,
    message: String,
}

impl ReadError {
    fn new(message: impl Into<String>) -> Self {
        Self { position: None, path: String::new(), message: message.into() }
    }

    /// Sets the position, unless an inner value has set it.
    fn at(mut self, position: Position) -> Self {
        self.position.get_or_insert(position);
        self
    }

    fn within(mut self, step: &str) -> Self {
        if step.is_empty() {
            return self;
        }
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.path, self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    /// Messages of other crates may quote the value, so this drops them. Only times are parsed
    /// by another crate.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::new("this does not have the form of its field; a time is 2026-01-31T12:00:00Z")
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "true or false (in quotes it is text)",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => {
                "a number (in quotes it is text)"
            }
            Unexpected::Str(_) => "text",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a map",
            _ => "nothing",
        };
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            "i64" | "i32" | "u64" | "u32" | "u16" => "a whole number",
            "a string" => "text",
            "a sequence" => "a list",
            "a boolean" => "true or false",
            other => other,
        };
        Self::new(format!("expected {expected}, found {found}"))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("expected one of {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the field {field} is missing"))
    }
}

/// Returns an error if a map has a field that is not in `fields`.
pub fn check_fields(entries: &[MapEntry], fields: &[&str]) -> Result<(), ReadError> {
    let unknown = entries.iter().find(|entry| !fields.contains(&entry.key.as_str()));
    let Some(MapEntry { key, position, .. }) = unknown else { return Ok(()) };
    let message = match fields {
        [] => format!("there is no field {}, nor any other", escape_key(key)),
        _ => format!("there is no field {}, only {}", escape_key(key), fields.join(", ")),
    };
    Err(ReadError::new(message).at(*position))
}

#[derive(Clone, Copy)]
struct Reader<'n> {
    node: &'n Node,
    strictness: Strictness,
}

impl<'n> Reader<'n> {
    fn entries(self) -> Result<&'n [MapEntry], ReadError> {
        match &self.node.content {
            Content::Map(entries) => Ok(entries),
            content => Err(de::Error::invalid_type(unexpected(content), &"a map")),
        }
    }
}

fn unexpected(content: &Content) -> Unexpected<'_> {
    match content {
        Content::Null => Unexpected::Unit,
        Content::Bool(value) => Unexpected::Bool(*value),
        Content::Number(_) => Unexpected::Float(0.0),
        Content::Text(text) => Unexpected::Str(text),
        Content::List(_) => Unexpected::Seq,
        Content::Map(_) => Unexpected::Map,
    }
}

impl<'n> de::Deserializer<'n> for Reader<'n> {
    type Error = ReadError;

    fn deserialize_any<V: de::Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.content {
            Content::Null => visitor.visit_unit(),
            Content::Bool(value) => visitor.visit_bool(*value),
            Content::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (_, Some(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            Content::Text(text) => visitor.visit_borrowed_str(text),
            Content::List(items) => {
                visitor.visit_seq(Items { items, next: 0, strictness: self.strictness })
            }
            Content::Map(entries) => {
                visitor.visit_map(Entries { entries, next: 0, strictness: self.strictness })
            }
        }
    }

    fn deserialize_option<V: de::Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.content {
            Content::Null if self.strictness == Strictness::RejectEmpty => Err(ReadError::new(
                "it has no value; give it one ({} if it is empty), or remove the field",
            )),
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: de::Visitor<'n>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: de::Visitor<'n>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        // serde accepts a list where a struct is expected, so this checks for a map.
        let entries = self.entries()?;
        if self.strictness != Strictness::IgnoreUnknown {
            check_fields(entries, fields)?;
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: de::Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.entries()?;
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: de::Visitor<'n>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.node.content {
            Content::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            content => Err(de::Error::invalid_type(unexpected(content), &"a string")),
        }
    }

    fn deserialize_ignored_any<V: de::Visitor<'n>>(
        self,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'n>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct identifier
    }
}

struct Items<'n> {
    items: &'n [Node],
    next: usize,
    strictness: Strictness,
}

impl<'n> de::SeqAccess<'n> for Items<'n> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'n>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some(node) = self.items.get(self.next) else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        let value = seed.deserialize(Reader { node, strictness: self.strictness });
        value.map(Some).map_err(|error| error.at(node.position).within(&format!("[{index}]")))
    }
}

struct Entries<'n> {
    entries: &'n [MapEntry],
    next: usize,
    strictness: Strictness,
}

impl<'n> de::MapAccess<'n> for Entries<'n> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'n>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        let Some(entry) = self.entries.get(self.next) else { return Ok(None) };
        let key = seed.deserialize(BorrowedStrDeserializer::new(&entry.key));
        key.map(Some).map_err(|error: ReadError| error.at(entry.position))
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let Some(entry) = self.entries.get(self.next) else {
            return Err(ReadError::new("a value is missing"));
        };
        self.next += 1;
        let node = &entry.value;
        let value = seed.deserialize(Reader { node, strictness: self.strictness });
        value.map_err(|error| error.at(node.position).within(&escape_key(&entry.key)))
    }
}
