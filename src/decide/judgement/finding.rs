//! One finding against a request, and the blockers of a verdict from all findings.

use std::cmp::Reverse;

use super::approval::is_held_for;
use crate::decide::item::JudgedObject;
use crate::decide::{Blocker, Cause, Decision, Reason, Situation};
use crate::objects::{KeyedMap, KeyedSet, Uid};
use crate::policy::Policy;

/// One reason of a policy against the request.
pub struct Finding<'a> {
    pub policy: &'a Policy,
    pub decision: Decision,
    pub item: JudgedObject<'a>,
    pub reason: Reason,
    pub causes: Vec<Cause>,
    pub more: usize,
    /// Whether an approval of the target with scope Content covers the finding, if `item` is not
    /// the target or its content is unknown.
    pub covered_by_content_approval: bool,
    /// Whether the policy would deny the request without a Pause.
    pub paused: bool,
    /// After how many seconds belay allows the same request and holds the object.
    pub retry: Option<i64>,
}

/// The limit of blockers in a verdict. For more blockers, the verdict has only their number.
const MAX_BLOCKERS: usize = 20;

/// Merges findings with the same cause for the same object into one blocker with all their
/// policies. Returns the strictest blockers. Also returns the number of findings beyond the limit
/// that are as strict as the first blocker; these findings are not merged.
pub fn merge_findings<'a>(
    situation: &Situation<'a>,
    mut findings: Vec<Finding<'a>>,
    targets: &[JudgedObject<'a>],
) -> (Vec<Blocker>, usize) {
    let target_uids: KeyedSet<Uid> = targets.iter().map(JudgedObject::uid).collect();
    findings.sort_by_key(|finding| {
        (Reverse(finding.decision), !target_uids.contains(&finding.item.uid()), finding.reason)
    });
    let mut blockers: Vec<Blocker> = Vec::new();
    let mut indexes: KeyedMap<(Decision, Reason, Uid), Vec<usize>> = KeyedMap::default();
    let mut more = 0;
    for finding in findings {
        let Finding {
            policy,
            decision,
            item,
            reason,
            causes,
            more: others,
            covered_by_content_approval,
            ..
        } = finding;
        let covered = covered_by_content_approval
            && (item.needs_content_approval || !target_uids.contains(&item.uid()));
        let same = indexes.entry((decision, reason, item.uid())).or_default();
        let existing = same.iter().copied().find(|index| blockers[*index].causes == causes);
        if let Some(index) = existing {
            let blocker = &mut blockers[index];
            if !blocker.policies.contains(&policy.source) {
                blocker.policies.push(policy.source.clone());
            }
            blocker.covered_by_content_approval |= covered;
            blocker.more = blocker.more.max(others);
            blocker.required_approvals = blocker.required_approvals.max(policy.approval.required);
            blocker.held |= is_held_for(situation, policy, &item);
            continue;
        }
        if blockers.len() >= MAX_BLOCKERS {
            more += usize::from(blockers[0].decision == decision);
            continue;
        }
        same.push(blockers.len());
        blockers.push(Blocker {
            decision,
            reason,
            policies: vec![policy.source.clone()],
            object: item.object_ref(),
            causes,
            more: others,
            required_approvals: policy.approval.required,
            covered_by_content_approval: covered,
            held: is_held_for(situation, policy, &item),
        });
    }
    (blockers, more)
}
