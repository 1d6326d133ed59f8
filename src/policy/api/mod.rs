//! The objects that users write: the API group `belay.dev`, version `v1alpha1`.
//!
//! The CRDs, with their CEL rules, are generated from these types, so that the API server itself
//! rejects invalid objects with a helpful message. [`check`] returns the same messages without
//! an API server.

// The lint reports the types of the printer columns as duplicates.
#![allow(clippy::duplicated_attributes)]

mod admission;
mod approval;
mod check;
mod deletion_policy;
mod relation;
mod selectors;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::core::CustomResourceExt as _;

use crate::objects::{KindInfo, Kinds};

pub use admission::{MAX_APPROVAL_SECONDS, admission_policies};
pub use approval::{
    DeletionApproval, DeletionApprovalSpec, Pause, PauseSpec, RECORD_PREFIX, Scope, TargetRef,
};
pub use check::{Check, Problem};
pub use deletion_policy::{
    Action, ActionOverride, Always, ApprovalSettings, Counting, DeletionPolicy, DeletionPolicySpec,
    DeletionPolicyStatus, FromOrphaning, FromStripping, HoldMode, LastDay, NotHeld, OnDelete,
    OptionalReferences, Owned, Protect, RecentVerdict, WhileNotEmpty, WhileUsed,
};
pub use relation::{FieldEquals, RelatedKind, Relation, RelationSpec, Strength, ToRef};
pub use selectors::{
    ExistingSelector, LabelRequirement, LabelSelector, Operator, Subject, SubjectKind,
    TargetSelector, UserSelector,
};

/// The API group.
pub const GROUP: &str = "belay.dev";

/// One of belay's own kinds, as the API server serves it.
pub fn kind_info<K: kube::Resource<DynamicType = ()>>() -> KindInfo {
    let (group, version) = (K::group(&()), K::version(&()));
    Kinds::custom(&group, &version, &K::kind(&()), &K::plural(&()), false)
}

/// The CRDs of all kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds =
        vec![DeletionPolicy::crd(), Relation::crd(), DeletionApproval::crd(), Pause::crd()];
    crds.iter_mut()
        .flat_map(|crd| &mut crd.spec.versions)
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
        .for_each(disallow_null);
    crds
}

/// Removes `nullable`, which the generator sets for each `Option`. With it, the API server
/// would store a null. Without it, the API server drops the field, as for its own kinds.
fn disallow_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).for_each(disallow_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        disallow_null(items);
    }
}
