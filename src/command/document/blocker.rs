//! The report of one blocker.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Object, ReportedVerdict, policy_name};
use crate::decide::{Blocker, Verdict, policy_names};
use crate::objects::Kinds;

/// A blocker, or a reason to warn or to record.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockerReport {
    /// The verdict for this blocker.
    pub verdict: ReportedVerdict,
    /// The reason of the refusal, as in `status.reason` of the API server's answer.
    pub reason: &'static str,
    /// The protected object: the target, or an object that would be deleted with it.
    pub object: Object,
    /// The message.
    #[serde(rename = "says")]
    pub message: String,
    /// The policies that decide.
    pub policies: Vec<String>,
    /// The policies as text.
    #[serde(skip)]
    pub by: String,
    /// Whether belay's hold keeps the object after the accepted DELETE.
    #[serde(skip)]
    pub is_hold: bool,
}

impl BlockerReport {
    /// The report of a blocker of a verdict with its message.
    pub fn new(verdict: &Verdict, blocker: &Blocker, message: String, kinds: &Kinds) -> Self {
        Self {
            verdict: blocker.decision.into(),
            reason: blocker.reason.as_str(),
            object: Object::of(&blocker.object, kinds),
            message,
            policies: blocker.policies.iter().map(policy_name).collect(),
            by: policy_names(blocker),
            is_hold: verdict.keeps_by_hold(blocker),
        }
    }
}
