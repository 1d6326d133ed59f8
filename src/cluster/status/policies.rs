//! The input of the status writer: the stored policies.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::World;
use crate::objects::KindId;
use crate::policy::Policy;
use crate::policy::api::{DeletionPolicyStatus, Problem};

/// The policies as they were read last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredPolicies {
    /// By name.
    pub policies: BTreeMap<String, StoredPolicy>,
}

/// A policy as it was read last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredPolicy {
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Its status.
    pub status: DeletionPolicyStatus,
    /// The problem of the policy; empty if it is in force.
    pub problems: Vec<Problem>,
    /// The value of `Signals::changed` since which this generation is known.
    pub loaded_at: u64,
}

/// Returns the kinds that verdicts of a policy read.
pub type KindsRead = fn(&World, &Policy) -> BTreeSet<KindId>;
