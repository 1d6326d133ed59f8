//! Objects, as people read and type them.

use serde::Serialize;

use crate::graph::{Graph, Node, NodeId};
use crate::objects::{KindInfo, Kinds};

/// Kinds whose short name says as much and takes less room.
const SHORT: &[(&str, &str)] = &[
    ("PersistentVolumeClaim", "pvc"),
    ("PersistentVolume", "pv"),
    ("HorizontalPodAutoscaler", "hpa"),
    ("PodDisruptionBudget", "pdb"),
    ("CustomResourceDefinition", "crd"),
];

/// An object, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// The API group; not there for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The plural.
    pub resource: String,
    /// The namespace; not there for what has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Object {
    /// The one at these coordinates, whether it exists or not.
    pub fn at(graph: &Graph, id: NodeId) -> Self {
        let (kind, namespace, name) = graph.coordinates(id);
        let KindInfo { group, kind, resource, .. } = graph.kinds.info(kind).clone();
        Self { group, kind, resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// As it is typed: `pvc/data`, `widget.example.com/x`; its namespace only
    /// where that is not `home`.
    pub fn label(&self, home: &str) -> String {
        let place = match self.namespace.as_str() {
            "" => String::new(),
            namespace if namespace == home => String::new(),
            namespace => format!(" -n {namespace}"),
        };
        format!("{}/{}{place}", self.word(), self.name)
    }

    fn word(&self) -> String {
        let own = Kinds::is_built_in(&self.group, &self.resource);
        let short = SHORT.iter().find(|(kind, _)| own && *kind == self.kind);
        match short {
            Some((_, short)) => (*short).to_owned(),
            None if own => self.kind.to_lowercase(),
            None if self.group.is_empty() => self.kind.to_lowercase(),
            None => format!("{}.{}", self.kind.to_lowercase(), self.group),
        }
    }
}

/// A kind in a list of counts.
pub fn kind(node: Node<'_>) -> String {
    match node.info().kind.as_str() {
        "PersistentVolumeClaim" => "PVC".to_owned(),
        "PersistentVolume" => "PV".to_owned(),
        kind => kind.to_owned(),
    }
}
