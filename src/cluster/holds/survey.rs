//! Objects without a hold that a policy wants, and objects with a hold that no policy wants.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cluster::feed::plan::{self, named_kinds};
use crate::cluster::holding::HoldCounts;
use crate::cluster::world::World;
use crate::decide::{LiveReads, ObjectSource, Situation};
use crate::graph::NodeId;
use crate::hold::{DesiredHold, desired_hold, policies_wanting_hold};
use crate::objects::{HOLD, KindId, Uid, in_turns, is_hold};
use crate::policy::api::OnDelete;
use crate::policy::{AppliedPolicy, ObjectFacts, PolicySource};

/// The number of objects that are surveyed under one lock of the world.
pub const SLICE: usize = 500;

/// An object whose hold must be added, removed or renamed, according to the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldTask {
    pub kind: KindId,
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
    /// The creation time in seconds since 1970.
    pub created: i64,
}

/// The holds of all objects, compared with the policies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Objects with a hold that no policy wants.
    pub surplus: Vec<HoldTask>,
    /// Objects with the hold under its former name.
    pub former: Vec<HoldTask>,
    /// Objects that lack the hold, by kind and by the policies that want it.
    pub missing: BTreeMap<(KindId, Vec<PolicySource>), Vec<HoldTask>>,
    pub counts_by_policy: HashMap<String, HoldCounts>,
    /// The number of objects that have the hold.
    pub object_count: usize,
    /// The value of `Signals::changed` before the survey.
    pub generation: u64,
    /// The kinds whose first list had not ended before the survey.
    pub unread: BTreeSet<KindId>,
}

impl Survey {
    /// Adds objects to the survey. `now` is in seconds since 1970.
    pub fn add(&mut self, world: &World, no_reads: &LiveReads, nodes: &[NodeId], now: i64) {
        let World { graph, policies, .. } = world;
        let situation = Situation::new(graph, policies, ObjectSource::Cluster(no_reads), now);
        for node in nodes.iter().filter_map(|id| graph.get(*id)) {
            let held = node.is_held();
            if held {
                self.object_count += 1;
            }
            let facts = ObjectFacts::of_node(node);
            if node.is_terminating() {
                let applied = if held { situation.policies_of(facts) } else { Vec::new() };
                for applied in applied {
                    let Some(counts) = self.counts(&applied) else { continue };
                    counts.terminating += 1;
                }
                continue;
            }
            let desired = desired_hold(&situation, facts);
            let task = || HoldTask {
                kind: node.kind(),
                namespace: node.namespace().to_owned(),
                name: node.name().to_owned(),
                uid: node.uid(),
                created: node.creation_time(),
            };
            if desired == DesiredHold::Absent {
                if held {
                    self.surplus.push(task());
                }
                continue;
            }
            if node.finalizers().iter().any(|f| f != HOLD && is_hold(f)) {
                self.former.push(task());
            }
            let applied = situation.policies_of(facts);
            let may_patch = world.patch_rights.allow(&node.info().group, &node.info().resource);
            if !held && desired == DesiredHold::Present && may_patch {
                let key = (node.kind(), policies_wanting_hold(&applied));
                self.missing.entry(key).or_default().push(task());
            }
            for applied in applied {
                let Some(counts) = self.counts(&applied) else { continue };
                counts.done += usize::from(held);
                counts.total += 1;
                let in_use = applied.policy.modes.while_used.as_ref();
                if in_use.is_some_and(|in_use| in_use.on_delete == OnDelete::Hold) {
                    let effective = node.hold().effective_in(now).map(|seconds| now + seconds);
                    counts.effective_at = counts.effective_at.max(effective);
                }
            }
        }
    }

    /// The counts of a policy; `None` if it wants no hold on the object, and for the label.
    fn counts(&mut self, applied: &AppliedPolicy<'_>) -> Option<&mut HoldCounts> {
        let PolicySource::Policy(name) = &applied.policy.source else { return None };
        applied.wants_hold().then(|| self.counts_by_policy.entry(name.clone()).or_default())
    }

    /// Takes the objects to read live: those that lack the hold, if `may_add` permits the backfill,
    /// and those with a surplus or former hold. The two parts are separate, because tenants can
    /// add many holds, and protection must not wait for the removal of these holds.
    pub fn take_tasks(
        &mut self,
        may_add: impl Fn(KindId, &[PolicySource]) -> bool,
    ) -> [Vec<HoldTask>; 2] {
        let missing = std::mem::take(&mut self.missing).into_iter();
        let missing = missing.filter(|((kind, sources), _)| may_add(*kind, sources));
        let mut others = std::mem::take(&mut self.former);
        others.append(&mut self.surplus);
        [missing.flat_map(|(_, missing)| missing).collect(), others]
    }
}

/// Orders items so that namespaces take turns: the first item of each namespace, then the second
/// of each, and so on. Returns at most `limit` items.
pub fn take_turns<T>(all: Vec<T>, limit: usize, namespace: impl Fn(&T) -> &str) -> Vec<T> {
    let order = in_turns(all.iter().map(&namespace));
    let mut all: Vec<Option<T>> = all.into_iter().map(Some).collect();
    order.into_iter().take(limit).filter_map(|position| all.get_mut(position)?.take()).collect()
}

/// The kinds that policies want holds on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldKinds {
    /// The kinds whose objects get the hold.
    pub with_hold: BTreeSet<KindId>,
    /// By policy: the kinds on which a hold would be unsafe.
    pub unsafe_kinds: BTreeMap<String, BTreeSet<String>>,
    /// By policy: the kinds that belay's account may not patch.
    pub forbidden: BTreeMap<String, BTreeSet<String>>,
}

/// Finds the kinds that policies want holds on.
pub fn find_held_kinds(world: &World) -> HeldKinds {
    let HeldKinds { mut with_hold, mut unsafe_kinds, mut forbidden } = HeldKinds::default();
    for policy in plan::policies(world).filter(|policy| policy.places_hold()) {
        for (group, resource) in policy.kinds() {
            for kind in named_kinds(world, group, resource) {
                let info = world.graph.kinds.info(kind);
                let is_hold_unsafe =
                    crate::decide::is_hold_unsafe_on_kind(&info.group, &info.resource);
                if !is_hold_unsafe && world.patch_rights.allow(&info.group, &info.resource) {
                    with_hold.insert(kind);
                    continue;
                }
                let PolicySource::Policy(name) = &policy.source else { continue };
                let (kinds, kind) = match is_hold_unsafe {
                    true => (&mut unsafe_kinds, info.resource.clone()),
                    false => (&mut forbidden, info.full_name()),
                };
                kinds.entry(name.clone()).or_default().insert(kind);
            }
        }
    }
    HeldKinds { with_hold, unsafe_kinds, forbidden }
}
