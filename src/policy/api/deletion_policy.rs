//! DeletionPolicy: the protected objects and the modes of protection.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selectors::{ExistingSelector, LabelSelector, Subject, TargetSelector, UserSelector};

/// The protected objects, the modes of protection, and the action.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "belay.dev",
    version = "v1alpha1",
    kind = "DeletionPolicy",
    plural = "deletionpolicies",
    doc = "Which objects may not be deleted, stripped or orphaned, and under what conditions.",
    status = "DeletionPolicyStatus",
    derive = "PartialEq",
    category = "belay",
    shortname = "delpol",
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.action"),
    printcolumn(
        name = "While-Used",
        type_ = "string",
        json_path = ".spec.protect.whileUsed.onDelete"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Protected", type_ = "integer", json_path = ".status.protectedObjects"),
    printcolumn(name = "Holds", type_ = "integer", json_path = ".status.heldObjects"),
    printcolumn(
        name = "Denied",
        type_ = "integer",
        json_path = ".status.last24h.denied",
        description = "in the last 24 hours"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.protect.whileNotEmpty) || self.targets.all(t, t.resources.all(r, r in ['namespaces', 'customresourcedefinitions']))").message("whileNotEmpty is for namespaces and customresourcedefinitions: it does not protect other kinds"))]
#[x_kube(validation = Rule::new("!has(self.subjects) || size(self.subjects) == 0 || has(self.protect.always) || !has(self.protect.whileUsed) || self.protect.whileUsed.onDelete != 'Hold'").message("a policy with subjects places no hold, because others may delete what it protects: remove subjects, or whileUsed.onDelete Hold"))]
pub struct DeletionPolicySpec {
    /// The protected objects. An object must match one entry.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("size(self) > 0").message("targets is empty: a policy protects nothing until it names at least one kind of object"))]
    pub targets: Vec<TargetSelector>,
    /// Objects that the policy excludes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exclude: Vec<TargetSelector>,
    /// The subjects that the policy binds. Empty means all subjects. A policy with subjects
    /// adds no hold, because other subjects, and the garbage collector, may delete the objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub subjects: Vec<Subject>,
    /// Subjects whose requests belay accepts and records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exempt_subjects: Vec<Subject>,
    /// The modes of protection. The presence of a mode enables it.
    pub protect: Protect,
    /// Whether belay adds the hold. A policy with `subjects` adds none.
    #[serde(default)]
    pub hold: HoldMode,
    /// The action when the policy refuses a request.
    #[serde(default)]
    pub action: Action,
    /// Other actions for some namespaces. The first match applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub action_overrides: Vec<ActionOverride>,
    /// The terms of the approvals that allow a deletion.
    #[serde(default)]
    pub approval: ApprovalSettings,
    /// The minimum time that belay holds a deleted object, so that belay sees users whose creation
    /// began before the DELETE. 45 is enough for every such user.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 600").message("settleSeconds is between 0 and 600; with 45, belay sees every object whose creation began before the DELETE"))]
    pub settle_seconds: i64,
}

/// The modes of protection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.always) || has(self.whileUsed) || has(self.whileNotEmpty) || has(self.whileExists) || has(self.fromOrphaning) || has(self.fromStripping)").message("protect enables no mode: set at least one of always, whileUsed, whileNotEmpty, whileExists, fromOrphaning, fromStripping"),
    validation = Rule::new("!has(self.always) || !has(self.whileUsed) || self.whileUsed.onDelete != 'Hold'").message("always denies deletes, so nothing would be held: remove always, or whileUsed.onDelete Hold")
)]
pub struct Protect {
    /// Refuse deletes without an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<Always>,
    /// Refuse deletes, or hold the object, while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub while_used: Option<WhileUsed>,
    /// Refuse to delete a Namespace or CustomResourceDefinition with content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub while_not_empty: Option<WhileNotEmpty>,
    /// Refuse deletes while one of these objects exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("size(self) > 0").message("whileExists is empty: name at least one kind whose objects keep the target"))]
    pub while_exists: Option<Vec<ExistingSelector>>,
    /// Refuse requests that orphan the object or its dependents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_orphaning: Option<FromOrphaning>,
    /// Refuse users who remove finalizers of controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stripping: Option<FromStripping>,
}

/// Refuse deletes without an approval. This mode has no options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Always {}

/// Refuse deletes, or hold the object, while it is in use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhileUsed {
    /// The objects whose use counts. Empty means all objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub by: Vec<UserSelector>,
    /// The effect of a DELETE while the object is in use.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// Whether references with `optional: true` count.
    #[serde(default)]
    pub optional_references: OptionalReferences,
}

/// The effect of a DELETE of an object in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// belay refuses the DELETE. Use it if the object must never become Terminating.
    #[default]
    Deny,
    /// belay accepts the DELETE with a warning, and holds the object until nothing uses it. Use
    /// it for objects that tools prune.
    Hold,
}

/// Whether optional references count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OptionalReferences {
    /// Optional references don't count.
    #[default]
    Ignore,
    /// Optional references count.
    Count,
}

/// Refuse deletes while the object has content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhileNotEmpty {
    /// The objects that count as content.
    #[serde(default)]
    pub counting: Counting,
    /// Objects that don't count as content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ignore: Vec<TargetSelector>,
    /// Whether objects with an owner count.
    #[serde(default)]
    pub owned: Owned,
}

/// The objects that count as content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Counting {
    /// Bound PersistentVolumeClaims, and objects that a policy with action Deny protects.
    #[default]
    Protected,
    /// Any object.
    Any,
}

/// Whether objects with an owner count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Owned {
    /// Objects with an owner don't count, because the owner re-creates them.
    #[default]
    Ignore,
    /// Objects with an owner count.
    Count,
}

/// Refuse requests that orphan the object or its dependents. This mode has no options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FromOrphaning {}

/// Refuse users who remove finalizers of controllers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FromStripping {
    /// The finalizers. `*` matches any characters.
    #[serde(default = "every_finalizer")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("size(self) > 0 && self.all(f, size(f) > 0)").message("finalizers must name at least one finalizer; \"*\" is every one"))]
    pub finalizers: Vec<String>,
    /// The subjects that may remove the finalizers. Empty means service accounts and system
    /// components, but no other users. Then, of service accounts, only those in kube-system may
    /// remove finalizers of Kubernetes' own controllers, such as `kubernetes.io/pvc-protection`. A
    /// user who may create tokens of a service account can act as this account, so name the account
    /// of the controller here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub removers: Vec<Subject>,
}

impl Default for FromStripping {
    fn default() -> Self {
        Self { finalizers: every_finalizer(), removers: Vec::new() }
    }
}

fn every_finalizer() -> Vec<String> {
    vec!["*".to_owned()]
}

/// Whether belay adds the hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HoldMode {
    /// belay adds the hold, except to kinds where it is unsafe.
    #[default]
    Auto,
    /// belay adds no hold. Only admission protects the objects.
    Never,
}

/// The action when a policy refuses a request.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Action {
    /// belay records the request.
    Audit,
    /// belay warns the user.
    Warn,
    /// belay refuses the request.
    #[default]
    Deny,
}

/// Another action for some namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionOverride {
    /// The labels of the Namespace.
    pub namespace_selector: LabelSelector,
    /// The action in these namespaces.
    pub action: Action,
}

/// The terms of approvals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalSettings {
    /// The number of different people who must approve.
    #[serde(default = "one")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 10").message("required is the number of different users who must approve: between 1 and 10"))]
    pub required: i64,
    /// The longest duration of an approval.
    #[serde(default = "an_hour")]
    #[x_kube(validation = Rule::new("self >= 60 && self <= 86400").message("maxDurationSeconds is between 60 (a minute) and 86400 (a day)"))]
    pub max_duration_seconds: i64,
    /// Service accounts whose approvals count, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 317)))]
    #[x_kube(validation = Rule::new("self.all(s, s.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$'))").message("serviceAccounts are written namespace/name"))]
    pub service_accounts: Vec<String>,
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self { required: one(), max_duration_seconds: an_hour(), service_accounts: Vec::new() }
    }
}

fn one() -> i64 {
    1
}

fn an_hour() -> i64 {
    3600
}

/// The status that belay reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPolicyStatus {
    /// The conditions Ready, Watching and Holding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of protected objects.
    #[serde(default)]
    pub protected_objects: i64,
    /// The number of protected objects with the hold.
    #[serde(default)]
    pub held_objects: i64,
    /// From this time on all holds are effective; before, a policy with `onDelete: Hold` refuses
    /// the DELETE of an object in use whose hold is not effective yet. Absent if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds_effective_time: Option<Time>,
    /// Kinds of which some protected objects get no hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_held: Vec<NotHeld>,
    /// Kinds that the policy names and the API server does not serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_kinds: Vec<String>,
    /// The counts of the last 24 hours.
    #[serde(default, rename = "last24h")]
    pub last_24h: LastDay,
    /// Recent verdicts, at most ten. Verdicts of one namespace do not displace those
    /// of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub recent: Vec<RecentVerdict>,
}

/// A kind of which some protected objects get no hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotHeld {
    /// The plural name of the kind, with its group.
    pub resource: String,
    /// The reason.
    pub why: String,
    /// The number of objects without the hold. Absent if no object of the kind gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<i64>,
}

/// The counts of the last 24 hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastDay {
    /// The number of refused requests.
    #[serde(default)]
    pub denied: i64,
    /// The number of accepted requests that action Deny would have refused.
    #[serde(default)]
    pub would_deny: i64,
    /// The number of accepted deletes whose object is held.
    #[serde(default)]
    pub held: i64,
}

/// A recorded verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentVerdict {
    /// The time.
    pub time: Time,
    /// The target.
    pub target: String,
    /// The uid of the target. Absent if the request did not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The verdict.
    pub verdict: String,
    /// The reason, such as InUse. Absent if an older version of belay recorded the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user.
    pub user: String,
    /// The message.
    pub message: String,
}
