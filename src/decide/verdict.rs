//! The result of a decision, as plain data.

use json_patch::PatchOperation;

use super::LiveRead;
use super::blocker::{Blocker, Decision, ObjectName, Reason};
use crate::graph::Propagation;
use crate::objects::operations::add;
use crate::objects::{HOLD, Object, ObjectRef};
use crate::policy::{Approval, IneffectiveReason, PolicySource};

/// Why a request passes although a policy denies it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The names of the approvals that were sufficient.
    pub approvals: Vec<String>,
    /// Those of them that are exemption records.
    pub records: Vec<Approval>,
    /// The policies that exempt the requester.
    pub exempted: Vec<PolicySource>,
}

/// An exemption that belay records as its own approval. The record allows the DELETEs of the
/// garbage collector that follow from this request. Without policies, this is an exemption bar: a
/// subject that is not exempt deletes the object, and no exemption of the object may count
/// meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    /// The uid of the target.
    pub uid: String,
    /// The user of the request.
    pub user: String,
    /// The policies that exempt the user.
    pub policies: Vec<PolicySource>,
    /// How long the record is in force.
    pub seconds: i64,
    /// Why belay does not know whether the deletion of the target has begun. belay then writes no
    /// record, and the request fails. `None` if belay knows it.
    pub why_unknown: Option<String>,
}

impl Exemption {
    /// Whether this is an exemption bar.
    pub fn is_bar(&self) -> bool {
        self.policies.is_empty()
    }
}

/// An approval that is in force and does not count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IneffectiveApproval {
    /// The user who approved.
    pub approver: String,
    /// The approved object.
    pub object: ObjectRef,
    /// The policy for which it does not count.
    pub policy: PolicySource,
    /// The reason.
    pub why: IneffectiveReason,
}

impl std::fmt::Display for IneffectiveApproval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { approver, object, policy, why } = self;
        let object = object.arguments();
        write!(
            f,
            "the approval of {object} by {approver} does not count: it {}",
            why.explain(policy)
        )
    }
}

/// The change of the object's finalizers in the mutating phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldChange {
    /// The position of the hold in the list of finalizers.
    pub position: HoldPosition,
    /// Whether the request removes the hold and belay restores it.
    pub restored: bool,
}

/// The position of the hold in the list of finalizers.
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
    /// The position in the list of this object, at this index or at the end.
    pub(crate) fn in_list(object: &Object<'_>, index: usize) -> Self {
        match &object.metadata.finalizers {
            None => Self::NewList,
            Some(finalizers) => Self::At {
                index: index.min(finalizers.len()),
                finalizers: finalizers.iter().map(|f| f.to_string()).collect(),
            },
        }
    }

    /// The operation that adds the hold at this position.
    pub(crate) fn add_hold(&self) -> PatchOperation {
        match self {
            Self::NewList => add(&["metadata", "finalizers"], vec![HOLD]),
            Self::At { index, .. } => add(&["metadata", "finalizers", &index.to_string()], HOLD),
        }
    }
}

/// The HTTP code of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialStatus {
    /// 403, except for the two clients below. All clients treat 403 as a denial and print the
    /// message. They do not do so for other codes, such as 409.
    Forbidden,
    /// 429. `kubectl drain` retries after this code.
    TooManyRequests,
    /// 404, for the namespace controller: it deletes all objects of a kind with one request, which
    /// the API server stops at the first denial with another code.
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
    /// The exemption to record, or the exemption bar; `None` for a dry run.
    pub exemption: Option<Exemption>,
    /// Approvals in force that don't count for the denying policies.
    pub ineffective_approvals: Vec<IneffectiveApproval>,
    /// The change of the hold in the mutating phase.
    pub hold: Option<HoldChange>,
    /// The live reads that the verdict still needs; empty when it is final.
    pub needed_reads: Vec<LiveRead>,
    /// Live reads that decide only what action Warn or Audit reports. Without an answer, the
    /// verdict reports that this is unknown.
    pub advisory_reads: Vec<LiveRead>,
    /// The HTTP code of a denial.
    pub denial_status: DenialStatus,
    /// The propagation with which belay would allow the same DELETE. It is evaluated only if
    /// belay denies the DELETE because of orphaning, because of a removed finalizer of another
    /// propagation, or because the target uses an object that is deleted before it.
    pub passing_propagation: Option<Propagation>,
    /// The objects whose DELETE would also delete a volume or claim. A message must not advise
    /// these DELETEs unless an earlier step keeps the volume or claim.
    pub lost_volumes: Vec<LostVolume>,
    /// The change by which an UPDATE leads to the deletion. `None` if there are no blockers or the
    /// request is no UPDATE.
    pub change: Option<ChangeDescription>,
    /// The objects that keep the object of a blocker, and whose DELETE belay would deny or hold
    /// as well.
    pub refused_deletes: Vec<RefusedDelete>,
    /// The objects that keep the object of a blocker, and that are already Terminating.
    pub terminating_objects: Vec<ObjectName>,
    /// After how many seconds belay allows the same DELETE and holds the objects in use; `None`
    /// if waiting does not help.
    pub retry_seconds: Option<i64>,
    /// Whether Events, statuses, logs and metrics may describe the verdict.
    pub recordable: Recordable,
}

/// The words for the change of an UPDATE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeDescription {
    /// The beginning of a sentence: `the new owner reference (Deployment web) lets`.
    pub subject: String,
    /// The step that avoids the change: `don't add this owner reference`. `None` if it is unknown.
    pub step: Option<&'static str>,
    /// Whether the change lets Kubernetes delete the changed object: a change of its owners does.
    pub lets_delete_target: bool,
}

/// An object that keeps another one, and whose own DELETE belay would deny or hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedDelete {
    /// The object.
    pub object: ObjectName,
    /// The objects to delete before this one; none if only an approval helps.
    pub first: Vec<ObjectName>,
}

/// A volume or claim that an advised DELETE would delete, although the request keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostVolume {
    /// The object of the advised DELETE.
    pub deleted: ObjectRef,
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
    /// The blockers that cause the decision.
    pub fn deciding_blockers(&self) -> impl Iterator<Item = &Blocker> {
        self.blockers.iter().filter(|blocker| blocker.decision == self.decision)
    }

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
            ineffective_approvals: Vec::new(),
            hold: None,
            needed_reads: Vec::new(),
            advisory_reads: Vec::new(),
            denial_status: DenialStatus::Forbidden,
            passing_propagation: None,
            lost_volumes: Vec::new(),
            change: None,
            refused_deletes: Vec::new(),
            terminating_objects: Vec::new(),
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
        self.blockers.iter().find(|blocker| self.keeps_by_hold(blocker))
    }

    /// Whether this blocker is a reason for which the hold keeps an object after the accepted DELETE.
    pub fn keeps_by_hold(&self, blocker: &Blocker) -> bool {
        let is_kept = matches!(blocker.reason, Reason::InUse | Reason::Protected);
        self.decision.passes()
            && self.change.is_none()
            && (blocker.decision == Decision::Hold || (blocker.held && is_kept))
    }

    /// A volume or claim that the deletion of this object deletes as well.
    pub(super) fn volume_lost_with(&self, object: &ObjectRef) -> Option<&ObjectRef> {
        self.lost_volumes.iter().find(|lost| lost.deleted == *object).map(|lost| &lost.volume)
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

/// The verdict during a Pause, which denies nothing. A Pause turns policies to Audit, but
/// denials of unreadable reviews come from no policy. Holds stay during a Pause.
pub fn decide_paused(mut verdict: Verdict) -> Verdict {
    let decisions = verdict.blockers.iter_mut().map(|blocker| &mut blocker.decision);
    for decision in decisions.chain([&mut verdict.decision]) {
        if *decision == Decision::Deny {
            *decision = Decision::Audit;
        }
    }
    verdict
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
