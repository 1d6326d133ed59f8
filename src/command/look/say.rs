//! Objects, as people read and type them.

use crate::command::document::Object;
use crate::graph::Node;
use crate::objects::Kinds;

/// Kinds whose short name says as much and takes less room.
const SHORT: &[(&str, &str)] = &[
    ("PersistentVolumeClaim", "pvc"),
    ("PersistentVolume", "pv"),
    ("HorizontalPodAutoscaler", "hpa"),
    ("PodDisruptionBudget", "pdb"),
    ("CustomResourceDefinition", "crd"),
];

impl Object {
    /// As people know it: `pvc/data`, `widget.example.com/x`; its namespace only
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
