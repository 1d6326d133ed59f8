//! Short names of objects.

use crate::command::document::Object;
use crate::graph::Node;
use crate::objects::{Kinds, namespace_option, shell_word, without_controls};

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
    /// namespace `omitted`. A shell reads it as the arguments of a command.
    pub fn label(&self, omitted: &str) -> String {
        let option = match self.namespace.as_str() {
            namespace if namespace == omitted => String::new(),
            namespace => namespace_option(namespace),
        };
        let object = format!("{}/{}", self.kind_word(), self.name);
        format!("{}{option}", shell_word(&without_controls(&object)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ObjectRef;

    #[test]
    fn h181_a_name_that_could_pass_for_text_of_belay_has_quotation_marks() {
        let label = |name: &str| {
            let role = ObjectRef::new(("rbac.authorization.k8s.io", "roles"), "shop", name);
            Object::of(&role, &Kinds::default()).label("")
        };
        assert_eq!(label("a:b"), "role/a:b -n shop");
        assert_eq!(label("a -n db  deleted"), "'role/a -n db  deleted' -n shop");
        assert_eq!(label("a\u{200b}$(id)'"), "'role/a $(id)'\\''' -n shop");
        assert_eq!(label("\u{430}"), "'role/\u{430}' -n shop");
    }
}
