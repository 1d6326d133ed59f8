//! The input of the status writer: the stored policies.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::World;
use crate::objects::KindId;
use crate::policy::Policy;
use crate::policy::api::{DeletionPolicyStatus, Problem};

/// The stored policies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredPolicies {
    /// The policies by name.
    pub policies: BTreeMap<String, StoredPolicy>,
}

/// A stored policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredPolicy {
    /// The `metadata.generation`.
    pub generation: i64,
    /// The stored status.
    pub status: DeletionPolicyStatus,
    /// The problems of the policy; empty if it is in force.
    pub problems: Vec<Problem>,
    /// The value of `Signals::changed` when this generation was loaded.
    pub loaded_at: u64,
}

/// Returns the kinds that verdicts of a policy read.
pub type KindsOfPolicy = fn(&World, &Policy) -> BTreeSet<KindId>;
