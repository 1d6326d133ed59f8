//! What people have written, compiled for the kinds of one cluster.

use std::sync::Arc;

use super::compiled::Policy;
use super::identities::Identities;
use super::policy_set::PolicySet;
use crate::graph::Graph;
use crate::objects::Kinds;
use crate::relations::{Catalogue, CustomRelation, PathError};

/// Relations and policies that are in force together.
#[derive(Debug)]
pub struct Rules {
    /// How references are read.
    pub catalogue: Arc<Catalogue>,
    /// What is protected, without approvals and pauses.
    pub policies: PolicySet,
}

impl Rules {
    /// Compiles them for these kinds. An error: a built-in relation is wrong.
    pub fn load(
        kinds: &Kinds,
        relations: &[CustomRelation],
        policies: Vec<Policy>,
        identities: Identities,
    ) -> Result<Self, PathError> {
        let catalogue = Catalogue::new(kinds, relations)?;
        let mut policies = PolicySet::new(policies, &catalogue);
        policies.identities = identities;
        Ok(Self { catalogue: Arc::new(catalogue), policies })
    }

    /// Has a graph keep what the policies read of objects.
    pub fn prepare(&self, graph: &mut Graph) {
        let annotations: Vec<String> = self.policies.annotation_keys().map(str::to_owned).collect();
        graph.keep_annotations(annotations);
    }
}
