//! The state of the cluster at one moment, read with the permissions of the caller.
//! Commands decide from it. It uses the code of the feed, so that a command and the
//! replicas come to the same verdict where they may read the same objects.

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
use super::effective::{self, EffectiveRules, OwnCrds};
use super::objects::{ObjectSink, resource};
use super::own_kinds::{self, OwnKind, OwnObjects, OwnSink};
use super::plan::{WatchScope, plan};
use super::watcher::WatchSink as _;
use crate::cluster::api;
use crate::cluster::api::Detail;
use crate::cluster::context::{Context, Settings, Signals};
use crate::cluster::decider::ClusterDecider;
use crate::cluster::discovery::Discovery;
use crate::cluster::journal::Journal;
use crate::cluster::list::{self, ListQuery};
use crate::cluster::live::Reader;
use crate::cluster::world::{self, ObjectKey, SharedWorld, World};
use crate::decide::{Review, Verdict};
use crate::graph::{Incomplete, Listing, NodeId};
use crate::objects::{ApiError, KindId, KindInfo, full_name};
use crate::policy::api::{DeletionApproval, DeletionPolicy, GROUP};
use crate::policy::{Approval, Identities, Policy, Rules};
use crate::relations::CustomRelation;
use crate::telemetry::{Metrics, Readiness};
use crate::webhook::Decider as _;

pub use self::surroundings::{SearchScope, Surroundings};

/// The world, read once.
pub struct Snapshot {
    /// What the parts of the cluster side share, and the world in it.
    pub context: Context,
    /// Reads live.
    pub reader: Reader,
    /// The groups whose server does not answer, so their kinds are incomplete.
    pub stale: HashSet<String>,
    /// For files: the kinds and namespaces that the files contain.
    pub held: Option<KindsInFiles>,
    own_objects: Arc<Mutex<OwnObjects>>,
    unread: Mutex<Vec<UnreadKind>>,
    /// The namespaces near which objects were read.
    near: Mutex<HashSet<String>>,
    /// The kinds that were read in the whole cluster.
    whole: Mutex<HashMap<KindId, WatchScope>>,
    identities: Identities,
}

/// The kinds of which files have anything, by group and plural, and the
/// namespaces in which they do.
pub type KindsInFiles = HashMap<(String, String), HashSet<String>>;

/// A kind of which the objects could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadKind {
    /// Its name, with its group.
    pub resource: String,
    /// Why.
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

    /// Reads the same again. Objects that were read stay.
    pub async fn refresh(&mut self) -> Result<(), ApiError> {
        self.read_kinds().await?;
        self.unread.get_mut().clear();
        *self.own_objects.lock() = OwnObjects::default();
        tokio::join!(
            self.read_own(own_kinds::POLICIES),
            self.read_own(own_kinds::RELATIONS),
            self.read_own(own_kinds::APPROVALS),
            self.read_own(own_kinds::PAUSES),
        );
        self.put_in_force()
    }

    /// As if these were all that people have written; what they have is not
    /// read, and nothing of belay need be there.
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

    /// With nothing in it.
    fn empty(client: kube::Client, settings: Settings, identities: Identities) -> Self {
        let context = Context {
            client,
            world: SharedWorld::default(),
            settings: Arc::new(settings),
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            signals: Arc::new(Signals::default()),
        };
        let reader = Reader::new(context.clone());
        let (own_objects, unread, stale) = (Arc::default(), Mutex::default(), HashSet::new());
        let (near, whole) = (Mutex::default(), Mutex::default());
        Self { context, reader, stale, held: None, own_objects, unread, near, whole, identities }
    }

    /// Reads which kinds there are.
    async fn read_kinds(&mut self) -> Result<(), ApiError> {
        let discovery = Discovery::read(&self.context.client).await?;
        self.stale.clone_from(&discovery.stale);
        let crds = self.crds().await;
        // Nothing that once was is remembered here, so no kind has vanished.
        discovery.learn(&mut self.context.world.write(), &crds, &HashSet::new());
        Ok(())
    }

    /// Reads every kind that the policies need, and the kinds of owners. Without
    /// permission to list a kind in the whole cluster, it reads the namespace `near`:
    /// objects found there exist, but others may exist elsewhere.
    pub async fn objects(&self, near: &str) {
        if !self.near.lock().insert(near.to_owned()) {
            return;
        }
        let mut done: HashSet<KindId> = HashSet::new();
        loop {
            let wanted: Vec<(KindId, WatchScope)> =
                plan(&self.context.world.read(), &self.context.settings)
                    .into_iter()
                    .filter(|(kind, _)| done.insert(*kind))
                    .filter(|(kind, want)| self.whole.lock().get(kind) != Some(want))
                    .collect();
            if wanted.is_empty() {
                return;
            }
            // Only the objects contain the kinds of their owners.
            join_all(wanted.into_iter().map(|(kind, want)| self.read_kind(kind, want, near))).await;
        }
    }

    /// What could not be read, in a steady order.
    pub fn unread(&self) -> Vec<UnreadKind> {
        let mut unread = self.unread.lock().clone();
        unread.sort();
        unread.dedup();
        unread
    }

    /// Whether the API server serves belay's kinds, as far as known. Every user may read
    /// discovery. For a missing kind without permission, the API server answers 403.
    pub fn is_installed(&self) -> bool {
        let world = self.context.world.read();
        let mut served = world.served.keys().map(|kind| world.graph.kinds.info(*kind));
        self.stale.contains(GROUP) || served.any(|info| info.group == GROUP)
    }

    /// Whether an object of a kind that is not in a namespace (empty: cluster-scoped)
    /// surely does not exist. A dump may leave out kinds and namespaces.
    pub fn knows_all(&self, info: &KindInfo, namespace: &str) -> bool {
        let Some(held) = &self.held else { return true };
        let kind = (info.group.clone(), info.resource.clone());
        let Some(places) = held.get(&kind) else { return false };
        let several = || {
            let mut all = held.values().flatten().filter(|place| !place.is_empty());
            let first = all.next();
            all.any(|place| Some(place) != first)
        };
        !info.namespaced || places.contains(namespace) || several()
    }

    /// That files have nothing of a kind; none: they have, or a cluster is read.
    pub fn not_held(&self, group: &str, resource: &str) -> Option<UnreadKind> {
        let held = self.held.as_ref()?.contains_key(&(group.to_owned(), resource.to_owned()));
        let why = ApiError::Other("the files have none".to_owned());
        (!held).then(|| UnreadKind { resource: full_name(group, resource), why })
    }

    /// Puts one object in, as the API server has it now.
    pub fn put(&self, kind: KindId, object: &Value) -> Option<NodeId> {
        let mut world = self.context.world.write();
        let World { graph, catalogue, .. } = &mut *world;
        world::take(graph, catalogue, kind, &object.to_string(), None).ok()?
    }

    /// Adds an object that is Terminating under the hold, as a watch would. Returns
    /// whether its release can begin.
    pub fn put_waiting(&self, place: &ObjectKey, object: &Value) -> bool {
        let Context { world, signals, settings, .. } = &self.context;
        let grace = settings.timing.feed.grace;
        let mut objects = ObjectSink::new(world.clone(), place.0, true, signals.clone(), grace);
        if objects.change(&object.to_string()).is_err() {
            return false;
        }
        let waiting = &mut world.write().waiting;
        let Some(seen) = waiting.seen.get_mut(place) else { return false };
        // A release that has begun before looks now.
        seen.changes += 1;
        waiting.changed.insert(place.clone());
        signals.waiting.notify_one();
        true
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
        let taken = world::take(graph, catalogue, kind, &json, None);
        let odd = |_| ApiError::Unreadable("the object does not have the expected form".to_owned());
        Ok(taken.map_err(odd)?.is_some())
    }

    /// Adds an approval that was just created.
    pub fn approve(&self, approval: DeletionApproval) {
        let name = approval.metadata.name.clone().unwrap_or_default();
        let mut own_objects = self.own_objects.lock();
        own_objects
            .approvals
            .all
            .extend(Approval::compile(&approval).map(|approval| (name, Ok(approval))));
        self.context.world.write().policies.approvals = effective::approvals(&own_objects);
    }

    /// The verdict on a review, confirmed by live reads where it has to be.
    pub async fn decide(&self, review: &Review<'_>, until: Instant) -> Verdict {
        let (journal, _entries) = Journal::new(self.context.metrics.clone());
        let reader = Arc::new(self.reader.clone());
        let decider = ClusterDecider::new(self.context.world.clone(), reader, journal);
        // Everything here was read with the rights of the user.
        decider.decide(review, until).await.with_other_namespaces()
    }

    /// The kinds of CRDs. Without permission to read them, discovery is used, which is
    /// some seconds older.
    async fn crds(&self) -> BTreeMap<String, Crd> {
        let info = {
            let world = self.context.world.read();
            let kinds = &world.graph.kinds;
            let kind = kinds.find_resource("apiextensions.k8s.io", "customresourcedefinitions");
            kind.map(|kind| kinds.info(kind).clone())
        };
        let Some(info) = info else { return BTreeMap::new() };
        let objects = self.read_list(&info, Detail::Whole, "", "").await.unwrap_or_default();
        let read = objects.iter().filter_map(|object| crds::read(object.get()).ok());
        read.filter_map(|(name, definition)| Some((name, definition?))).collect()
    }

    async fn read_own<K, T>(&self, part: OwnKind<K, T>)
    where
        K: kube::Resource + DeserializeOwned,
        T: Send,
    {
        let (info, resource) = (part.info(), part.resource);
        let mut sink = OwnSink::new(self.own_objects.clone(), part, Arc::new(Notify::new()));
        match self.read_list(&info, Detail::Whole, "", "").await {
            Ok(objects) => {
                sink.begin();
                for object in objects {
                    // What has no name is no object, and the API server stores
                    // none such.
                    let _ = sink.list(object.get());
                }
                sink.end();
            }
            Err(error) => {
                sink.broken(&error, std::time::Duration::ZERO);
                self.note(format!("{resource}.{GROUP}"), error);
            }
        }
    }

    fn put_in_force(&self) -> Result<(), ApiError> {
        let own_objects = self.own_objects.lock();
        let mut effective = EffectiveRules::new(self.context.settings.timing.feed.thaw);
        effective.update(&own_objects, OwnCrds::Present, Instant::now());
        let unreadable_name = effective.first_unreadable(&own_objects);
        if let Some(unreadable_name) = &unreadable_name {
            let why = "another version of belay wrote it";
            self.note(unreadable_name.clone(), ApiError::Unreadable(why.to_owned()));
        }
        let relations: Vec<_> = effective.relations.into_values().collect();
        let policies: Vec<_> = effective.policies.into_values().collect();
        self.compile(policies, &relations, |world| {
            world.policies.approvals = effective::approvals(&own_objects);
            world.policies.pauses = effective::pauses(&own_objects);
            world.loaded = own_objects.policies.synced && own_objects.relations.synced;
            world.known = world.loaded && unreadable_name.is_none();
        })
    }

    /// Puts these in force, together with `more`: a release that counts meanwhile sees
    /// either all of it or nothing.
    fn compile(
        &self,
        policies: Vec<Policy>,
        relations: &[CustomRelation],
        more: impl FnOnce(&mut World),
    ) -> Result<(), ApiError> {
        let mut world = self.context.world.write();
        let identities = self.identities.clone();
        let rules =
            Rules::load(&world.graph.kinds, relations, policies, identities).map_err(|error| {
                ApiError::Other(format!("the relations cannot be compiled: {error}"))
            })?;
        rules.prepare(&mut world.graph);
        (world.catalogue, world.policies) = (rules.catalogue, rules.policies);
        world.policies.label_holds = Some(self.context.settings.labelled.clone());
        more(&mut world);
        Ok(())
    }

    /// The stored policies with their status.
    pub fn written(&self) -> Vec<DeletionPolicy> {
        self.own_objects.lock().policies.all.values().flatten().cloned().collect()
    }

    /// All objects of a kind, with their metadata alone.
    pub async fn listed(&self, kind: KindId) -> Result<Vec<Box<RawValue>>, ApiError> {
        let info = self.context.world.read().graph.kinds.info(kind).clone();
        self.read_list(&info, Detail::Metadata, "", "").await
    }

    /// The objects of one kind, into the graph.
    async fn read_kind(&self, kind: KindId, want: WatchScope, near: &str) {
        let (info, detail, name) = {
            let world = self.context.world.read();
            (world.graph.kinds.info(kind).clone(), world.detail(kind), resource(&world, kind))
        };
        let mut unreadable_name = None;
        let objects = match self.read_list(&info, detail, "", want.labels()).await {
            Ok(objects) => objects,
            Err(error) => {
                unreadable_name = Some(Incomplete::from(error.clone()));
                let in_namespace = info.namespaced && !near.is_empty();
                let read_near = match matches!(error, ApiError::Forbidden(_)) && in_namespace {
                    true => self.read_list(&info, detail, near, want.labels()).await,
                    false => Err(error.clone()),
                };
                if read_near.is_err() {
                    self.note(name.clone(), error);
                } else if surroundings::reaches_out(&self.context.world.read(), kind, false) {
                    self.note(name.clone(), ApiError::forbidden_outside(near));
                }
                read_near.unwrap_or_default()
            }
        };
        let mut world = self.context.world.write();
        let mut listing = Listing::new(kind);
        let mut unreadable_one = None;
        for object in objects {
            let World { graph, catalogue, .. } = &mut *world;
            match world::take(graph, catalogue, kind, object.get(), Some(&mut listing)) {
                Ok(node) => drop(node.map(|node| world.learn_owners(node))),
                Err(unreadable) => {
                    world.graph.add_unreadable_to_listing(&mut listing, &unreadable);
                    unreadable_one.get_or_insert_with(|| unreadable.describe());
                }
            }
        }
        world.graph.end_listing(listing);
        if let Some(why) = unreadable_one {
            self.note(name, ApiError::Unreadable(why));
        }
        if unreadable_name.is_none() {
            self.whole.lock().insert(kind, want);
        }
        match (want, unreadable_name) {
            (_, Some(why)) => world.graph.set_incomplete(kind, why),
            (WatchScope::All, None) => world.graph.set_complete(kind, true),
            (WatchScope::Labelled, None) => {
                world.graph.set_incomplete(kind, "only those with the label were read");
            }
        }
    }

    /// All objects of a list.
    async fn read_list(
        &self,
        info: &KindInfo,
        detail: Detail,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Box<RawValue>>, ApiError> {
        let take = |all: &mut Vec<_>, json: &str| {
            let no_json =
                |_| ApiError::Unreadable("one of them does not have the expected form".to_owned());
            all.push(RawValue::from_string(json.to_owned()).map_err(no_json)?);
            Ok(())
        };
        let query = ListQuery { info, namespace, detail, labels };
        list::read_list(&self.context.client, query, take).await
    }

    fn note(&self, resource: String, why: ApiError) {
        self.unread.lock().push(UnreadKind { resource, why });
    }
}
