//! The answer, as plain data.

use std::fmt;

use serde::Deserialize;

use super::LiveRead;
use crate::objects::{Object, ObjectRef, one_line_name};
use crate::policy::api::Action;
use crate::policy::{DiscountReason, Source};

/// What belay says to a request, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum Decision {
    /// The request passes.
    Allow,
    /// It passes, and what action Deny would have refused is recorded.
    Audit,
    /// It passes with a warning that says what action Deny would have refused.
    Warn,
    /// It passes with a warning: the object stays Terminating until nothing
    /// needs it any more.
    Hold,
    /// The request is refused.
    Deny,
}

impl Decision {
    /// The name in metrics, logs and audit annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Audit => "Audit",
            Self::Warn => "Warn",
            Self::Hold => "Hold",
            Self::Deny => "Deny",
        }
    }

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

/// The fixed word that goes into `status.reason` of a refusal. Of several
/// blockers that are as strict, the one that stands first here is told first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum Reason {
    /// The object itself is protected, whoever uses it.
    Protected,
    /// Something needs the object.
    InUse,
    /// Something is in it.
    NotEmpty,
    /// Something exists that keeps it.
    StillNeeded,
    /// Something would lose its owner.
    WouldOrphan,
    /// A finalizer would go that is not the requester's to take off.
    FinalizerGuarded,
    /// Something that the verdict needs could not be read.
    Unknown,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protected => "Protected",
            Self::InUse => "InUse",
            Self::NotEmpty => "NotEmpty",
            Self::StillNeeded => "StillNeeded",
            Self::WouldOrphan => "WouldOrphan",
            Self::FinalizerGuarded => "FinalizerGuarded",
            Self::Unknown => "Unknown",
        }
    }
}

/// An object, the way people name it: `StatefulSet db/postgres`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        let [kind, namespace, name] =
            [&self.kind, &self.namespace, &self.name].map(|n| one_line_name(n));
        write!(f, "{kind} {namespace}{slash}{name}")
    }
}

/// What makes a policy refuse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The policy refuses by itself.
    Always,
    /// The object is reached by a cascade or a finalizer is at work already;
    /// whether anything needs it is found out before it goes.
    Unproved,
    /// Somebody needs it.
    User {
        /// Who, by the owner that the policy means, or by the one at the top.
        root: ObjectName,
        /// By whom of its, if it is not the root itself.
        through: Option<ObjectName>,
        /// Where in the user's manifest.
        path: String,
    },
    /// Something is in it.
    Content {
        /// What.
        object: ObjectName,
        /// Why it counts.
        why: ContentReason,
    },
    /// Something exists.
    Exists(ObjectName),
    /// It would lose this dependent.
    Dependent(ObjectName),
    /// It would lose this owner.
    Owner(ObjectName),
    /// The hold would go.
    Hold {
        /// Whether the object is Terminating.
        terminating: bool,
    },
    /// This finalizer of somebody else's would go.
    Finalizer(String),
    /// Labels or annotations would change so that this is protected less: the
    /// object itself, or one in the Namespace whose labels change.
    WeakerProtection(ObjectName),
    /// These are in another namespace than the object that they keep. A client
    /// may not be allowed to read it: it learns neither names nor kinds nor how
    /// many there are.
    Elsewhere {
        /// As many as are listed.
        causes: Vec<Cause>,
        /// How many more there are.
        more: usize,
    },
    /// Something is not known; the words say what, and why.
    Unknown(String),
    /// There is too much of something; the words say of what.
    TooLarge(String),
    /// belay could not get so far as to ask what any policy says; the words
    /// say why.
    Unproven(String),
}

/// Why content counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentReason {
    /// Anything does.
    Anything,
    /// It is a bound claim.
    Bound,
    /// It is protected by this policy.
    Protected(Source),
    /// It has the hold for this policy, and only where it is can that be
    /// taken off.
    Held(Source),
}

/// One reason why a request is refused, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// What comes of it: Deny, Hold, Warn or Audit.
    pub outcome: Decision,
    /// The fixed word.
    pub reason: Reason,
    /// The policies that say so.
    pub policies: Vec<Source>,
    /// The object that they protect: the target, or one that would go along.
    pub object: ObjectRef,
    /// What makes them refuse, as many as are listed.
    pub causes: Vec<Cause>,
    /// How many more there are.
    pub more: usize,
    /// How many different people have to approve before it passes.
    pub people: usize,
    /// Whether an approval of the target with its content covers the object.
    pub is_content: bool,
}

/// Why a request passes that a policy refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The approvals that were enough, by name.
    pub approvals: Vec<String>,
    /// Policies that exempt the one who asks.
    pub exempted: Vec<Source>,
}

/// An exemption, to be written down as an approval of belay's own so that the
/// collectors' deletes pass which follow from this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    /// The uid of the target.
    pub uid: String,
    /// Who is exempt.
    pub user: String,
    /// By which policies.
    pub policies: Vec<Source>,
    /// For how long it is good.
    pub seconds: i64,
}

/// An exemption record that is to be deleted before the answer, because another
/// subject deletes the object that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedRecord {
    /// The name of the approval.
    pub name: String,
    /// Its own uid.
    pub uid: String,
}

/// An approval that is in force and does not count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IneffectiveApproval {
    /// Who gave it.
    pub approver: String,
    /// The policy for which it does not count.
    pub policy: Source,
    /// Why.
    pub why: DiscountReason,
}

impl std::fmt::Display for IneffectiveApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { approver, policy, why } = self;
        write!(f, "the approval by {approver} does not count: it {}", why.explain(policy))
    }
}

/// What the mutating phase does to the object's finalizers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldChange {
    /// Where the hold goes.
    pub place: HoldPlace,
    /// Whether the request would have dropped it.
    pub restored: bool,
}

/// Where the hold goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldPlace {
    /// The hold becomes the first entry of an array that is not there yet.
    First,
    /// The hold is inserted into the array that is there.
    At {
        /// Where.
        index: usize,
        /// What is there.
        finalizers: Vec<String>,
    },
}

impl HoldPlace {
    /// The place in the list that this object has, at this index or at the end.
    pub(crate) fn in_list(object: &Object<'_>, index: usize) -> Self {
        match &object.metadata.finalizers {
            None => Self::First,
            Some(finalizers) => Self::At {
                index: index.min(finalizers.len()),
                finalizers: finalizers.iter().map(|f| f.to_string()).collect(),
            },
        }
    }
}

/// How a refusal is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 403: the one code that every caller understands as "no" and repeats
    /// with our words (404, 405 and 409 are not).
    Forbidden,
    /// 429: a drain takes it as "later", and tries again.
    TooManyRequests,
}

/// A verdict: everything that any rendering of it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is said.
    pub decision: Decision,
    /// The fixed word of the strictest blocker.
    pub reason: Option<Reason>,
    /// The object in question.
    pub target: ObjectRef,
    /// Why, the strictest first; empty when nothing stands against the request.
    pub blockers: Vec<Blocker>,
    /// How many more blockers there are, as strict as the first.
    pub more: usize,
    /// Why it passes although a policy refuses.
    pub overrides: Overrides,
    /// What is to be written down, unless it is a dry run.
    pub exemption: Option<Exemption>,
    /// Which records are to be deleted, unless it is a dry run.
    pub revoked: Vec<RevokedRecord>,
    /// Approvals in force that don't count for what refuses.
    pub ineffective_approvals: Vec<IneffectiveApproval>,
    /// What happens to the hold.
    pub hold: Option<HoldChange>,
    /// What has to be read live before the verdict is final.
    pub confirm: Vec<LiveRead>,
    /// How a refusal is answered.
    pub answer: Answer,
    /// Whether the same DELETE would pass, as far as is known, if it cascaded in
    /// the background; asked only of a refusal that orphaning causes.
    pub background_passes: bool,
    /// Whether Events, statuses, logs and metrics may describe it.
    pub recorded: Recordable,
}

/// Whether a verdict may be recorded: a caller who knows the path can name any object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recordable {
    /// The object of the review may not exist.
    No,
    /// belay doesn't have all objects of its kind, so it may be made up.
    Unproved,
    /// The object exists.
    Proved,
}

impl Verdict {
    /// Nothing stands against it.
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
            confirm: Vec::new(),
            answer: Answer::Forbidden,
            background_passes: false,
            recorded: Recordable::Proved,
        }
    }

    /// Something stands against it, the strictest first.
    pub fn from_blockers(target: ObjectRef, blockers: Vec<Blocker>) -> Self {
        let strictest = blockers.first();
        Self {
            decision: strictest.map_or(Decision::Allow, |blocker| blocker.outcome),
            reason: strictest.map(|blocker| blocker.reason),
            blockers,
            ..Self::allow(target)
        }
    }

    /// Whether it refuses for nothing but what is not known: with what could be
    /// read nobody can tell whether it would pass.
    pub fn is_unknown(&self) -> bool {
        let mut denying = self.blockers.iter().filter(|b| b.outcome == Decision::Deny);
        self.decision == Decision::Deny
            && self.more == 0
            && denying.all(|blocker| blocker.reason == Reason::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_for_one_good_reason_is_known() {
        let blocker = |outcome, reason| Blocker {
            outcome,
            reason,
            policies: Vec::new(),
            object: ObjectRef::default(),
            causes: Vec::new(),
            more: 0,
            people: 1,
            is_content: false,
        };
        let unknown = || blocker(Decision::Deny, Reason::Unknown);
        let said = |blockers| Verdict::from_blockers(ObjectRef::default(), blockers);
        assert!(said(vec![unknown(), unknown()]).is_unknown());
        // What only warns refuses nothing.
        let warns = blocker(Decision::Warn, Reason::InUse);
        assert!(said(vec![unknown(), warns.clone()]).is_unknown());
        assert!(!said(vec![blocker(Decision::Deny, Reason::InUse), unknown()]).is_unknown());
        assert!(!said(vec![warns]).is_unknown());
        assert!(!said(Vec::new()).is_unknown());
        assert!(!Verdict { more: 1, ..said(vec![unknown()]) }.is_unknown());
    }
}
