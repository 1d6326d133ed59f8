//! The kinds that each policy needs, and those that the API server does not serve.
//! Recomputed after changes, in slices, so that other tasks can write between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::conditions::{Finding, watching};
use super::policies::Needs;
use crate::cluster::Context;
use crate::objects::KindId;
use crate::policy::Source;

/// Policies per slice.
const STEP: usize = 64;

/// The needed kinds of each policy in force, by name.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The value of `Signals::changed` that this follows from.
    changed: Option<u64>,
    policies: BTreeMap<String, ObjectName>,
}

#[derive(Debug)]
struct ObjectName {
    needs: BTreeSet<KindId>,
    unknown: Vec<String>,
}

impl Watched {
    /// Works it out, if anything has changed.
    pub(super) async fn refresh(&mut self, context: &Context, needs: Needs) {
        // Read first, so that a change meanwhile causes another update.
        let changed = Some(*context.signals.changed.borrow());
        if self.changed == changed {
            return;
        }
        let mut unknown = unknown(context);
        let mut policies = BTreeMap::new();
        for start in (0..).step_by(STEP) {
            let looked_at = {
                let world = context.world.read();
                let step = world.policies.iter().skip(start).take(STEP);
                step.map(|policy| {
                    if let Source::Policy(name) = &policy.source {
                        let unknown = unknown.remove(name).unwrap_or_default();
                        let named = ObjectName { needs: needs(&world, policy), unknown };
                        policies.insert(name.clone(), named);
                    }
                })
                .count()
            };
            if looked_at < STEP {
                break;
            }
            tokio::task::yield_now().await;
        }
        *self = Self { changed, policies };
    }

    /// The condition of each policy, and its unknown kinds.
    pub(super) fn findings(&self, context: &Context) -> HashMap<&str, (Finding, &[String])> {
        let world = context.world.read();
        let policies = self.policies.iter();
        policies
            .map(|(name, ObjectName { needs, unknown })| {
                let finding = watching(&world.graph, needs, unknown);
                (name.as_str(), (finding, unknown.as_slice()))
            })
            .collect()
    }
}

/// The kinds that the API server does not serve, by policy.
fn unknown(context: &Context) -> HashMap<String, Vec<String>> {
    let world = context.world.read();
    let mut unknown: HashMap<String, Vec<String>> = HashMap::new();
    for (source, kind) in world.policies.unknown_kinds(&world.graph.kinds) {
        if let Source::Policy(name) = source {
            unknown.entry(name.clone()).or_default().push(kind);
        }
    }
    unknown
}
