//! Why the graph may lack an object that exists: not all objects of its kind were listed,
//! some of them can't be read, or the watch is not connected.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Graph;
use crate::objects::{ApiError, Flaw, KindId, NumberMap, NumberSet, Unreadable};

/// Why the graph does not have all objects of a kind. The text completes the sentence
/// "belay does not know all of them:".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// They have not been read yet.
    #[error("they have not been read yet")]
    NotYetRead,
    /// They could not be read.
    #[error(transparent)]
    Failed(#[from] ApiError),
    /// belay reads none of them, or not all; the text says why.
    #[error("{0}")]
    OtherReason(Cow<'static, str>),
}

impl From<&'static str> for Incomplete {
    fn from(why: &'static str) -> Self {
        Self::OtherReason(why.into())
    }
}

/// Which objects the graph may lack, for each kind.
#[derive(Debug, Default)]
pub(super) struct KindCoverage {
    /// The kinds whose objects are all in the graph.
    pub(super) complete: NumberSet<KindId>,
    pub(super) incomplete: NumberMap<KindId, Incomplete>,
    pub(super) stale: NumberSet<KindId>,
    pub(super) unreadable: NumberMap<KindId, UnreadableSet>,
}

/// The objects of a kind that can't be read. They are stored by name, because each entry
/// is removed when its object is deleted.
#[derive(Debug, Default)]
pub(super) struct UnreadableSet {
    /// By namespace and name.
    pub(super) by_name: BTreeMap<(String, String), Flaw>,
    /// Whether there are more, whose names are unknown.
    pub(super) has_unnamed: bool,
}

impl UnreadableSet {
    /// Returns whether the entry is new.
    pub(super) fn add(&mut self, unreadable: &Unreadable) -> bool {
        match &unreadable.name {
            Some(name) => self.by_name.insert(name.clone(), unreadable.flaw).is_none(),
            None => !std::mem::replace(&mut self.has_unnamed, true),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && !self.has_unnamed
    }

    /// Whether the object with this name may be one of them.
    pub(super) fn may_contain(&self, namespace: &str, name: &str) -> bool {
        self.has_unnamed || self.by_name.contains_key(&(namespace.to_owned(), name.to_owned()))
    }

    /// The namespace and the description of one object whose flaw satisfies `has_flaw`, in
    /// this namespace (empty: in any).
    pub(super) fn first(
        &self,
        namespace: &str,
        has_flaw: fn(Flaw) -> bool,
    ) -> Option<(&str, String)> {
        // The names are sorted by namespace, and "" is the first one.
        let from_namespace = self.by_name.range((namespace.to_owned(), String::new())..);
        let is_selected = |other: &str| namespace.is_empty() || other == namespace;
        let mut selected = from_namespace.take_while(|((other, _), _)| is_selected(other));
        if let Some((name, flaw)) = selected.find(|(_, flaw)| has_flaw(**flaw)) {
            let unreadable = Unreadable { name: Some(name.clone()), flaw: *flaw };
            return Some((&name.0, unreadable.describe()));
        }
        self.has_unnamed.then(|| ("", "of unknown name can't be read".to_owned()))
    }
}

/// An object with more references than [`MAX_REFERENCES`](crate::objects::MAX_REFERENCES).
pub(super) fn too_many_references(namespace: &str, name: &str) -> Unreadable {
    let name = Some((namespace.to_owned(), name.to_owned()));
    Unreadable { name, flaw: Flaw::TooManyReferences }
}

impl KindCoverage {
    pub(super) fn set_stale(&mut self, kind: KindId, stale: bool) {
        if stale {
            self.stale.insert(kind);
        } else {
            self.stale.remove(&kind);
        }
    }

    /// The object was read, or was deleted.
    pub(super) fn remove_unreadable(&mut self, kind: KindId, namespace: &str, name: &str) {
        if let Some(set) = self.unreadable.get_mut(&kind)
            && !set.by_name.is_empty()
        {
            set.by_name.remove(&(namespace.to_owned(), name.to_owned()));
            if set.is_empty() {
                self.unreadable.remove(&kind);
            }
        }
    }

    /// Replaces the unreadable objects of a kind.
    pub(super) fn set_unreadable(&mut self, kind: KindId, set: UnreadableSet) {
        if set.is_empty() {
            self.unreadable.remove(&kind);
        } else {
            self.unreadable.insert(kind, set);
        }
    }

    pub(super) fn add_unreadable(&mut self, kind: KindId, unreadable: &Unreadable) -> bool {
        self.unreadable.entry(kind).or_default().add(unreadable)
    }
}

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
