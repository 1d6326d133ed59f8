//! DeletionApproval and Pause: what one person says, with a reason, until a
//! time. Neither can be changed once it is there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One person's reasoned, expiring yes for one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "belay.dev",
    version = "v1alpha1",
    kind = "DeletionApproval",
    doc = "One person's reasoned, expiring yes to the deletion of one object. It cannot be changed.",
    derive = "PartialEq",
    category = "belay",
    shortname = "delappr",
    printcolumn(name = "Resource", type_ = "string", json_path = ".spec.targetRef.resource"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.targetRef.namespace"),
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.targetRef.name"),
    printcolumn(name = "Approver", type_ = "string", json_path = ".spec.approver"),
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.scope"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expirationTime")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("an approval cannot be changed: delete it and approve again"))]
pub struct DeletionApprovalSpec {
    /// The object, under exactly this identity.
    pub target_ref: TargetRef,
    /// Who approves: the name that the API server knows the sender by.
    #[schemars(length(min = 1, max = 1024))]
    pub approver: String,
    /// Why.
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("size(self.trim()) > 0").message("reason is blank: say why, somebody will read it one day"))]
    pub reason: String,
    /// The expiry.
    pub expiration_time: Time,
    /// How much is approved.
    #[serde(default)]
    pub scope: Scope,
    /// Written by belay alone, when it records that somebody whom these
    /// policies exempt has deleted the object: it counts for them and no
    /// others. In anybody else's approval it means nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub exempts: Vec<String>,
}

/// An object under one identity: made again it is another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct TargetRef {
    /// API group; empty: the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// Plural name.
    #[schemars(length(min = 1, max = 253))]
    pub resource: String,
    /// Namespace; empty for a cluster-scoped object.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `metadata.uid`.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// How much an approval covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// The object only.
    #[default]
    Object,
    /// The object, its content, and the dependents that are deleted with it.
    Content,
}

/// Everything is Audit until a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "belay.dev",
    version = "v1alpha1",
    kind = "Pause",
    doc = "Until it expires belay refuses nothing and records what it would have refused. It cannot be changed.",
    derive = "PartialEq",
    category = "belay",
    printcolumn(name = "By", type_ = "string", json_path = ".spec.by"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expirationTime")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a pause cannot be changed: delete it and pause again"))]
pub struct PauseSpec {
    /// Who pauses: the name that the API server knows the sender by.
    #[schemars(length(min = 1, max = 1024))]
    pub by: String,
    /// Why.
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("size(self.trim()) > 0").message("reason is blank: say why, somebody will read it one day"))]
    pub reason: String,
    /// The expiry.
    pub expiration_time: Time,
}
