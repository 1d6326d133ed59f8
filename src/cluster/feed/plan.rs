//! Decides which kinds belay watches: only the kinds that policies need.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::context::Settings;
use crate::cluster::world::World;
use crate::graph::Incomplete;
use crate::objects::{KindId, PROTECT_LABEL};
use crate::policy::{Policy, PolicySource};
use crate::relations::USUAL_DEPENDENTS;

/// Which objects of a kind belay watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchScope {
    /// All objects.
    All,
    /// Only objects with the label `belay.dev/protect`.
    Labelled,
}

impl WatchScope {
    /// The label selector.
    pub fn labels(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Labelled => PROTECT_LABEL,
        }
    }
}

/// Returns all kinds to watch now.
pub fn plan(world: &World, settings: &Settings) -> BTreeMap<KindId, WatchScope> {
    let mut wanted: BTreeSet<KindId> = kinds_of_every_verdict(world).collect();
    for policy in policies(world) {
        wanted.extend(needed_kinds(world, policy));
    }
    let labelled = labelled_kinds(world, &settings.labelled);
    wanted.extend(&world.kinds_with_holds);
    wanted.extend(world.owner_kinds_of(wanted.iter().chain(&labelled).copied()));
    let watchable = |kind: &KindId| world.served.get(kind).is_some_and(|served| served.watch);
    let labelled = labelled.into_iter().map(|kind| (kind, WatchScope::Labelled));
    let wanted = wanted.into_iter().map(|kind| (kind, WatchScope::All));
    labelled.chain(wanted).filter(|(kind, _)| watchable(kind)).collect()
}

/// The kinds whose labelled objects are watched.
pub fn labelled_kinds(world: &World, by_label: &[(String, String)]) -> BTreeSet<KindId> {
    let kinds = &world.graph.kinds;
    let labelled = by_label.iter();
    labelled.filter_map(|(group, resource)| kinds.find_resource(group, resource)).collect()
}

/// The kinds that policies name or whose labelled objects are watched.
pub fn protected_kinds(world: &World, by_label: &[(String, String)]) -> BTreeSet<KindId> {
    let named = policies(world).flat_map(|policy| target_kinds(world, policy));
    named.chain(labelled_kinds(world, by_label)).collect()
}

/// Whether belay knows all kinds that own protected objects: it has read the protected kinds and
/// the kinds of their owners, as far as it can, and `protected_owner_kinds` is up to date.
pub fn knows_owners(world: &World, by_label: &[(String, String)]) -> bool {
    let is_read = |kind: KindId| {
        let is_watchable = world.served.get(&kind).is_some_and(|served| served.watch);
        let has_failed = || matches!(world.graph.why_incomplete(kind), Incomplete::Failed(_));
        !is_watchable || world.watched.contains(&kind) || has_failed()
    };
    protected_kinds(world, by_label).into_iter().all(|kind| {
        let owners = world.owner_kinds_of([kind]);
        let is_known = |owner: &KindId| {
            world.protected_owner_kinds.contains(&(kind, *owner)) && is_read(*owner)
        };
        is_read(kind) && owners.iter().all(is_known)
    })
}

/// The policies that people have written.
pub fn policies(world: &World) -> impl Iterator<Item = &Policy> {
    world.policies.iter().filter(|policy| matches!(policy.source, PolicySource::Policy(_)))
}

/// The kinds that every verdict reads: Namespaces for their labels, and CRDs for the kinds
/// that exist.
fn kinds_of_every_verdict(world: &World) -> impl Iterator<Item = KindId> {
    let kinds = &world.graph.kinds;
    [kinds.namespace(), kinds.crd()].into_iter().flatten()
}

/// The kinds that a policy names in its targets.
pub fn target_kinds(world: &World, policy: &Policy) -> BTreeSet<KindId> {
    policy.kinds().flat_map(|(group, resource)| named_kinds(world, group, resource)).collect()
}

/// The kinds whose objects the verdicts of a policy read.
pub fn needed_kinds(world: &World, policy: &Policy) -> BTreeSet<KindId> {
    let targets = target_kinds(world, policy);
    let modes = &policy.modes;
    let mut needs = targets.clone();
    if modes.while_used.is_some() {
        let user_kinds =
            targets.iter().flat_map(|kind| world.policies.user_kinds(&world.graph.kinds, *kind));
        needs.extend(user_kinds.map(|(kind, _)| kind));
    }
    if modes.while_not_empty.is_some() {
        // A bound PersistentVolumeClaim counts as content under every policy.
        needs.extend(named_kinds(world, "", "persistentvolumeclaims"));
    }
    for (group, resource) in modes.while_exists.iter().flat_map(|exists| &exists.kinds) {
        needs.extend(named_kinds(world, group, resource));
    }
    if modes.from_orphaning {
        needs.extend(targets.iter().flat_map(|kind| dependent_kinds(world, *kind)));
    }
    needs.extend(kinds_of_every_verdict(world));
    needs
}

/// The kinds that a pair of group and resource names. Either may be `*`, which selects only
/// kinds that [`is_listed`] accepts.
pub fn named_kinds(world: &World, group: &str, resource: &str) -> Vec<KindId> {
    let kinds = &world.graph.kinds;
    if group != "*" && resource != "*" {
        return kinds.find_resource(group, resource).into_iter().collect();
    }
    let served = kinds.iter().filter(|(kind, info)| {
        let matches =
            (group == "*" || info.group == group) && (resource == "*" || info.resource == resource);
        matches && is_listed(world, *kind)
    });
    served.map(|(kind, _)| kind).collect()
}

/// Whether a kind can be listed and watched, and is not Event (R11).
pub fn is_listed(world: &World, kind: KindId) -> bool {
    world.served.get(&kind).is_some_and(|served| served.list && served.watch)
        && world.graph.kinds.info(kind).resource != "events"
}

/// The kinds of objects that an object of this kind may own, according to the catalogue.
fn dependent_kinds(world: &World, kind: KindId) -> Vec<KindId> {
    let kinds = &world.graph.kinds;
    let info = kinds.info(kind);
    let row = USUAL_DEPENDENTS
        .iter()
        .find(|(group, resource, _)| (*group, *resource) == (&info.group, &info.resource));
    let custom = || USUAL_DEPENDENTS.iter().find(|(group, _, _)| *group == "*");
    let owned = row.or_else(custom).map_or(&[][..], |(_, _, owned)| owned);
    owned.iter().filter_map(|(group, resource)| kinds.find_resource(group, resource)).collect()
}
