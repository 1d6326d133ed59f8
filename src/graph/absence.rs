//! Whether the absence of an object is a fact.

use std::collections::BTreeSet;

use super::Graph;
use super::coverage::Incomplete;
use crate::objects::{Flaw, KindId, Unreadable};

impl Graph {
    /// Says whether all objects of a kind are here.
    pub fn set_complete(&mut self, kind: KindId, complete: bool) {
        self.coverage.set_stale(kind, false);
        self.coverage.incomplete.remove(&kind);
        if complete {
            self.coverage.complete.insert(kind);
        } else {
            self.coverage.complete.remove(&kind);
        }
    }

    /// Says why the objects of a kind are not all here.
    pub fn set_incomplete(&mut self, kind: KindId, why: impl Into<Incomplete>) {
        self.coverage.set_stale(kind, false);
        self.coverage.complete.remove(&kind);
        self.coverage.incomplete.insert(kind, why.into());
    }

    /// Why the objects of a kind are not all here.
    pub fn why_incomplete(&self, kind: KindId) -> &Incomplete {
        self.coverage.incomplete.get(&kind).unwrap_or(&Incomplete::Unread)
    }

    /// The kinds of which all objects are here.
    pub fn complete_kinds(&self) -> BTreeSet<KindId> {
        self.coverage.complete.iter().copied().collect()
    }

    /// Whether all objects of a kind are here, so that absence is a fact.
    pub fn is_complete(&self, kind: KindId) -> bool {
        self.coverage.complete.contains(&kind)
    }

    /// The watch of a kind is not connected: its objects are as they were a
    /// moment ago, which proves no absence. [`Self::set_complete`] and
    /// [`Self::set_incomplete`] end this.
    pub fn set_stale(&mut self, kind: KindId) {
        self.coverage.set_stale(kind, true);
    }

    /// Whether all objects of a kind are here, as of now, though some of them
    /// may not be readable.
    pub fn is_current(&self, kind: KindId) -> bool {
        self.is_complete(kind) && !self.coverage.stale.contains(&kind)
    }

    /// An object can't be read: it may use anything that its kind can use. What was
    /// known of it before stays. Ends when it is read or deleted, or is not in the
    /// next list. Says whether that is new.
    pub fn set_unreadable(&mut self, kind: KindId, unreadable: &Unreadable) -> bool {
        self.coverage.add_unreadable(kind, unreadable)
    }

    /// An object of a kind in a namespace (empty: in any) that can't be read, in
    /// words such as `Pod shop/bad can't be read`.
    pub fn describe_unreadable(&self, kind: KindId, namespace: &str) -> Option<String> {
        Some(self.unreadable_in(kind, namespace)?.1)
    }

    /// The same, and its namespace: empty for a cluster-scoped object, or if it is
    /// unknown.
    pub fn unreadable_in(&self, kind: KindId, namespace: &str) -> Option<(&str, String)> {
        self.first_unreadable(kind, namespace, |_| true)
    }

    /// The same of one that is malformed, so that its metadata is unknown as well.
    pub fn malformed_in(&self, kind: KindId, namespace: &str) -> Option<(&str, String)> {
        self.first_unreadable(kind, namespace, |flaw| matches!(flaw, Flaw::Malformed { .. }))
    }

    fn first_unreadable(
        &self,
        kind: KindId,
        namespace: &str,
        counts: fn(Flaw) -> bool,
    ) -> Option<(&str, String)> {
        let (place, found) = self.coverage.unreadable.get(&kind)?.first(namespace, counts)?;
        Some((place, format!("{} {found}", self.kinds.info(kind).kind)))
    }

    /// Whether this object may be one that can't be read.
    pub fn is_unreadable(&self, kind: KindId, namespace: &str, name: &str) -> bool {
        let set = self.coverage.unreadable.get(&kind);
        set.is_some_and(|set| set.may_contain(namespace, name))
    }

    /// How many objects of each kind can't be read, where it is any.
    pub fn unreadable_counts(&self) -> impl Iterator<Item = (KindId, usize)> + '_ {
        let sets = self.coverage.unreadable.iter();
        sets.map(|(kind, set)| (*kind, set.by_name.len() + usize::from(set.has_unnamed)))
    }

    /// Whether it is a fact that an object does not exist which is not here.
    pub fn proves_absence(&self, kind: KindId, namespace: &str, name: &str) -> bool {
        self.is_current(kind) && !self.is_unreadable(kind, namespace, name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Edges, Listing, MAX_REFERENCES};
    use super::*;

    fn place(namespace: &str, name: &str) -> Unreadable {
        let place = Some((namespace.to_owned(), name.to_owned()));
        Unreadable { name: place, ..Unreadable::of_unknown_place() }
    }

    #[test]
    fn an_unreadable_object_may_be_there_until_it_is_read_deleted_or_not_listed() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        assert!(graph.proves_absence(pods, "shop", "bad"));
        let bad = place("shop", "bad");
        graph.set_unreadable(pods, &bad);
        assert!(!graph.proves_absence(pods, "shop", "bad"));
        assert!(graph.proves_absence(pods, "shop", "other"));
        assert_eq!(
            graph.describe_unreadable(pods, "shop").as_deref(),
            Some("Pod shop/bad can't be read")
        );
        assert_eq!(
            graph.describe_unreadable(pods, "").as_deref(),
            Some("Pod shop/bad can't be read")
        );
        assert_eq!(graph.describe_unreadable(pods, "db"), None);
        graph.delete(pods, "shop", "bad", None);
        assert!(graph.proves_absence(pods, "shop", "bad"));

        graph.set_unreadable(pods, &bad);
        let json = r#"{"metadata": {"name": "bad", "namespace": "shop"}}"#;
        let object = serde_json::from_str(json).unwrap();
        graph.apply(pods, &object, Default::default(), Default::default());
        assert_eq!(graph.describe_unreadable(pods, ""), None);

        graph.set_unreadable(pods, &bad);
        graph.set_unreadable(pods, &Unreadable::of_unknown_place());
        let mut listing = Listing::new(pods);
        graph.add_unreadable_to_listing(&mut listing, &bad);
        graph.end_listing(listing);
        assert_eq!(graph.unreadable_counts().collect::<Vec<_>>(), [(pods, 1)]);
        assert!(graph.object(pods, "shop", "bad").is_some(), "what was known of it stays");
        graph.end_listing(Listing::new(pods));
        assert_eq!(graph.describe_unreadable(pods, ""), None);
    }

    #[test]
    fn h38_thousands_of_unreadable_objects_concern_nothing_after_their_end() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        let names: Vec<String> = (0..1_500).map(|number| number.to_string()).collect();
        for name in &names {
            assert!(graph.set_unreadable(pods, &place("shop", name)));
            assert!(!graph.set_unreadable(pods, &place("shop", name)));
        }
        assert!(graph.proves_absence(pods, "shop", "a"));
        assert_eq!(graph.unreadable_counts().collect::<Vec<_>>(), [(pods, 1_500)]);
        for name in &names {
            assert!(!graph.proves_absence(pods, "shop", name));
            graph.delete(pods, "shop", name, None);
        }
        assert_eq!(graph.describe_unreadable(pods, ""), None);
        assert!(graph.set_unreadable(pods, &Unreadable::of_unknown_place()));
        assert!(!graph.proves_absence(pods, "db", "a"));
        let words = "Pod of unknown name can't be read";
        assert_eq!(graph.describe_unreadable(pods, "db").as_deref(), Some(words));
    }

    #[test]
    fn an_object_with_too_many_references_is_known_and_may_use_anything() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        let json = r#"{"metadata": {"name": "p", "namespace": "shop"}}"#;
        let object = serde_json::from_str(json).unwrap();
        let edges = || Edges { too_many: true, ..Edges::default() };
        graph.apply(pods, &object, Default::default(), edges());
        let words = format!("Pod shop/p has more than {MAX_REFERENCES} references");
        assert_eq!(graph.describe_unreadable(pods, "shop"), Some(words));
        assert_eq!(
            (graph.describe_unreadable(pods, "db"), graph.malformed_in(pods, "")),
            (None, None)
        );
        assert!(graph.object(pods, "shop", "p").is_some());
        graph.apply(pods, &object, Default::default(), Edges::default());
        assert_eq!(graph.describe_unreadable(pods, ""), None);
        // It stays so after a list.
        graph.replace_kind(pods, [(&object, Default::default(), edges())]);
        assert!(graph.describe_unreadable(pods, "shop").is_some());
        graph.delete(pods, "shop", "p", None);
        assert_eq!(graph.describe_unreadable(pods, ""), None);
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
