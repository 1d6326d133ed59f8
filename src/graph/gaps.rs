//! Why the absence of an object may not be a fact, although all objects of its
//! kind were listed: some of them can't be read, or the watch is not connected at
//! the moment.

use std::collections::BTreeSet;
use std::fmt;

use super::Graph;
use crate::objects::{KindId, NumberMap, NumberSet};

/// So many unreadable objects of a kind are kept by name. With more of them the
/// absence of no object of the kind is a fact.
const KEPT: usize = 1_000;

/// The gaps in what is known of each kind.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    stale: NumberSet<KindId>,
    unreadable: NumberMap<KindId, UnreadableSet>,
}

/// The objects of a kind that can't be read.
#[derive(Debug, Default)]
pub(super) struct UnreadableSet {
    /// Namespace and name.
    places: BTreeSet<(String, String)>,
    /// Whether there are more, whose place is unknown.
    more: bool,
}

impl UnreadableSet {
    /// Says whether that is new.
    pub(super) fn add(&mut self, place: Option<&(String, String)>) -> bool {
        match place {
            Some(place) if self.places.len() < KEPT => self.places.insert(place.clone()),
            Some(place) if self.places.contains(place) => false,
            _ => !std::mem::replace(&mut self.more, true),
        }
    }

    fn is_empty(&self) -> bool {
        self.places.is_empty() && !self.more
    }

    /// The namespace and name of one in a namespace (empty: in any).
    fn first(&self, namespace: &str) -> Option<(&str, &str)> {
        // They are in the order of namespaces, and "" is the first of these.
        let mut places = self.places.range((namespace.to_owned(), String::new())..);
        match places.next().filter(|(place, _)| namespace.is_empty() || place == namespace) {
            Some((place, name)) => Some((place, name)),
            None => self.more.then_some(("", "of unknown name")),
        }
    }
}

/// An object that can't be read.
#[derive(Debug, Clone, Copy)]
pub struct UnreadableObject<'g> {
    kind: &'g str,
    /// Its namespace; empty for a cluster-scoped object, or if it is unknown.
    pub namespace: &'g str,
    name: &'g str,
}

impl fmt::Display for UnreadableObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {namespace}{slash}{name}")
    }
}

impl Gaps {
    pub(super) fn set_stale(&mut self, kind: KindId, stale: bool) {
        if stale {
            self.stale.insert(kind);
        } else {
            self.stale.remove(&kind);
        }
    }

    /// The object was read, or was deleted.
    pub(super) fn close(&mut self, kind: KindId, namespace: &str, name: &str) {
        if let Some(set) = self.unreadable.get_mut(&kind)
            && !set.places.is_empty()
        {
            set.places.remove(&(namespace.to_owned(), name.to_owned()));
            if set.is_empty() {
                self.unreadable.remove(&kind);
            }
        }
    }

    /// These are all of a kind.
    pub(super) fn replace(&mut self, kind: KindId, set: UnreadableSet) {
        if set.is_empty() {
            self.unreadable.remove(&kind);
        } else {
            self.unreadable.insert(kind, set);
        }
    }

    pub(super) fn add(&mut self, kind: KindId, place: Option<&(String, String)>) -> bool {
        self.unreadable.entry(kind).or_default().add(place)
    }
}

impl Graph {
    /// The watch of a kind is not connected: its objects are as they were a
    /// moment ago, which proves no absence. [`Self::set_complete`] and
    /// [`Self::set_incomplete`] end this.
    pub fn set_stale(&mut self, kind: KindId) {
        self.gaps.set_stale(kind, true);
    }

    /// Whether all objects of a kind are here, as of now, though some of them
    /// may not be readable.
    pub fn is_current(&self, kind: KindId) -> bool {
        self.is_complete(kind) && !self.gaps.stale.contains(&kind)
    }

    /// An object can't be read: it may use anything that its kind can use. Its
    /// place is its namespace and name; `None` if these can't be read either.
    /// What was known of it before stays. Ends when it is read or deleted, or
    /// is not in the next list. Says whether that is new.
    pub fn set_unreadable(&mut self, kind: KindId, place: Option<&(String, String)>) -> bool {
        self.gaps.add(kind, place)
    }

    /// An object of a kind in a namespace (empty: in any) that can't be read.
    pub fn unreadable(&self, kind: KindId, namespace: &str) -> Option<UnreadableObject<'_>> {
        let (namespace, name) = self.gaps.unreadable.get(&kind)?.first(namespace)?;
        Some(UnreadableObject { kind: &self.kinds.info(kind).kind, namespace, name })
    }

    /// How many objects of each kind can't be read, where it is any.
    pub fn unreadable_counts(&self) -> impl Iterator<Item = (KindId, usize)> + '_ {
        let sets = self.gaps.unreadable.iter();
        sets.map(|(kind, set)| (*kind, set.places.len() + usize::from(set.more)))
    }

    /// Whether it is a fact that an object does not exist which is not here.
    pub fn proves_absence(&self, kind: KindId, namespace: &str, name: &str) -> bool {
        let may_be_it = |set: &UnreadableSet| {
            set.more || set.places.contains(&(namespace.to_owned(), name.to_owned()))
        };
        self.is_current(kind) && !self.gaps.unreadable.get(&kind).is_some_and(may_be_it)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Listing;
    use super::*;

    fn place(namespace: &str, name: &str) -> (String, String) {
        (namespace.to_owned(), name.to_owned())
    }

    fn words(graph: &Graph, namespace: &str) -> Option<String> {
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.unreadable(pods, namespace).map(|object| object.to_string())
    }

    #[test]
    fn an_unreadable_object_may_be_there_until_it_is_read_deleted_or_not_listed() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        assert!(graph.proves_absence(pods, "shop", "bad"));
        let bad = place("shop", "bad");
        graph.set_unreadable(pods, Some(&bad));
        assert!(!graph.proves_absence(pods, "shop", "bad"));
        assert!(graph.proves_absence(pods, "shop", "other"));
        assert_eq!(words(&graph, "shop").as_deref(), Some("Pod shop/bad"));
        assert_eq!(words(&graph, "").as_deref(), Some("Pod shop/bad"));
        assert_eq!(words(&graph, "db"), None);
        graph.delete(pods, "shop", "bad", None);
        assert!(graph.proves_absence(pods, "shop", "bad"));

        graph.set_unreadable(pods, Some(&bad));
        let json = r#"{"metadata": {"name": "bad", "namespace": "shop"}}"#;
        let object = serde_json::from_str(json).unwrap();
        graph.apply(pods, &object, Default::default(), Default::default());
        assert_eq!(words(&graph, ""), None);

        graph.set_unreadable(pods, Some(&bad));
        graph.set_unreadable(pods, None);
        let mut listing = Listing::of(pods);
        graph.list_unreadable(&mut listing, Some(&bad));
        graph.end_listing(listing);
        assert_eq!(graph.unreadable_counts().collect::<Vec<_>>(), [(pods, 1)]);
        assert!(graph.object(pods, "shop", "bad").is_some(), "what was known of it stays");
        graph.end_listing(Listing::of(pods));
        assert_eq!(words(&graph, ""), None);
    }

    #[test]
    fn beyond_a_number_of_them_no_absence_is_a_fact() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        for number in 0..KEPT {
            graph.set_unreadable(pods, Some(&place("shop", &number.to_string())));
        }
        assert!(graph.proves_absence(pods, "db", "a"));
        graph.set_unreadable(pods, Some(&place("shop", "0")));
        assert!(graph.proves_absence(pods, "db", "a"));
        graph.set_unreadable(pods, Some(&place("shop", "one more")));
        assert!(!graph.proves_absence(pods, "db", "a"));
        assert_eq!(words(&graph, "db").as_deref(), Some("Pod of unknown name"));
        assert_eq!(graph.unreadable_counts().collect::<Vec<_>>(), [(pods, KEPT + 1)]);
    }

    #[test]
    fn a_stale_kind_is_complete_and_proves_nothing() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        graph.set_stale(pods);
        assert!(graph.is_complete(pods) && !graph.is_current(pods));
        assert!(!graph.proves_absence(pods, "shop", "a"));
        graph.set_complete(pods, true);
        assert!(graph.is_current(pods));
    }
}
