//! Whether an object that is not in the graph is proven not to exist in the cluster.

use super::{Graph, NodeId};
use crate::objects::KindId;

impl Graph {
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
    use crate::objects::{MAX_REFERENCES, Unreadable};

    fn unreadable(namespace: &str, name: &str) -> Unreadable {
        let name = Some((namespace.to_owned(), name.to_owned()));
        Unreadable { name, ..Unreadable::of_unknown_name() }
    }

    #[test]
    fn an_unreadable_object_may_be_there_until_it_is_read_deleted_or_not_listed() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        assert!(graph.proves_absence(pods, "shop", "bad"));
        let bad = unreadable("shop", "bad");
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
        graph.set_unreadable(pods, &Unreadable::of_unknown_name());
        let mut listing = Listing::new(pods);
        graph.add_unreadable_to_listing(&mut listing, &bad);
        graph.end_listing(listing);
        assert_eq!(graph.unreadable_counts().collect::<Vec<_>>(), [(pods, 1)]);
        assert!(graph.object(pods, "shop", "bad").is_some(), "the last known version stays");
        graph.end_listing(Listing::new(pods));
        assert_eq!(graph.describe_unreadable(pods, ""), None);
    }

    #[test]
    fn h38_deleted_unreadable_objects_no_longer_count() {
        let mut graph = Graph::default();
        let pods = graph.kinds.find("", "Pod").unwrap();
        graph.set_complete(pods, true);
        let names: Vec<String> = (0..1_500).map(|number| number.to_string()).collect();
        for name in &names {
            assert!(graph.set_unreadable(pods, &unreadable("shop", name)));
            assert!(!graph.set_unreadable(pods, &unreadable("shop", name)));
        }
        assert!(graph.proves_absence(pods, "shop", "a"));
        assert_eq!(graph.unreadable_counts().collect::<Vec<_>>(), [(pods, 1_500)]);
        for name in &names {
            assert!(!graph.proves_absence(pods, "shop", name));
            graph.delete(pods, "shop", name, None);
        }
        assert_eq!(graph.describe_unreadable(pods, ""), None);
        assert!(graph.set_unreadable(pods, &Unreadable::of_unknown_name()));
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
