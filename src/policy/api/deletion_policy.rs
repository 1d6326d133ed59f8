//! DeletionPolicy: which objects are protected, and against what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selectors::{By, Existing, LabelSelector, Subject, Target};

/// Which objects a policy protects, against what, and how.
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
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Protected", type_ = "integer", json_path = ".status.protectedObjects"),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.heldObjects"),
    printcolumn(
        name = "Denied",
        type_ = "integer",
        json_path = ".status.last24h.denied",
        description = "in the last 24 hours"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.protect.whileNotEmpty) || self.targets.all(t, t.resources.all(r, r in ['namespaces', 'customresourcedefinitions']))").message("whileNotEmpty is for namespaces and customresourcedefinitions: every other target of this policy would be left without protection"))]
#[x_kube(validation = Rule::new("!has(self.subjects) || size(self.subjects) == 0 || has(self.protect.always) || !has(self.protect.whileUsed) || self.protect.whileUsed.onDelete != 'Hold'").message("a policy with subjects places no hold, because others may delete what it protects: take out subjects, or whileUsed.onDelete Hold"))]
pub struct DeletionPolicySpec {
    /// The objects; any entry matches.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("size(self) > 0").message("targets is empty: a policy protects nothing until it names at least one kind of object"))]
    pub targets: Vec<Target>,
    /// Objects that are left out, though a target matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exclude: Vec<Target>,
    /// Whom the policy binds; none: everybody. A policy with subjects places no
    /// hold: other subjects, and the garbage collector, may delete what it
    /// protects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub subjects: Vec<Subject>,
    /// Who is allowed all the same. It is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exempt_subjects: Vec<Subject>,
    /// Against what: the presence of a mode switches it on.
    pub protect: Protect,
    /// Whether objects get the hold. With `subjects` they do not.
    #[serde(default)]
    pub hold: HoldMode,
    /// What happens when the policy refuses.
    #[serde(default)]
    pub action: Action,
    /// Another action for some namespaces; the first that matches wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub action_overrides: Vec<ActionOverride>,
    /// What it takes to delete all the same.
    #[serde(default)]
    pub approval: Approval,
    /// How long a deleted object stays held at the least, so that users whose
    /// creation was under way are honoured (45 covers every write).
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 600").message("settleSeconds is between 0 and 600; 45 covers every write that was under way"))]
    pub settle_seconds: i64,
}

/// Against what objects are protected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.always) || has(self.whileUsed) || has(self.whileNotEmpty) || has(self.whileExists) || has(self.fromOrphaning) || has(self.fromStripping)").message("protect switches no mode on: give at least one of always, whileUsed, whileNotEmpty, whileExists, fromOrphaning, fromStripping"),
    validation = Rule::new("!has(self.always) || !has(self.whileUsed) || self.whileUsed.onDelete != 'Hold'").message("always is never held in place of a denial: take out always, or whileUsed.onDelete Hold")
)]
pub struct Protect {
    /// Never deleted without an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<Always>,
    /// Not deleted while something needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub while_used: Option<WhileUsed>,
    /// A Namespace or CustomResourceDefinition is not deleted while something
    /// is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub while_not_empty: Option<WhileNotEmpty>,
    /// Not deleted while one of these exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("size(self) > 0").message("whileExists is empty: name at least one kind whose objects keep the target"))]
    pub while_exists: Option<Vec<Existing>>,
    /// It loses neither its owner nor its dependents by orphaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_orphaning: Option<FromOrphaning>,
    /// Finalizers of others are not taken off by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stripping: Option<FromStripping>,
}

/// Never deleted without an approval. It has no options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Always {}

/// Not deleted while something needs it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhileUsed {
    /// Which users count; none: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub by: Vec<By>,
    /// What a DELETE does while it is used.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// Whether references with `optional: true` count.
    #[serde(default)]
    pub optional_references: OptionalReferences,
}

/// What a DELETE of an object in use does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// It is refused: right where Terminating is itself harm.
    #[default]
    Deny,
    /// It is accepted with a warning, and the object stays until its last user
    /// is gone: right for what machines prune.
    Hold,
}

/// Whether references that call themselves optional count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OptionalReferences {
    /// They do not.
    #[default]
    Ignore,
    /// They do.
    Count,
}

/// Not deleted while something is in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhileNotEmpty {
    /// What counts as content.
    #[serde(default)]
    pub counting: Counting,
    /// Content that does not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ignore: Vec<Target>,
    /// Whether content counts that has an owner.
    #[serde(default)]
    pub owned: Owned,
}

/// What counts as content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Counting {
    /// Bound PersistentVolumeClaims, and what a policy with action Deny
    /// protects.
    #[default]
    Protected,
    /// Any object.
    Any,
}

/// Whether content counts that has an owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Owned {
    /// It does not: its owner makes it again.
    #[default]
    Ignore,
    /// It does.
    Count,
}

/// It loses neither its owner nor its dependents by orphaning. It has no
/// options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FromOrphaning {}

/// Finalizers of others are not taken off by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FromStripping {
    /// Which finalizers, with `*` for any run of characters.
    #[serde(default = "every_finalizer")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(validation = Rule::new("size(self) > 0 && self.all(f, size(f) > 0)").message("finalizers must name at least one finalizer; \"*\" is every one"))]
    pub finalizers: Vec<String>,
    /// Who may take them off; none: service accounts and what belongs to the
    /// system, so people are refused and operators are not. The finalizers of
    /// Kubernetes' own controllers, such as `kubernetes.io/pvc-protection`, no
    /// service account may take off but those of kube-system. Who may create
    /// tokens of a service account may do what it may: name the account of the
    /// controller here where that matters.
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

/// Whether objects get the hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HoldMode {
    /// Where it helps, and not where it is harm.
    #[default]
    Auto,
    /// Never: only admission protects.
    Never,
}

/// What happens when a policy refuses.
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
    /// Labels of the namespace.
    pub namespace_selector: LabelSelector,
    /// The action there.
    pub action: Action,
}

/// What it takes to delete all the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// How many different people have to approve.
    #[serde(default = "one")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 10").message("required is the number of different people who have to approve: between 1 and 10"))]
    pub required: i64,
    /// How long an approval may last at the most.
    #[serde(default = "an_hour")]
    #[x_kube(validation = Rule::new("self >= 60 && self <= 86400").message("maxDurationSeconds is between 60 (a minute) and 86400 (a day)"))]
    pub max_duration_seconds: i64,
    /// Service accounts whose approval counts, as `namespace/name`; of others
    /// it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 317)))]
    #[x_kube(validation = Rule::new("self.all(s, s.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$'))").message("serviceAccounts are written namespace/name"))]
    pub service_accounts: Vec<String>,
}

impl Default for Approval {
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

/// What belay reports of a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPolicyStatus {
    /// Ready, Watching, Holding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many objects the policy protects.
    #[serde(default)]
    pub protected_objects: i64,
    /// How many of them are held.
    #[serde(default)]
    pub held_objects: i64,
    /// Kinds of which not everything that the policy protects gets the hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_held: Vec<NotHeld>,
    /// Kinds that the policy names and nobody serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_kinds: Vec<String>,
    /// What it said in the last 24 hours.
    #[serde(default, rename = "last24h")]
    pub last_24h: LastDay,
    /// The newest of what it said, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub recent: Vec<Recent>,
}

/// What does not get the hold.
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

/// What a policy said in the last 24 hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastDay {
    /// Requests refused.
    #[serde(default)]
    pub denied: i64,
    /// Requests that action Deny would have refused.
    #[serde(default)]
    pub would_deny: i64,
    /// Deletes that left their object held.
    #[serde(default)]
    pub held: i64,
}

/// One thing that a policy said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recent {
    /// When.
    pub time: Time,
    /// About which object.
    pub target: String,
    /// What.
    pub verdict: String,
    /// To whom.
    pub user: String,
    /// In which words.
    pub message: String,
}
