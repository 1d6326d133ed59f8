//! The kinds that each policy needs, and those that the API server does not serve.
//! belay computes them again after changes, in slices, so that other tasks can write in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::conditions::{PolicyCondition, watching};
use super::policies::KindsOfPolicy;
use crate::cluster::Context;
use crate::objects::KindId;
use crate::policy::PolicySource;

/// The number of policies in a slice.
const SLICE: usize = 64;

/// The needed kinds of each policy in force, by name.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The value of `Signals::changed` before the computation.
    changed: Option<u64>,
    policies: BTreeMap<String, PolicyKinds>,
}

#[derive(Debug)]
struct PolicyKinds {
    needs: BTreeSet<KindId>,
    unserved: Vec<String>,
}

pub(super) struct WatchedPolicy<'w> {
    pub(super) condition: PolicyCondition,
    /// The kinds that the API server does not serve.
    pub(super) unserved: &'w [String],
    /// The kinds whose objects are all known now.
    complete: BTreeSet<KindId>,
    /// Whether the first list of a kind is not complete.
    unread: bool,
}

impl WatchedPolicy<'_> {
    /// Whether a count with these complete kinds includes all objects that can be read.
    pub(super) fn is_counted_by(&self, counted: &BTreeSet<KindId>) -> bool {
        !self.unread && self.complete.is_subset(counted)
    }
}

impl Watched {
    /// Computes the kinds again after a change.
    pub(super) async fn refresh(&mut self, context: &Context, kinds_read_by: KindsOfPolicy) {
        // This is read first, so that a change meanwhile causes another update.
        let changed = Some(*context.signals.changed.borrow());
        if self.changed == changed {
            return;
        }
        let mut unserved = unserved_kinds(context);
        let mut policies = BTreeMap::new();
        for start in (0..).step_by(SLICE) {
            let count = {
                let world = context.world.read();
                let step = world.policies.iter().skip(start).take(SLICE);
                step.map(|policy| {
                    if let PolicySource::Policy(name) = &policy.source {
                        let unserved = unserved.remove(name).unwrap_or_default();
                        let kinds = PolicyKinds { needs: kinds_read_by(&world, policy), unserved };
                        policies.insert(name.clone(), kinds);
                    }
                })
                .count()
            };
            if count < SLICE {
                break;
            }
            tokio::task::yield_now().await;
        }
        *self = Self { changed, policies };
    }

    /// The kinds of each policy, by its name.
    pub(super) fn by_policy(&self, context: &Context) -> HashMap<&str, WatchedPolicy<'_>> {
        let world = context.world.read();
        let policies = self.policies.iter();
        policies
            .map(|(name, PolicyKinds { needs, unserved })| {
                let condition = watching(&world.graph, needs, unserved);
                let unread = needs.iter().any(|kind| world.graph.is_unread(*kind));
                let complete = needs.iter().copied().filter(|kind| world.graph.is_complete(*kind));
                let complete = complete.collect();
                (name.as_str(), WatchedPolicy { condition, unserved, complete, unread })
            })
            .collect()
    }
}

/// The kinds that the API server does not serve, by policy.
fn unserved_kinds(context: &Context) -> HashMap<String, Vec<String>> {
    let world = context.world.read();
    let mut unserved: HashMap<String, Vec<String>> = HashMap::new();
    for (source, kind) in world.policies.unknown_kinds(&world.graph.kinds) {
        if let PolicySource::Policy(name) = source {
            unserved.entry(name.clone()).or_default().push(kind);
        }
    }
    unserved
}
