//! One object, in the same form in every document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decide::ObjectName;
use crate::graph::{Graph, Node, NodeId};
use crate::objects::{KindInfo, Kinds, ObjectRef, is_namespace};

/// An object. Unknown fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// The API group. Absent for the core group, and if `resource` is absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind. Absent if only the plural name is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The plural name in URLs. Absent if only the kind is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The namespace. Absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid. Absent if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The arguments for `kubectl get` and `kubectl belay why`: `configmaps/settings -n shop`.
    #[serde(rename = "typed")]
    pub arguments: String,
}

impl Object {
    /// The node of this object, if it exists under its name.
    pub fn find<'g>(&self, graph: &'g Graph) -> Option<Node<'g>> {
        let kind = graph.kinds.find_resource(&self.group, &self.resource)?;
        graph.object(kind, &self.namespace, &self.name)
    }

    pub fn is_namespace(&self) -> bool {
        is_namespace(&self.group, &self.resource)
    }

    /// The namespace of the object, or the name of a Namespace; empty for another
    /// cluster-scoped object.
    pub fn own_namespace(&self) -> &str {
        if self.is_namespace() { &self.name } else { &self.namespace }
    }

    /// The report of a node of the graph, whether the object exists or not.
    pub fn at(graph: &Graph, id: NodeId) -> Self {
        let (kind, namespace, name) = graph.coordinates(id);
        Self::of_kind(graph.kinds.info(kind), namespace, name)
    }

    /// The report of an object of this kind.
    pub fn of_kind(info: &KindInfo, namespace: &str, name: &str) -> Self {
        let target = ObjectRef::of_kind(info, namespace, name);
        Self { kind: info.kind.clone(), ..Self::bare(&target) }
    }

    /// The report of this object. It contains the kind if `kinds` has it.
    pub fn of(target: &ObjectRef, kinds: &Kinds) -> Self {
        let kind = kinds.find_resource(&target.group, &target.resource);
        let kind = kind.map_or_else(String::new, |kind| kinds.info(kind).kind.clone());
        Self { kind, ..Self::bare(target) }
    }

    /// The report of the object that a message names.
    pub fn named(ObjectName { kind, object }: &ObjectName) -> Self {
        match object.resource.as_str() {
            "" => Self::of_unknown(kind, &object.namespace, &object.name),
            _ => Self { kind: kind.clone(), ..Self::bare(object) },
        }
    }

    /// `PersistentVolumeClaim db/data`, for a sentence about the object.
    pub fn sentence_name(&self) -> String {
        self.object_ref().sentence_name()
    }

    /// `persistentvolumeclaim "data"`, for an error about the object.
    pub fn quoted(&self) -> String {
        self.object_ref().quoted()
    }

    fn object_ref(&self) -> ObjectRef {
        let Self { group, resource, namespace, name, kind, .. } = self;
        ObjectRef::new((group, resource), namespace, name).with_kind(kind)
    }

    /// Whether its kind has this group and plural name.
    pub fn is_of(&self, (group, resource): (&str, &str)) -> bool {
        self.group == group && self.resource == resource
    }

    /// The report of an object whose plural is unknown. kubectl accepts the kind as well.
    pub fn of_unknown(kind: &str, namespace: &str, name: &str) -> Self {
        let target = ObjectRef::new(("", &kind.to_lowercase()), namespace, name);
        Self { kind: kind.to_owned(), resource: String::new(), ..Self::bare(&target) }
    }

    pub fn with_uid(self, uid: &str) -> Self {
        Self { uid: uid.to_owned(), ..self }
    }

    fn bare(target: &ObjectRef) -> Self {
        Self {
            group: target.group.clone(),
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            arguments: target.arguments(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target(group: &str, resource: &str) -> ObjectRef {
        ObjectRef::new((group, resource), "shop", "web")
    }

    #[test]
    fn unknown_facts_of_an_object_are_left_out() {
        let json_of = |object: &Object| serde_json::to_value(object).unwrap();
        let kinds = Kinds::default();
        assert_eq!(
            json_of(&Object::of(&target("apps", "deployments"), &kinds).with_uid("u")),
            json!({"group": "apps", "kind": "Deployment", "resource": "deployments", "namespace":
                "shop", "name": "web", "uid": "u", "typed": "deployments.apps/web -n shop"})
        );
        assert_eq!(
            json_of(&Object::of(&target("example.com", "gizmos"), &kinds)),
            json!({"group": "example.com", "resource": "gizmos", "namespace": "shop",
                "name": "web", "typed": "gizmos.example.com/web -n shop"})
        );
        let named = |group, resource| {
            let object = ObjectRef::new((group, resource), "", "web");
            json_of(&Object::named(&ObjectName { kind: "Gizmo".into(), object }))
        };
        assert_eq!(named("", ""), json!({"kind": "Gizmo", "name": "web", "typed": "gizmo/web"}));
        assert_eq!(
            named("example.com", "gizmos"),
            json!({"group": "example.com", "kind": "Gizmo", "resource": "gizmos", "name": "web",
                "typed": "gizmos.example.com/web"})
        );
    }
}
