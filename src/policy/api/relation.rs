//! Relation: an edge that belay does not know without being told.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An edge from the objects of one kind to what they need.
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
    validation = Rule::new("has(self.to) != has(self.toRef)").message("give either to, the kind that is needed, or toRef, where the object itself says the kind"),
    validation = Rule::new("has(self.nameFieldPath) != has(self.selectorFieldPath)").message("give either nameFieldPath or selectorFieldPath: where the object says what it needs"),
    validation = Rule::new("!has(self.selectorFieldPath) || (has(self.to) && !has(self.namespaceFieldPath))").message("selectorFieldPath goes with to alone: a selector looks for one kind, in the object's own namespace")
)]
pub struct RelationSpec {
    /// The kind whose objects have the edge.
    pub from: RelatedKind,
    /// The kind of what they need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RelatedKind>,
    /// Where the object says the kind of what it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ref: Option<ToRef>,
    /// Where the name is, such as `spec.cluster.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub name_field_path: Option<String>,
    /// Where the namespace is; none: the object's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub namespace_field_path: Option<String>,
    /// Where a label selector is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub selector_field_path: Option<String>,
    /// What the edge means.
    #[serde(default)]
    pub strength: Strength,
    /// What ends the need: from then on it is a mention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<FieldEquals>,
}

/// A kind, by the plural name that URLs have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct RelatedKind {
    /// API group; empty: the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// Plural name.
    #[schemars(length(min = 1, max = 253))]
    pub resource: String,
}

/// Where an object says the kind of what it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToRef {
    /// Where the group, or an apiVersion, is.
    #[schemars(length(min = 1, max = 512))]
    pub group_field_path: String,
    /// Where the kind is.
    #[schemars(length(min = 1, max = 512))]
    pub kind_field_path: String,
}

/// A field that has a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldEquals {
    /// Where.
    #[schemars(length(min = 1, max = 512))]
    pub field_path: String,
    /// The value; empty: any.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub equals: String,
}

/// What the edge means for the one who has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strength {
    /// It breaks without the other object. The only strength that blocks.
    #[default]
    Needs,
    /// It names the other object. Shown, never blocks.
    Mentions,
    /// It makes the other object. Shown, never blocks.
    Produces,
}
