//! Objects without a hold that a policy wants, and objects with a hold that no policy wants.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cluster::feed::plan::{self, named};
use crate::cluster::world::World;
use crate::decide::{LiveReads, ObjectSource, Situation};
use crate::graph::NodeId;
use crate::hold::{HoldWant, hold_want, policies_wanting_hold, wants_hold};
use crate::objects::{HOLD, HoldAge, KindId, Uid, is_hold};
use crate::policy::{ObjectFacts, PolicySource};

/// So many objects are looked at before others get their turn: the world is
/// locked meanwhile.
pub const SLICE: usize = 500;

/// An object whose hold is not as it should be, as far as the graph says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldTask {
    pub kind: KindId,
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
    /// When it was created, in seconds since 1970.
    pub created: i64,
}

/// How far the holds of the policies are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Those that have the hold and nothing wants it there.
    pub surplus: Vec<HoldTask>,
    /// Those that have it under a former name.
    pub former: Vec<HoldTask>,
    /// Those that lack it, by their kind and by who wants it there.
    pub missing: BTreeMap<(KindId, Vec<PolicySource>), Vec<HoldTask>>,
    /// For each policy: of how many objects that are to have the hold how many
    /// have it.
    pub holding: HashMap<String, (usize, usize)>,
    /// The kinds of which an object has the hold.
    pub held: BTreeSet<KindId>,
    /// How many objects have it.
    pub held_objects: usize,
}

impl Survey {
    /// Looks at some objects. `now` is in seconds since 1970.
    pub fn look(&mut self, world: &World, nothing: &LiveReads, nodes: &[NodeId], now: i64) {
        let World { graph, policies, .. } = world;
        let situation = Situation::new(graph, policies, ObjectSource::Cluster(nothing), now);
        for node in nodes.iter().filter_map(|id| graph.get(*id)) {
            let held = node.hold() != HoldAge::NotHeld;
            if held {
                self.held.insert(node.kind());
                self.held_objects += 1;
            }
            if node.is_terminating() {
                continue;
            }
            let facts = ObjectFacts::of_node(node);
            let wanted = hold_want(&situation, facts);
            let work = || HoldTask {
                kind: node.kind(),
                namespace: node.namespace().to_owned(),
                name: node.name().to_owned(),
                uid: node.uid(),
                created: node.creation_time(),
            };
            if wanted == HoldWant::No {
                if held {
                    self.surplus.push(work());
                }
                continue;
            }
            if node.finalizers().iter().any(|f| f != HOLD && is_hold(f)) {
                self.former.push(work());
            }
            let applied = situation.policies_of(facts);
            let may_patch = world.patch_rights.allow(&node.info().group, &node.info().resource);
            if !held && wanted == HoldWant::Yes && may_patch {
                let place = (node.kind(), policies_wanting_hold(&applied));
                self.missing.entry(place).or_default().push(work());
            }
            for applied in applied {
                if let (true, PolicySource::Policy(name)) =
                    (wants_hold(&applied), &applied.policy.source)
                {
                    let (done, total) = self.holding.entry(name.clone()).or_default();
                    *done += usize::from(held);
                    *total += 1;
                }
            }
        }
    }

    /// What is to be looked at live: those that lack the hold, where those who want
    /// the backfill may add it, and the others. Tenants add holds as they please, and
    /// protection does not wait for their removal.
    pub fn work(&mut self, may: impl Fn(KindId, &[PolicySource]) -> bool) -> [Vec<HoldTask>; 2] {
        let missing = std::mem::take(&mut self.missing).into_iter();
        let missing = missing.filter(|((kind, sources), _)| may(*kind, sources));
        let mut others = std::mem::take(&mut self.former);
        others.append(&mut self.surplus);
        [missing.flat_map(|(_, missing)| missing).collect(), others]
    }
}

/// The first of each namespace, then the second of each, and so on; at most so
/// many.
pub fn take_turns<T>(all: Vec<T>, most: usize, namespace: impl Fn(&T) -> &str) -> Vec<T> {
    let mut turns: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<(usize, T)> = all
        .into_iter()
        .map(|one| {
            let turn = turns.entry(namespace(&one).to_owned()).or_default();
            *turn += 1;
            (*turn, one)
        })
        .collect();
    all.sort_by_key(|(turn, _)| *turn);
    all.into_iter().map(|(_, one)| one).take(most).collect()
}

/// The kinds that policies want holds on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldKinds {
    /// Those that get it.
    pub held: BTreeSet<KindId>,
    /// By name of the policy, the objects on which the hold would be unsafe.
    pub never: BTreeMap<String, BTreeSet<String>>,
    /// By name of the policy, those that belay's account may not patch.
    pub forbidden: BTreeMap<String, BTreeSet<String>>,
}

/// The kinds that policies want holds on.
pub fn kinds(world: &World) -> HeldKinds {
    let HeldKinds { mut held, mut never, mut forbidden } = HeldKinds::default();
    for policy in plan::policies(world).filter(|policy| policy.places_hold()) {
        for (group, resource) in policy.kinds() {
            for kind in named(world, group, resource) {
                let info = world.graph.kinds.info(kind);
                let is_hold_unsafe =
                    crate::decide::is_hold_unsafe_on_kind(&info.group, &info.resource);
                if !is_hold_unsafe && world.patch_rights.allow(&info.group, &info.resource) {
                    held.insert(kind);
                    continue;
                }
                let PolicySource::Policy(name) = &policy.source else { continue };
                let (of, kind) = match is_hold_unsafe {
                    true => (&mut never, info.resource.clone()),
                    false => (&mut forbidden, info.full_name()),
                };
                of.entry(name.clone()).or_default().insert(kind);
            }
        }
    }
    HeldKinds { held, never, forbidden }
}
