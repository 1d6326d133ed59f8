//! Compiled approvals and pauses, and the terms of policies. The decision finds the
//! approvals that are in force for an object.

use super::api::{DeletionApproval, Scope};
use super::compiled::{ApprovalTerms, Policy, PolicySource};
use super::identities::parse_service_account;
use crate::objects::{KeyedMap, ObjectRef, Uid};

/// How far the creation time of an approval may be in the future by belay's clock.
const MAX_FUTURE_SECONDS: i64 = 300;

/// The assumed limit of the difference between the clocks of API servers.
pub const MAX_CLOCK_DIFFERENCE_SECONDS: i64 = 5;

/// A Pause: all policies have action Audit until it expires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// Its name.
    pub name: String,
    /// Its uid, for Events about it.
    pub uid: String,
    /// The user who created it.
    pub by: String,
    /// When it expires, in seconds since 1970.
    pub expires: i64,
}

impl Pause {
    /// Compiles a Pause from the API.
    pub fn compile(pause: &super::api::Pause) -> Self {
        Self {
            name: pause.metadata.name.clone().unwrap_or_default(),
            uid: pause.metadata.uid.clone().unwrap_or_default(),
            by: pause.spec.by.clone(),
            expires: pause.spec.expiration_time.0.as_second(),
        }
    }

    /// Its expiry time for messages.
    pub fn until(&self) -> String {
        until(self.expires)
    }
}

fn until(expires: i64) -> String {
    let end = jiff::Timestamp::from_second(expires);
    end.map_or_else(|_| expires.to_string(), |end| end.to_string())
}

/// An approval of a person, or an exemption record of belay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its name.
    pub name: String,
    /// Its uid. The name is not enough: belay re-creates exemption records under one name.
    pub uid: String,
    /// The user who approved.
    pub approver: String,
    /// The approved object.
    pub target: ObjectRef,
    /// The uid of the approved object.
    pub target_uid: Uid,
    /// Whether it also covers the content and the dependents.
    pub content: bool,
    /// The policies of an exemption record of belay. Empty in all other approvals: only belay
    /// and cluster administrators may set it.
    pub exempts: Vec<PolicySource>,
    /// Its resourceVersion. All kinds in one etcd share one counter, so this shows which writes
    /// in the same etcd are older than the approval.
    pub version: u64,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// When it expires, in seconds since 1970.
    pub expires: i64,
}

impl Approval {
    /// Compiles an approval from the API. Returns `None` without a creation time, because its
    /// duration is unknown. Also returns `None` if it is being deleted, because its approver
    /// withdrew it.
    pub fn compile(approval: &DeletionApproval) -> Option<Self> {
        if approval.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = &approval.spec;
        let target = &spec.target_ref;
        Some(Self {
            name: approval.metadata.name.clone().unwrap_or_default(),
            uid: approval.metadata.uid.clone().unwrap_or_default(),
            approver: spec.approver.clone(),
            target: target.object_ref(),
            target_uid: Uid::new(&target.uid),
            content: spec.scope == Scope::Content,
            exempts: spec.exempts.iter().cloned().map(PolicySource::Policy).collect(),
            version: approval
                .metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
            created: approval.metadata.creation_timestamp.as_ref()?.0.as_second(),
            expires: spec.expiration_time.0.as_second(),
        })
    }

    /// Its expiry time for messages.
    pub fn until(&self) -> String {
        until(self.expires)
    }

    /// Whether it names exactly this object. With the uid alone, a user with rights in
    /// one namespace could approve objects in another one.
    pub fn names_object(&self, identity: &ObjectIdentity<'_>) -> bool {
        self.target_uid == identity.uid
            && self.target.is_of((identity.group, identity.resource))
            && self.target.namespace == identity.namespace
            && self.target.name == identity.name
    }

    /// Whether it covers content in this namespace. The API server checked the right to
    /// approve only in the namespace of the target. For a cluster-scoped object other than a
    /// Namespace, it checked the right in the whole cluster.
    pub fn covers_namespace(&self, namespace: &str) -> bool {
        let checked_namespace = self.target.own_namespace();
        checked_namespace.is_empty() || checked_namespace == namespace
    }

    /// Whether it is older than the deletion of its object.
    pub fn was_created_before(&self, deleted: i64) -> bool {
        self.created <= deleted.saturating_add(MAX_CLOCK_DIFFERENCE_SECONDS)
    }

    /// Whether it is in force. It is in force until it expires. After that, it stays in force for
    /// a target whose deletion began before, and for its existing content, so that the cascade can
    /// complete. `content_created` is the creation time of the covered content, and `i64::MIN` for
    /// the target itself.
    pub fn is_in_force(&self, target_deleted: Option<i64>, content_created: i64, now: i64) -> bool {
        let was_created = self.created <= now.saturating_add(MAX_FUTURE_SECONDS);
        let deleted_in_time = target_deleted.is_some_and(|deleted| deleted <= self.expires);
        was_created && (now < self.expires || (deleted_in_time && content_created <= self.expires))
    }
}

/// The identity of an object, with its uid. Unlike an [`ObjectRef`], it borrows its strings,
/// because a decision creates many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectIdentity<'a> {
    /// API group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Its uid.
    pub uid: Uid,
}

/// All approvals.
#[derive(Debug, Default)]
pub struct Approvals {
    by_target_uid: KeyedMap<Uid, Vec<Approval>>,
}

impl Approvals {
    /// Indexes approvals.
    pub fn new(approvals: impl IntoIterator<Item = Approval>) -> Self {
        let mut all = Self::default();
        for approval in approvals {
            // No stored object lacks a uid.
            if !approval.target_uid.is_none() {
                all.by_target_uid.entry(approval.target_uid).or_default().push(approval);
            }
        }
        all
    }

    /// Whether there are no approvals.
    pub fn is_empty(&self) -> bool {
        self.by_target_uid.is_empty()
    }

    /// All approvals.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.by_target_uid.values().flatten()
    }

    /// The approvals that name this uid.
    pub fn of_uid(&self, uid: Uid) -> &[Approval] {
        self.by_target_uid.get(&uid).map_or(&[], Vec::as_slice)
    }
}

impl ApprovalTerms {
    /// The terms that satisfy several policies: the greatest number of people, the
    /// shortest duration, and only accounts that all of them list.
    pub fn merge<'t>(terms: impl IntoIterator<Item = &'t Self>) -> Option<Self> {
        terms.into_iter().fold(None, |merged: Option<Self>, terms| {
            let Some(mut merged) = merged else { return Some(terms.clone()) };
            merged.required = merged.required.max(terms.required);
            merged.longest_seconds = merged.longest_seconds.min(terms.longest_seconds);
            merged.accounts.retain(|account| terms.accounts.contains(account));
            Some(merged)
        })
    }

    /// Whether these approvals are sufficient: from enough different people, each short
    /// enough.
    pub fn are_met(&self, approvals: &[&Approval]) -> bool {
        self.approvers(approvals).len() >= self.required
    }

    /// The people whose approvals count, each once.
    pub fn approvers<'p>(&self, approvals: &[&'p Approval]) -> Vec<&'p str> {
        let effective =
            approvals.iter().filter(|approval| self.why_ineffective(approval).is_none());
        let mut people: Vec<&str> = effective.map(|approval| approval.approver.as_str()).collect();
        people.sort_unstable();
        people.dedup();
        people
    }

    /// Why an approval does not count; `None` if it counts.
    fn why_ineffective(&self, approval: &Approval) -> Option<IneffectiveReason> {
        let seconds = approval.expires.saturating_sub(approval.created);
        if !(1..=self.longest_seconds).contains(&seconds) {
            return Some(IneffectiveReason::TooLong { longest_seconds: self.longest_seconds });
        }
        // The approval of a person counts without an entry in the list.
        let (namespace, name) = parse_service_account(&approval.approver)?;
        let is_approver = |account: &String| account.split_once('/') == Some((namespace, name));
        (!self.accounts.iter().any(is_approver)).then_some(IneffectiveReason::Unlisted)
    }
}

impl Policy {
    /// The lowest-ranked reason why an approval does not count, with its policy; `None` if the
    /// approval counts for all policies.
    pub fn reason_not_counted<'p>(
        approval: &Approval,
        policies: impl IntoIterator<Item = &'p Self>,
    ) -> Option<(&'p Self, IneffectiveReason)> {
        let reasons = policies
            .into_iter()
            .filter_map(|policy| Some((policy, policy.approval.why_ineffective(approval)?)));
        reasons.min_by_key(|(_, why)| *why)
    }
}

/// Why an approval does not count for a policy, from the lowest rank to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IneffectiveReason {
    /// The approval lasts too long, or its duration is not positive.
    TooLong {
        /// The longest duration that the policy allows.
        longest_seconds: i64,
    },
    /// The policy does not list the service account that created the approval.
    Unlisted,
    /// The approval is older than the owner reference that made the object part of the approved
    /// content.
    OlderThanReference,
}

impl IneffectiveReason {
    /// The reason for a policy, as a clause after "the approval" or "it".
    pub fn explain(self, policy: &PolicySource) -> String {
        match self {
            Self::TooLong { longest_seconds } => {
                let longest = format_seconds(longest_seconds.unsigned_abs());
                format!("lasts longer than {policy} allows ({longest})")
            }
            Self::Unlisted => {
                format!(
                    "is by a service account, which {policy} does not list in approval.serviceAccounts"
                )
            }
            Self::OlderThanReference => {
                "was given before an owner reference changed, so it may now cover other objects"
                    .to_owned()
            }
        }
    }
}

/// A duration such as `1h30m`.
pub fn format_seconds(seconds: u64) -> String {
    let parts = [(seconds / 3600, "h"), (seconds % 3600 / 60, "m"), (seconds % 60, "s")];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    parts.map(|(number, unit)| format!("{number}{unit}")).collect()
}
