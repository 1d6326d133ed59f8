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
    KeyedMap, KeyedSet, KindId, Kinds, NumberMap, NumberSet, Object, Uid, Unreadable,
};
use crate::policy::PolicySet;
use crate::relations::{Catalogue, Parsed, ReadScope};

/// Shared by the threads that answer reviews and those that feed.
///
/// No task waits for anything while it holds the lock: verdicts take microseconds, and
/// the feed stores a few objects at a time.
pub type SharedWorld = Arc<RwLock<World>>;

/// All data that a verdict reads.
#[derive(Debug, Default)]
pub struct World {
    /// The objects.
    pub graph: Graph,
    /// How their edges are read.
    pub catalogue: Arc<Catalogue>,
    /// Policies, approvals and pauses.
    pub policies: PolicySet,
    /// Whether the policies were read once; until then nothing is decided.
    pub loaded: bool,
    /// Whether they are up to date. While their CRD is missing, the last ones stay in
    /// force, and no hold is released.
    pub known: bool,
    /// The other fields of discovery.
    pub served: NumberMap<KindId, ServedVerbs>,
    /// The kinds whose first list is complete. Only these get holds, because otherwise
    /// belay would not see when to release them.
    pub watched: NumberSet<KindId>,
    /// The kinds that belay's account may patch. On others belay places no hold
    /// either, because it could not remove it.
    pub patch_rights: PatchRights,
    /// The known owner kinds, from owner references: the kind of a dependent, the kind of
    /// an owner, and when such a reference was last seen.
    pub owned: NumberMap<(KindId, KindId), Instant>,
    /// The kinds whose objects may have the hold, including those that no policy names
    /// any more: their holds are removed before they are forgotten.
    pub held: BTreeSet<KindId>,
    /// Objects that left a watch by label: they were deleted or lost the label, and may
    /// still have a hold.
    pub left: BTreeSet<ObjectKey>,
    /// Terminating objects with the hold, and which of them to check.
    pub waiting: TerminatingObjects,
    /// The kinds that own protected objects, directly or through other owners.
    pub owners: NumberSet<KindId>,
    /// By which approvals and pauses run out.
    pub clock: Clock,
}

/// Kind, namespace and name of an object. The kind is a number of the world's graph, so that a
/// lookup costs no strings; elsewhere an `ObjectRef` names an object.
pub type ObjectKey = (KindId, String, String);

/// Objects that are Terminating under the hold, and which of them to look at.
#[derive(Debug, Default)]
pub struct TerminatingObjects {
    /// As they were seen last.
    pub seen: KeyedMap<ObjectKey, WaitingObject>,
    /// Those that changed or lost a user since the last check.
    pub changed: KeyedSet<ObjectKey>,
    /// Whether to check all of them, because policies or approvals have changed.
    pub all: bool,
}

/// An object that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingObject {
    /// What a release has to know of it.
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

/// A user requests a live check with this annotation.
pub const RELEASE_REQUESTED: &str = "belay.dev/release-requested";

/// A kind in discovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServedVerbs {
    /// Whether its objects can be listed.
    pub list: bool,
    /// Whether its objects can be watched.
    pub watch: bool,
}

impl World {
    /// Stores the kinds of the owners of an object. Returns whether one is new.
    pub fn learn_owners(&mut self, node: NodeId) -> bool {
        let Self { graph, owned, .. } = self;
        let Some(node) = graph.get(node) else { return false };
        let mut new = false;
        for owner in node.owner_kinds() {
            let pair = (node.kind(), owner);
            if !owned.contains_key(&pair) && is_owner_kind(&graph.kinds, owner) {
                new |= owned.insert(pair, Instant::now()).is_none();
            }
        }
        new
    }

    /// Forgets owner kinds that no object has referenced for a while.
    pub fn forget_owners(&mut self, after: Duration) {
        let Self { graph, owned, .. } = self;
        let now = Instant::now();
        owned.retain(|(dependent, owner), known| {
            if graph.has_owner_kind(*dependent, *owner) {
                *known = now;
            }
            now.duration_since(*known) < after
        });
    }

    /// The kinds that own objects of these kinds, and theirs, and so on.
    pub fn owners_of(&self, kinds: impl IntoIterator<Item = KindId>) -> NumberSet<KindId> {
        let mut found = NumberSet::default();
        let mut next: Vec<KindId> = kinds.into_iter().collect();
        while let Some(dependent) = next.pop() {
            let owners = self.owned.keys().filter(|(of, _)| *of == dependent);
            next.extend(owners.map(|(_, owner)| *owner).filter(|owner| found.insert(*owner)));
        }
        found
    }

    /// How much of an object of this kind has to be asked for.
    pub fn detail(&self, kind: KindId) -> Detail {
        match self.catalogue.reads(kind) {
            ReadScope::Body => Detail::Whole,
            ReadScope::Metadata | ReadScope::Nothing => Detail::Metadata,
        }
    }
}

/// Kinds that machines write in masses, and that own nothing that people protect.
/// Every tenant can write an owner reference that names them.
const OWN_NOTHING: [(&str, &str); 5] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "endpoints"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Whether objects of this kind are watched, and their deletes asked about, where
/// they own something.
pub fn is_owner_kind(kinds: &Kinds, kind: KindId) -> bool {
    let info = kinds.info(kind);
    kinds.is_served(kind) && !OWN_NOTHING.contains(&(info.group.as_str(), info.resource.as_str()))
}

/// Takes an object, as the API server wrote it, into a graph: the one that is
/// fed, or one of live reads. Where a list is being read, the object is in it. Of one
/// with too many references the metadata is taken, and that it may use anything.
pub fn take(
    graph: &mut Graph,
    catalogue: &Catalogue,
    kind: KindId,
    json: &str,
    listing: Option<&mut Listing>,
) -> Result<Option<NodeId>, Unreadable> {
    let parsed = catalogue.parse(kind, json)?;
    let node = apply(graph, catalogue, kind, &parsed, listing);
    match parsed.has_too_many_references() {
        true => Err(Unreadable::of_many_references(json)),
        false => Ok(node),
    }
}

/// The same of an object that this catalogue has parsed.
pub fn apply(
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
    let namespaced = graph.kinds.info(kind).namespaced;
    let namespace = if namespaced { object.metadata.namespace.as_str() } else { "" };
    graph.find(kind, namespace, &object.metadata.name)
}

/// Finds an object in a graph.
pub fn find(graph: &Graph, kind: KindId, object: &Object<'_>) -> Option<NodeId> {
    graph.find(kind, object.metadata.namespace.as_str(), &object.metadata.name)
}

/// Removes an object after a watch event. A re-created object of the same name stays.
pub fn forget(graph: &mut Graph, kind: KindId, object: &Object<'_>) {
    let (namespace, name) = (object.metadata.namespace.as_str(), object.metadata.name.as_str());
    graph.delete(kind, namespace, name, Some(Uid::new(&object.metadata.uid)));
}

/// Whether an object is one that may use anything.
pub fn is_unreadable(graph: &Graph, kind: KindId, object: &Object<'_>) -> bool {
    let namespaced = graph.kinds.info(kind).namespaced;
    let namespace = if namespaced { object.metadata.namespace.as_str() } else { "" };
    graph.is_unreadable(kind, namespace, &object.metadata.name)
}
