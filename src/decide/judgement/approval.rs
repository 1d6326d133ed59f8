//! Approvals and exemption records: the findings that they remove, and the reads that they need.

use super::Judgement;
use crate::decide::ancestors::{AncestorApprovalSummary, ExemptionRecords};
use crate::decide::approved::{
    MAX_INEFFECTIVE, ineffective_approvals, may_use_cascade_records, sufficient_approvals,
};
use crate::decide::existence::Existence;
use crate::decide::item::JudgedObject;
use crate::decide::{Decision, Operation, Overrides, Reason, RevokedRecord, Situation};
use crate::objects::{KeyedMap, KeyedSet, Uid};
use crate::policy::Policy;

impl<'a> Judgement<'a> {
    /// Whether a live read finds the target. belay records no exemption for an object
    /// that doesn't exist, because only a caller with a made-up review would gain from it.
    pub(super) fn target_exists(&mut self, target: &JudgedObject<'a>) -> bool {
        match Existence::of_item(&self.situation, target) {
            Existence::Exists => true,
            Existence::Absent => false,
            Existence::Unread(read) => {
                self.needed_reads.push(read);
                true
            }
            Existence::Unknown(..) => target.node.is_some(),
        }
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
        let records = match targets {
            [target]
                if self.review.operation == Operation::Delete
                    && may_use_cascade_records(&self.situation, target) =>
            {
                ExemptionRecords::Cascade
            }
            _ => ExemptionRecords::Ignored,
        };
        // Approvals remove denials first, and then findings with a hold.
        for decision in [Decision::Deny, Decision::Hold] {
            let mut by_object: KeyedMap<Uid, Vec<usize>> = KeyedMap::default();
            for (index, finding) in self.findings.iter().enumerate() {
                // A Pause turns denials to records.
                let is_paused = decision == Decision::Deny && finding.paused;
                if finding.decision == decision || is_paused {
                    by_object.entry(finding.item.uid()).or_default().push(index);
                }
            }
            let mut approved = KeyedSet::default();
            for (uid, findings) in by_object {
                let findings: Vec<_> =
                    findings.iter().map(|index| &self.findings[*index]).collect();
                let policies: Vec<_> = findings.iter().map(|finding| finding.policy).collect();
                // An exemption record never allows a delete that orphans dependents.
                let orphans = findings.iter().any(|finding| finding.reason == Reason::WouldOrphan);
                let records = if orphans { ExemptionRecords::Ignored } else { records };
                let item = &findings[0].item;
                if let Some(approvals) =
                    sufficient_approvals(&self.situation, item, &policies, records)
                {
                    overrides
                        .approvals
                        .extend(approvals.iter().map(|approval| approval.name.clone()));
                    approved.insert(uid);
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
                !(is_removable && approved.contains(&finding.item.uid()))
            });
        }
        self.remove_approved_holds();
        overrides.approvals.sort_unstable();
        overrides.approvals.dedup();
        self.ineffective_approvals.sort_unstable();
        self.ineffective_approvals.dedup();
        self.ineffective_approvals.truncate(MAX_INEFFECTIVE);
    }

    /// The hold of an object keeps nothing if the release of the object is approved. Other policies
    /// may still report the object.
    fn remove_approved_holds(&mut self) {
        // Several policies can report one object.
        let mut approved: KeyedMap<Uid, bool> = KeyedMap::default();
        for finding in self.findings.iter_mut().filter(|finding| finding.held) {
            let (situation, item) = (&self.situation, &finding.item);
            let is_approved =
                approved.entry(item.uid()).or_insert_with(|| is_release_approved(situation, item));
            finding.held = !*is_approved;
        }
    }
}

/// Whether enough people have approved the release of the hold of an object. Exemption records
/// do not release it.
fn is_release_approved<'a>(situation: &Situation<'a>, item: &JudgedObject<'a>) -> bool {
    let applied = situation.release_policies(item.facts);
    let policies: Vec<&Policy> = applied.iter().map(|applied| applied.policy).collect();
    sufficient_approvals(situation, item, &policies, ExemptionRecords::Ignored).is_some()
}

/// The exemption records that name an object.
pub(super) fn exemption_records(
    situation: &Situation<'_>,
    target: &JudgedObject<'_>,
) -> Vec<RevokedRecord> {
    let policies = situation.policies;
    let identity = target.identity();
    let approvals = policies.approvals.of_uid(identity.uid).iter();
    let records = approvals.filter(|approval| {
        approval.names_object(&identity) && policies.identities.is_own(&approval.approver)
    });
    let revoked = records.map(|approval| {
        let (name, uid) = (approval.name.clone(), approval.uid.clone());
        RevokedRecord { name, uid }
    });
    revoked.collect()
}
