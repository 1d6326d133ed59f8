//! The methods of [`Graph`] about its coverage: the kinds of which it has all objects, and the
//! objects that it could not read.

use std::collections::BTreeSet;

use super::Graph;
use super::coverage::Incomplete;
use crate::objects::{Flaw, KindId, Unreadable};

impl Graph {
    /// Sets whether the graph has all objects of a kind.
    pub fn set_complete(&mut self, kind: KindId, complete: bool) {
        self.coverage.set_stale(kind, false);
        self.coverage.incomplete.remove(&kind);
        if complete {
            self.coverage.complete.insert(kind);
        } else {
            self.coverage.complete.remove(&kind);
        }
    }

    /// Sets why the graph does not have all objects of a kind.
    pub fn set_incomplete(&mut self, kind: KindId, why: impl Into<Incomplete>) {
        self.coverage.set_stale(kind, false);
        self.coverage.complete.remove(&kind);
        self.coverage.incomplete.insert(kind, why.into());
    }

    /// Why the graph does not have all objects of a kind.
    pub fn why_incomplete(&self, kind: KindId) -> &Incomplete {
        self.coverage.incomplete.get(&kind).unwrap_or(&Incomplete::NotYetRead)
    }

    /// The kinds whose objects are all in the graph.
    pub fn complete_kinds(&self) -> BTreeSet<KindId> {
        self.coverage.complete.iter().copied().collect()
    }

    /// Whether the graph has all objects of a kind.
    pub fn is_complete(&self, kind: KindId) -> bool {
        self.coverage.complete.contains(&kind)
    }

    /// Whether the API server serves a kind, and belay has not read all its objects yet: its first
    /// list has not ended, or belay has watched only objects with the label.
    pub fn is_unread(&self, kind: KindId) -> bool {
        !self.is_complete(kind)
            && self.kinds.is_served(kind)
            && !matches!(self.why_incomplete(kind), Incomplete::Failed(_))
    }

    /// Marks a kind as stale: its watch is not connected, so the graph may lack new
    /// objects. [`Self::set_complete`] and [`Self::set_incomplete`] clear the mark.
    pub fn set_stale(&mut self, kind: KindId) {
        self.coverage.set_stale(kind, true);
    }

    /// Whether the graph has all objects of a kind and its watch is connected. Some of
    /// the objects may be unreadable.
    pub fn is_current(&self, kind: KindId) -> bool {
        self.is_complete(kind) && !self.coverage.stale.contains(&kind)
    }

    /// Marks an object as unreadable: it may use every object that its kind can use. The
    /// graph keeps the last readable version. The mark ends when the object is read or
    /// deleted, or is not in the next list. Returns whether the mark is new.
    pub fn set_unreadable(&mut self, kind: KindId, unreadable: &Unreadable) -> bool {
        self.coverage.add_unreadable(kind, unreadable)
    }

    /// Describes one unreadable object of a kind in a namespace (empty: in any), such as
    /// `Pod shop/bad can't be read`.
    pub fn describe_unreadable(&self, kind: KindId, namespace: &str) -> Option<String> {
        Some(self.unreadable_in(kind, namespace)?.1)
    }

    /// The namespace and the description of one unreadable object. The namespace is empty
    /// for a cluster-scoped object, or if it is unknown.
    pub fn unreadable_in(&self, kind: KindId, namespace: &str) -> Option<(&str, String)> {
        self.first_unreadable(kind, namespace, |_| true)
    }

    /// The namespace and the description of one malformed object. Its metadata is unknown
    /// as well.
    pub fn malformed_in(&self, kind: KindId, namespace: &str) -> Option<(&str, String)> {
        self.first_unreadable(kind, namespace, |flaw| matches!(flaw, Flaw::Malformed { .. }))
    }

    fn first_unreadable(
        &self,
        kind: KindId,
        namespace: &str,
        has_flaw: fn(Flaw) -> bool,
    ) -> Option<(&str, String)> {
        let set = self.coverage.unreadable.get(&kind)?;
        let (namespace, description) = set.first(namespace, has_flaw)?;
        Some((namespace, format!("{} {description}", self.kinds.info(kind).kind)))
    }

    /// Whether this object may be unreadable.
    pub fn is_unreadable(&self, kind: KindId, namespace: &str, name: &str) -> bool {
        let set = self.coverage.unreadable.get(&kind);
        set.is_some_and(|set| set.may_contain(namespace, name))
    }

    /// The number of unreadable objects of each kind that has any.
    pub fn unreadable_counts(&self) -> impl Iterator<Item = (KindId, usize)> + '_ {
        let sets = self.coverage.unreadable.iter();
        sets.map(|(kind, set)| (*kind, set.by_name.len() + usize::from(set.has_unnamed)))
    }
}
