//! The approvals in force for an object.

use std::collections::BTreeSet;

use super::ancestors::{
    ApprovalSearch, ApprovalsByName, DeletionState, ExemptionRecords, Owners, approval_counts,
    approvals_of,
};
use super::item::JudgedObject;
use super::owners::is_cascade;
use super::{IneffectiveApproval, Situation};
use crate::policy::{Approval, ApprovalTerms, IneffectiveReason, Policy};

/// The approvals in force for this object, until they are sufficient: approvals of the
/// object, and approvals with scope Content of its container or of an owner whose
/// deletion certainly deletes it. The second result has approvals that are older than the
/// owner references of the object.
fn in_force<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    records: ExemptionRecords,
    are_enough: &dyn Fn(&ApprovalsByName<'a>) -> bool,
) -> (ApprovalsByName<'a>, ApprovalsByName<'a>) {
    let (identity, state) = (item.identity(), DeletionState::of_item(item));
    let above =
        if records == ExemptionRecords::Cascade { records } else { ExemptionRecords::Ignored };
    let by_name = |approval: &'a Approval| (approval.name.as_str(), approval);
    let named = approvals_of(situation, identity.uid).iter().filter(|approval| {
        approval.names_object(&identity)
            && approval_counts(situation, records, approval, (state, i64::MIN))
    });
    let mut found: ApprovalsByName<'a> = named.map(by_name).collect();
    let (namespace, created) = (item.facts.namespace, item.creation_time());
    for container in containers(situation, item) {
        let (identity, state) = (container.identity(), DeletionState::of_item(&container));
        let content = approvals_of(situation, identity.uid).iter().filter(|approval| {
            approval.content
                && approval.names_object(&identity)
                && approval.covers_namespace(namespace)
                && approval_counts(situation, above, approval, (state, created))
        });
        found.extend(content.map(by_name));
    }
    if are_enough(&found) || situation.policies.approvals.is_empty() {
        return (found, ApprovalsByName::new());
    }
    let owners = Owners::of_item(situation, item);
    let mut ancestors = ApprovalSearch::new(situation, (above, are_enough), (namespace, created));
    let mut more = match ancestors.check_owners(namespace, &owners, &found, (0, 0)) {
        true => ancestors.found,
        false => ancestors.lacking,
    };
    found.append(&mut more);
    (found, ancestors.late)
}

/// Whether the DELETE of this object follows from the deletion of its owner or container.
/// Exemption records allow no other request.
pub(super) fn is_in_cascade(situation: &Situation<'_>, item: &JudgedObject<'_>) -> bool {
    let dies = || containers(situation, item).iter().any(JudgedObject::is_terminating);
    !item.is_terminating() && (is_cascade(situation, item) || dies())
}

/// The approvals that are sufficient for these policies; `None` if approvals are missing.
/// An exemption record of belay is sufficient only for the policies that exempted the
/// user.
pub(crate) fn sufficient_approvals<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    policies: &[&Policy],
    records: ExemptionRecords,
) -> Option<Vec<&'a Approval>> {
    let ApprovalStatus { own, people, terms, .. } =
        approval_status(situation, item, policies, records);
    match terms {
        None => Some(own),
        Some(terms) if terms.are_met(&people) => Some([own, people].concat()),
        Some(_) => None,
    }
}

/// The approvals that policies require, and the people who have approved.
#[derive(Debug, Clone)]
pub(crate) struct RequiredApprovals {
    /// The required approvals.
    pub(crate) terms: ApprovalTerms,
    /// The people whose approvals are in force and count.
    pub(crate) people: Vec<String>,
}

/// The approvals that these policies require, and the people who have approved; `None` if
/// no approval is required.
pub(crate) fn required_approvals(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
    policies: &[&Policy],
) -> Option<RequiredApprovals> {
    let ApprovalStatus { people, terms, .. } =
        approval_status(situation, item, policies, ExemptionRecords::Ignored);
    let terms = terms?;
    let people = terms.approvers(&people).into_iter().map(str::to_owned).collect();
    Some(RequiredApprovals { terms, people })
}

/// The limit of ineffective approvals in a verdict.
pub(super) const MAX_INEFFECTIVE: usize = 3;

/// The approvals of an object that are in force but do not count for one of these
/// policies, up to the limit.
pub(crate) fn ineffective_approvals(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
    policies: &[&Policy],
) -> Vec<IneffectiveApproval> {
    let ApprovalStatus { people, late, .. } =
        approval_status(situation, item, policies, ExemptionRecords::Ignored);
    let discounted = people.into_iter().filter_map(|approval| {
        let (policy, why) = Policy::ineffective(approval, policies.iter().copied())?;
        Some((&approval.approver, &policy.source, why))
    });
    let late = late.into_iter().filter_map(|approval| {
        Some((&approval.approver, &policies.first()?.source, IneffectiveReason::Attached))
    });
    let reported =
        discounted.chain(late).collect::<BTreeSet<_>>().into_iter().take(MAX_INEFFECTIVE);
    let ineffective_approvals = reported.map(|(approver, policy, why)| {
        let (approver, policy) = (approver.clone(), policy.clone());
        IneffectiveApproval { approver, policy, why }
    });
    ineffective_approvals.collect()
}

/// Approvals, and the terms that they must meet.
struct ApprovalStatus<'a> {
    /// The exemption records of belay.
    own: Vec<&'a Approval>,
    /// The approvals of people.
    people: Vec<&'a Approval>,
    /// The approvals that are older than the owner references of the object.
    late: Vec<&'a Approval>,
    terms: Option<ApprovalTerms>,
}

fn approval_status<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    policies: &[&Policy],
    records: ExemptionRecords,
) -> ApprovalStatus<'a> {
    let identities = &situation.policies.identities;
    let terms = |own: &[&Approval]| {
        let exempted = |policy: &Policy| own.iter().any(|yes| yes.exempts.contains(&policy.source));
        let left = policies.iter().filter(|policy| !exempted(policy));
        ApprovalTerms::all(left.map(|policy| &policy.approval))
    };
    let apart = |found: &ApprovalsByName<'a>| -> (Vec<&'a Approval>, Vec<&'a Approval>) {
        found.values().copied().partition(|yes| identities.is_own(&yes.approver))
    };
    let are_enough = |found: &ApprovalsByName<'a>| {
        let (own, people) = apart(found);
        terms(&own).is_none_or(|terms| terms.are_met(&people))
    };
    let (found, late) = in_force(situation, item, records, &are_enough);
    let late = late.into_values().filter(|yes| !identities.is_own(&yes.approver)).collect();
    let (own, people) = apart(&found);
    let terms = terms(&own);
    ApprovalStatus { own, people, late, terms }
}

/// The containers of an object: its Namespace, and the CRD of a custom resource.
fn containers<'a>(situation: &Situation<'a>, item: &JudgedObject<'a>) -> Vec<JudgedObject<'a>> {
    let graph = situation.graph;
    let facts = item.facts;
    let definition = format!("{}.{}", facts.resource, facts.group);
    let places = [
        (("", "Namespace"), facts.namespace),
        (("apiextensions.k8s.io", "CustomResourceDefinition"), definition.as_str()),
    ];
    let nodes = places.iter().filter(|(_, name)| !name.is_empty()).filter_map(|((g, k), name)| {
        let kind = graph.kinds.find(g, k)?;
        graph.object(kind, "", name)
    });
    nodes.map(|node| JudgedObject::of_node(situation, node)).collect()
}
