//! A string that borrows from its JSON if possible.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// A string from JSON. It borrows from the JSON, and is only a copy if the JSON has an escape
/// sequence in it.
///
/// A `Cow<str>` only borrows as a direct field with `#[serde(borrow)]`. Inside a `Vec`, an
/// `Option` or a map, serde always copies it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// The string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bytes in memory of its copy, if it has one.
    pub fn owned_bytes(&self) -> usize {
        // The overhead of the allocator for a short text.
        const ALLOCATION: usize = 32;
        match &self.0 {
            Cow::Borrowed(_) => 0,
            Cow::Owned(text) => text.len() + ALLOCATION,
        }
    }

    /// A copy that borrows nothing.
    pub fn to_static(&self) -> Text<'static> {
        Text(Cow::Owned(self.0.to_string()))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;

        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }

        deserializer.deserialize_str(Borrowing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrows_inside_collections_and_copies_only_escapes() {
        let json = r#"["plain", "with \"escape\""]"#;
        let texts: Vec<Text<'_>> = serde_json::from_str(json).unwrap();
        assert!(matches!(texts[0].0, Cow::Borrowed("plain")));
        assert!(matches!(texts[1].0, Cow::Owned(_)));
        assert_eq!(texts[1], "with \"escape\"");
    }
}
