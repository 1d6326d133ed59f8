//! The cached state: the graph, belay's own objects, and how to read the objects of each
//! kind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::api::Detail;
use super::clock::Clock;
use super::patch_rights::PatchRights;
use crate::graph::{Graph, Listing, NodeId};
use crate::hold::TargetState;
use crate::objects::{
    KeyedMap, KeyedSet, KindId, KindInfo, Kinds, NumberMap, NumberSet, Object, ObjectRef, Uid,
    Unreadable,
};
use crate::policy::PolicySet;
use crate::relations::{Catalogue, Parsed, ReadScope};

/// The world behind a lock. The threads that answer reviews read it, and the feed writes it.
///
/// No task waits for anything while it holds the lock. A verdict takes microseconds, and the
/// feed stores a few objects at a time.
pub type SharedWorld = Arc<RwLock<World>>;

/// All data that a verdict reads.
#[derive(Debug, Default)]
pub struct World {
    /// The objects and their edges.
    pub graph: Graph,
    /// The relations that find the edges.
    pub catalogue: Arc<Catalogue>,
    /// Policies, approvals and pauses.
    pub policies: PolicySet,
    /// Whether the policies were read once. Until then belay can't decide.
    pub loaded: bool,
    /// Whether the policies are up to date. While their CRD is missing, the last policies stay
    /// in force, and belay releases no hold.
    pub policies_current: bool,
    /// The served kinds, from discovery.
    pub served: NumberMap<KindId, ServedVerbs>,
    /// The kinds whose first list is complete. belay places holds only on objects of these
    /// kinds, because only a watch shows when to release a hold.
    pub watched: NumberSet<KindId>,
    /// The kinds that belay's account may patch. belay places no hold on other kinds, because
    /// it could not remove the hold.
    pub patch_rights: PatchRights,
    /// The known pairs of owner references: the kind of the dependent and the kind of the owner,
    /// with the time at which such a reference was last seen.
    pub owner_kinds: NumberMap<(KindId, KindId), Instant>,
    /// The kinds whose objects may have the hold. A kind that no policy names any more stays
    /// here until its holds are removed.
    pub kinds_with_holds: BTreeSet<KindId>,
    /// Objects that left a watch by label. They were deleted or lost the label, and may still
    /// have a hold.
    pub left_watch: BTreeSet<ObjectKey>,
    /// Some objects that the API server can't send as an event or in a review. The leader repairs
    /// them.
    pub too_deep: BTreeSet<ObjectKey>,
    /// Terminating objects with the hold, and which of them to check.
    pub waiting: TerminatingObjects,
    /// The kinds that own protected objects, directly or through other owners: pairs of a protected
    /// kind and the kind of an owner.
    pub protected_owner_kinds: BTreeSet<(KindId, KindId)>,
    /// The clock that decides when approvals and pauses expire.
    pub clock: Clock,
}

/// Kind, namespace and name of an object. The kind is a number of the world's graph, so that a
/// lookup costs no strings; elsewhere an `ObjectRef` names an object.
pub type ObjectKey = (KindId, String, String);

/// Terminating objects with the hold, and which of them to check.
#[derive(Debug, Default)]
pub struct TerminatingObjects {
    /// The last seen state of each object.
    pub objects: KeyedMap<ObjectKey, WaitingObject>,
    /// The objects that changed or lost a user since the last check.
    pub changed: KeyedSet<ObjectKey>,
    /// Whether to check all of them, because policies or approvals have changed.
    pub check_all: bool,
}

/// The state of an object that waits for the release of its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingObject {
    /// The fields that a release needs.
    pub observed: TargetState,
    /// The value of the annotation that requests a check.
    pub requested: Option<String>,
    /// Whether the graph contains no user.
    pub unused: bool,
    /// The number of changes of its users while it waited.
    pub changes: u64,
    /// Whether it lost its label while it was Terminating, so that no watch reports it.
    /// Its absence from a list then proves nothing.
    pub unwatched: bool,
}

/// A person requests a live check with this annotation.
pub const RELEASE_REQUESTED: &str = "belay.dev/release-requested";

/// The verbs that discovery lists for a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServedVerbs {
    /// Whether its objects can be listed.
    pub list: bool,
    /// Whether its objects can be watched.
    pub watch: bool,
}

impl World {
    /// Stores the kinds of the owners of an object. Returns whether one is new.
    pub fn learn_owner_kinds(&mut self, node: NodeId) -> bool {
        let Self { graph, owner_kinds, .. } = self;
        let Some(node) = graph.get(node) else { return false };
        let mut new = false;
        for owner in node.owner_kinds() {
            let pair = (node.kind(), owner);
            if !owner_kinds.contains_key(&pair) && is_owner_kind(&graph.kinds, owner) {
                new |= owner_kinds.insert(pair, Instant::now()).is_none();
            }
        }
        new
    }

    /// Forgets owner kinds that no object has referenced for a while.
    pub fn forget_owner_kinds(&mut self, after: Duration) {
        let Self { graph, owner_kinds, .. } = self;
        let now = Instant::now();
        owner_kinds.retain(|(dependent, owner), last_seen| {
            if graph.has_owner_kind(*dependent, *owner) {
                *last_seen = now;
            }
            now.duration_since(*last_seen) < after
        });
    }

    /// The kinds that own objects of these kinds, directly or through other owners.
    pub fn owner_kinds_of(&self, kinds: impl IntoIterator<Item = KindId>) -> NumberSet<KindId> {
        let mut found = NumberSet::default();
        let mut next: Vec<KindId> = kinds.into_iter().collect();
        while let Some(dependent) = next.pop() {
            let owners = self.owner_kinds.keys().filter(|(owned, _)| *owned == dependent);
            next.extend(owners.map(|(_, owner)| *owner).filter(|owner| found.insert(*owner)));
        }
        found
    }

    /// The key of an object; `None` if its kind is unknown.
    pub fn key(&self, object: &ObjectRef) -> Option<ObjectKey> {
        let kind = self.graph.kinds.find_resource(&object.group, &object.resource)?;
        Some((kind, object.namespace.clone(), object.name.clone()))
    }

    /// The properties of the kind with this group and plural name, if it is served.
    pub fn kind_info(&self, (group, resource): (&str, &str)) -> Option<KindInfo> {
        let kinds = &self.graph.kinds;
        kinds.find_resource(group, resource).map(|kind| kinds.info(kind).clone())
    }

    /// How much of an object of this kind to request.
    pub fn detail(&self, kind: KindId) -> Detail {
        match self.catalogue.reads(kind) {
            ReadScope::Body => Detail::Whole,
            ReadScope::Metadata | ReadScope::Nothing => Detail::Metadata,
        }
    }
}

/// Kinds with very many objects, which own no protected objects. Every tenant can write an
/// owner reference to them, so without this list a tenant could make belay watch them.
const NEVER_OWNERS: [(&str, &str); 5] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "endpoints"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Whether belay watches objects of this kind, and reviews their deletion, if they own protected
/// objects.
pub fn is_owner_kind(kinds: &Kinds, kind: KindId) -> bool {
    let info = kinds.info(kind);
    kinds.is_served(kind) && !NEVER_OWNERS.contains(&(info.group.as_str(), info.resource.as_str()))
}

/// Parses an object and stores it in a graph, and adds it to `listing`. For an object with too
/// many references it stores only the metadata and returns an error, because the object may use
/// any object.
pub fn store(
    graph: &mut Graph,
    catalogue: &Catalogue,
    kind: KindId,
    json: &str,
    listing: Option<&mut Listing>,
) -> Result<Option<NodeId>, Unreadable> {
    let parsed = catalogue.parse(kind, json)?;
    let node = store_parsed(graph, catalogue, kind, &parsed, listing);
    match parsed.has_too_many_references() {
        true => Err(Unreadable::of_many_references(json)),
        false => Ok(node),
    }
}

/// Stores an object that this catalogue has parsed, and adds it to `listing`.
pub fn store_parsed(
    graph: &mut Graph,
    catalogue: &Catalogue,
    kind: KindId,
    parsed: &Parsed<'_>,
    listing: Option<&mut Listing>,
) -> Option<NodeId> {
    catalogue.apply(graph, kind, parsed);
    let object = &parsed.object;
    if let Some(listing) = listing {
        graph.add_to_listing(listing, object, parsed.has_too_many_references());
    }
    let namespace = graph.kinds.info(kind).namespace_or_empty(&object.metadata.namespace);
    graph.find(kind, namespace, &object.metadata.name)
}

/// Finds an object in a graph.
pub fn find(graph: &Graph, kind: KindId, object: &Object<'_>) -> Option<NodeId> {
    graph.find(kind, object.metadata.namespace.as_str(), &object.metadata.name)
}

/// Removes a deleted object. A re-created object of the same name stays.
pub fn remove(graph: &mut Graph, kind: KindId, object: &Object<'_>) {
    let (namespace, name) = (object.metadata.namespace.as_str(), object.metadata.name.as_str());
    graph.delete(kind, namespace, name, Some(Uid::new(&object.metadata.uid)));
}

/// Whether the graph marks an object as unreadable, so that it may use any object.
pub fn is_unreadable(graph: &Graph, kind: KindId, object: &Object<'_>) -> bool {
    let namespace = graph.kinds.info(kind).namespace_or_empty(&object.metadata.namespace);
    graph.is_unreadable(kind, namespace, &object.metadata.name)
}
