//! Limits the lists in a review while it is parsed, because a list entry of a few bytes takes
//! many times its size in memory.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::objects::{KeyedSet, Text};

/// The longest accepted name. Kubernetes allows names of 253 bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 10;

/// The limit of groups of a user. No authenticator sends this many.
pub const MAX_GROUPS: usize = 10_000;

/// The limit of bytes of a stored object. etcd accepts values of at most 1.5 MiB.
const MAX_STORED_BYTES: usize = 1_600_000;

/// The minimum bytes of a text in a stored list.
const TEXT_COST: usize = 2;

/// The minimum bytes of a stored field, map entry or owner reference.
const ENTRY_COST: usize = 8;

/// Lists in smaller bodies can't exceed the limits.
pub const MIN_COUNTED_BYTES: usize = 1 << 20;

/// The start of the error message. The message contains no text of the caller.
pub const TOO_MANY: &str = "more than ";

fn too_many<E: Error>(what: fmt::Arguments<'_>) -> E {
    E::custom(format_args!("{TOO_MANY}{what}"))
}

/// Reads a text that is short in every valid request. Fails for a long text without copying it.
pub fn deserialize_short_text<'de: 'a, 'a, D>(deserializer: D) -> Result<Option<Text<'a>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct ShortTextVisitor<'a>(PhantomData<Text<'a>>);

    impl ShortTextVisitor<'_> {
        fn check<E: Error>(&self, text: &str) -> Result<(), E> {
            match text.len() <= MAX_TEXT_BYTES {
                true => Ok(()),
                false => Err(E::custom(format_args!("over {MAX_TEXT_BYTES} bytes"))),
            }
        }
    }

    impl<'de: 'a, 'a> Visitor<'de> for ShortTextVisitor<'a> {
        type Value = Option<Text<'a>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
            self.check(text).map(|()| Some(text.into()))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            self.check(text).map(|()| Some(Text::from(text).to_static()))
        }
    }

    deserializer.deserialize_any(ShortTextVisitor(PhantomData))
}

/// Reads `userInfo.groups`, up to the limit.
pub fn groups<'de: 'a, 'a, D>(deserializer: D) -> Result<KeyedSet<Text<'a>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct GroupsVisitor<'a>(PhantomData<Text<'a>>);

    impl<'de: 'a, 'a> Visitor<'de> for GroupsVisitor<'a> {
        type Value = KeyedSet<Text<'a>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of groups")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(KeyedSet::default())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut groups = KeyedSet::default();
            while let Some(group) = entries.next_element()? {
                if groups.len() == MAX_GROUPS {
                    return Err(too_many(format_args!("{MAX_GROUPS} groups in userInfo")));
                }
                groups.insert(group);
            }
            Ok(groups)
        }
    }

    deserializer.deserialize_any(GroupsVisitor(PhantomData))
}

/// Counts the list entries of an object without storing them. Fails if no stored object can have
/// this many.
pub struct CountedObject;

impl<'de> Deserialize<'de> for CountedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SizeCounter { level: JsonLevel::Object, bytes: &Cell::new(0) }.deserialize(deserializer)?;
        Ok(Self)
    }
}

/// The level of a value in an object.
#[derive(Clone, Copy)]
enum JsonLevel {
    Object,
    Metadata,
    Spec,
    /// A list of texts.
    Texts,
    /// A map, or a list of owner references.
    Entries,
}

impl JsonLevel {
    /// The level of the value of this key; `None` if the counter skips it.
    fn child(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Object, "spec") => Some(Self::Spec),
            (Self::Metadata | Self::Spec, "finalizers") => Some(Self::Texts),
            (Self::Metadata, "labels" | "annotations" | "ownerReferences") => Some(Self::Entries),
            _ => None,
        }
    }
}

/// Counts the minimum bytes of a value in storage.
struct SizeCounter<'c> {
    level: JsonLevel,
    bytes: &'c Cell<usize>,
}

impl SizeCounter<'_> {
    fn add<E: Error>(&self, bytes: usize) -> Result<(), E> {
        self.bytes.set(self.bytes.get() + bytes);
        if self.bytes.get() <= MAX_STORED_BYTES {
            return Ok(());
        }
        Err(too_many(format_args!("{MAX_STORED_BYTES} bytes in the lists of one object")))
    }
}

impl<'de> DeserializeSeed<'de> for SizeCounter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A value of another type has no entries.
impl<'de> Visitor<'de> for SizeCounter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let bytes = if matches!(self.level, JsonLevel::Entries) { ENTRY_COST } else { TEXT_COST };
        while entries.next_element::<IgnoredAny>()?.is_some() {
            self.add(bytes)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<Text<'de>>()? {
            // The parser stores only the finalizers of a spec, so its other fields cost nothing.
            if !matches!(self.level, JsonLevel::Spec) {
                self.add(ENTRY_COST)?;
            }
            match self.level.child(&key) {
                Some(level) => entries.next_value_seed(SizeCounter { level, bytes: self.bytes })?,
                None => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
