//! Which kinds are watched: those that policies need, and no others.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::context::Settings;
use crate::cluster::world::World;
use crate::objects::{KindId, PROTECT_LABEL};
use crate::policy::{Policy, PolicySource};
use crate::relations::OWNED;

/// What of a kind is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchScope {
    /// All its objects.
    All,
    /// Those with the label that protects.
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

/// Everything that is to be watched now.
pub fn plan(world: &World, settings: &Settings) -> BTreeMap<KindId, WatchScope> {
    let mut wanted: BTreeSet<KindId> = always(world).collect();
    for policy in policies(world) {
        wanted.extend(needs(world, policy));
    }
    let labelled = labelled(world, settings);
    wanted.extend(&world.held);
    wanted.extend(world.owners_of(wanted.iter().chain(&labelled).copied()));
    let watchable = |kind: &KindId| world.served.get(kind).is_some_and(|served| served.watch);
    let labelled = labelled.into_iter().map(|kind| (kind, WatchScope::Labelled));
    let wanted = wanted.into_iter().map(|kind| (kind, WatchScope::All));
    labelled.chain(wanted).filter(|(kind, _)| watchable(kind)).collect()
}

/// The kinds of which labelled objects are watched.
pub fn labelled(world: &World, settings: &Settings) -> BTreeSet<KindId> {
    let kinds = &world.graph.kinds;
    let labelled = settings.labelled.iter();
    labelled.filter_map(|(group, resource)| kinds.find_resource(group, resource)).collect()
}

/// The policies that people have written.
pub fn policies(world: &World) -> impl Iterator<Item = &Policy> {
    world.policies.iter().filter(|policy| matches!(policy.source, PolicySource::Policy(_)))
}

/// What every verdict reads: the labels of Namespaces, and which kinds are
/// there.
fn always(world: &World) -> impl Iterator<Item = KindId> {
    let kinds = &world.graph.kinds;
    let crds = kinds.find_resource("apiextensions.k8s.io", "customresourcedefinitions");
    [kinds.find_resource("", "namespaces"), crds].into_iter().flatten()
}

/// The kinds that a policy names in its targets.
pub fn targets(world: &World, policy: &Policy) -> BTreeSet<KindId> {
    policy.kinds().flat_map(|(group, resource)| named(world, group, resource)).collect()
}

/// The kinds whose objects the verdicts of a policy read.
pub fn needs(world: &World, policy: &Policy) -> BTreeSet<KindId> {
    let targets = targets(world, policy);
    let modes = &policy.modes;
    let mut needs = targets.clone();
    if modes.while_used.is_some() {
        let needers =
            targets.iter().flat_map(|kind| world.policies.user_kinds(&world.graph.kinds, *kind));
        needs.extend(needers.map(|(kind, _)| kind));
    }
    if modes.while_not_empty.is_some() {
        // A claim that is bound counts under whatever policy.
        needs.extend(named(world, "", "persistentvolumeclaims"));
    }
    for (group, resource) in modes.while_exists.iter().flat_map(|exists| &exists.kinds) {
        needs.extend(named(world, group, resource));
    }
    if modes.from_orphaning {
        needs.extend(targets.iter().flat_map(|kind| dependents(world, *kind)));
    }
    needs.extend(always(world));
    needs
}

/// The kinds that a pair of group and resource names, either of which may be
/// `*`. Of those that are not named one by one, only what can be watched;
/// Events are left out: they have no part in anything (R11).
pub fn named(world: &World, group: &str, resource: &str) -> Vec<KindId> {
    let kinds = &world.graph.kinds;
    if group != "*" && resource != "*" {
        return kinds.find_resource(group, resource).into_iter().collect();
    }
    let served = kinds.iter().filter(|(kind, info)| {
        let meant =
            (group == "*" || info.group == group) && (resource == "*" || info.resource == resource);
        meant
            && info.resource != "events"
            && world.served.get(kind).is_some_and(|served| served.list && served.watch)
    });
    served.map(|(kind, _)| kind).collect()
}

/// The kinds that one of this kind may own, without a look at any object.
fn dependents(world: &World, kind: KindId) -> Vec<KindId> {
    let kinds = &world.graph.kinds;
    let info = kinds.info(kind);
    let row = OWNED
        .iter()
        .find(|(group, resource, _)| (*group, *resource) == (&info.group, &info.resource));
    let custom = || OWNED.iter().find(|(group, _, _)| *group == "*");
    let owned = row.or_else(custom).map_or(&[][..], |(_, _, owned)| owned);
    owned.iter().filter_map(|(group, resource)| kinds.find_resource(group, resource)).collect()
}
