//! DeletionApproval and Pause: an expiring decision of one user with a reason. Users can change
//! neither.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::objects::ObjectRef;

/// The prefix of the names of belay's own approvals: exemption records and exemption bars. The
/// API server accepts it only from belay and cluster administrators.
pub const RECORD_PREFIX: &str = "belay-exempts-";

/// The approval of one user to delete one object, with a reason and an expiry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "belay.dev",
    version = "v1alpha1",
    kind = "DeletionApproval",
    doc = "A user's approval of the deletion of one object, until a time. It cannot be changed.",
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
pub struct DeletionApprovalSpec {
    /// The object with this exact identity.
    pub target_ref: TargetRef,
    /// The approver: the user name of the sender.
    #[schemars(length(min = 1, max = 1024))]
    pub approver: String,
    /// The reason.
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("size(self.trim()) > 0").message("reason is blank: state why, for those who read the record later"))]
    pub reason: String,
    /// The expiry.
    pub expiration_time: Time,
    /// The scope of the approval.
    #[serde(default)]
    pub scope: Scope,
    /// The policies that exempted a subject, in an exemption that belay records. The approval
    /// counts only for these policies. Only belay and cluster administrators may set this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub exempts: Vec<String>,
}

impl DeletionApproval {
    /// Whether it has the name of an exemption record or exemption bar.
    pub fn has_record_name(&self) -> bool {
        self.metadata.name.as_ref().is_some_and(|name| name.starts_with(RECORD_PREFIX))
    }
}

/// The identity of an object. A re-created object has another identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct TargetRef {
    /// The API group. Empty means the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The plural name.
    #[schemars(length(min = 1, max = 253))]
    pub resource: String,
    /// The namespace. Empty for a cluster-scoped object.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `metadata.uid`.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

impl TargetRef {
    /// The reference to an object with this uid.
    pub fn new(object: &ObjectRef, uid: &str) -> Self {
        let ObjectRef { group, resource, namespace, name, .. } = object.clone();
        Self { group, resource, namespace, name, uid: uid.to_owned() }
    }

    /// The object, without the uid.
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef::new((&self.group, &self.resource), &self.namespace, &self.name)
    }
}

/// The scope of an approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// The object only.
    #[default]
    Object,
    /// The object, its content, and the dependents that are deleted with it.
    Content,
}

/// Changes all policies to Audit until the expiry.
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
    /// The user name of the sender.
    #[schemars(length(min = 1, max = 1024))]
    pub by: String,
    /// The reason.
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("size(self.trim()) > 0").message("reason is blank: state why, for those who read the record later"))]
    pub reason: String,
    /// The expiry.
    pub expiration_time: Time,
}
