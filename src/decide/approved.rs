//! The approvals in force for an object.

use std::collections::BTreeSet;

use super::ancestors::{
    ApprovalSearch, ApprovalsByName, Covered, DeletionState, Owners, RecordScope, approvals_of,
    is_approval_counted,
};
use super::item::JudgedObject;
use super::owners::follows_owner_or_namespace;
use super::{IneffectiveApproval, Situation};
use crate::objects::full_name;
use crate::policy::{Approval, ApprovalTerms, IneffectiveReason, Policy};

struct CollectedApprovals<'a> {
    in_force: ApprovalsByName<'a>,
    /// Approvals that are older than the owner references of the object, so they do not count.
    outdated: ApprovalsByName<'a>,
}

/// Collects approvals in force for this object until they are sufficient: approvals of the
/// object, and approvals with scope Content of its container or of an owner whose deletion
/// certainly deletes the object.
fn collect_approvals<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    record_scope: RecordScope,
    are_sufficient: &dyn Fn(&ApprovalsByName<'a>) -> bool,
) -> CollectedApprovals<'a> {
    let (identity, state) =
        (item.identity(), DeletionState::from_deletion_time(item.deletion_time()));
    let owner_records = if record_scope == RecordScope::OfObjectAndOwners {
        record_scope
    } else {
        RecordScope::Ignored
    };
    let by_name = |approval: &'a Approval| (approval.name.as_str(), approval);
    let named = approvals_of(situation, identity.uid).iter().filter(|approval| {
        (approval.content || !item.needs_content_approval)
            && approval.names_object(&identity)
            && is_approval_counted(situation, record_scope, approval, state, Covered::Object)
    });
    let mut in_force: ApprovalsByName<'a> = named.map(by_name).collect();
    let (namespace, created) = (item.facts.namespace, item.creation_time());
    let covered = Covered::Content { created };
    for container in containers(situation, item) {
        let (identity, state) =
            (container.identity(), DeletionState::from_deletion_time(container.deletion_time()));
        let content = approvals_of(situation, identity.uid).iter().filter(|approval| {
            approval.content
                && approval.names_object(&identity)
                && approval.covers_namespace(namespace)
                && is_approval_counted(situation, owner_records, approval, state, covered)
        });
        in_force.extend(content.map(by_name));
    }
    if are_sufficient(&in_force) || situation.policies.approvals.is_empty() {
        return CollectedApprovals { in_force, outdated: ApprovalsByName::new() };
    }
    let owners = Owners::of_item(situation, item);
    let mut ancestors =
        ApprovalSearch::new(situation, (owner_records, are_sufficient), (namespace, created));
    let mut more = match ancestors.check_owners(namespace, &owners, &in_force, (0, 0)) {
        true => ancestors.sufficient,
        false => ancestors.insufficient,
    };
    in_force.append(&mut more);
    CollectedApprovals { in_force, outdated: ancestors.outdated }
}

/// Whether exemption records may count for the DELETE of this object: the object is not
/// Terminating, and its DELETE follows the deletion of an owner, of its Namespace or, unlike in
/// [`follows_owner_or_namespace`], of its CRD.
pub(super) fn may_use_exemption_records(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
) -> bool {
    let is_content_of_deleted =
        || containers(situation, item).iter().any(JudgedObject::is_terminating);
    !item.is_terminating()
        && (follows_owner_or_namespace(situation, item) || is_content_of_deleted())
}

/// The approvals that are sufficient for these policies; `None` if approvals are missing.
/// An exemption record of belay is sufficient only for the policies that exempted the
/// requester.
pub(crate) fn sufficient_approvals<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    policies: &[&Policy],
    record_scope: RecordScope,
) -> Option<Vec<&'a Approval>> {
    let ApprovalStatus { own_records, approvals_of_people, terms, .. } =
        approval_status(situation, item, policies, record_scope);
    match terms {
        None => Some(own_records),
        Some(terms) if terms.are_met(&approvals_of_people) => {
            Some([own_records, approvals_of_people].concat())
        }
        Some(_) => None,
    }
}

/// The approvals that policies require, and the people who have approved.
#[derive(Debug, Clone)]
pub(crate) struct RequiredApprovals {
    /// The required approvals.
    pub(crate) terms: ApprovalTerms,
    /// The names of the people whose approvals are in force and count.
    pub(crate) approver_names: Vec<String>,
}

/// The approvals that these policies require, and the people who have approved; `None` if
/// no approval is required.
pub(crate) fn required_approvals(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
    policies: &[&Policy],
) -> Option<RequiredApprovals> {
    let ApprovalStatus { approvals_of_people, terms, .. } =
        approval_status(situation, item, policies, RecordScope::Ignored);
    let terms = terms?;
    let approver_names = terms.approvers(&approvals_of_people);
    let approver_names = approver_names.into_iter().map(str::to_owned).collect();
    Some(RequiredApprovals { terms, approver_names })
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
    let ApprovalStatus { approvals_of_people, outdated, .. } =
        approval_status(situation, item, policies, RecordScope::Ignored);
    let ineffective = approvals_of_people.into_iter().filter_map(|approval| {
        let (policy, why) = Policy::reason_not_counted(approval, policies.iter().copied())?;
        Some((&approval.approver, &approval.target, &policy.source, why))
    });
    let outdated = outdated.into_iter().filter_map(|approval| {
        let policy = &policies.first()?.source;
        Some((&approval.approver, &approval.target, policy, IneffectiveReason::OlderThanReference))
    });
    let reported =
        ineffective.chain(outdated).collect::<BTreeSet<_>>().into_iter().take(MAX_INEFFECTIVE);
    let ineffective_approvals = reported.map(|(approver, object, policy, why)| {
        let (approver, object, policy) = (approver.clone(), object.clone(), policy.clone());
        IneffectiveApproval { approver, object, policy, why }
    });
    ineffective_approvals.collect()
}

/// Approvals, and the terms that they must meet.
struct ApprovalStatus<'a> {
    /// The exemption records of belay.
    own_records: Vec<&'a Approval>,
    /// The approvals of people.
    approvals_of_people: Vec<&'a Approval>,
    /// The approvals that are older than the owner references of the object.
    outdated: Vec<&'a Approval>,
    terms: Option<ApprovalTerms>,
}

fn approval_status<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    policies: &[&Policy],
    record_scope: RecordScope,
) -> ApprovalStatus<'a> {
    let identities = &situation.policies.identities;
    let terms = |own_records: &[&Approval]| {
        let exempted = |policy: &Policy| {
            own_records.iter().any(|record| record.exempts.contains(&policy.source))
        };
        let remaining = policies.iter().filter(|policy| !exempted(policy));
        ApprovalTerms::merge(remaining.map(|policy| &policy.approval))
    };
    let split = |approvals: &ApprovalsByName<'a>| -> (Vec<&'a Approval>, Vec<&'a Approval>) {
        approvals.values().copied().partition(|approval| identities.is_belay(&approval.approver))
    };
    let are_sufficient = |approvals: &ApprovalsByName<'a>| {
        let (own_records, approvals_of_people) = split(approvals);
        terms(&own_records).is_none_or(|terms| terms.are_met(&approvals_of_people))
    };
    let CollectedApprovals { in_force, outdated } =
        collect_approvals(situation, item, record_scope, &are_sufficient);
    let outdated = outdated
        .into_values()
        .filter(|approval| !identities.is_belay(&approval.approver))
        .collect();
    let (own_records, approvals_of_people) = split(&in_force);
    let terms = terms(&own_records);
    ApprovalStatus { own_records, approvals_of_people, outdated, terms }
}

/// The containers of an object: its Namespace, and the CRD of a custom resource.
fn containers<'a>(situation: &Situation<'a>, item: &JudgedObject<'a>) -> Vec<JudgedObject<'a>> {
    let graph = situation.graph;
    let facts = item.facts;
    let crd = full_name(facts.group, facts.resource);
    let containers =
        [(graph.kinds.namespace(), facts.namespace), (graph.kinds.crd(), crd.as_str())];
    let named = containers.into_iter().filter(|(_, name)| !name.is_empty());
    let nodes = named.filter_map(|(kind, name)| graph.object(kind?, "", name));
    nodes.map(|node| JudgedObject::of_node(situation, node)).collect()
}
