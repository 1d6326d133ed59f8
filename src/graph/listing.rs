//! Lists of all objects of a kind.

use super::coverage::{UnreadableSet, too_many_references};
use super::node_id::NodeId;
use super::slot::ObjectPhase;
use super::{Edges, Graph};
use crate::objects::{KindId, NumberSet, Object, Unreadable};

/// A list of all objects of a kind while it is being read, page by page. What
/// the graph knew before stays known until the end, and until then only the
/// one who reads the list may take objects of that kind out.
#[derive(Debug)]
pub struct Listing {
    kind: KindId,
    seen: NumberSet<NodeId>,
    unreadable: UnreadableSet,
}

impl Listing {
    /// A list of this kind, of which nothing has been read.
    pub fn new(kind: KindId) -> Self {
        Self { kind, seen: NumberSet::default(), unreadable: UnreadableSet::default() }
    }
}

impl Graph {
    /// These are all objects of a kind: what was known of others is gone, and
    /// from now on the absence of one is a fact. Objects that are known stay
    /// known throughout.
    pub fn replace_kind<'o>(
        &mut self,
        kind: KindId,
        objects: impl IntoIterator<Item = (&'o Object<'o>, ObjectPhase, Edges)>,
    ) {
        let mut listing = Listing::new(kind);
        for (object, progress, edges) in objects {
            let too_many = edges.too_many;
            self.apply(kind, object, progress, edges);
            self.add_to_listing(&mut listing, object, too_many);
        }
        self.end_listing(listing);
        self.set_complete(kind, true);
    }

    /// This object, which has been applied, is in the list that is being read.
    /// `too_many` says the same as [`Edges::too_many`].
    pub fn add_to_listing(&self, listing: &mut Listing, object: &Object<'_>, too_many: bool) {
        let namespaced = self.kinds.info(listing.kind).namespaced;
        let namespace = if namespaced { object.metadata.namespace.as_str() } else { "" };
        if too_many {
            listing.unreadable.add(&too_many_references(namespace, &object.metadata.name));
        }
        listing.seen.extend(self.find(listing.kind, namespace, &object.metadata.name));
    }

    /// An object is in the list that is being read, and can't be read.
    pub fn add_unreadable_to_listing(&self, listing: &mut Listing, unreadable: &Unreadable) {
        listing.unreadable.add(unreadable);
        if let Some((namespace, name)) = &unreadable.name {
            listing.seen.extend(self.find(listing.kind, namespace, name));
        }
    }

    /// The list has been read to its end: what was known before and is not in
    /// it is gone. Says how many went.
    pub fn end_listing(&mut self, listing: Listing) -> usize {
        let Listing { kind, seen, unreadable } = listing;
        self.coverage.set_unreadable(kind, unreadable);
        let gone: Vec<_> = self.objects_of_kind(kind).filter(|id| !seen.contains(id)).collect();
        let count = gone.len();
        gone.into_iter().for_each(|id| self.remove_object(id));
        count
    }

    /// Forgets at most so many objects of a kind; says how many went.
    pub fn remove_some(&mut self, kind: KindId, most: usize) -> usize {
        self.coverage.set_unreadable(kind, UnreadableSet::default());
        let some: Vec<_> = self.objects_of_kind(kind).take(most).collect();
        let count = some.len();
        some.into_iter().for_each(|id| self.remove_object(id));
        count
    }
}
