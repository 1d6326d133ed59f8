//! The fields of an object that verdicts read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::time::parse_time;
use super::{HoldEntry, HoldWrites, PROTECT_LABEL, Text};

/// The fields of an object that a verdict needs, borrowed from its JSON. The parser skips all
/// other fields at any depth, and belay never stores them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Object<'a> {
    /// `apiVersion`, for example `apps/v1`.
    pub api_version: Text<'a>,
    /// `kind`, for example `Deployment`.
    pub kind: Text<'a>,
    /// The needed fields of `metadata`.
    #[serde(deserialize_with = "null_is_default")]
    pub metadata: Metadata<'a>,
}

/// The part of an object's metadata that verdicts read.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Metadata<'a> {
    /// `metadata.name`; empty while `generateName` has not been filled in.
    #[serde(deserialize_with = "null_is_default")]
    pub name: Text<'a>,
    /// `metadata.generateName`: the prefix of the name.
    #[serde(deserialize_with = "null_is_default")]
    pub generate_name: Text<'a>,
    /// `metadata.namespace`; empty for a cluster-scoped object.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: Text<'a>,
    /// `metadata.uid`; empty before the object is stored.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: Text<'a>,
    /// `metadata.resourceVersion`; empty before the object is stored.
    #[serde(deserialize_with = "null_is_default")]
    pub resource_version: Text<'a>,
    /// `metadata.labels`.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<Text<'a>, Text<'a>>,
    /// `metadata.annotations`.
    #[serde(deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<Text<'a>, Text<'a>>,
    /// `metadata.finalizers`; `None` if the array is absent. Then a JSON patch must first
    /// create the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizers: Option<Vec<Text<'a>>>,
    /// `metadata.ownerReferences`.
    #[serde(deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference<'a>>,
    /// `metadata.deletionTimestamp`: present on a Terminating object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Text<'a>>,
    /// `metadata.creationTimestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Text<'a>>,
    /// The time of the hold from `metadata.managedFields`.
    pub managed_fields: HoldWrites,
}

/// When the hold was added to an object. This decides whether belay may rely on the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldAge {
    /// The object has no hold.
    NotHeld,
    /// The hold was added at CREATE, so every write has seen it.
    FromCreate,
    /// The hold was added later, at this time (seconds since 1970); `i64::MAX` if the time is
    /// unknown.
    Since(i64),
}

impl HoldAge {
    /// The age at which a hold becomes effective. A write that was in progress when belay added
    /// the hold may not have seen the hold. The API server ends a write after 34 seconds, so no
    /// such write is left at this age.
    pub const SETTLED_SECONDS: i64 = 45;

    /// The age of a hold after an update of its object. `new` is the age in the new version.
    ///
    /// An editor can rewrite managedFields to make a hold look older. So an update never makes
    /// a hold older.
    pub fn updated_by(self, new: Self) -> Self {
        match (self, new) {
            // If a hold was added later, managedFields have an entry for it. The entry is
            // missing if an editor removed it, or if the object was created without
            // managedFields. Then the age is unknown.
            (Self::NotHeld, Self::FromCreate) => Self::Since(i64::MAX),
            (Self::Since(before), Self::FromCreate) => Self::Since(before),
            (Self::Since(before), Self::Since(time)) => Self::Since(time.max(before)),
            (_, new) => new,
        }
    }

    /// The age of a hold that belay saw at this time. The hold is at least that old, even if
    /// managedFields don't name it, or have a wrong time.
    pub fn seen_at(self, now: i64) -> Self {
        if let Self::Since(time) = self { Self::Since(time.min(now)) } else { self }
    }

    /// Whether belay may rely on the hold at this time.
    pub fn is_effective(self, now: i64) -> bool {
        match self {
            Self::NotHeld => false,
            Self::FromCreate => true,
            Self::Since(time) => time <= now.saturating_sub(Self::SETTLED_SECONDS),
        }
    }

    /// The number of seconds until the hold becomes effective. `None` if it is effective, does
    /// not exist, or has an unknown age.
    pub fn effective_in(self, now: i64) -> Option<i64> {
        let Self::Since(time) = self else { return None };
        let seconds = time.saturating_add(Self::SETTLED_SECONDS).saturating_sub(now);
        (1..=Self::SETTLED_SECONDS).contains(&seconds).then_some(seconds)
    }
}

/// One owner reference.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct OwnerReference<'a> {
    /// `apiVersion` of the owner.
    pub api_version: Text<'a>,
    /// `kind` of the owner.
    pub kind: Text<'a>,
    /// `name` of the owner.
    pub name: Text<'a>,
    /// `uid` of the owner.
    pub uid: Text<'a>,
    /// Whether a foreground deletion of the owner waits for this dependent.
    pub block_owner_deletion: Option<bool>,
    /// Whether the owner manages this object. At most one reference has `true`.
    pub controller: Option<bool>,
}

impl OwnerReference<'_> {
    fn bytes(&self) -> usize {
        let Self { api_version, kind, name, uid, .. } = self;
        let texts = [api_version, kind, name, uid].map(Text::owned_bytes);
        size_of::<Self>() + texts.iter().sum::<usize>()
    }

    fn to_static(&self) -> OwnerReference<'static> {
        let Self { api_version, kind, name, uid, block_owner_deletion, controller } = self;
        let [api_version, kind, name, uid] = [api_version, kind, name, uid].map(Text::to_static);
        let (block_owner_deletion, controller) = (*block_owner_deletion, *controller);
        OwnerReference { api_version, kind, name, uid, block_owner_deletion, controller }
    }
}

impl Metadata<'_> {
    /// `resourceVersion` as a number; `u64::MAX` if it is unknown.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(u64::MAX)
    }

    /// The bytes in memory of its lists and maps, besides the JSON.
    pub fn list_bytes(&self) -> usize {
        let pairs = || self.labels.iter().chain(&self.annotations);
        let finalizers = || self.finalizers.iter().flatten();
        // The nodes of a BTreeMap are about two thirds full.
        let texts = finalizers().count() + 3 * pairs().count();
        let owned: usize =
            pairs().map(|(key, value)| key.owned_bytes() + value.owned_bytes()).sum();
        texts * size_of::<Text<'_>>()
            + owned
            + finalizers().map(Text::owned_bytes).sum::<usize>()
            + self.owner_references.iter().map(OwnerReference::bytes).sum::<usize>()
    }

    fn to_static(&self) -> Metadata<'static> {
        let map = |texts: &BTreeMap<Text<'_>, Text<'_>>| {
            texts.iter().map(|(key, value)| (key.to_static(), value.to_static())).collect()
        };
        let list = |texts: &Vec<Text<'_>>| texts.iter().map(Text::to_static).collect();
        Metadata {
            name: self.name.to_static(),
            generate_name: self.generate_name.to_static(),
            namespace: self.namespace.to_static(),
            uid: self.uid.to_static(),
            resource_version: self.resource_version.to_static(),
            labels: map(&self.labels),
            annotations: map(&self.annotations),
            finalizers: self.finalizers.as_ref().map(list),
            owner_references: self.owner_references.iter().map(|owner| owner.to_static()).collect(),
            deletion_timestamp: self.deletion_timestamp.as_ref().map(Text::to_static),
            creation_timestamp: self.creation_timestamp.as_ref().map(Text::to_static),
            managed_fields: self.managed_fields,
        }
    }
}

impl Object<'_> {
    /// A copy that borrows nothing.
    pub fn to_static(&self) -> Object<'static> {
        Object {
            api_version: self.api_version.to_static(),
            kind: self.kind.to_static(),
            metadata: self.metadata.to_static(),
        }
    }

    /// The value of the label `belay.dev/protect`, if the object has it.
    pub fn protect_label(&self) -> Option<&str> {
        self.metadata.labels.get(PROTECT_LABEL).map(Text::as_str)
    }

    /// Whether the object has the hold.
    pub fn is_held(&self) -> bool {
        self.hold().is_some()
    }

    /// The hold and its index in the list of finalizers.
    pub fn hold(&self) -> Option<HoldEntry> {
        HoldEntry::find(self.metadata.finalizers.iter().flatten().map(Text::as_str))
    }

    /// The age of the hold. If the mutating webhook added the hold at CREATE, managedFields
    /// have no entry for it, because the API server writes them before it calls mutating
    /// webhooks. If a later patch added the hold, managedFields have its manager and the time
    /// of the API server.
    pub fn hold_age(&self) -> HoldAge {
        if !self.is_held() {
            return HoldAge::NotHeld;
        }
        self.metadata.managed_fields.latest().map_or(HoldAge::FromCreate, HoldAge::Since)
    }

    /// The creation time, in seconds since 1970.
    pub fn created(&self) -> Option<i64> {
        self.metadata.creation_timestamp.as_deref().and_then(parse_time)
    }

    /// The deletionTimestamp, in seconds since 1970.
    pub fn deleted(&self) -> Option<i64> {
        // The object is also Terminating if the time can't be parsed.
        self.metadata.deletion_timestamp.as_deref().map(|time| parse_time(time).unwrap_or(i64::MIN))
    }

    /// Whether the object has a deletionTimestamp.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// Reads `null` as the default value. Kubernetes stores `null` for an empty map or list if a
/// client writes it.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_needed_and_skips_the_rest() {
        let object: Object<'_> = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"Secret","data":{"password":"aHVudGVyMg=="},
                "metadata":{"name":"a","namespace":"b","uid":"u","labels":{"belay.dev/protect":"Always"},
                            "finalizers":["x/y","belay.dev/hold"],"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
        )
        .unwrap();
        assert_eq!(object.protect_label(), Some("Always"));
        assert!(object.is_held());
        assert!(object.is_terminating());
        assert!(!format!("{object:?}").contains("aHVudGVyMg"), "a body was kept");
    }

    #[test]
    fn managed_fields_show_the_age_of_a_hold() {
        let age = |metadata: &str| {
            let json = format!(r#"{{"metadata":{metadata}}}"#);
            serde_json::from_str::<Object<'_>>(&json).unwrap().hold_age()
        };
        let managed = |finalizer: &str| {
            let finalizers = serde_json::json!({".": {}, format!("v:\"{finalizer}\""): {}});
            serde_json::json!({
                "finalizers": ["belay.dev/hold"],
                "managedFields": [
                    {"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                    {"time": "2026-01-01T00:01:00Z", "fieldsV1": {"f:metadata": {"f:finalizers": finalizers}}},
                ],
            })
            .to_string()
        };
        assert_eq!(age(r#"{"finalizers":["x/y"]}"#), HoldAge::NotHeld);
        assert_eq!(age(r#"{"finalizers":["belay.dev/hold"]}"#), HoldAge::FromCreate);
        assert_eq!(age(&managed("x/y")), HoldAge::FromCreate);
        assert_eq!(age(&managed("belay.dev/hold")), HoldAge::Since(1_767_225_660));
    }

    #[test]
    fn an_editor_cannot_make_a_hold_look_older() {
        let (create, recent, old) = (HoldAge::FromCreate, HoldAge::Since(200), HoldAge::Since(100));
        for (before, claimed, expected) in [
            (create, create, create),
            (recent, create, recent),
            (recent, old, recent),
            (old, recent, recent),
            (create, recent, recent),
            (HoldAge::NotHeld, recent, recent),
            (HoldAge::NotHeld, create, HoldAge::Since(i64::MAX)),
            (recent, HoldAge::NotHeld, HoldAge::NotHeld),
        ] {
            assert_eq!(before.updated_by(claimed), expected, "{before:?}, then {claimed:?}");
        }
        // A hold of unknown age was added before it was seen, and a known age remains.
        for (age, seen) in [
            (HoldAge::Since(i64::MAX), HoldAge::Since(150)),
            (recent, HoldAge::Since(150)),
            (old, old),
            (create, create),
            (HoldAge::NotHeld, HoldAge::NotHeld),
        ] {
            assert_eq!(age.seen_at(150), seen, "{age:?}");
        }
        assert!(!HoldAge::Since(i64::MAX).is_effective(i64::MAX - 1));
        assert_eq!(HoldAge::Since(i64::MAX).effective_in(1000), None);
    }

    #[test]
    fn a_hold_becomes_effective_after_the_remaining_seconds() {
        let recent = HoldAge::Since(200);
        for (now, left) in [(200, Some(45)), (230, Some(15)), (244, Some(1)), (245, None)] {
            assert_eq!(recent.effective_in(now), left, "{now}");
            assert_eq!(recent.is_effective(now), left.is_none(), "{now}");
        }
        // The clock that wrote this time is wrong.
        assert_eq!(recent.effective_in(199), None);
        assert_eq!(HoldAge::FromCreate.effective_in(200), None);
    }

    #[test]
    fn null_means_empty() {
        let object: Object<'_> = serde_json::from_str(
            r#"{"metadata":{"name":null,"labels":null,"finalizers":null,"ownerReferences":null}}"#,
        )
        .unwrap();
        assert!(object.metadata.labels.is_empty());
        assert!(object.metadata.finalizers.is_none());
        assert!(object.metadata.owner_references.is_empty());
    }
}
