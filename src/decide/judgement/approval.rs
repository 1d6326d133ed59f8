//! Approvals and exemption records: the findings that they remove, and the reads that they need.

use super::{BAR_SECONDS, Judgement};
use crate::decide::ancestors::{AncestorApprovalSummary, RecordScope};
use crate::decide::approved::{
    MAX_INEFFECTIVE, ineffective_approvals, may_use_exemption_records, sufficient_approvals,
};
use crate::decide::existence::Existence;
use crate::decide::item::JudgedObject;
use crate::decide::{Decision, Exemption, Operation, Overrides, Reason, Situation};
use crate::graph::Node;
use crate::objects::{HoldAge, KeyedMap, KeyedSet, Uid};
use crate::policy::{ApprovalTerms, ObjectFacts, Policy, PolicySource};

impl<'a> Judgement<'a> {
    /// The exemption to record, or the bar. There is none if a live read finds no target, or a
    /// Terminating one: only a caller with a made-up review would gain from it (H168).
    pub(super) fn find_exemption(
        &mut self,
        target: &JudgedObject<'a>,
        exempted: &[PolicySource],
    ) -> Option<Exemption> {
        let is_exempt = self.leads_to_deletion && !self.exempted.is_empty();
        if !is_exempt && !self.has_exemption_record(target) {
            return None;
        }
        let ObjectFacts { namespace, name, .. } = target.facts;
        let is_terminating = |kind| {
            let stored = self.situation.live_object(kind, namespace, name).flatten();
            stored.or(target.node).is_some_and(Node::is_terminating)
        };
        if target.kind.is_some_and(is_terminating) {
            return None;
        }
        let why_unknown = match Existence::of_item(&self.situation, target) {
            Existence::Exists => None,
            Existence::Absent => return None,
            Existence::Unread(read) => {
                self.needed_reads.push(read);
                None
            }
            // The kind may be one that belay can't read.
            Existence::Unknown(..) if is_exempt && target.node.is_none() => return None,
            Existence::Unknown(why, _) => Some(why),
        };
        let terms = ApprovalTerms::merge(self.exempted.iter().map(|policy| &policy.approval));
        let terms = terms.filter(|_| is_exempt);
        Some(Exemption {
            uid: target.uid_text(),
            user: self.review.requester.name.to_string(),
            policies: if is_exempt { exempted.to_vec() } else { Vec::new() },
            seconds: terms.map_or(BAR_SECONDS, |terms| terms.longest_seconds),
            why_unknown,
        })
    }

    /// Whether belay has recorded an exemption of the target, or has barred exemptions of it.
    fn has_exemption_record(&self, target: &JudgedObject<'a>) -> bool {
        let policies = self.situation.policies;
        let identity = target.identity();
        policies.approvals.of_uid(identity.uid).iter().any(|approval| {
            approval.names_object(&identity) && policies.identities.is_belay(&approval.approver)
        })
    }

    /// Reads the owners live before a denial, if an exemption record exists for one of
    /// them: the graph may lag behind the deletion of that owner.
    pub(super) fn require_owner_reads(&mut self, targets: &[JudgedObject<'a>]) {
        let is_denied = self.findings.iter().any(|finding| finding.decision == Decision::Deny);
        let approvals = &self.situation.policies.approvals;
        if self.review.operation != Operation::Delete || !is_denied || approvals.is_empty() {
            return;
        }
        for target in targets.iter().filter(|target| !target.is_terminating()) {
            let owners =
                AncestorApprovalSummary::find(&self.situation, &target.owners(&self.situation));
            if owners.recorded {
                self.needed_reads.extend(owners.unread);
            }
        }
    }

    /// Removes the findings that are approved, object by object. An approval of a
    /// Namespace covers an object in it only with scope Content.
    pub(super) fn remove_approved(
        &mut self,
        overrides: &mut Overrides,
        targets: &[JudgedObject<'a>],
    ) {
        if self.situation.policies.approvals.is_empty() {
            return;
        }
        let record_scope = match targets {
            [target]
                if self.review.operation == Operation::Delete
                    && may_use_exemption_records(&self.situation, target) =>
            {
                RecordScope::OfObjectAndOwners
            }
            _ => RecordScope::Ignored,
        };
        // Approvals remove denials first, and then findings with a hold.
        for decision in [Decision::Deny, Decision::Hold] {
            let key = |item: &JudgedObject<'_>| (item.uid(), item.needs_content_approval);
            let mut by_object: KeyedMap<(Uid, bool), Vec<usize>> = KeyedMap::default();
            for (index, finding) in self.findings.iter().enumerate() {
                // A Pause turns Deny into Audit.
                let is_paused = finding.paused && finding.decision == Decision::Audit;
                if finding.decision == decision || (is_paused && decision == Decision::Deny) {
                    by_object.entry(key(&finding.item)).or_default().push(index);
                }
            }
            let mut approved = KeyedSet::default();
            for (object, findings) in by_object {
                let findings: Vec<_> =
                    findings.iter().map(|index| &self.findings[*index]).collect();
                let policies: Vec<_> = findings.iter().map(|finding| finding.policy).collect();
                // An exemption record never allows a delete that orphans dependents.
                let orphans = findings.iter().any(|finding| finding.reason == Reason::WouldOrphan);
                let record_scope = if orphans { RecordScope::Ignored } else { record_scope };
                let item = &findings[0].item;
                if let Some(approvals) =
                    sufficient_approvals(&self.situation, item, &policies, record_scope)
                {
                    let identities = &self.situation.policies.identities;
                    for approval in approvals {
                        overrides.approvals.push(approval.name.clone());
                        if identities.is_belay(&approval.approver) {
                            overrides.records.push(approval.clone());
                        }
                    }
                    approved.insert(object);
                } else if decision == Decision::Deny
                    && self.ineffective_approvals.len() < MAX_INEFFECTIVE
                {
                    self.ineffective_approvals.extend(ineffective_approvals(
                        &self.situation,
                        item,
                        &policies,
                    ));
                }
            }
            // Action Warn or Audit reports nothing about approved objects.
            self.findings.retain(|finding| {
                let is_removable =
                    finding.decision == decision || finding.decision < Decision::Hold;
                !(is_removable && approved.contains(&key(&finding.item)))
            });
        }
        overrides.approvals.sort_unstable();
        overrides.approvals.dedup();
        overrides.records.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        overrides.records.dedup();
        self.ineffective_approvals.sort_unstable();
        self.ineffective_approvals.dedup();
        self.ineffective_approvals.truncate(MAX_INEFFECTIVE);
    }
}

/// Whether the hold keeps an object for a policy, also during a Pause, which releases no hold. A
/// hold keeps nothing if enough people have approved its release. Exemption records do not
/// release the hold.
pub fn is_held_for<'a>(
    situation: &Situation<'a>,
    policy: &Policy,
    item: &JudgedObject<'a>,
) -> bool {
    if item.hold() == HoldAge::NotHeld {
        return false;
    }
    situation.work.charge(item.policy_search_steps());
    let applied = situation.release_policies(item.facts);
    let policies: Vec<&Policy> = applied.iter().map(|applied| applied.policy).collect();
    policies.iter().any(|keeping| keeping.source == policy.source)
        && sufficient_approvals(situation, item, &policies, RecordScope::Ignored).is_none()
}
