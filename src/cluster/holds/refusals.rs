//! Objects on which belay could not put the hold, because the API server refused it.

use std::collections::HashMap;

use super::survey::{HoldTask, Survey};
use crate::cluster::holding::RefusedHolds;
use crate::graph::Graph;
use crate::objects::{Uid, one_line_name};
use crate::policy::PolicySource;

/// So many are remembered.
const MOST: usize = 1_000;

/// Why each of them was refused.
#[derive(Default)]
pub struct Refusals(HashMap<Uid, String>);

impl Refusals {
    /// The API server has refused it.
    pub fn add(&mut self, object: Uid, why: String) {
        if self.0.len() < MOST {
            self.0.insert(object, why);
        }
    }

    /// It was written.
    pub fn remove(&mut self, object: Uid) {
        self.0.remove(&object);
    }

    /// Forgets all but the objects that lack the hold.
    pub fn retain(&mut self, survey: &Survey) {
        let missing = survey.missing.values().flatten();
        self.0 = missing.filter_map(|work| self.0.remove_entry(&work.uid)).collect();
    }

    /// What a policy says of those that it wants held.
    pub fn of_policy(&self, graph: &Graph, survey: &Survey, policy: &str) -> Option<RefusedHolds> {
        if self.0.is_empty() {
            return None;
        }
        let wants = |sources: &[PolicySource]| {
            sources
                .iter()
                .any(|source| matches!(source, PolicySource::Policy(name) if name == policy))
        };
        let wanted = survey.missing.iter().filter(|((_, sources), _)| wants(sources));
        let refused = |work: &&HoldTask| self.0.contains_key(&work.uid);
        let mut refused: Vec<&HoldTask> =
            wanted.flat_map(|(_, work)| work).filter(refused).collect();
        refused.sort_by_key(|work| (&work.namespace, &work.name));
        let first = refused.first()?;
        let resource = graph.kinds.info(first.kind).full_name();
        let name = match first.namespace.as_str() {
            "" => first.name.clone(),
            namespace => format!("{namespace}/{}", first.name),
        };
        let why = self.0[&first.uid].clone();
        let first = format!("{resource} {}", one_line_name(&name));
        Some(RefusedHolds { objects: refused.len(), first, why })
    }
}
