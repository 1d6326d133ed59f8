//! Objects to which belay could not add the hold, because the API server rejected the write.

use std::collections::HashMap;

use super::survey::{HoldTask, Survey};
use crate::cluster::holding::RefusedHolds;
use crate::graph::Graph;
use crate::objects::{Uid, one_line_name};
use crate::policy::PolicySource;

/// The maximum number of recorded refusals.
const MAX_REFUSALS: usize = 1_000;

/// The reason for each rejected object.
#[derive(Default)]
pub struct Refusals(HashMap<Uid, String>);

impl Refusals {
    pub fn add(&mut self, object: Uid, why: String) {
        if self.0.len() < MAX_REFUSALS {
            self.0.insert(object, why);
        }
    }

    pub fn remove(&mut self, object: Uid) {
        self.0.remove(&object);
    }

    /// Removes the objects that no longer lack the hold.
    pub fn retain(&mut self, survey: &Survey) {
        let missing = survey.missing.values().flatten();
        self.0 = missing.filter_map(|task| self.0.remove_entry(&task.uid)).collect();
    }

    /// The rejected objects to which this policy wants to add the hold.
    pub fn for_policy(&self, graph: &Graph, survey: &Survey, policy: &str) -> Option<RefusedHolds> {
        if self.0.is_empty() {
            return None;
        }
        let wants = |sources: &[PolicySource]| {
            sources
                .iter()
                .any(|source| matches!(source, PolicySource::Policy(name) if name == policy))
        };
        let wanted = survey.missing.iter().filter(|((_, sources), _)| wants(sources));
        let is_refused = |task: &&HoldTask| self.0.contains_key(&task.uid);
        let mut refused: Vec<&HoldTask> =
            wanted.flat_map(|(_, tasks)| tasks).filter(is_refused).collect();
        refused.sort_by_key(|task| (&task.namespace, &task.name));
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
