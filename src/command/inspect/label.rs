//! Short names of objects.

use crate::command::document::Object;
use crate::graph::Node;
use crate::objects::Kinds;

/// Kinds with a well-known short name.
const SHORT: &[(&str, &str)] = &[
    ("PersistentVolumeClaim", "pvc"),
    ("PersistentVolume", "pv"),
    ("HorizontalPodAutoscaler", "hpa"),
    ("PodDisruptionBudget", "pdb"),
    ("CustomResourceDefinition", "crd"),
];

impl Object {
    /// The short form, such as `pvc/data` or `widget.example.com/x`, with the namespace
    /// only if it is not `home`.
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

/// The short name of a kind for counts.
pub fn kind_label(node: Node<'_>) -> String {
    match node.info().kind.as_str() {
        "PersistentVolumeClaim" => "PVC".to_owned(),
        "PersistentVolume" => "PV".to_owned(),
        kind => kind.to_owned(),
    }
}
