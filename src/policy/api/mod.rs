//! The objects that people write: the API group `belay.dev`, version `v1alpha1`.
//!
//! The schemas, with their rules in CEL, are generated from these types, so that the API server
//! itself refuses invalid objects with a helpful message. [`check`] returns the same messages
//! where no API server is involved.

// Each printer column has a type, which this lint takes for one said twice.
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

pub use admission::{MAX_APPROVAL_SECONDS, admission_policies};
pub use approval::{DeletionApproval, DeletionApprovalSpec, Pause, PauseSpec, Scope, TargetRef};
pub use check::{Check, Problem};
pub use deletion_policy::{
    Action, ActionOverride, Always, Approval, Counting, DeletionPolicy, DeletionPolicySpec,
    DeletionPolicyStatus, FromOrphaning, FromStripping, HoldMode, LastDay, NotHeld, OnDelete,
    OptionalReferences, Owned, Protect, Recent, WhileNotEmpty, WhileUsed,
};
pub use relation::{FieldEquals, RelatedKind, Relation, RelationSpec, Strength, ToRef};
pub use selectors::{
    By, Existing, LabelRequirement, LabelSelector, Operator, Subject, SubjectKind, Target,
};

/// The API group.
pub const GROUP: &str = "belay.dev";

/// The definitions of all kinds, as they are applied to an API server.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions =
        vec![DeletionPolicy::crd(), Relation::crd(), DeletionApproval::crd(), Pause::crd()];
    definitions
        .iter_mut()
        .flat_map(|definition| &mut definition.spec.versions)
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
        .for_each(refuse_null);
    definitions
}

/// An `Option` becomes a field that may be null, and the API server stores
/// that null. Without the permission it drops the field, as for its own kinds.
fn refuse_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).for_each(refuse_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        refuse_null(items);
    }
}
