//! The fields of an object that policies read, from a review or from the graph.

use std::collections::BTreeMap;

use crate::graph::{Graph, Node};
use crate::objects::{Object, PackedMap, Text, is_namespace};

/// Labels or annotations.
#[derive(Debug, Clone, Copy)]
pub enum KeyValues<'a> {
    /// From a review.
    Texts(&'a BTreeMap<Text<'a>, Text<'a>>),
    /// From the graph.
    Packed(&'a PackedMap),
}

impl<'a> KeyValues<'a> {
    /// The value of a key.
    pub fn get(self, key: &str) -> Option<&'a str> {
        match self {
            Self::Texts(map) => map.get(key).map(Text::as_str),
            Self::Packed(map) => map.get(key),
        }
    }

    /// The approximate number of steps to find the value of a key.
    pub fn lookup_steps(self) -> usize {
        match self {
            Self::Texts(_) => 1,
            Self::Packed(map) => map.search_steps(),
        }
    }
}

/// The fields of an object that policies read.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFacts<'a> {
    /// API group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Labels.
    pub labels: KeyValues<'a>,
    /// Annotations; the graph only keeps those that policies read.
    pub annotations: KeyValues<'a>,
}

impl<'a> ObjectFacts<'a> {
    /// The fields of an object in the graph.
    pub fn of_node(node: Node<'a>) -> Self {
        let info = node.info();
        Self {
            group: &info.group,
            resource: &info.resource,
            namespace: node.namespace(),
            name: node.name(),
            labels: KeyValues::Packed(node.labels()),
            annotations: KeyValues::Packed(node.annotations()),
        }
    }

    /// The fields of an object in a review, with resource, namespace and name from the
    /// request.
    pub fn of_object(
        (group, resource): (&'a str, &'a str),
        (namespace, name): (&'a str, &'a str),
        object: &'a Object<'_>,
    ) -> Self {
        Self {
            group,
            resource,
            namespace,
            name,
            labels: KeyValues::Texts(&object.metadata.labels),
            annotations: KeyValues::Texts(&object.metadata.annotations),
        }
    }

    /// Whether this is a Namespace. Namespace selectors match its own labels.
    pub fn is_namespace(self) -> bool {
        is_namespace(self.group, self.resource)
    }

    /// The namespace of the object, or the name of a Namespace; empty for another
    /// cluster-scoped object.
    pub fn own_namespace(self) -> &'a str {
        if self.is_namespace() { self.name } else { self.namespace }
    }
}

/// The labels of the Namespaces in the graph. `with_labels` replaces those of one Namespace.
#[derive(Clone, Copy)]
pub struct NamespaceLabels<'a> {
    graph: &'a Graph,
    replacement: Option<(&'a str, KeyValues<'a>)>,
}

impl<'a> NamespaceLabels<'a> {
    /// The current labels.
    pub fn new(graph: &'a Graph) -> Self {
        Self { graph, replacement: None }
    }

    /// The labels after a change of this Namespace.
    pub fn with_labels(self, name: &'a str, labels: KeyValues<'a>) -> Self {
        Self { replacement: Some((name, labels)), ..self }
    }

    /// The labels of a Namespace; `None` if they are unknown.
    pub(super) fn labels(self, name: &str) -> Option<KeyValues<'a>> {
        if let Some((_, labels)) = self.replacement.filter(|(other, _)| *other == name) {
            return Some(labels);
        }
        let kind = self.graph.kinds.namespace()?;
        let namespace = self.graph.object(kind, "", name)?;
        Some(KeyValues::Packed(namespace.labels()))
    }
}
