//! The blockers of a deletion in the output of `impact`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::command::document::{Object, ReportedVerdict, policy_name};
use crate::decide::{Blocker, Verdict, policy_names, sentence};
use crate::objects::Kinds;

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockerReport {
    /// The verdict for this blocker.
    pub verdict: ReportedVerdict,
    /// The reason of the refusal, as in `status.reason` of the API server's answer.
    pub reason: &'static str,
    /// The protected object.
    pub object: Object,
    /// The message.
    pub says: String,
    /// The policies that decide.
    pub policies: Vec<String>,
    /// The message.
    #[serde(skip)]
    pub by: String,
}

impl BlockerReport {
    /// One of the reasons of a verdict on these targets.
    pub fn new(verdict: &Verdict, blocker: &Blocker, targets: &[Object], kinds: &Kinds) -> Self {
        Self {
            verdict: blocker.outcome.into(),
            reason: blocker.reason.as_str(),
            object: Object::of(&blocker.object, kinds),
            says: message(verdict, blocker, targets),
            policies: blocker.policies.iter().map(policy_name).collect(),
            by: policy_names(blocker),
        }
    }
}

/// Admission has one target and mentions cascaded objects; for several targets each
/// object has its own message.
fn message(verdict: &Verdict, blocker: &Blocker, targets: &[Object]) -> String {
    let object = &blocker.object;
    let is = |target: &Object| {
        (&target.group, &target.resource, &target.namespace, &target.name)
            == (&object.group, &object.resource, &object.namespace, &object.name)
    };
    match targets {
        [_] => sentence(&verdict.target, blocker),
        all if all.iter().any(is) => sentence(object, blocker),
        _ => format!("{}, and would be deleted as well", sentence(object, blocker)),
    }
}
