//! The expectations of a case, compared with the outcome.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::CaseError;
use super::outcome::Outcome;
use super::verb::Verb;
use crate::command::document::policy_name;
use crate::decide::{Decision, Reason};

/// The expectations. Missing fields are not compared.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Expect {
    verdict: Option<Decision>,
    /// The reason code of the denial.
    reason: Option<Reason>,
    /// One of the policies that decide.
    policy: Option<String>,
    /// A text that the message contains.
    message: Option<String>,
    /// Blockers of the request; there may be others.
    blockers: Option<Vec<String>>,
    /// Whether the object has the hold afterwards.
    held: Option<bool>,
    /// The approvals that let it pass, all of them.
    approved: Option<Vec<String>>,
    /// All policies that exempt the user.
    exempted: Option<Vec<String>>,
}

/// One thing that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mismatch {
    /// The field of `expect`.
    pub what: &'static str,
    /// The expected value.
    pub expected: String,
    /// The actual value.
    pub found: String,
}

impl Expect {
    /// Checks that there is an expectation and that it fits the request.
    pub fn check(&self, verb: Verb) -> Result<(), CaseError> {
        let Self { verdict, reason, policy, message, blockers, held, approved, exempted } = self;
        let said = [
            verdict.is_some(),
            reason.is_some(),
            policy.is_some(),
            message.is_some(),
            blockers.is_some(),
            held.is_some(),
            approved.is_some(),
            exempted.is_some(),
        ];
        if !said.contains(&true) {
            return Err(CaseError::ExpectsNothing);
        }
        // Every text contains the empty one.
        let empty = |text: &String| text.trim().is_empty();
        if message.as_ref().is_some_and(empty) {
            return Err(CaseError::EmptyMessage);
        }
        if blockers.as_ref().is_some_and(|list| list.is_empty() || list.iter().any(empty)) {
            return Err(CaseError::EmptyBlockers);
        }
        let stores = matches!(verb, Verb::Create | Verb::Update | Verb::Review);
        if held.is_some() && !stores {
            return Err(CaseError::HeldNotStored(verb));
        }
        Ok(())
    }

    /// All differences from the expectation.
    pub fn compare(&self, outcome: &Outcome) -> Vec<Mismatch> {
        let Self { verdict, reason, policy, message, blockers, held, approved, exempted } = self;
        let found = &outcome.verdict;
        let mut wrong = Vec::new();
        let mut differ = |what: &'static str, expected: String, found: String, same: bool| {
            if !same {
                wrong.push(Mismatch { what, expected, found });
            }
        };
        if let Some(verdict) = verdict {
            let (expected, found) = (verdict.as_str(), found.decision.as_str());
            differ("verdict", expected.into(), found.into(), expected == found);
        }
        if let Some(reason) = reason {
            let (expected, found) = (reason.as_str(), outcome.reason().unwrap_or("none"));
            differ("reason", expected.into(), found.into(), expected == found);
        }
        if let Some(policy) = policy {
            let found = outcome.policies();
            differ("policy", policy.clone(), shown(&found), found.contains(policy));
        }
        if let Some(message) = message {
            let found = outcome.message();
            let same = found.contains(message.as_str());
            let found = if found.is_empty() { "nothing".to_owned() } else { found };
            differ("message", message.clone(), found, same);
        }
        if let Some(blockers) = blockers {
            let found = outcome.blockers();
            let all = blockers.iter().all(|blocker| found.contains(blocker));
            differ("blockers", shown(blockers), shown(&found), all);
        }
        if let Some(held) = held {
            let word = |held: bool| if held { "held" } else { "not held" };
            let found = outcome.held;
            let shown = found.map_or("nothing stored", word);
            differ("held", word(*held).into(), shown.into(), found == Some(*held));
        }
        if let Some(approved) = approved {
            let found = sorted(&found.overrides.approvals);
            let approved = sorted(approved);
            differ("approved", shown(&approved), shown(&found), approved == found);
        }
        if let Some(exempted) = exempted {
            let found: Vec<String> = found.overrides.exempted.iter().map(policy_name).collect();
            let (exempted, found) = (sorted(exempted), sorted(&found));
            differ("exempted", shown(&exempted), shown(&found), exempted == found);
        }
        wrong
    }
}

fn sorted(list: &[String]) -> Vec<String> {
    let mut list = list.to_vec();
    list.sort();
    list
}

fn shown(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}
