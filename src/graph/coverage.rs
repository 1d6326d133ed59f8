//! Why the absence of an object may not be a fact: not all objects of its kind were
//! listed, some of them can't be read, or the watch is not connected at the moment.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::MAX_REFERENCES;
use crate::objects::{ApiError, Flaw, KindId, NumberMap, NumberSet, Unreadable};

/// Why the objects of a kind are not all known. The text finishes the sentence "belay does
/// not know all of them:".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// They have not been read yet.
    #[error("they have not been read yet")]
    Unread,
    /// They could not be read.
    #[error(transparent)]
    Failed(#[from] ApiError),
    /// belay reads none of them, or not all; the text says why.
    #[error("{0}")]
    NotRead(Cow<'static, str>),
}

impl From<&'static str> for Incomplete {
    fn from(why: &'static str) -> Self {
        Self::NotRead(why.into())
    }
}

/// The gaps in what is known of each kind.
#[derive(Debug, Default)]
pub(super) struct KindCoverage {
    /// Kinds whose objects are all here: only of these is absence a fact.
    pub(super) complete: NumberSet<KindId>,
    /// Why the objects of a kind are not all here.
    pub(super) incomplete: NumberMap<KindId, Incomplete>,
    pub(super) stale: NumberSet<KindId>,
    pub(super) unreadable: NumberMap<KindId, UnreadableSet>,
}

/// The objects of a kind that can't be read. Each is kept by name, as those that
/// can be read are, so that each ends with its object.
#[derive(Debug, Default)]
pub(super) struct UnreadableSet {
    /// By namespace and name.
    pub(super) by_name: BTreeMap<(String, String), Flaw>,
    /// Whether there are more, whose place is unknown.
    pub(super) has_unnamed: bool,
}

impl UnreadableSet {
    /// Says whether that is new.
    pub(super) fn add(&mut self, unreadable: &Unreadable) -> bool {
        match &unreadable.name {
            Some(place) => self.by_name.insert(place.clone(), unreadable.flaw).is_none(),
            None => !std::mem::replace(&mut self.has_unnamed, true),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && !self.has_unnamed
    }

    /// Whether an object of this place may be one of them.
    pub(super) fn may_contain(&self, namespace: &str, name: &str) -> bool {
        self.has_unnamed || self.by_name.contains_key(&(namespace.to_owned(), name.to_owned()))
    }

    /// The namespace of one with such a flaw, and words for it, in a namespace (empty: in
    /// any).
    pub(super) fn first(
        &self,
        namespace: &str,
        counts: fn(Flaw) -> bool,
    ) -> Option<(&str, String)> {
        // They are in the order of namespaces, and "" is the first of these.
        let places = self.by_name.range((namespace.to_owned(), String::new())..);
        let is_meant = |place: &str| namespace.is_empty() || place == namespace;
        let mut meant = places.take_while(|((place, _), _)| is_meant(place));
        if let Some((place, flaw)) = meant.find(|(_, flaw)| counts(**flaw)) {
            return Some((&place.0, describe_flaw(place, *flaw)));
        }
        self.has_unnamed.then(|| ("", "of unknown name can't be read".to_owned()))
    }
}

fn describe_flaw((namespace, name): &(String, String), flaw: Flaw) -> String {
    let slash = if namespace.is_empty() { "" } else { "/" };
    let why = match flaw {
        Flaw::Malformed { .. } => "can't be read".to_owned(),
        Flaw::TooManyReferences => format!("has more than {MAX_REFERENCES} references"),
    };
    format!("{namespace}{slash}{name} {why}")
}

/// An object with more references than are kept.
pub(super) fn too_many_references(namespace: &str, name: &str) -> Unreadable {
    let place = Some((namespace.to_owned(), name.to_owned()));
    Unreadable { name: place, flaw: Flaw::TooManyReferences }
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

    /// These are all of a kind.
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
