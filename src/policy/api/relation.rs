//! Relation: an edge that belay does not know, between two kinds.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An edge from the objects of one kind to the objects that they use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "belay.dev",
    version = "v1alpha1",
    kind = "Relation",
    doc = "An edge from the objects of one kind to others that they need, mention or produce.",
    derive = "PartialEq",
    category = "belay",
    printcolumn(name = "From", type_ = "string", json_path = ".spec.from.resource"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.to.resource"),
    printcolumn(name = "Strength", type_ = "string", json_path = ".spec.strength"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.to) != has(self.toRef)").message("set either to (the needed kind) or toRef (the field with the kind)"),
    validation = Rule::new("has(self.nameFieldPath) != has(self.selectorFieldPath)").message("set either nameFieldPath or selectorFieldPath: the field that names the needed object"),
    validation = Rule::new("!has(self.selectorFieldPath) || (has(self.to) && !has(self.namespaceFieldPath))").message("selectorFieldPath needs to, and no namespaceFieldPath: a selector selects one kind in the object's own namespace")
)]
pub struct RelationSpec {
    /// The kind of the user.
    pub from: RelatedKind,
    /// The kind of the used object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RelatedKind>,
    /// The fields of the user that contain the kind of the used object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ref: Option<ToRef>,
    /// The field with the name, such as `spec.cluster.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub name_field_path: Option<String>,
    /// The field with the namespace. Absent means the namespace of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub namespace_field_path: Option<String>,
    /// The field with a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub selector_field_path: Option<String>,
    /// The strength of the edge.
    #[serde(default)]
    pub strength: Strength,
    /// Replaces Needs for edges to an object of another namespace, or to a cluster-scoped object.
    /// With Mentions, users of a namespace can't block deletions elsewhere.
    /// Absent means Needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Strength")]
    pub cross_namespace_strength: Option<Strength>,
    /// While this condition is met, the edge is only a mention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<FieldEquals>,
}

/// A kind by its plural name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct RelatedKind {
    /// The API group. Empty means the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The plural name.
    #[schemars(length(min = 1, max = 253))]
    pub resource: String,
}

/// The fields of the user that contain the kind of the used object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToRef {
    /// The field with the group or an apiVersion.
    #[schemars(length(min = 1, max = 512))]
    pub group_field_path: String,
    /// The field with the kind.
    #[schemars(length(min = 1, max = 512))]
    pub kind_field_path: String,
}

/// A field with a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldEquals {
    /// The field.
    #[schemars(length(min = 1, max = 512))]
    pub field_path: String,
    /// The value. Empty means any value except null and false.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub equals: String,
}

/// The meaning of the edge for the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strength {
    /// The user breaks without the other object. Only this strength blocks deletions.
    #[default]
    Needs,
    /// The user names the other object. belay shows the edge, but does not block deletions.
    Mentions,
    /// The user creates the other object. belay shows the edge, but does not block deletions.
    Produces,
}
