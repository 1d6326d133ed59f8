//! Short names of objects.

use crate::command::document::Object;
use crate::graph::Node;
use crate::objects::{Kinds, namespace_option};

/// Kinds with a well-known short name.
const SHORT: &[(&str, &str)] = &[
    ("PersistentVolumeClaim", "pvc"),
    ("PersistentVolume", "pv"),
    ("HorizontalPodAutoscaler", "hpa"),
    ("PodDisruptionBudget", "pdb"),
    ("CustomResourceDefinition", "crd"),
];

impl Object {
    /// The short form, such as `pvc/data` or `widget.example.com/x -n shop`. It omits the
    /// namespace `omitted`.
    pub fn label(&self, omitted: &str) -> String {
        let option = match self.namespace.as_str() {
            namespace if namespace == omitted => String::new(),
            namespace => namespace_option(namespace),
        };
        format!("{}/{}{option}", self.kind_word(), self.name)
    }

    /// The kind in the short form.
    pub fn kind_word(&self) -> String {
        let is_built_in = Kinds::is_built_in(&self.group, &self.resource);
        let short = SHORT.iter().find(|(kind, _)| is_built_in && *kind == self.kind);
        match short {
            Some((_, short)) => (*short).to_owned(),
            None if is_built_in => self.kind.to_lowercase(),
            None if self.group.is_empty() => self.kind.to_lowercase(),
            None => format!("{}.{}", self.kind.to_lowercase(), self.group),
        }
    }
}

/// The short name of a kind for counts.
pub fn kind_label(node: Node<'_>) -> String {
    match node.info().kind.as_str() {
        "PersistentVolumeClaim" => "PVC".to_owned(),
        "PersistentVolume" => "PV".to_owned(),
        kind => kind.to_owned(),
    }
}
