//! The uid of an object.

use std::fmt;

use super::digest;

/// A uid in 16 bytes. The API server creates UUIDs in lower case, which are stored exactly. Any
/// other text in an owner reference is stored as a digest with version 15, so that it never
/// equals a UUID of version 1 to 8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uid([u8; 16]);

/// The byte of a UUID with the version in its upper half.
const VERSION_BYTE: usize = 6;

impl Uid {
    /// The uid of an object that is not stored yet.
    pub const NONE: Self = Self([0; 16]);

    /// Parses a uid. An empty text is [`Uid::NONE`].
    pub fn new(text: &str) -> Self {
        if text.is_empty() {
            return Self::NONE;
        }
        Self::parse_uuid(text).unwrap_or_else(|| Self::digest(text))
    }

    /// Whether there is no uid.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn parse_uuid(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 {
            return None;
        }
        let mut uid = [0; 16];
        let mut digits = 0;
        for (position, byte) in bytes.iter().enumerate() {
            let value = match (position, byte) {
                (8 | 13 | 18 | 23, b'-') => continue,
                (8 | 13 | 18 | 23, _) => return None,
                (_, b'0'..=b'9') => byte - b'0',
                // A uid in upper case is another uid.
                (_, b'a'..=b'f') => byte - b'a' + 10,
                _ => return None,
            };
            uid[digits / 2] = uid[digits / 2] << 4 | value;
            digits += 1;
        }
        // Version 15 is a digest, and version 0 is `NONE`.
        (1..=8).contains(&(uid[VERSION_BYTE] >> 4)).then_some(Self(uid))
    }

    fn digest(text: &str) -> Self {
        let mut uid = [0; 16];
        uid.copy_from_slice(&digest(&text)[..16]);
        uid[VERSION_BYTE] |= 0xf0;
        Self(uid)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_kept_and_other_texts_are_distinguished() {
        let uuid = "6f0e9a3c-54f1-4d5f-8a86-0f6f2b2f6a11";
        assert_eq!(Uid::new(uuid).to_string(), uuid);
        let texts = [
            uuid,
            "6F0E9A3C-54F1-4D5F-8A86-0F6F2B2F6A11",
            "6f0e9a3c54f14d5f8a860f6f2b2f6a11",
            "00000000-0000-0000-0000-000000000000",
            "a",
            "b",
            "",
        ];
        for (i, a) in texts.iter().enumerate() {
            for b in &texts[..i] {
                assert_ne!(Uid::new(a), Uid::new(b), "{a} {b}");
            }
        }
        assert!(Uid::new("").is_none());
        assert!(!Uid::new("00000000-0000-0000-0000-000000000000").is_none());
    }
}
