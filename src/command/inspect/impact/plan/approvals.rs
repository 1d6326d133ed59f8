//! The missing approvals of a deletion, and who may give them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::diagnosis::{given_approvals, policies_of};
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::command::why::{Approvers, RbacReader, needed_approvals};
use crate::decide::{Blocker, Verdict, approve_command};
use crate::policy::ApprovalTerms;

/// A missing approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedApproval {
    /// The object that the approval names.
    pub object: Object,
    /// The command that approves.
    pub command: String,
    /// How many more people must run the command.
    pub approvers: usize,
    /// The subjects that may approve, by RBAC, without the people who have approved. Absent if
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_approve: Option<Vec<String>>,
}

/// The missing approvals of a denied or held deletion.
pub async fn missing_approvals(
    inspection: &Inspection,
    verdict: Option<&Verdict>,
) -> Vec<PlannedApproval> {
    let (Some((caller, me)), Some(verdict)) = (&inspection.caller, verdict) else {
        return Vec::new();
    };
    let situation = inspection.situation();
    let mut rbac = RbacReader::default();
    let mut approvals = Vec::new();
    for need in needed_approvals(verdict) {
        let covers =
            |blocker: &&Blocker| *blocker.object_to_approve(&verdict.target) == need.object;
        let blockers = || verdict.blockers.iter().filter(covers);
        let given: Vec<_> =
            blockers().map(|one| given_approvals(&situation, &verdict.target, one)).collect();
        let missing = blockers().zip(&given);
        let missing =
            missing.map(|(blocker, given)| blocker.required_approvals.saturating_sub(given.len()));
        let terms = blockers().flat_map(|blocker| policies_of(&inspection.policies, blocker));
        let terms = ApprovalTerms::merge(terms.map(|policy| &policy.approval));
        let accounts = terms.map_or_else(Vec::new, |terms| terms.accounts);
        let needs = std::slice::from_ref(&need);
        let approvers = Approvers::find((caller, me), needs, Some(&accounts), &mut rbac).await;
        let has_approved = |name: &String| given.iter().all(|given| given.contains(name));
        let mut may_approve = approvers.and_then(|approvers| approvers.names());
        may_approve.iter_mut().for_each(|names| names.retain(|name| !has_approved(name)));
        approvals.push(PlannedApproval {
            object: Object::of(&need.object, &inspection.graph.kinds),
            command: approve_command(&need.object, need.content),
            approvers: missing.fold(1, usize::max),
            may_approve,
        });
    }
    approvals
}
