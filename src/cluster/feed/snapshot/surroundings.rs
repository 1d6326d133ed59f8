//! The surroundings of objects: everything that their deletion could cascade to or break,
//! whether a policy concerns it or not.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::value::RawValue;

use super::super::plan::{WatchScope, plan};
use super::Snapshot;
use crate::cluster::api::Detail;
use crate::cluster::world::{self, World};
use crate::graph::{Incomplete, Listing};
use crate::objects::{ApiError, KindId, KindInfo, full_name};
use crate::relations::ReadScope;

/// The number of lists that are read at the same time.
const CONCURRENT_LISTS: usize = 12;

/// How far to search.
#[derive(Debug, Clone, Default)]
pub struct SearchScope {
    /// The namespaces in which all of it happens; none: it may happen
    /// anywhere. An owner in a namespace owns nothing outside of it (R1), so
    /// outside only those kinds are read that can need something from there.
    pub namespaces: Option<BTreeSet<String>>,
    /// Whether to find objects in other namespaces that only mention them.
    pub mentions: bool,
}

/// What has been read.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// The kinds of which everything in a namespace was read, though not
    /// everything.
    pub in_namespace: HashSet<(KindId, String)>,
    /// Objects as the API server has them, of the kinds that were asked for.
    pub bodies: Vec<(KindId, Box<RawValue>)>,
    /// The reason for each kind that could not be read.
    pub unread: BTreeMap<String, String>,
}

/// What of a kind is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadNamespaces {
    Everywhere,
    Namespaces(BTreeSet<String>),
}

impl Snapshot {
    /// Reads the surroundings. Of the kinds in `bodies` (group, plural name) it returns
    /// whole objects as well. `report_progress` receives the numbers of kinds and objects
    /// read so far.
    pub async fn read_surroundings(
        &self,
        reach: &SearchScope,
        bodies: &[(&str, &str)],
        report_progress: impl Fn(usize, usize),
    ) -> Surroundings {
        let mut around = Surroundings::default();
        let mut done: HashSet<KindId> = HashSet::new();
        let (kinds, objects) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let near = &reach.namespaces.clone().unwrap_or_default();
        loop {
            let wanted: Vec<(KindId, ReadNamespaces)> = {
                let world = self.context.world.read();
                let mut wanted = wanted(&world, reach);
                let planned = plan(&world, &self.context.settings);
                let planned = planned.into_iter().filter(|(_, want)| *want == WatchScope::All);
                wanted.extend(planned.map(|(kind, _)| (kind, ReadNamespaces::Everywhere)));
                // Only the objects contain the kinds of their owners.
                let read = done.iter().chain(wanted.keys()).copied().collect::<Vec<_>>();
                let owners =
                    world.owners_of(read).into_iter().filter(|kind| is_listed(&world, *kind));
                for owner in owners {
                    wanted.entry(owner).or_insert(ReadNamespaces::Everywhere);
                }
                wanted.into_iter().filter(|(kind, _)| done.insert(*kind)).collect()
            };
            if wanted.is_empty() {
                return around;
            }
            let lists = wanted.into_iter().map(|(kind, place)| {
                let (report_progress, kinds, objects) = (&report_progress, &kinds, &objects);
                async move {
                    let read = self.list(kind, place, (near, reach.mentions), bodies).await;
                    let kinds = kinds.fetch_add(1, Ordering::Relaxed) + 1;
                    let count = read.objects;
                    report_progress(kinds, objects.fetch_add(count, Ordering::Relaxed) + count);
                    read
                }
            });
            let mut lists = stream::iter(lists).buffer_unordered(CONCURRENT_LISTS);
            while let Some(read) = lists.next().await {
                around.in_namespace.extend(read.in_namespace);
                around.bodies.extend(read.bodies);
                around.unread.extend(read.unread);
            }
        }
    }

    /// One kind: everywhere where that is wanted and allowed, and `near` where
    /// it is not allowed everywhere. Then the kind counts as read unless its objects elsewhere
    /// can matter.
    async fn list(
        &self,
        kind: KindId,
        place: ReadNamespaces,
        (near, mentions): (&BTreeSet<String>, bool),
        bodies: &[(&str, &str)],
    ) -> KindRead {
        let (info, detail) = {
            let world = self.context.world.read();
            (world.graph.kinds.info(kind).clone(), world.detail(kind))
        };
        let name = full_name(&info.group, &info.resource);
        let keep = bodies.contains(&(info.group.as_str(), info.resource.as_str()));
        let detail = if keep { Detail::Whole } else { detail };
        let mut read = KindRead::default();
        let mut objects = Vec::new();
        let (mut whole, mut why) = (false, String::new());
        let places = match &place {
            ReadNamespaces::Namespaces(places) => places.clone(),
            ReadNamespaces::Everywhere => match self.read_list(&info, detail, "", "").await {
                Ok(all) => {
                    whole = true;
                    objects = all;
                    BTreeSet::new()
                }
                Err(error) => {
                    why = error.reason_for_user();
                    read.unread = Some((name.clone(), why.clone()));
                    let smaller = matches!(error, ApiError::Forbidden(_)) && info.namespaced;
                    if smaller { near.clone() } else { BTreeSet::new() }
                }
            },
        };
        let mut missed = None;
        for namespace in &places {
            match self.read_list(&info, detail, namespace, "").await {
                Ok(some) => {
                    objects.extend(some);
                    read.in_namespace.push((kind, namespace.clone()));
                }
                Err(error) => missed = Some(error.reason_for_user()),
            }
        }
        match (missed, &mut read.unread) {
            (Some(missed), _) => {
                why.clone_from(&missed);
                read.unread = Some((name.clone(), missed));
            }
            (None, Some(_)) if read.in_namespace.is_empty() => {}
            (None, Some(_)) if !reaches_out(&self.context.world.read(), kind, mentions) => {
                read.unread = None;
                why.clear();
            }
            (None, Some((_, why))) => {
                let places: Vec<&str> = places.iter().map(String::as_str).collect();
                *why = ApiError::forbidden_outside(&places.join(", ")).to_string();
            }
            (None, _) => {}
        }
        read.objects = objects.len();
        self.take(kind, &name, objects, keep, &mut read);
        let mut world = self.context.world.write();
        match (whole, why.is_empty()) {
            (true, _) => world.graph.set_complete(kind, true),
            (false, true) => world.graph.set_incomplete(kind, "only one namespace was read"),
            (false, false) => world.graph.set_incomplete(kind, Incomplete::NotRead(why.into())),
        }
        read
    }

    fn take(
        &self,
        kind: KindId,
        name: &str,
        objects: Vec<Box<RawValue>>,
        keep: bool,
        read: &mut KindRead,
    ) {
        let mut listing = Listing::new(kind);
        for object in objects {
            let mut world = self.context.world.write();
            let World { graph, catalogue, .. } = &mut *world;
            match world::take(graph, catalogue, kind, object.get(), Some(&mut listing)) {
                Ok(node) => drop(node.map(|node| world.learn_owners(node))),
                Err(unreadable) => {
                    world.graph.set_unreadable(kind, &unreadable);
                    read.unread = Some((name.to_owned(), unreadable.describe()));
                    continue;
                }
            }
            if keep {
                read.bodies.push((kind, object));
            }
        }
    }
}

/// What came of one kind.
#[derive(Default)]
struct KindRead {
    in_namespace: Vec<(KindId, String)>,
    bodies: Vec<(KindId, Box<RawValue>)>,
    unread: Option<(String, String)>,
    objects: usize,
}

fn is_listed(world: &World, kind: KindId) -> bool {
    world.served.get(&kind).is_some_and(|served| served.list && served.watch)
        && world.graph.kinds.info(kind).resource != "events"
}

/// The kinds whose objects can need objects of other namespaces.
fn crossing(world: &World) -> impl Iterator<Item = KindId> {
    let World { graph, policies, .. } = world;
    let needers = graph.kinds.iter().flat_map(|(kind, _)| policies.user_kinds(&graph.kinds, kind));
    needers.filter(|(_, crosses)| *crosses).map(|(kind, _)| kind)
}

/// Whether objects of a kind in other namespaces can matter to those in one namespace.
pub(super) fn reaches_out(world: &World, kind: KindId, mentions: bool) -> bool {
    let KindInfo { group, resource, .. } = world.graph.kinds.info(kind);
    let named = |(of, plural): &(String, String)| of == group && plural == resource;
    let exists = world.policies.iter().flat_map(|policy| &policy.modes.while_exists);
    crossing(world).any(|crossing| crossing == kind)
        || mentions && world.catalogue.reads(kind) != ReadScope::Nothing
        || exists.flat_map(|exists| &exists.kinds).any(named)
}

/// The scope to read for each kind. R11: Events and kinds that can't be listed and
/// watched are ignored.
fn wanted(world: &World, reach: &SearchScope) -> BTreeMap<KindId, ReadNamespaces> {
    let World { graph, catalogue, .. } = world;
    let listed = || graph.kinds.iter().filter(|(kind, _)| is_listed(world, *kind));
    let Some(places) = &reach.namespaces else {
        return listed().map(|(kind, _)| (kind, ReadNamespaces::Everywhere)).collect();
    };
    let crossing: HashSet<KindId> = crossing(world).collect();
    let namespaces = graph.kinds.find("", "Namespace");
    let mut wanted = BTreeMap::new();
    for (kind, info) in listed() {
        let related = catalogue.reads(kind) != ReadScope::Nothing;
        let everywhere = crossing.contains(&kind)
            || Some(kind) == namespaces
            || related && (reach.mentions || !info.namespaced);
        if everywhere {
            wanted.insert(kind, ReadNamespaces::Everywhere);
        } else if info.namespaced {
            wanted.insert(kind, ReadNamespaces::Namespaces(places.clone()));
        }
    }
    wanted
}
