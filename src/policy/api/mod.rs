//! The objects that people write: the API group `belay.dev`, version
//! `v1alpha1`.
//!
//! The schemas, with their rules in CEL, are generated from these types, so
//! that the API server itself refuses nonsense, with a sentence that helps.
//! [`check`] says the same sentences where no API server stands in between.

mod admission;
mod approval;
mod check;
mod deletion_policy;
mod relation;
mod selectors;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;

pub use admission::{MAX_APPROVAL_SECONDS, admission_policies};
pub use approval::{DeletionApproval, DeletionApprovalSpec, Pause, PauseSpec, Scope, TargetRef};
pub use check::{Check, Problem};
pub use deletion_policy::{
    Action, ActionOverride, Always, Approval, Counting, DeletionPolicy, DeletionPolicySpec,
    DeletionPolicyStatus, FromOrphaning, FromStripping, HoldMode, LastDay, OnDelete,
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
    vec![DeletionPolicy::crd(), Relation::crd(), DeletionApproval::crd(), Pause::crd()]
}
