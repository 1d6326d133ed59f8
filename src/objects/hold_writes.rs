//! Reads from managedFields when a field manager added the hold.
//!
//! Every client may write managedFields, in any shape and at any depth, and the API server
//! stores them. The reader follows one path, skips all other values without recursion, and
//! never fails because of a type. An unexpected type makes the age of the hold unknown, and
//! belay does not rely on a hold of unknown age.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{HOLD, is_hold};

/// The latest time at which a manager added the hold, in seconds since 1970.
/// `i64::MAX` stands for a time that can't be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoldWrites(Option<i64>);

impl HoldWrites {
    /// The time; `None` if no manager added the hold.
    pub fn latest(self) -> Option<i64> {
        self.0
    }
}

impl<'de> Deserialize<'de> for HoldWrites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut findings = Findings::default();
        Walk { level: JsonLevel::Managers, findings: &mut findings }.deserialize(deserializer)?;
        Ok(Self(if findings.has_wrong_type { Some(i64::MAX) } else { findings.latest }))
    }
}

/// Writes managedFields from which the same time is read.
impl Serialize for HoldWrites {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(latest) = self.0 else { return serializer.serialize_seq(Some(0))?.end() };
        let time = jiff::Timestamp::from_second(latest).ok().map(|time| time.to_string());
        let mut managers = serializer.serialize_seq(Some(1))?;
        managers.serialize_element(&json!({"time": time, "fieldsV1": hold_fields()}))?;
        managers.end()
    }
}

/// `fieldsV1` of a manager that added the hold.
pub fn hold_fields() -> Value {
    let key = format!("v:\"{HOLD}\"");
    json!({"f:metadata": {"f:finalizers": {key: {}}}})
}

/// The results of the walk.
#[derive(Default)]
struct Findings {
    latest: Option<i64>,
    /// The time of the current manager.
    time: Option<i64>,
    names_hold: bool,
    /// Whether a value has a wrong type.
    has_wrong_type: bool,
}

/// The level of a value in managedFields.
#[derive(Clone, Copy)]
enum JsonLevel {
    Managers,
    Manager,
    Time,
    Fields,
    Metadata,
    Finalizers,
}

/// What the walk does with the value of a key.
enum Key {
    /// Reads the value, at this level.
    Read(JsonLevel),
    /// Skips the value. The key is the hold, in the field set of the finalizers.
    Hold,
    /// Skips the value.
    Other,
}

/// Reads a key at this level. Reads bytes, because the walk must also skip keys that are no valid
/// text. Makes no copy, because managedFields have many keys.
impl<'de> DeserializeSeed<'de> for JsonLevel {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for JsonLevel {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Key, E> {
        Ok(match (self, key) {
            (Self::Manager, b"time") => Key::Read(Self::Time),
            (Self::Manager, b"fieldsV1") => Key::Read(Self::Fields),
            (Self::Fields, b"f:metadata") => Key::Read(Self::Metadata),
            (Self::Metadata, b"f:finalizers") => Key::Read(Self::Finalizers),
            (Self::Finalizers, key) if is_hold_key(key) => Key::Hold,
            _ => Key::Other,
        })
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        self.visit_bytes(key.as_bytes())
    }
}

struct Walk<'w> {
    level: JsonLevel,
    findings: &'w mut Findings,
}

impl Walk<'_> {
    fn at_level(&mut self, level: JsonLevel) -> Walk<'_> {
        Walk { level, findings: self.findings }
    }

    fn report_wrong_type<E>(self) -> Result<(), E> {
        self.findings.has_wrong_type = true;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("managedFields")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.report_wrong_type()
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.report_wrong_type()
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.report_wrong_type()
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.report_wrong_type()
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if !matches!(self.level, JsonLevel::Time) {
            return self.report_wrong_type();
        }
        self.findings.time = super::time::parse_time(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        if matches!(self.level, JsonLevel::Managers) {
            while list.next_element_seed(self.at_level(JsonLevel::Manager))?.is_some() {}
            return Ok(());
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        self.report_wrong_type()
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        if matches!(self.level, JsonLevel::Manager) {
            (self.findings.time, self.findings.names_hold) = (None, false);
        }
        while let Some(key) = map.next_key_seed(self.level)? {
            match key {
                Key::Read(level) => map.next_value_seed(self.at_level(level))?,
                Key::Hold | Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
            self.findings.names_hold |= matches!(key, Key::Hold);
        }
        match self.level {
            JsonLevel::Manager if self.findings.names_hold => {
                // A time that can't be read is no proof of age.
                let time = self.findings.time.unwrap_or(i64::MAX);
                self.findings.latest = self.findings.latest.max(Some(time));
            }
            JsonLevel::Managers | JsonLevel::Time => self.findings.has_wrong_type = true,
            JsonLevel::Manager
            | JsonLevel::Fields
            | JsonLevel::Metadata
            | JsonLevel::Finalizers => {}
        }
        Ok(())
    }
}

/// Whether a key of a field set names the hold. The key of a finalizer is `v:` and the finalizer
/// as JSON: `v:"x/y"`.
fn is_hold_key(key: &[u8]) -> bool {
    let key = std::str::from_utf8(key).ok();
    let finalizer = key.and_then(|key| key.strip_prefix("v:\"")?.strip_suffix('"'));
    finalizer.is_some_and(is_hold)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: i64 = 1_767_225_660;

    fn latest(json: &str) -> Option<i64> {
        serde_json::from_str::<HoldWrites>(json).unwrap().latest()
    }

    fn manager(fields: &str) -> String {
        format!(r#"[{{"manager":"m","time":"2026-01-01T00:01:00Z","fieldsV1":{fields}}}]"#)
    }

    fn of_finalizers(finalizers: &str) -> String {
        manager(&format!(r#"{{"f:metadata":{{"f:finalizers":{finalizers}}}}}"#))
    }

    #[test]
    fn reads_the_time_of_the_manager_that_added_the_hold() {
        assert_eq!(latest("[]"), None);
        assert_eq!(latest("null"), None);
        assert_eq!(latest(&of_finalizers(r#"{"v:\"x/y\"":{}}"#)), None);
        assert_eq!(latest(&of_finalizers(r#"{".":{},"v:\"belay.dev/hold\"":{}}"#)), Some(TIME));
        let without_time = of_finalizers(r#"{"v:\"belay.dev/hold\"":{}}"#).replace("time", "tame");
        assert_eq!(latest(&without_time), Some(i64::MAX));
    }

    #[test]
    fn reads_any_depth_and_any_type() {
        let deep = format!("{}1{}", r#"{"f:a":["#.repeat(100_000), "]}".repeat(100_000));
        assert_eq!(latest(&manager(&deep)), None);
        let beside = format!(r#"{{"v:\"belay.dev/hold\"":{deep}}}"#);
        assert_eq!(latest(&of_finalizers(&beside)), Some(TIME));
        assert_eq!(latest(&manager("null")), None);
        assert_eq!(latest(&of_finalizers("null")), None);
        // A key that is no text.
        assert_eq!(latest(&manager(r#"{"f:\ud800":{},"f:metadata":{"f:\udfff":1}}"#)), None);
        for strange in ["1", "-1", "1.5", "true", r#""text""#, "[[1]]", r#"[{"a":{}}]"#] {
            assert_eq!(latest(&manager(strange)), Some(i64::MAX), "{strange}");
            assert_eq!(latest(&of_finalizers(strange)), Some(i64::MAX), "{strange}");
        }
        for strange in ["1", r#""text""#, "{}", "[[]]", "[1]", r#"[{"time":{}}]"#] {
            assert_eq!(latest(strange), Some(i64::MAX), "{strange}");
        }
    }

    #[test]
    fn hold_writes_round_trip() {
        for writes in [HoldWrites(None), HoldWrites(Some(TIME)), HoldWrites(Some(i64::MAX))] {
            let json = serde_json::to_string(&writes).unwrap();
            assert_eq!(latest(&json), writes.latest(), "{json}");
        }
    }
}
