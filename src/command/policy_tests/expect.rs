//! The expectations of a case, compared with the outcome.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::CaseError;
use super::outcome::Outcome;
use super::verb::Verb;
use crate::command::document::policy_name;
use crate::decide::{Decision, Reason};

/// The expectations. Missing fields are not compared.
#[derive(Debug, Default, PartialEq, Deserialize)]
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
    /// All approvals that allow the request.
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
        if *self == Self::default() {
            return Err(CaseError::ExpectsNothing);
        }
        let Self { message, blockers, held, .. } = self;
        // An empty text would match every message.
        let is_blank = |text: &String| text.trim().is_empty();
        if message.as_ref().is_some_and(is_blank) {
            return Err(CaseError::EmptyMessage);
        }
        if blockers.as_ref().is_some_and(|list| list.is_empty() || list.iter().any(is_blank)) {
            return Err(CaseError::EmptyBlockers);
        }
        let stores_object = matches!(verb, Verb::Create | Verb::Update | Verb::Review);
        if held.is_some() && !stores_object {
            return Err(CaseError::HeldNotStored(verb));
        }
        Ok(())
    }

    /// All differences from the expectation.
    pub fn compare(&self, outcome: &Outcome) -> Vec<Mismatch> {
        let Self { verdict, reason, policy, message, blockers, held, approved, exempted } = self;
        let actual = &outcome.verdict;
        let mut mismatches = Vec::new();
        let mut compare = |what: &'static str, expected: String, found: String, same: bool| {
            if !same {
                mismatches.push(Mismatch { what, expected, found });
            }
        };
        if let Some(verdict) = verdict {
            let (expected, found) = (verdict.as_str(), actual.decision.as_str());
            compare("verdict", expected.into(), found.into(), expected == found);
        }
        if let Some(reason) = reason {
            let (expected, found) = (reason.as_str(), outcome.reason().unwrap_or("none"));
            compare("reason", expected.into(), found.into(), expected == found);
        }
        if let Some(policy) = policy {
            let found = outcome.policies();
            compare("policy", policy.clone(), list_text(&found), found.contains(policy));
        }
        if let Some(message) = message {
            let found = outcome.message();
            let same = found.contains(message.as_str());
            let found = if found.is_empty() { "nothing".to_owned() } else { found };
            compare("message", message.clone(), found, same);
        }
        if let Some(blockers) = blockers {
            let found = outcome.blockers();
            let all = blockers.iter().all(|blocker| found.contains(blocker));
            compare("blockers", list_text(blockers), list_text(&found), all);
        }
        if let Some(held) = held {
            let word = |held: bool| if held { "held" } else { "not held" };
            let found = outcome.held;
            let shown = found.map_or("nothing stored", word);
            compare("held", word(*held).into(), shown.into(), found == Some(*held));
        }
        if let Some(approved) = approved {
            let found = sorted(&actual.overrides.approvals);
            let approved = sorted(approved);
            compare("approved", list_text(&approved), list_text(&found), approved == found);
        }
        if let Some(exempted) = exempted {
            let found: Vec<String> = actual.overrides.exempted.iter().map(policy_name).collect();
            let (exempted, found) = (sorted(exempted), sorted(&found));
            compare("exempted", list_text(&exempted), list_text(&found), exempted == found);
        }
        mismatches
    }
}

fn sorted(list: &[String]) -> Vec<String> {
    let mut list = list.to_vec();
    list.sort();
    list
}

fn list_text(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}
