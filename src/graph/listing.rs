//! Lists of all objects of a kind.

use super::Graph;
use super::coverage::{UnreadableSet, too_many_references};
use super::node_id::NodeId;
use crate::objects::{KindId, NumberSet, Object, Unreadable};

/// A list of all objects of a kind that is being read page by page. The graph keeps the
/// previous objects until the list ends. Until then, only the reader of the list may remove
/// objects of this kind.
#[derive(Debug)]
pub struct Listing {
    kind: KindId,
    seen: NumberSet<NodeId>,
    unreadable: UnreadableSet,
}

impl Listing {
    /// A list of this kind before its first page.
    pub fn new(kind: KindId) -> Self {
        Self { kind, seen: NumberSet::default(), unreadable: UnreadableSet::default() }
    }
}

impl Graph {
    /// Adds an applied object to the list. `too_many` is its [`super::Edges::too_many`].
    pub fn add_to_listing(&self, listing: &mut Listing, object: &Object<'_>, too_many: bool) {
        let info = self.kinds.info(listing.kind);
        let namespace = info.namespace_or_empty(&object.metadata.namespace);
        if too_many {
            listing.unreadable.add(&too_many_references(namespace, &object.metadata.name));
        }
        listing.seen.extend(self.find(listing.kind, namespace, &object.metadata.name));
    }

    /// Adds an object that can't be read to the list.
    pub fn add_unreadable_to_listing(&self, listing: &mut Listing, unreadable: &Unreadable) {
        listing.unreadable.add(unreadable);
        if let Some((namespace, name)) = &unreadable.name {
            listing.seen.extend(self.find(listing.kind, namespace, name));
        }
    }

    /// Ends a complete list: removes all objects of the kind that are not in the list.
    /// Returns the number of removed objects.
    pub fn end_listing(&mut self, listing: Listing) -> usize {
        let Listing { kind, seen, unreadable } = listing;
        self.coverage.set_unreadable(kind, unreadable);
        let unlisted: Vec<_> = self.objects_of_kind(kind).filter(|id| !seen.contains(id)).collect();
        let count = unlisted.len();
        unlisted.into_iter().for_each(|id| self.remove_object(id));
        count
    }

    /// Removes up to `limit` objects of a kind. Returns the number of removed objects.
    pub fn remove_some(&mut self, kind: KindId, limit: usize) -> usize {
        self.coverage.set_unreadable(kind, UnreadableSet::default());
        let removed: Vec<_> = self.objects_of_kind(kind).take(limit).collect();
        let count = removed.len();
        removed.into_iter().for_each(|id| self.remove_object(id));
        count
    }
}
