//! What decides a verdict: the protected object, and the causes that keep it.

use std::fmt;

use serde::Deserialize;

use super::NextStep;
use crate::objects::{ObjectRef, quote_if_ambiguous, text_enum, write_sentence_name};
use crate::policy::PolicySource;
use crate::policy::api::Action;

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
        /// The policy keeps the object while other objects exist (`whileExists`).
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
    /// The kind and the name, for a user that a message names with its owner. Usually both are in
    /// the same namespace.
    pub(super) fn without_namespace(&self) -> String {
        format!("{} {}", quote_if_ambiguous(&self.kind), quote_if_ambiguous(&self.object.name))
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_sentence_name(f, &self.kind, &self.object)
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
        /// The owner that the policy selects, or the topmost owner of the user; the user itself
        /// without an owner.
        owner: ObjectName,
        /// The user, if `owner` is another object.
        user: Option<ObjectName>,
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
    /// The DELETE removes this finalizer, which belongs to another propagation.
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
    /// belay did not look for further causes. This is the last cause of a list.
    PerhapsOthers,
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
            // A Terminating object needs no other DELETE.
            Self::Content { why: ContentReason::Terminating, .. } => None,
            Self::User { owner, user, .. } if owner.object == *target => user.as_ref(),
            Self::User { owner: object, .. }
            | Self::Content { object, .. }
            | Self::Exists(object) => Some(object),
            _ => None,
        }
    }

    /// The user, content or dependent that the cause names.
    pub(super) fn named_object(&self) -> Option<&ObjectName> {
        match self {
            Self::User { user: Some(object), .. }
            | Self::User { owner: object, .. }
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
    /// The object counts for another of these reasons and is already Terminating, so its DELETE
    /// does nothing.
    Terminating,
    /// The object is a bound PersistentVolumeClaim.
    Bound,
    /// This policy protects the object.
    Protected(PolicySource),
    /// This policy placed a hold on the object. Without the Namespace of the object, belay could
    /// not remove the hold.
    Held(PolicySource),
}

/// One reason for a decision other than Allow.
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
    /// The number of different people who must approve. 0 if an approval changes nothing.
    pub required_approvals: usize,
    /// Whether an approval of the target with its content covers the object.
    pub covered_by_content_approval: bool,
    /// Whether the hold keeps the object for these policies. If belay allows the DELETE, the
    /// object stays Terminating.
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

    /// Whether all known users of the object are the target itself or objects that it owns.
    pub(super) fn is_own_use(&self, target: &ObjectRef) -> bool {
        let is_own =
            |cause: &Cause| matches!(cause, Cause::User { owner, .. } if owner.object == *target);
        self.reason == Reason::InUse && !self.causes.is_empty() && self.causes.iter().all(is_own)
    }
}
