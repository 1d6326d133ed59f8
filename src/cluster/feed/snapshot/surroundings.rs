//! Reads the surroundings of objects: all objects that their deletion could cascade to or
//! break, with or without a policy.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::value::RawValue;

use super::super::plan::{WatchScope, is_listed, plan};
use super::Snapshot;
use crate::cluster::api::Detail;
use crate::cluster::world::{self, World};
use crate::graph::Incomplete;
use crate::objects::{ApiError, KindId, KindInfo, Object, Uid, full_name};
use crate::relations::ReadScope;

/// The number of lists that are read at the same time.
pub(super) const CONCURRENT_LISTS: usize = 12;

/// Where to search for affected objects.
#[derive(Debug, Clone, Default)]
pub struct SearchScope {
    /// The namespaces of all targets; `None`: a target may be cluster-scoped. A namespaced owner
    /// owns objects only in its own namespace (R1). So in other namespaces belay reads only the
    /// kinds whose objects can need objects of these namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// Whether to find objects in other namespaces that only mention targets.
    pub mentions: bool,
}

/// The result of reading the surroundings.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Kinds with the namespaces in which all of their objects were read.
    pub in_namespace: HashSet<(KindId, String)>,
    /// The JSON of the objects of the requested kinds.
    pub bodies: Vec<(KindId, Box<RawValue>)>,
    /// The reason for each kind that could not be read.
    pub unread: BTreeMap<String, String>,
    /// The resourceVersion of each object, by uid.
    pub versions: HashMap<Uid, String>,
}

/// In which namespaces to read a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadNamespaces {
    Everywhere,
    Namespaces(BTreeSet<String>),
}

impl Snapshot {
    /// Reads the surroundings. It also returns the JSON of objects of the kinds in `bodies`
    /// (group and plural). `report_progress` receives the numbers of kinds and objects read so
    /// far.
    pub async fn read_surroundings(
        &self,
        scope: &SearchScope,
        bodies: &[(&str, &str)],
        report_progress: impl Fn(usize, usize),
    ) -> Surroundings {
        let mut surroundings = Surroundings::default();
        let mut requested: HashSet<KindId> = HashSet::new();
        let (kinds, objects) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let near = &scope.namespaces.clone().unwrap_or_default();
        loop {
            let wanted: Vec<(KindId, ReadNamespaces)> = {
                let world = self.context.world.read();
                let mut wanted = wanted(&world, scope);
                let planned = plan(&world, &self.context.settings);
                let planned =
                    planned.into_iter().filter(|(_, watch_scope)| *watch_scope == WatchScope::All);
                wanted.extend(planned.map(|(kind, _)| (kind, ReadNamespaces::Everywhere)));
                // The objects that were just read may have owners of other kinds.
                let read = requested.iter().chain(wanted.keys()).copied().collect::<Vec<_>>();
                let owners =
                    world.owner_kinds_of(read).into_iter().filter(|kind| is_listed(&world, *kind));
                for owner in owners {
                    wanted.entry(owner).or_insert(ReadNamespaces::Everywhere);
                }
                wanted.into_iter().filter(|(kind, _)| requested.insert(*kind)).collect()
            };
            if wanted.is_empty() {
                return surroundings;
            }
            let lists = wanted.into_iter().map(|(kind, namespaces)| {
                let (report_progress, kinds, objects) = (&report_progress, &kinds, &objects);
                async move {
                    let read = self.read_in(kind, namespaces, (near, scope.mentions), bodies).await;
                    let kinds = kinds.fetch_add(1, Ordering::Relaxed) + 1;
                    let count = read.objects;
                    report_progress(kinds, objects.fetch_add(count, Ordering::Relaxed) + count);
                    read
                }
            });
            let mut lists = stream::iter(lists).buffer_unordered(CONCURRENT_LISTS);
            while let Some(read) = lists.next().await {
                surroundings.in_namespace.extend(read.in_namespace);
                surroundings.bodies.extend(read.bodies);
                surroundings.unread.extend(read.unread);
                surroundings.versions.extend(read.versions);
            }
        }
    }

    /// Reads one kind in these namespaces. If the caller may not list it in the whole cluster,
    /// belay reads the namespaces `near`. The kind then counts as read, unless its objects in
    /// other namespaces can be affected.
    async fn read_in(
        &self,
        kind: KindId,
        namespaces: ReadNamespaces,
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
        let (mut is_complete, mut why) = (false, String::new());
        let namespaces = match &namespaces {
            ReadNamespaces::Namespaces(namespaces) => namespaces.clone(),
            ReadNamespaces::Everywhere => match self.read_list(&info, detail, "", "").await {
                Ok(all) => {
                    is_complete = true;
                    objects = all;
                    BTreeSet::new()
                }
                Err(error) => {
                    why = error.reason_for_user();
                    read.unread = Some((name.clone(), why.clone()));
                    let read_near = matches!(error, ApiError::Forbidden(_)) && info.namespaced;
                    if read_near { near.clone() } else { BTreeSet::new() }
                }
            },
        };
        let mut failed = None;
        for namespace in &namespaces {
            match self.read_list(&info, detail, namespace, "").await {
                Ok(some) => {
                    objects.extend(some);
                    read.in_namespace.push((kind, namespace.clone()));
                }
                Err(error) => failed = Some(error.reason_for_user()),
            }
        }
        match (failed, &mut read.unread) {
            (Some(failed), _) => {
                why.clone_from(&failed);
                read.unread = Some((name.clone(), failed));
            }
            (None, Some(_)) if read.in_namespace.is_empty() => {}
            (None, Some(_)) if !crosses_namespaces(&self.context.world.read(), kind, mentions) => {
                read.unread = None;
                why.clear();
            }
            (None, Some((_, why))) => {
                let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
                *why = ApiError::forbidden_outside(&namespaces.join(", ")).to_string();
            }
            (None, _) => {}
        }
        read.objects = objects.len();
        self.add_objects(kind, &name, objects, keep, &mut read);
        let mut world = self.context.world.write();
        match (is_complete, why.is_empty()) {
            (true, _) => world.graph.set_complete(kind, true),
            (false, true) => world.graph.set_incomplete(kind, "only some namespaces were read"),
            (false, false) => world.graph.set_incomplete(kind, Incomplete::OtherReason(why.into())),
        }
        read
    }

    fn add_objects(
        &self,
        kind: KindId,
        name: &str,
        objects: Vec<Box<RawValue>>,
        keep: bool,
        read: &mut KindRead,
    ) {
        for object in objects {
            let mut world = self.context.world.write();
            let World { graph, catalogue, .. } = &mut *world;
            match world::store(graph, catalogue, kind, object.get(), None) {
                Ok(node) => drop(node.map(|node| world.learn_owner_kinds(node))),
                Err(unreadable) => {
                    world.graph.set_unreadable(kind, &unreadable);
                    read.unread = Some((name.to_owned(), unreadable.describe()));
                    continue;
                }
            }
            if let Ok(Object { metadata, .. }) = serde_json::from_str(object.get()) {
                let version = metadata.resource_version.to_string();
                read.versions.push((Uid::new(&metadata.uid), version));
            }
            if keep {
                read.bodies.push((kind, object));
            }
        }
    }
}

/// The result of reading one kind.
#[derive(Default)]
struct KindRead {
    in_namespace: Vec<(KindId, String)>,
    bodies: Vec<(KindId, Box<RawValue>)>,
    unread: Option<(String, String)>,
    versions: Vec<(Uid, String)>,
    objects: usize,
}

/// The kinds whose objects can need objects of other namespaces.
fn kinds_crossing_namespaces(world: &World) -> impl Iterator<Item = KindId> {
    let World { graph, policies, .. } = world;
    let users = graph.kinds.iter().flat_map(|(kind, _)| policies.user_kinds(&graph.kinds, kind));
    users.filter(|(_, crosses)| *crosses).map(|(kind, _)| kind)
}

/// Whether objects of a kind can need, mention or block objects of other namespaces.
pub(super) fn crosses_namespaces(world: &World, kind: KindId, mentions: bool) -> bool {
    let KindInfo { group, resource, .. } = world.graph.kinds.info(kind);
    let named =
        |(named_group, plural): &(String, String)| named_group == group && plural == resource;
    let exists = world.policies.iter().flat_map(|policy| &policy.modes.while_exists);
    kinds_crossing_namespaces(world).any(|crossing| crossing == kind)
        || mentions && world.catalogue.reads(kind) != ReadScope::Nothing
        || exists.flat_map(|exists| &exists.kinds).any(named)
}

/// The namespaces to read for each kind. Events, and kinds that can't be listed and watched,
/// are ignored (R11).
fn wanted(world: &World, scope: &SearchScope) -> BTreeMap<KindId, ReadNamespaces> {
    let World { graph, catalogue, .. } = world;
    let listed = || graph.kinds.iter().filter(|(kind, _)| is_listed(world, *kind));
    let Some(scope_namespaces) = &scope.namespaces else {
        return listed().map(|(kind, _)| (kind, ReadNamespaces::Everywhere)).collect();
    };
    let crossing: HashSet<KindId> = kinds_crossing_namespaces(world).collect();
    let namespaces = graph.kinds.namespace();
    let mut wanted = BTreeMap::new();
    for (kind, info) in listed() {
        let has_relations = catalogue.reads(kind) != ReadScope::Nothing;
        let everywhere = crossing.contains(&kind)
            || Some(kind) == namespaces
            || has_relations && (scope.mentions || !info.namespaced);
        if everywhere {
            wanted.insert(kind, ReadNamespaces::Everywhere);
        } else if info.namespaced {
            wanted.insert(kind, ReadNamespaces::Namespaces(scope_namespaces.clone()));
        }
    }
    wanted
}
