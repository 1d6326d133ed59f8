//! The state of the cluster, read once with the permissions of the caller. Commands decide from
//! it. It uses the code of the feed, so that a command and the replicas reach the same verdict
//! if they may read the same objects.

mod labelled;
mod surroundings;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::crds::{self, Crd};
use super::objects::{ObjectSink, resource};
use super::own_kinds::{self, OwnKind, OwnObjects, OwnSink};
use super::plan::{WatchScope, plan};
use super::rules_in_force::{self, OwnCrds, RulesInForce};
use super::watcher::WatchSink as _;
use crate::cluster::api;
use crate::cluster::api::Detail;
use crate::cluster::context::{Context, Settings};
use crate::cluster::decider::ClusterDecider;
use crate::cluster::discovery::Discovery;
use crate::cluster::journal::Journal;
use crate::cluster::list::{self, ListQuery};
use crate::cluster::live::Reader;
use crate::cluster::world::{self, ObjectKey, World};
use crate::decide::{Review, Verdict};
use crate::graph::{Incomplete, Listing, NodeId};
use crate::objects::{ApiError, CRDS, KindId, KindInfo, full_name};
use crate::policy::api::{DeletionApproval, DeletionPolicy, GROUP, kind_info};
use crate::policy::{Approval, Identities, Policy, Rules};
use crate::relations::CustomRelation;
use crate::webhook::Decider as _;

pub use self::surroundings::{SearchScope, Surroundings};

/// A world that is read once.
pub struct Snapshot {
    /// The context that parts of the cluster side need. It contains the world.
    pub context: Context,
    /// Reads live.
    pub reader: Reader,
    /// The groups whose server does not answer, so their kinds are incomplete.
    pub stale: HashSet<String>,
    /// For files: the kinds and namespaces that the files contain.
    pub kinds_in_files: Option<KindsInFiles>,
    own_objects: Arc<Mutex<OwnObjects>>,
    unread: Mutex<Vec<UnreadKind>>,
    /// The namespaces for which [`Self::read_objects`] was called.
    read_namespaces: Mutex<HashSet<String>>,
    /// The kinds whose objects were read in the whole cluster.
    complete_kinds: Mutex<HashMap<KindId, WatchScope>>,
    identities: Identities,
}

/// The kinds of which files contain objects, by group and plural, with the namespaces of these
/// objects.
pub type KindsInFiles = HashMap<(String, String), HashSet<String>>;

/// A kind whose objects could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadKind {
    /// The full name of the kind.
    pub resource: String,
    /// Why its objects could not be read.
    pub why: ApiError,
}

impl Snapshot {
    /// Reads belay's own objects and the served kinds, but no other objects. The error
    /// text names what could not be read.
    pub async fn read_rules(
        client: kube::Client,
        settings: Settings,
        identities: Identities,
    ) -> Result<Self, ApiError> {
        let mut snapshot = Self::empty(client, settings, identities);
        snapshot.refresh().await?;
        Ok(snapshot)
    }

    /// Reads belay's own objects and the served kinds again. Other objects stay.
    pub async fn refresh(&mut self) -> Result<(), ApiError> {
        self.read_kinds().await?;
        self.unread.get_mut().clear();
        *self.own_objects.lock() = OwnObjects::default();
        tokio::join!(
            self.read_own_kind(own_kinds::POLICIES),
            self.read_own_kind(own_kinds::RELATIONS),
            self.read_own_kind(own_kinds::APPROVALS),
            self.read_own_kind(own_kinds::PAUSES),
        );
        self.apply_own_objects()
    }

    /// Uses these policies and relations, and reads none from the cluster, so belay need not be
    /// installed there.
    pub async fn with_rules(
        client: kube::Client,
        settings: Settings,
        identities: Identities,
        policies: Vec<Policy>,
        relations: &[CustomRelation],
    ) -> Result<Self, ApiError> {
        let mut snapshot = Self::empty(client, settings, identities);
        snapshot.read_kinds().await?;
        snapshot.compile(policies, relations, |_| {})?;
        Ok(snapshot)
    }

    fn empty(client: kube::Client, settings: Settings, identities: Identities) -> Self {
        let context = Context::new(client, settings);
        let reader = Reader::new(context.clone());
        let (own_objects, unread, stale) = (Arc::default(), Mutex::default(), HashSet::new());
        let (read_namespaces, complete_kinds) = (Mutex::default(), Mutex::default());
        Self {
            context,
            reader,
            stale,
            kinds_in_files: None,
            own_objects,
            unread,
            read_namespaces,
            complete_kinds,
            identities,
        }
    }

    /// Reads the served kinds.
    async fn read_kinds(&mut self) -> Result<(), ApiError> {
        let discovery = Discovery::read(&self.context.client).await?;
        self.stale.clone_from(&discovery.unavailable_groups);
        let crds = self.crds().await;
        // A snapshot has seen no CRD before, so none was deleted.
        discovery.learn(&mut self.context.world.write(), &crds, &HashSet::new());
        Ok(())
    }

    /// Reads every kind that the policies need, and the kinds of owners. Without permission to
    /// list a kind in the whole cluster, it reads the namespace `near`, and the kind stays
    /// incomplete.
    pub async fn read_objects(&self, near: &str) {
        if !self.read_namespaces.lock().insert(near.to_owned()) {
            return;
        }
        let mut requested: HashSet<KindId> = HashSet::new();
        loop {
            let wanted: Vec<(KindId, WatchScope)> =
                plan(&self.context.world.read(), &self.context.settings)
                    .into_iter()
                    .filter(|(kind, _)| requested.insert(*kind))
                    .filter(|(kind, scope)| self.complete_kinds.lock().get(kind) != Some(scope))
                    .collect();
            if wanted.is_empty() {
                return;
            }
            // The objects that were just read may have owners of other kinds.
            join_all(wanted.into_iter().map(|(kind, scope)| self.read_kind(kind, scope, near)))
                .await;
        }
    }

    /// The kinds that could not be read, sorted.
    pub fn unread(&self) -> Vec<UnreadKind> {
        let mut unread = self.unread.lock().clone();
        unread.sort();
        unread.dedup();
        unread
    }

    /// Whether the API server serves belay's kinds, or may do so. This comes from discovery, which
    /// every user may read. A request for objects shows nothing: without permission, the API server
    /// answers it with 403 even if the kind is missing.
    pub fn is_installed(&self) -> bool {
        let world = self.context.world.read();
        let mut served = world.served.keys().map(|kind| world.graph.kinds.info(*kind));
        self.stale.contains(GROUP) || served.any(|info| info.group == GROUP)
    }

    /// Whether the files contain all objects of this kind in this namespace (empty:
    /// cluster-scoped); true without files. A dump may leave out kinds and namespaces. A dump with
    /// several namespaces counts as full.
    pub fn knows_all(&self, info: &KindInfo, namespace: &str) -> bool {
        let Some(kinds) = &self.kinds_in_files else { return true };
        let kind = (info.group.clone(), info.resource.clone());
        let Some(namespaces) = kinds.get(&kind) else { return false };
        let has_several_namespaces = || {
            let mut all = kinds.values().flatten().filter(|namespace| !namespace.is_empty());
            let first = all.next();
            all.any(|namespace| Some(namespace) != first)
        };
        !info.namespaced || namespaces.contains(namespace) || has_several_namespaces()
    }

    /// The kind, if the files contain no objects of it; `None` if they do, or without files.
    pub fn absent_from_files(&self, group: &str, resource: &str) -> Option<UnreadKind> {
        let found =
            self.kinds_in_files.as_ref()?.contains_key(&(group.to_owned(), resource.to_owned()));
        let why = ApiError::Other("the files have none".to_owned());
        (!found).then(|| UnreadKind { resource: full_name(group, resource), why })
    }

    /// Adds one object.
    pub fn insert(&self, kind: KindId, object: &Value) -> Option<NodeId> {
        let mut world = self.context.world.write();
        let World { graph, catalogue, .. } = &mut *world;
        world::store(graph, catalogue, kind, &object.to_string(), None).ok()?
    }

    /// Adds an object that is Terminating under the hold, as a watch would. Returns
    /// whether its release can begin.
    pub fn insert_waiting(&self, key: &ObjectKey, object: &Value) -> bool {
        let Context { world, signals, settings, .. } = &self.context;
        let grace = settings.timing.feed.grace;
        let mut objects = ObjectSink::new(world.clone(), key.0, true, signals.clone(), grace);
        if objects.change(&object.to_string()).is_err() {
            return false;
        }
        let waiting = &mut world.write().waiting;
        let Some(object) = waiting.objects.get_mut(key) else { return false };
        // A release that was already running must check again.
        object.changes += 1;
        waiting.changed.insert(key.clone());
        signals.waiting.notify_one();
        true
    }

    /// Reads the Namespace of this name and adds it; does nothing if the name is empty.
    pub async fn look_up_namespace(&self, name: &str) -> Result<(), ApiError> {
        let kind = self.context.world.read().graph.kinds.namespace();
        match kind.filter(|_| !name.is_empty()) {
            Some(kind) => self.look_up(kind, "", name).await.map(drop),
            None => Ok(()),
        }
    }

    /// Reads one object and adds it. Returns whether it exists.
    pub async fn look_up(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ApiError> {
        let info = self.context.world.read().graph.kinds.info(kind).clone();
        let detail = self.context.world.read().detail(kind);
        let read = api::object(&self.context.client, &info, namespace, name, detail);
        let json = read.await?;
        let mut world = self.context.world.write();
        let World { graph, catalogue, .. } = &mut *world;
        let Some(json) = json else {
            graph.delete(kind, namespace, name, None);
            return Ok(false);
        };
        let applied = world::store(graph, catalogue, kind, &json, None);
        let malformed =
            |_| ApiError::Unreadable("the object does not have the expected form".to_owned());
        Ok(applied.map_err(malformed)?.is_some())
    }

    /// Adds an approval that was just created.
    pub fn add_approval(&self, approval: DeletionApproval) {
        let name = approval.metadata.name.clone().unwrap_or_default();
        let mut own_objects = self.own_objects.lock();
        own_objects
            .approvals
            .all
            .extend(Approval::compile(&approval).map(|approval| (name, Ok(approval))));
        self.context.world.write().policies.approvals = rules_in_force::approvals(&own_objects);
    }

    /// Returns the verdict on a review, confirmed by live reads where necessary.
    pub async fn decide(&self, review: &Review<'_>, until: Instant) -> Verdict {
        let (journal, _entries) = Journal::new(self.context.metrics.clone());
        let reader = Arc::new(self.reader.clone());
        let decider = ClusterDecider::new(self.context.world.clone(), reader, journal);
        // The user may read all of these objects, so the verdict may name those of other
        // namespaces.
        decider.decide(review, until).await.with_other_namespaces()
    }

    /// Reads the kinds that CRDs define. Without permission, discovery remains, which may be some
    /// seconds old.
    async fn crds(&self) -> BTreeMap<String, Crd> {
        let info = self.context.world.read().kind_info(CRDS);
        let Some(info) = info else { return BTreeMap::new() };
        let objects = self.read_list(&info, Detail::Whole, "", "").await.unwrap_or_default();
        let read = objects.iter().filter_map(|object| crds::read(object.get()).ok());
        read.filter_map(|(name, crd)| Some((name, crd?))).collect()
    }

    async fn read_own_kind<K, T>(&self, own_kind: OwnKind<K, T>)
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
        T: Send,
    {
        let info = kind_info::<K>();
        let mut sink = OwnSink::new(self.own_objects.clone(), own_kind, Arc::new(Notify::new()));
        let query = ListQuery { info: &info, namespace: "", detail: Detail::Whole, labels: "" };
        match list::read_list(&self.context.client, query, add_json).await {
            Ok(objects) => {
                sink.begin();
                for object in objects {
                    // Fails only for an object without a name, and the API server stores none.
                    let _ = sink.add_listed(object.get());
                }
                sink.end();
            }
            Err(error) => {
                sink.failed(&error, std::time::Duration::ZERO);
                self.add_unread(info.full_name(), error);
            }
        }
    }

    fn apply_own_objects(&self) -> Result<(), ApiError> {
        let own_objects = self.own_objects.lock();
        let mut rules = RulesInForce::new(self.context.settings.timing.feed.thaw);
        rules.update(&own_objects, OwnCrds::Present, Instant::now());
        let unreadable_name = rules.first_unreadable(&own_objects);
        if let Some(unreadable_name) = &unreadable_name {
            let why = "another version of belay wrote it";
            self.add_unread(unreadable_name.clone(), ApiError::Unreadable(why.to_owned()));
        }
        let relations: Vec<_> = rules.relations.into_values().collect();
        let policies: Vec<_> = rules.policies.into_values().collect();
        self.compile(policies, &relations, |world| {
            world.policies.approvals = rules_in_force::approvals(&own_objects);
            world.policies.pauses = rules_in_force::pauses(&own_objects);
            world.loaded = own_objects.policies.synced && own_objects.relations.synced;
            world.policies_current = world.loaded && unreadable_name.is_none();
        })
    }

    /// Applies policies and relations, and calls `update` under the same lock, so that a release
    /// that counts meanwhile sees either all changes or none.
    fn compile(
        &self,
        policies: Vec<Policy>,
        relations: &[CustomRelation],
        update: impl FnOnce(&mut World),
    ) -> Result<(), ApiError> {
        let mut world = self.context.world.write();
        let (identities, labelled) = (self.identities.clone(), &self.context.settings.labelled);
        let rules =
            Rules::compile(&world.graph.kinds, relations, policies, identities, Some(labelled))
                .map_err(|error| {
                    ApiError::Other(format!("the relations cannot be compiled: {error}"))
                })?;
        rules.set_kept_annotations(&mut world.graph);
        (world.catalogue, world.policies) = (rules.catalogue, rules.policies);
        update(&mut world);
        Ok(())
    }

    /// The stored policies with their status.
    pub fn stored_policies(&self) -> Vec<DeletionPolicy> {
        self.own_objects.lock().policies.all.values().flatten().cloned().collect()
    }

    /// Reads the metadata of all objects of a kind.
    pub async fn read_metadata(&self, kind: KindId) -> Result<Vec<Box<RawValue>>, ApiError> {
        let info = self.context.world.read().graph.kinds.info(kind).clone();
        self.read_list(&info, Detail::Metadata, "", "").await
    }

    /// Reads the objects of one kind into the graph.
    async fn read_kind(&self, kind: KindId, scope: WatchScope, near: &str) {
        let (info, detail, name) = {
            let world = self.context.world.read();
            (world.graph.kinds.info(kind).clone(), world.detail(kind), resource(&world, kind))
        };
        let mut incomplete = None;
        let objects = match self.read_list(&info, detail, "", scope.labels()).await {
            Ok(objects) => objects,
            Err(error) => {
                incomplete = Some(Incomplete::from(error.clone()));
                let in_namespace = info.namespaced && !near.is_empty();
                let read_near = match matches!(error, ApiError::Forbidden(_)) && in_namespace {
                    true => self.read_list(&info, detail, near, scope.labels()).await,
                    false => Err(error.clone()),
                };
                if read_near.is_err() {
                    self.add_unread(name.clone(), error);
                } else if surroundings::crosses_namespaces(&self.context.world.read(), kind, false)
                {
                    self.add_unread(name.clone(), ApiError::forbidden_outside(near));
                }
                read_near.unwrap_or_default()
            }
        };
        let mut world = self.context.world.write();
        let mut listing = Listing::new(kind);
        let mut first_unreadable = None;
        for object in objects {
            let World { graph, catalogue, .. } = &mut *world;
            match world::store(graph, catalogue, kind, object.get(), Some(&mut listing)) {
                Ok(node) => drop(node.map(|node| world.learn_owner_kinds(node))),
                Err(unreadable) => {
                    world.graph.add_unreadable_to_listing(&mut listing, &unreadable);
                    first_unreadable.get_or_insert_with(|| unreadable.describe());
                }
            }
        }
        world.graph.end_listing(listing);
        if let Some(why) = first_unreadable {
            self.add_unread(name, ApiError::Unreadable(why));
        }
        if incomplete.is_none() {
            self.complete_kinds.lock().insert(kind, scope);
        }
        match (scope, incomplete) {
            (_, Some(why)) => world.graph.set_incomplete(kind, why),
            (WatchScope::All, None) => world.graph.set_complete(kind, true),
            (WatchScope::Labelled, None) => {
                world.graph.set_incomplete(kind, "only those with the label were read");
            }
        }
    }

    async fn read_list(
        &self,
        info: &KindInfo,
        detail: Detail,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Box<RawValue>>, ApiError> {
        let query = ListQuery { info, namespace, detail, labels };
        list::read_list_if_served(&self.context.client, query, add_json).await
    }

    fn add_unread(&self, resource: String, why: ApiError) {
        self.unread.lock().push(UnreadKind { resource, why });
    }
}

/// Appends the JSON of an object.
fn add_json(all: &mut Vec<Box<RawValue>>, json: &str) -> Result<(), ApiError> {
    let malformed =
        |_| ApiError::Unreadable("one of them does not have the expected form".to_owned());
    all.push(RawValue::from_string(json.to_owned()).map_err(malformed)?);
    Ok(())
}
