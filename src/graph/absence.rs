//! Whether an object that is not in the graph is proven not to exist in the cluster.

use std::collections::BTreeSet;

use super::coverage::Incomplete;
use super::{Graph, NodeId};
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
        self.coverage.incomplete.get(&kind).unwrap_or(&Incomplete::Unread)
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

    /// Whether an object that is not in the graph certainly does not exist.
    pub fn proves_absence(&self, kind: KindId, namespace: &str, name: &str) -> bool {
        self.is_current(kind) && !self.is_unreadable(kind, namespace, name)
    }

    /// Like [`Self::proves_absence`], for a node without an object.
    pub(super) fn proves_node_absence(&self, id: NodeId) -> bool {
        let (kind, namespace, name) = self.coordinates(id);
        self.proves_absence(kind, namespace, name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Edges, Listing};
    use super::*;
    use crate::objects::MAX_REFERENCES;

    fn place(namespace: &str, name: &str) -> Unreadable {
        let name = Some((namespace.to_owned(), name.to_owned()));
        Unreadable { name, ..Unreadable::of_unknown_place() }
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
        // The mark stays after a list.
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
