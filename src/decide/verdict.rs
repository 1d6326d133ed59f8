//! The result of a decision, as plain data.

use std::fmt;

use serde::Deserialize;

use super::{LiveRead, NextStep};
use crate::graph::Propagation;
use crate::objects::{Object, ObjectRef, clear_name, text_enum};
use crate::policy::api::Action;
use crate::policy::{IneffectiveReason, PolicySource};

text_enum! {
    /// The result for a request, from the mildest to the strictest.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
    pub enum Decision {
        /// The request passes.
        Allow = "Allow",
        /// The request passes. belay records what action Deny would have denied.
        Audit = "Audit",
        /// The request passes with a warning about what action Deny would have denied.
        Warn = "Warn",
        /// The request passes with a warning: the object stays Terminating until nothing uses
        /// it.
        Hold = "Hold",
        /// The request is denied.
        Deny = "Deny",
    }

    /// The name in metrics, logs and audit annotations.
    pub fn as_str;
}

impl Decision {
    /// Whether the request passes.
    pub fn passes(self) -> bool {
        self != Self::Deny
    }
}

impl From<Action> for Decision {
    fn from(action: Action) -> Self {
        match action {
            Action::Deny => Self::Deny,
            Action::Warn => Self::Warn,
            Action::Audit => Self::Audit,
        }
    }
}

text_enum! {
    /// The value of `status.reason` in a denial. Messages list equally strict blockers in
    /// this order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
    pub enum Reason {
        /// A policy protects the object, also while nothing uses it.
        Protected = "Protected",
        /// The object is in use.
        InUse = "InUse",
        /// The Namespace or CRD has content.
        NotEmpty = "NotEmpty",
        /// Objects exist for which the policy keeps this one.
        StillNeeded = "StillNeeded",
        /// An object would lose its owner.
        WouldOrphan = "WouldOrphan",
        /// The request removes a finalizer that the user may not remove.
        FinalizerGuarded = "FinalizerGuarded",
        /// belay could not read everything that the verdict needs.
        Unknown = "Unknown",
    }

    /// The value in `status.reason`.
    pub fn as_str;
}

/// An object by kind, namespace and name: `StatefulSet db/postgres`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The kind.
    pub kind: String,
    /// The object; without a resource if only the kind is known.
    pub object: ObjectRef,
}

impl ObjectName {
    /// The kind and the name, for an object in the namespace of its topmost owner.
    pub(super) fn without_namespace(&self) -> String {
        format!("{} {}", clear_name(&self.kind), clear_name(&self.object.name))
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectRef { namespace, name, .. } = &self.object;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let [kind, namespace, name] = [&self.kind, namespace, name].map(|n| clear_name(n));
        write!(f, "{kind} {namespace}{slash}{name}")
    }
}

/// The cause of a denial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The policy always protects the object.
    Always,
    /// A cascade reaches the object. The release checks its users before the object is
    /// removed.
    CheckedAtRelease,
    /// A user of the object.
    User {
        /// The owner that the policy selects, or the topmost owner of the user.
        root: ObjectName,
        /// The user, if it is not the root.
        through: Option<ObjectName>,
        /// The field in the manifest of the user.
        path: String,
    },
    /// The Namespace or CRD has content.
    Content {
        /// The object in the Namespace or CRD.
        object: ObjectName,
        /// Why this content keeps its container.
        why: ContentReason,
    },
    /// An object whose existence keeps the object.
    Exists(ObjectName),
    /// The owner would lose this dependent.
    Dependent(ObjectName),
    /// The dependent would lose this owner.
    Owner(ObjectName),
    /// The dependent would lose this owner, because the request adds another reference
    /// with the uid of the owner.
    RepeatedUid(ObjectName),
    /// The request removes the hold.
    Hold {
        /// Whether the object is Terminating.
        terminating: bool,
    },
    /// The request removes this finalizer of another controller.
    Finalizer(String),
    /// The DELETE removes this finalizer of another propagation.
    LostFinalizer(String),
    /// The request changes labels or annotations so that this object loses protection:
    /// the target, or an object in the Namespace whose labels change.
    WeakerProtection(ObjectName),
    /// Causes in another namespace than the object. The client may lack the right to read
    /// that namespace, so messages show neither names nor kinds nor their number.
    Elsewhere {
        /// At most the number that messages list.
        causes: Vec<Cause>,
        /// The number of further causes.
        more: usize,
    },
    /// Something is unknown; the text gives the reason.
    Unknown(String, Option<NextStep>),
    /// Something exceeds a limit; the text names the limit.
    TooLarge(String),
    /// belay could not evaluate any policy; the text gives the reason.
    NotEvaluated(String, Option<NextStep>),
}

impl Cause {
    /// The object that this cause names, for the words "first delete …". It is not the
    /// target, whose DELETE is denied.
    pub(super) fn object_to_delete(&self, target: &ObjectRef) -> Option<&ObjectName> {
        match self {
            Self::User { root, through, .. } if root.object == *target => through.as_ref(),
            Self::User { root: object, .. }
            | Self::Content { object, .. }
            | Self::Exists(object) => Some(object),
            _ => None,
        }
    }

    /// The object for which the request is denied.
    pub(super) fn named_object(&self) -> Option<&ObjectName> {
        match self {
            Self::User { through: Some(object), .. }
            | Self::User { root: object, .. }
            | Self::Content { object, .. }
            | Self::Exists(object)
            | Self::Dependent(object)
            | Self::Owner(object) => Some(object),
            _ => None,
        }
    }
}

/// Why content keeps its container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentReason {
    /// The policy counts any object.
    Anything,
    /// It is a bound PersistentVolumeClaim.
    Bound,
    /// It is protected by this policy.
    Protected(PolicySource),
    /// This policy placed a hold on it. Without its Namespace, belay could not remove the hold.
    Held(PolicySource),
}

/// One reason for a denial, or for the denial that action Warn or Audit replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Deny, Hold, Warn or Audit.
    pub decision: Decision,
    /// The value in `status.reason`.
    pub reason: Reason,
    /// The policies that are the reason.
    pub policies: Vec<PolicySource>,
    /// The protected object: the target, or an object that would be deleted as well.
    pub object: ObjectRef,
    /// At most the number of causes that messages list.
    pub causes: Vec<Cause>,
    /// The number of further causes.
    pub more: usize,
    /// The number of different people who must approve.
    pub required_approvals: usize,
    /// Whether an approval of the target with its content covers the object.
    pub covered_by_content_approval: bool,
    /// Whether the hold keeps the object for these policies. If its DELETE passes, it stays
    /// Terminating.
    pub held: bool,
}

impl Blocker {
    /// A blocker without policies and causes, which one person can approve.
    pub fn new(decision: Decision, reason: Reason, object: ObjectRef) -> Self {
        let (policies, causes) = (Vec::new(), Vec::new());
        Self {
            decision,
            reason,
            policies,
            object,
            causes,
            more: 0,
            required_approvals: 1,
            covered_by_content_approval: false,
            held: false,
        }
    }

    /// The object whose approval removes the blocker of a verdict on this target.
    pub fn object_to_approve<'b>(&'b self, target: &'b ObjectRef) -> &'b ObjectRef {
        if self.covered_by_content_approval { target } else { &self.object }
    }

    /// Whether only the target itself, or objects of the target, use the object.
    pub(super) fn is_own_use(&self, target: &ObjectRef) -> bool {
        let is_own =
            |cause: &Cause| matches!(cause, Cause::User { root, .. } if root.object == *target);
        self.reason == Reason::InUse && !self.causes.is_empty() && self.causes.iter().all(is_own)
    }
}

/// Why a request passes although a policy denies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The names of the approvals that were sufficient.
    pub approvals: Vec<String>,
    /// The policies that exempt the user.
    pub exempted: Vec<PolicySource>,
}

/// An exemption that belay records as its own approval. The record allows the DELETEs of the
/// garbage collector that follow from this request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    /// The uid of the target.
    pub uid: String,
    /// The exempt user.
    pub user: String,
    /// The policies that exempt the user.
    pub policies: Vec<PolicySource>,
    /// How long the record is in force.
    pub seconds: i64,
}

/// An exemption record that belay deletes before the answer, because another subject
/// deletes the object that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedRecord {
    /// The name of the approval.
    pub name: String,
    /// The uid of the approval.
    pub uid: String,
}

/// An approval that is in force and does not count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IneffectiveApproval {
    /// The user who approved.
    pub approver: String,
    /// The policy for which it does not count.
    pub policy: PolicySource,
    /// The reason.
    pub why: IneffectiveReason,
}

impl std::fmt::Display for IneffectiveApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { approver, policy, why } = self;
        write!(f, "the approval by {approver} does not count: it {}", why.explain(policy))
    }
}

/// The change of the object's finalizers in the mutating phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldChange {
    /// The place of the hold in the list of finalizers.
    pub position: HoldPosition,
    /// Whether the request removes the hold and belay restores it.
    pub restored: bool,
}

/// The place of the hold in the list of finalizers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldPosition {
    /// The object has no list of finalizers yet.
    NewList,
    /// The object has a list of finalizers.
    At {
        /// The index of the hold in the list.
        index: usize,
        /// The list before the change.
        finalizers: Vec<String>,
    },
}

impl HoldPosition {
    /// The place in the list of this object, at this index or at the end.
    pub(crate) fn in_list(object: &Object<'_>, index: usize) -> Self {
        match &object.metadata.finalizers {
            None => Self::NewList,
            Some(finalizers) => Self::At {
                index: index.min(finalizers.len()),
                finalizers: finalizers.iter().map(|f| f.to_string()).collect(),
            },
        }
    }
}

/// The HTTP code of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialStatus {
    /// All clients treat 403 as a denial and print the message. They do not do so for
    /// other codes, such as 404 and 409.
    Forbidden,
    /// 429. `kubectl drain` retries after this code.
    TooManyRequests,
    /// The code is 404. The namespace controller deletes all objects of a kind with one request, which the API
    /// server stops at the first denial with another code.
    NotFound,
}

/// The result of a decision. It contains everything that its renderings need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// The reason of the strictest blocker.
    pub reason: Option<Reason>,
    /// The object of the request.
    pub target: ObjectRef,
    /// The reasons, the strictest first; empty if no policy objects to the request.
    pub blockers: Vec<Blocker>,
    /// The number of further blockers that are as strict as the first.
    pub more: usize,
    /// Why the request passes although a policy denies it.
    pub overrides: Overrides,
    /// The exemption to record; `None` for a dry run.
    pub exemption: Option<Exemption>,
    /// The exemption records to delete; empty for a dry run.
    pub revoked: Vec<RevokedRecord>,
    /// Approvals in force that don't count for the denying policies.
    pub ineffective_approvals: Vec<IneffectiveApproval>,
    /// The change of the hold in the mutating phase.
    pub hold: Option<HoldChange>,
    /// The live reads that the verdict still needs; empty when it is final.
    pub needed_reads: Vec<LiveRead>,
    /// The HTTP code of a denial.
    pub denial_status: DenialStatus,
    /// The propagation with which belay would allow the same DELETE. It is evaluated only if
    /// belay denies the DELETE because of orphaning, because of a removed finalizer of another
    /// propagation, or because the target uses an object that is deleted before it.
    pub passing_propagation: Option<Propagation>,
    /// Volumes that the steps of a message would delete, so that it must not advise these steps.
    pub lost_volumes: Vec<LostVolume>,
    /// Whether an UPDATE leads to the deletion, and not a DELETE.
    pub is_update: bool,
    /// The objects that keep the object of the first blocker and that can't be deleted
    /// first.
    pub refused_steps: Vec<RefusedStep>,
    /// After how many seconds belay allows the same DELETE and holds the objects in use; `None`
    /// if waiting does not help.
    pub retry_seconds: Option<i64>,
    /// Whether Events, statuses, logs and metrics may describe the verdict.
    pub recordable: Recordable,
}

/// An object that keeps another object, and whose DELETE belay would not allow at once either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedStep {
    /// The object.
    pub object: ObjectName,
    /// The objects to delete before this one; none if only an approval helps.
    pub first: Vec<ObjectName>,
}

/// A volume or claim that a step deletes, although the request keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostVolume {
    /// The object that the step deletes.
    pub step: ObjectRef,
    /// The volume or claim.
    pub volume: ObjectRef,
}

/// Whether belay may record a verdict. A caller who knows the path can name any object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recordable {
    /// The object of the review may not exist.
    No,
    /// belay doesn't know all objects of the kind, so the object may be made up.
    Unconfirmed,
    /// The object exists.
    Confirmed,
}

impl Verdict {
    /// A verdict that allows the request.
    pub fn allow(target: ObjectRef) -> Self {
        Self {
            decision: Decision::Allow,
            reason: None,
            target,
            blockers: Vec::new(),
            more: 0,
            overrides: Overrides::default(),
            exemption: None,
            revoked: Vec::new(),
            ineffective_approvals: Vec::new(),
            hold: None,
            needed_reads: Vec::new(),
            denial_status: DenialStatus::Forbidden,
            passing_propagation: None,
            lost_volumes: Vec::new(),
            is_update: false,
            refused_steps: Vec::new(),
            retry_seconds: None,
            recordable: Recordable::Confirmed,
        }
    }

    /// A verdict with these blockers, the strictest first.
    pub fn from_blockers(target: ObjectRef, blockers: Vec<Blocker>) -> Self {
        let strictest = blockers.first();
        Self {
            decision: strictest.map_or(Decision::Allow, |blocker| blocker.decision),
            reason: strictest.map(|blocker| blocker.reason),
            blockers,
            ..Self::allow(target)
        }
    }

    /// The first reason for which the hold keeps an object after the accepted DELETE, also during a
    /// Pause, which releases no holds.
    pub fn hold_blocker(&self) -> Option<&Blocker> {
        self.blockers.iter().filter(|_| self.decision.passes() && !self.is_update).find(|blocker| {
            let is_kept = matches!(blocker.reason, Reason::InUse | Reason::Protected);
            blocker.decision == Decision::Hold || (blocker.held && is_kept)
        })
    }

    /// A volume or claim that the deletion of this object deletes as well.
    pub(super) fn lost_with(&self, object: &ObjectRef) -> Option<&ObjectRef> {
        self.lost_volumes.iter().find(|lost| lost.step == *object).map(|lost| &lost.volume)
    }

    /// Whether the verdict denies the request only because belay could not read
    /// something.
    pub fn is_unknown(&self) -> bool {
        let mut denying = self.blockers.iter().filter(|b| b.decision == Decision::Deny);
        self.decision == Decision::Deny
            && self.more == 0
            && denying.all(|blocker| blocker.reason == Reason::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_unknown_only_if_all_denials_are_unknown() {
        let blocker = |decision, reason| Blocker::new(decision, reason, ObjectRef::default());
        let unknown = || blocker(Decision::Deny, Reason::Unknown);
        let verdict = |blockers| Verdict::from_blockers(ObjectRef::default(), blockers);
        assert!(verdict(vec![unknown(), unknown()]).is_unknown());
        // A blocker with action Warn does not count.
        let warns = blocker(Decision::Warn, Reason::InUse);
        assert!(verdict(vec![unknown(), warns.clone()]).is_unknown());
        assert!(!verdict(vec![blocker(Decision::Deny, Reason::InUse), unknown()]).is_unknown());
        assert!(!verdict(vec![warns]).is_unknown());
        assert!(!verdict(Vec::new()).is_unknown());
        assert!(!Verdict { more: 1, ..verdict(vec![unknown()]) }.is_unknown());
    }
}
