//! Why the graph may lack an object that exists: not all objects of its kind were listed,
//! some of them can't be read, or the watch is not connected.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::objects::{ApiError, Flaw, KindId, NumberMap, NumberSet, Unreadable};

/// Why the graph does not have all objects of a kind. The text completes the sentence
/// "belay does not know all of them:".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// The objects have not been read yet.
    #[error("they have not been read yet")]
    NotYetRead,
    /// The objects could not be read.
    #[error(transparent)]
    Failed(#[from] ApiError),
    /// belay does not read all of the objects; the text gives the reason.
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
        // The names are sorted by namespace, and the empty name comes first.
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

    /// Removes the entry of an object that was read or deleted.
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
