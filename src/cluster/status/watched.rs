//! The kinds that each policy needs, and those that the API server does not serve.
//! Recomputed after changes, in slices, so that other tasks can write between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::conditions::{PolicyCondition, watching};
use super::policies::KindsRead;
use crate::cluster::Context;
use crate::graph::Incomplete;
use crate::objects::KindId;
use crate::policy::PolicySource;

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

/// The kinds of one policy.
pub(super) struct WatchedPolicy<'w> {
    /// The condition Watching.
    pub(super) finding: PolicyCondition,
    /// The kinds that the API server does not serve.
    pub(super) unknown: &'w [String],
    /// Those of which all objects are known now.
    complete: BTreeSet<KindId>,
    /// Whether the first list of one is still being read.
    unread: bool,
}

impl WatchedPolicy<'_> {
    /// Whether a count with these complete kinds includes all objects that can be read.
    pub(super) fn is_read(&self, counted: &BTreeSet<KindId>) -> bool {
        !self.unread && self.complete.is_subset(counted)
    }
}

impl Watched {
    /// Works it out, if anything has changed.
    pub(super) async fn refresh(&mut self, context: &Context, needs: KindsRead) {
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
                    if let PolicySource::Policy(name) = &policy.source {
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

    /// The state of each policy, by its name.
    pub(super) fn findings(&self, context: &Context) -> HashMap<&str, WatchedPolicy<'_>> {
        let world = context.world.read();
        let policies = self.policies.iter();
        policies
            .map(|(name, ObjectName { needs, unknown })| {
                let finding = watching(&world.graph, needs, unknown);
                let is_unread = |kind: &&KindId| {
                    !world.graph.is_complete(**kind)
                        && world.graph.kinds.is_served(**kind)
                        && matches!(world.graph.why_incomplete(**kind), Incomplete::Unread)
                };
                let unread = needs.iter().any(|kind| is_unread(&kind));
                let complete = needs.iter().copied().filter(|kind| world.graph.is_complete(*kind));
                let complete = complete.collect();
                (name.as_str(), WatchedPolicy { finding, unknown, complete, unread })
            })
            .collect()
    }
}

/// The kinds that the API server does not serve, by policy.
fn unknown(context: &Context) -> HashMap<String, Vec<String>> {
    let world = context.world.read();
    let mut unknown: HashMap<String, Vec<String>> = HashMap::new();
    for (source, kind) in world.policies.unknown_kinds(&world.graph.kinds) {
        if let PolicySource::Policy(name) = source {
            unknown.entry(name.clone()).or_default().push(kind);
        }
    }
    unknown
}
