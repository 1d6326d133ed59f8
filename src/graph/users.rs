//! The users of a node.

use super::edges::{EdgeQualifier, SelectorEdge, Strength, UseEdge};
use super::node::Node;
use super::node_id::NodeId;
use super::steps::StepCounter;
use super::store::Graph;
use super::stored::ObjectPhase;
use crate::objects::{CLAIMS, KindId, Uid};

/// A user of a node.
#[derive(Clone, Copy)]
pub struct ObjectUser<'g> {
    /// The user.
    pub node: Node<'g>,
    /// The edge to the used object.
    pub edge: UserEdge<'g>,
}

/// The edge from a user to the used object.
#[derive(Clone, Copy)]
pub enum UserEdge<'g> {
    /// By name.
    Use(&'g UseEdge),
    /// By a selector.
    Selector(&'g SelectorEdge),
}

impl<'g> ObjectUser<'g> {
    /// The strength of the edge. It ignores the qualifier and the phase of the user.
    pub fn strength(&self) -> Strength {
        match self.edge {
            UserEdge::Use(edge) => edge.strength,
            UserEdge::Selector(edge) => edge.strength,
        }
    }

    /// Why the edge may count for less.
    pub fn qualifier(&self) -> EdgeQualifier {
        match self.edge {
            UserEdge::Use(edge) => edge.qualifier,
            UserEdge::Selector(_) => EdgeQualifier::None,
        }
    }

    /// The field in the manifest of the user.
    pub fn path(&self) -> &'g str {
        match self.edge {
            UserEdge::Use(edge) => &edge.path,
            UserEdge::Selector(edge) => &edge.path,
        }
    }

    /// Whether the user breaks without the object: the edge *needs* the object and has no
    /// qualifier, and the user has not finished.
    pub fn needs(&self) -> bool {
        self.strength() == Strength::Needs
            && self.qualifier() == EdgeQualifier::None
            && self.node.phase() != ObjectPhase::Finished
    }
}

/// The fields of an object that selectors match.
pub struct SelectorTarget<'a, L> {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub label: L,
    /// The approximate number of steps to find a label.
    pub label_steps: usize,
    /// The limit of work.
    pub work: StepCounter<'a>,
}

impl Graph {
    /// All users of a node, lazily and in no particular order.
    pub fn users(&self, id: NodeId) -> impl Iterator<Item = ObjectUser<'_>> {
        self.users_limited(id, StepCounter::default())
    }

    /// The Pods for which the claim protection of Kubernetes keeps a claim: Pods on a Node of
    /// Kubernetes, also after they have succeeded or failed. Other Pods do not keep the claim,
    /// because no kubelet starts a Pod with a Terminating claim.
    pub fn pods_keeping(&self, claim: NodeId) -> impl Iterator<Item = Node<'_>> {
        let is_claim = self.get(claim).is_some_and(|node| node.info().group_resource() == CLAIMS);
        let users = is_claim.then(|| self.users(claim)).into_iter().flatten();
        users
            .filter(|user| user.strength() == Strength::Needs)
            .map(|user| user.node)
            .filter(|user| user.is_scheduled_pod())
    }

    /// The users of a node, as far as the budget allows.
    pub fn users_limited<'g>(
        &'g self,
        id: NodeId,
        work: StepCounter<'g>,
    ) -> impl Iterator<Item = ObjectUser<'g>> {
        let target = self.get(id);
        let matching = target.map(|target| {
            self.selector_users(SelectorTarget {
                kind: target.kind(),
                namespace: target.namespace(),
                name: target.name(),
                label: move |key: &str| target.labels().get(key),
                label_steps: target.labels().search_steps(),
                work,
            })
        });
        self.named_users(id, target.map(Node::uid), work).chain(matching.into_iter().flatten())
    }

    /// All users that name this node. Skips edges whose uid is not `uid`.
    pub fn named_users<'g>(
        &'g self,
        id: NodeId,
        uid: Option<Uid>,
        work: StepCounter<'g>,
    ) -> impl Iterator<Item = ObjectUser<'g>> {
        let users = self.users_by_name(id).take_while(move |_| work.charge(1));
        users.flat_map(move |node| {
            // Edges are sorted by their target.
            let uses = node.uses();
            let first = uses.partition_point(|edge| edge.to < id);
            let edges = uses[first..].iter().take_while(move |edge| edge.to == id);
            let edges = edges.filter(move |edge| {
                work.charge(1) && edge.uid.as_deref().is_none_or(|used| Some(*used) == uid)
            });
            edges.map(move |edge| ObjectUser { node, edge: UserEdge::Use(edge) })
        })
    }

    /// All users whose selectors match an object, which need not be in the graph. Only
    /// selectors for its kind and namespace are checked.
    pub fn selector_users<'g, 'l, L: Fn(&str) -> Option<&'l str> + Copy>(
        &'g self,
        target: SelectorTarget<'g, L>,
    ) -> impl Iterator<Item = ObjectUser<'g>> + use<'g, 'l, L> {
        let SelectorTarget { kind, namespace, name, label, label_steps, work } = target;
        // Selectors for every namespace have this key, too.
        let no_namespace = NodeId::NONE;
        let own_namespace = match namespace {
            "" => Some(no_namespace),
            _ => self.kinds.namespace().and_then(|kind| self.find(kind, "", namespace)),
        };
        let every_namespace = (own_namespace != Some(no_namespace)).then_some(no_namespace);
        let selector_users = own_namespace
            .into_iter()
            .chain(every_namespace)
            .filter_map(move |namespace| self.selector_users.get(&(namespace, kind)))
            .flat_map(|set| set.iter())
            .filter_map(|id| self.get(id))
            .take_while(move |_| work.charge(1));
        selector_users.flat_map(move |node| {
            let edges = node.selector_edges().iter().filter(move |edge| {
                work.charge(1)
                    && edge.kind == kind
                    && (edge.namespace.is_empty() || edge.namespace == namespace)
                    && work.charge(edge.selector.match_steps().saturating_mul(label_steps))
                    && edge.selector.matches(name, label)
            });
            edges.map(move |edge| ObjectUser { node, edge: UserEdge::Selector(edge) })
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::graph::{Edges, RelationId, Requirement, Selector, SelectorEdge, StepBudget};
    use crate::objects::Object;

    /// Editors choose how many labels an object has, and finding a label compares them all.
    #[test]
    fn a_search_by_labels_charges_for_the_size_of_the_labels() {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let mut apply = |name: &str, labels: usize, selector_edges: Vec<SelectorEdge>| {
            let labels: serde_json::Map<_, _> =
                (0..labels).map(|n| (format!("label-{n:057}"), json!(""))).collect();
            let value = json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": labels}});
            let object = Object::deserialize(&value).unwrap();
            graph.apply(
                kind,
                &object,
                ObjectPhase::Active,
                Edges { selector_edges, ..Edges::default() },
            );
        };
        let edge = SelectorEdge {
            kind,
            namespace: "a".to_owned(),
            selector: Selector::Labels(vec![Requirement::Exists("x".to_owned())]),
            strength: Strength::Needs,
            relation: RelationId(0),
            path: "spec".into(),
        };
        apply("user", 0, vec![edge]);
        apply("few", 1, Vec::new());
        apply("many", 1_000, Vec::new());
        let steps = |name: &str| {
            let budget = StepBudget::new(usize::MAX);
            let id = graph.find(kind, "a", name).unwrap();
            assert_eq!(graph.users_limited(id, StepCounter::new(&budget)).count(), 0);
            budget.steps()
        };
        assert!(steps("few") < 10 && steps("many") > 900, "{} {}", steps("few"), steps("many"));
    }
}
