//! Selectors of objects and subjects in policies.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A selector of objects. An object must match all given fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetSelector {
    /// API groups. `""` is the core group; `*` matches all groups.
    #[schemars(length(max = 32), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("size(self) > 0").message("apiGroups is empty: name at least one API group, \"\" is the core group"))]
    pub api_groups: Vec<String>,
    /// Plural resource names, such as `persistentvolumeclaims`. `*` matches all resources.
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("size(self) > 0 && self.all(r, size(r) > 0 && !r.contains('/'))").message("resources must name at least one plural resource, such as persistentvolumeclaims, and no subresource"))]
    pub resources: Vec<String>,
    /// Names. `*` matches any characters. Empty matches all names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("self.all(n, size(n) > 0)").message("names has an empty entry, which is no object's name; omit names to match every name"))]
    pub names: Vec<String>,
    /// Labels of the object's Namespace. For a Namespace, its own labels. Other cluster-scoped
    /// objects always match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
    /// Annotations of the object with exact values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_annotations: BTreeMap<String, String>,
}

/// A label selector as in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with exact values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0").message("operator In and NotIn need values, Exists and DoesNotExist take none"))]
pub struct LabelRequirement {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// The operator.
    pub operator: Operator,
    /// The values for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// The operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[allow(missing_docs)] // The names are Kubernetes' own.
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A selector of objects that use the object. Such an object, or one of the owners above it, must
/// match all given fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserSelector {
    /// API groups. Empty matches all groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 253)))]
    pub api_groups: Vec<String>,
    /// Plural resource names. Empty matches all resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub resources: Vec<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
}

/// A selector of objects. While one of them exists, the target can't be deleted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingSelector {
    /// API groups. `""` is the core group.
    #[schemars(length(max = 32), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("size(self) > 0 && self.all(g, g != '*')").message("whileExists needs the API groups by name (\"\" is the core group), because belay watches these kinds"))]
    pub api_groups: Vec<String>,
    /// Plural resource names.
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("size(self) > 0 && self.all(r, size(r) > 0 && r != '*' && !r.contains('/'))").message("whileExists needs the plural resources by name, because belay watches these kinds"))]
    pub resources: Vec<String>,
    /// Labels of their Namespaces. Absent matches all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// A user, a group or a service account, as in RBAC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.kind == 'ServiceAccount') == (has(self.namespace) && size(self.namespace) > 0)").message("a subject of kind ServiceAccount needs its namespace, a User or Group has none"))]
pub struct Subject {
    /// The kind of the subject.
    pub kind: SubjectKind,
    /// As in RBAC: `rbac.authorization.k8s.io` for users and groups. belay does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// The name.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// The namespace of a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// The kind of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[allow(missing_docs)] // The names are Kubernetes' own.
pub enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}
