//! The two writes of a release, as JSON patches (RFC 6902).
//!
//! Each `test` refuses the whole patch when the object is not what was looked
//! at. The API server answers all of these refusals alike, so whoever gets one
//! reads the object again.

use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
};
use serde_json::{Value, json};

use crate::objects::HoldEntry;

/// The annotation that names the last pass that began.
pub const TOKEN: &str = "belay.dev/release-token";

/// What a release has to know of its target, as some answer had it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetState {
    /// Which object it is.
    pub uid: Arc<str>,
    /// Its version.
    pub version: Arc<str>,
    /// Since when it is Terminating, as the API server writes it.
    pub deleted: Option<Arc<str>>,
    /// Where the hold stands in the list of its finalizers.
    pub hold: Option<HoldEntry>,
    /// The token that it carries.
    pub token: Option<Arc<str>>,
    /// Whether it has annotations at all, which a JSON patch has to know.
    pub annotated: bool,
}

impl TargetState {
    /// Reads it from an object; `None` if this is no object.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(Arc::from);
        let finalizers = metadata.get("finalizers").and_then(Value::as_array);
        let annotations = metadata.get("annotations").and_then(Value::as_object);
        Some(Self {
            uid: text("uid")?,
            version: text("resourceVersion")?,
            deleted: text("deletionTimestamp"),
            hold: finalizers.and_then(|list| {
                HoldEntry::find(list.iter().map(|f| f.as_str().unwrap_or_default()))
            }),
            token: annotations.and_then(|map| map.get(TOKEN)?.as_str()).map(Arc::from),
            annotated: annotations.is_some(),
        })
    }
}

/// The write that begins a pass: the token. It lands on the very version that
/// was looked at, or not at all, so one that was sent twice lands once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenWrite {
    pub(super) sight: TargetState,
    pub(super) token: Arc<str>,
}

impl TokenWrite {
    /// The token, for the object as it was seen.
    pub fn new(sight: TargetState, token: Arc<str>) -> Self {
        Self { sight, token }
    }

    /// The patch.
    pub fn patch(&self) -> Patch {
        let mut operations =
            vec![test(&["uid"], &self.sight.uid), test(&["resourceVersion"], &self.sight.version)];
        if !self.sight.annotated {
            operations.push(add(&["annotations"], json!({})));
        }
        operations.push(add(&["annotations", TOKEN], json!(&*self.token)));
        Patch(operations)
    }
}

/// The write that lets go. It does not ask for a version: others write status
/// all the time, and what matters is tested by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HoldRemoval {
    pub(super) uid: Arc<str>,
    pub(super) deleted: Arc<str>,
    pub(super) token: Arc<str>,
    pub(super) hold: HoldEntry,
}

impl HoldRemoval {
    /// The removal of what was seen; `None` where there is nothing to remove.
    pub fn of_target(sight: &TargetState) -> Option<Self> {
        Some(Self {
            uid: sight.uid.clone(),
            deleted: sight.deleted.clone()?,
            token: sight.token.clone()?,
            hold: sight.hold?,
        })
    }

    /// The patch.
    pub fn patch(&self) -> Patch {
        let index = self.hold.index.to_string();
        Patch(vec![
            test(&["uid"], &self.uid),
            test(&["deletionTimestamp"], &self.deleted),
            test(&["annotations", TOKEN], &self.token),
            test(&["finalizers", &index], self.hold.name),
            remove(&["finalizers", &index]),
            remove(&["annotations", TOKEN]),
        ])
    }
}

fn path(tokens: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(std::iter::once("metadata").chain(tokens.iter().copied()))
}

pub(super) fn test(tokens: &[&str], value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: path(tokens), value: json!(value) })
}

pub(super) fn add(tokens: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: path(tokens), value })
}

pub(super) fn replace(tokens: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: path(tokens), value })
}

pub(super) fn remove(tokens: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: path(tokens) })
}
