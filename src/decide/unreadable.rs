//! A review that arrived and cannot be judged.

use super::{Blocker, Cause, Decision, Reason, Target, Verdict};

/// What is said to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailurePolicy {
    /// Refuse the request.
    #[value(name = "Fail", alias = "fail")]
    Fail,
    /// Let the request pass, with a warning.
    #[value(name = "Ignore", alias = "ignore")]
    Ignore,
}

/// The verdict on a review of which `detail` says what could not be read.
pub fn decide_unreadable(target: Target, detail: String, policy: FailurePolicy) -> Verdict {
    match policy {
        FailurePolicy::Fail => {
            let blocker = Blocker {
                outcome: Decision::Deny,
                reason: Reason::Unknown,
                // No policy says so: belay could not get that far.
                policies: Vec::new(),
                object: target.clone(),
                causes: vec![Cause::Unknown(detail)],
                more: 0,
                people: 0,
                along: false,
            };
            Verdict::of(target, vec![blocker])
        }
        FailurePolicy::Ignore => Verdict::allow(target),
    }
}
