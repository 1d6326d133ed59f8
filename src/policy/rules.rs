//! The relations and policies of a cluster, compiled for its kinds.

use std::sync::Arc;

use super::compiled::Policy;
use super::identities::Identities;
use super::policy_set::PolicySet;
use crate::graph::Graph;
use crate::objects::Kinds;
use crate::relations::{Catalogue, CustomRelation, PathError};

/// Compiled relations and policies. These are not the rules of webhook configurations
/// (`cluster::registration`).
#[derive(Debug)]
pub struct Rules {
    /// The relations.
    pub catalogue: Arc<Catalogue>,
    /// The policies, without approvals and pauses.
    pub policies: PolicySet,
}

impl Rules {
    /// Compiles relations and policies for these kinds. An error means that a built-in
    /// relation is wrong. `labelled_kinds`: as in [`PolicySet`].
    pub fn compile(
        kinds: &Kinds,
        relations: &[CustomRelation],
        policies: Vec<Policy>,
        identities: Identities,
        labelled_kinds: Option<&[(String, String)]>,
    ) -> Result<Self, PathError> {
        let catalogue = Catalogue::new(kinds, relations)?;
        let mut policies = PolicySet::new(policies, &catalogue);
        policies.identities = identities;
        policies.labelled_kinds = labelled_kinds.map(<[_]>::to_vec);
        Ok(Self { catalogue: Arc::new(catalogue), policies })
    }

    /// Sets the annotations that a graph keeps for the policies.
    pub fn set_kept_annotations(&self, graph: &mut Graph) {
        let annotations: Vec<String> = self.policies.annotation_keys().map(str::to_owned).collect();
        graph.keep_annotations(annotations);
    }
}
