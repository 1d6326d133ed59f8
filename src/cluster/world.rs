//! What belay knows: the graph, what people have said, and how objects of each
//! kind are read.

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
use crate::relations::{Catalogue, Parsed, Reads};

/// Shared by the threads that answer reviews and those that feed.
///
/// Nobody waits for anything while holding it: verdicts take microseconds, and
/// what is fed is taken in a few objects at a time.
pub type SharedWorld = Arc<RwLock<World>>;

/// Everything that a verdict looks at.
#[derive(Debug, Default)]
pub struct World {
    /// The objects.
    pub graph: Graph,
    /// How their edges are read.
    pub catalogue: Arc<Catalogue>,
    /// What people have said.
    pub policies: PolicySet,
    /// Whether the policies were read once; until then nothing is decided.
    pub loaded: bool,
    /// Whether they are known now: when their kind has vanished, what was read
    /// last stays in use, and nothing that is held is let go of.
    pub known: bool,
    /// What discovery says of the kinds that are served, beside what the graph
    /// keeps.
    pub served: NumberMap<KindId, Served>,
    /// The kinds whose watch has been read to the end of a list: on others no
    /// hold is put, because nobody would see when to let go of it.
    pub watched: NumberSet<KindId>,
    /// The kinds that belay's account may patch. On others belay places no hold
    /// either, because it could not remove it.
    pub patch_rights: PatchRights,
    /// Which kinds own which, as far as owner references have said: the kind of
    /// a dependent, and that of an owner, and when such a reference was known last.
    pub owned: NumberMap<(KindId, KindId), Instant>,
    /// The kinds of which objects may have the hold, whether a policy names
    /// them still or not: their holds are taken off before they are forgotten.
    pub held: BTreeSet<KindId>,
    /// Objects that have left a watch of labelled ones: gone, or without the
    /// label, and perhaps with a hold that nothing wants any more.
    pub left: BTreeSet<Place>,
    /// Objects that are Terminating under the hold.
    pub waiting: Waiting,
    /// The kinds whose objects own what policies protect, directly or at the
    /// end of a chain.
    pub owners: NumberSet<KindId>,
    /// By which approvals and pauses run out.
    pub clock: Clock,
}

/// Where an object stands: kind, namespace and name.
pub type Place = (KindId, String, String);

/// Objects that are Terminating under the hold, and which of them to look at.
#[derive(Debug, Default)]
pub struct Waiting {
    /// As they were seen last.
    pub seen: KeyedMap<Place, Seen>,
    /// Those that have changed, or lost a user, since whoever lets go of them
    /// looked here.
    pub news: KeyedSet<Place>,
    /// Whether to look at all of them: policies or approvals have changed.
    pub all: bool,
}

/// An object that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What a release has to know of it.
    pub sight: TargetState,
    /// The value of the annotation by which a person asks to look now.
    pub requested: Option<String>,
    /// Whether the graph knows of nobody who needs it.
    pub unused: bool,
    /// How often somebody who uses it has changed, or gone, while it waited.
    pub changes: u64,
    /// Whether no watch shows it, because it lost its label while it was
    /// Terminating: that no list has it says nothing.
    pub unwatched: bool,
}

/// The annotation by which a person asks for a live look, now.
pub const RELEASE_REQUESTED: &str = "belay.dev/release-requested";

/// What discovery says of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Whether its objects can be listed.
    pub list: bool,
    /// Whether its objects can be watched.
    pub watch: bool,
}

impl World {
    /// Notes of which kinds the owners of an object are. Says whether that is new.
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

    /// Forgets which kinds own which where no object has said so for a while.
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
            Reads::Body => Detail::Whole,
            Reads::Metadata | Reads::Nothing => Detail::Metadata,
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
        graph.list(listing, object, parsed.has_too_many_references());
    }
    let namespaced = graph.kinds.info(kind).namespaced;
    let namespace = if namespaced { object.metadata.namespace.as_str() } else { "" };
    graph.find(kind, namespace, &object.metadata.name)
}

/// Where an object stands in a graph.
pub fn find(graph: &Graph, kind: KindId, object: &Object<'_>) -> Option<NodeId> {
    graph.find(kind, object.metadata.namespace.as_str(), &object.metadata.name)
}

/// An object is gone, as the watch says; what has been made again under its
/// name meanwhile is not.
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
