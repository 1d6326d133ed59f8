//! The writes of a release, as JSON patches (RFC 6902).
//!
//! If the object has changed, a `test` fails and the API server rejects the whole patch.
//! The answer does not name the failed test, so the release reads the object again.

use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use crate::objects::operations::{add, remove, remove_finalizer, replace, test};
use crate::objects::{HoldEntry, finalizers_after_bulk_removal, is_hold};

/// The annotation with the token of the last pass.
pub const TOKEN_ANNOTATION: &str = "belay.dev/release-token";

/// The state of the target of a release, from an answer of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetState {
    pub uid: Arc<str>,
    pub resource_version: Arc<str>,
    /// `None` if the target is not Terminating.
    pub deletion_timestamp: Option<Arc<str>>,
    /// The hold; `None` if the target has no hold.
    pub hold: Option<HoldEntry>,
    /// The finalizers that remain after a removal of all holds at once; `None` unless the target
    /// has several holds (H179).
    pub remaining_after_bulk_removal: Option<Arc<[Arc<str>]>>,
    /// The token of the last pass.
    pub token: Option<Arc<str>>,
    /// Whether the target has annotations. If not, a JSON patch must create the map first.
    pub annotated: bool,
}

impl TargetState {
    /// Reads the state from an object; `None` if the value has no uid or resourceVersion.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(Arc::from);
        let finalizers = metadata.get("finalizers").and_then(Value::as_array);
        let finalizers: Vec<&str> =
            finalizers.into_iter().flatten().map(|f| f.as_str().unwrap_or_default()).collect();
        let annotations = metadata.get("annotations").and_then(Value::as_object);
        Some(Self {
            uid: text("uid")?,
            resource_version: text("resourceVersion")?,
            deletion_timestamp: text("deletionTimestamp"),
            hold: HoldEntry::find(finalizers.iter().copied()),
            remaining_after_bulk_removal: finalizers_after_bulk_removal(&finalizers, is_hold)
                .map(|remaining| remaining.into_iter().map(Arc::from).collect()),
            token: annotations.and_then(|map| map.get(TOKEN_ANNOTATION)?.as_str()).map(Arc::from),
            annotated: annotations.is_some(),
        })
    }

    /// The patch that sets an annotation of this object, which other clients may change
    /// meanwhile.
    pub fn annotation_patch(&self, key: &str, value: &str) -> Patch {
        let mut operations = vec![test(&["metadata", "uid"], &*self.uid)];
        if !self.annotated {
            // Otherwise the new map would replace annotations that were added meanwhile.
            operations.push(test(&["metadata", "resourceVersion"], &*self.resource_version));
        }
        self.set_annotation(key, value, &mut operations);
        Patch(operations)
    }

    fn set_annotation(&self, key: &str, value: &str, operations: &mut Vec<PatchOperation>) {
        if !self.annotated {
            operations.push(add(&["metadata", "annotations"], json!({})));
        }
        operations.push(add(&["metadata", "annotations", key], value));
    }
}

/// The write of the token, which begins a pass. It tests the resourceVersion, so a write
/// that is sent twice succeeds at most once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenWrite {
    pub(super) observed: TargetState,
    pub(super) token: Arc<str>,
}

impl TokenWrite {
    pub fn new(observed: TargetState, token: Arc<str>) -> Self {
        Self { observed, token }
    }

    pub fn patch(&self) -> Patch {
        let mut operations = vec![
            test(&["metadata", "uid"], &*self.observed.uid),
            test(&["metadata", "resourceVersion"], &*self.observed.resource_version),
        ];
        self.observed.set_annotation(TOKEN_ANNOTATION, &self.token, &mut operations);
        Patch(operations)
    }
}

/// The write that removes the hold. It tests the relevant fields. It tests the resourceVersion
/// only if it removes several holds, because other clients change the status of the object often.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HoldRemoval {
    pub(super) uid: Arc<str>,
    pub(super) deletion_timestamp: Arc<str>,
    pub(super) token: Arc<str>,
    pub(super) hold: HoldEntry,
    /// For a target with several holds, because many single removals would take days (H179).
    pub(super) remaining: Option<RemainingFinalizers>,
}

/// The finalizers that remain when all holds of a target are removed at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RemainingFinalizers {
    /// The version of the target.
    version: Arc<str>,
    finalizers: Arc<[Arc<str>]>,
}

impl HoldRemoval {
    /// The removal for a target in this state; `None` if the target has no hold or no token,
    /// or is not Terminating.
    pub fn of_target(observed: &TargetState) -> Option<Self> {
        Some(Self {
            uid: observed.uid.clone(),
            deletion_timestamp: observed.deletion_timestamp.clone()?,
            token: observed.token.clone()?,
            hold: observed.hold?,
            remaining: observed.remaining_after_bulk_removal.clone().map(|finalizers| {
                let version = observed.resource_version.clone();
                RemainingFinalizers { version, finalizers }
            }),
        })
    }

    pub fn patch(&self) -> Patch {
        let mut operations = vec![
            test(&["metadata", "uid"], &*self.uid),
            test(&["metadata", "deletionTimestamp"], &*self.deletion_timestamp),
            test(&["metadata", "annotations", TOKEN_ANNOTATION], &*self.token),
        ];
        match &self.remaining {
            None => operations.extend(remove_finalizer(self.hold.index, self.hold.name)),
            Some(RemainingFinalizers { version, finalizers }) => {
                let finalizers: Vec<&str> = finalizers.iter().map(|text| &**text).collect();
                operations.push(test(&["metadata", "resourceVersion"], &**version));
                operations.push(replace(&["metadata", "finalizers"], finalizers));
            }
        }
        operations.push(remove(&["metadata", "annotations", TOKEN_ANNOTATION]));
        Patch(operations)
    }
}
