//! Bounds of what a review may list, counted while it is read. An entry of a
//! few bytes takes many times its size in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::objects::Text;

/// No authenticator sends so many groups.
pub const GROUPS: usize = 10_000;

/// No stored object lists so many finalizers: each takes at least three bytes
/// of the 1.5 MiB of an etcd value.
pub const FINALIZERS: usize = 600_000;

/// No stored object has so many labels, annotations or owner references: each
/// takes at least eight bytes.
pub const OTHERS: usize = 200_000;

/// In so many bytes no list reaches its bound.
const SMALL: usize = 3 * OTHERS;

/// The beginning of the message, which has no text of the caller.
pub const TOO_MANY: &str = "more than ";

fn too_many<E: Error>(bound: usize, what: &str) -> E {
    E::custom(format_args!("{TOO_MANY}{bound} {what}"))
}

/// Reads `userInfo.groups`, as many as a caller may have.
pub fn groups<'de: 'a, 'a, D>(deserializer: D) -> Result<Vec<Text<'a>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Groups<'a>(PhantomData<Text<'a>>);

    impl<'de: 'a, 'a> Visitor<'de> for Groups<'a> {
        type Value = Vec<Text<'a>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of groups")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut groups = Vec::new();
            while let Some(group) = entries.next_element()? {
                if groups.len() == GROUPS {
                    return Err(too_many(GROUPS, "groups in userInfo"));
                }
                groups.push(group);
            }
            Ok(groups)
        }
    }

    deserializer.deserialize_any(Groups(PhantomData))
}

/// An object of which only the lengths of lists are read, and nothing is kept.
#[derive(Deserialize)]
pub struct CountedObject {
    #[serde(default, rename = "metadata")]
    _metadata: Option<CountedMetadata>,
}

impl CountedObject {
    /// Whether a body of this size may contain lists beyond the bounds.
    pub fn is_needed(bytes: usize) -> bool {
        bytes > SMALL
    }
}

#[derive(Deserialize)]
struct CountedMetadata {
    #[serde(default, rename = "finalizers", deserialize_with = "finalizers")]
    _finalizers: (),
    #[serde(default, rename = "ownerReferences", deserialize_with = "others")]
    _owner_references: (),
    #[serde(default, rename = "labels", deserialize_with = "others")]
    _labels: (),
    #[serde(default, rename = "annotations", deserialize_with = "others")]
    _annotations: (),
}

fn finalizers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_any(Counter(FINALIZERS))
}

fn others<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_any(Counter(OTHERS))
}

/// Counts the entries of a list or a map, up to a bound.
struct Counter(usize);

impl<'de> Visitor<'de> for Counter {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or a map")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut count = 0;
        while entries.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
            if count > self.0 {
                return Err(too_many(self.0, "entries in a list of its metadata"));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut count = 0;
        while entries.next_entry::<Text<'de>, IgnoredAny>()?.is_some() {
            count += 1;
            if count > self.0 {
                return Err(too_many(self.0, "entries in a map of its metadata"));
            }
        }
        Ok(())
    }
}
