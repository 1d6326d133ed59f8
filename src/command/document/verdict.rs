//! The verdict on a request, in a word that programs compare.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decide::{Decision, Verdict};

/// The verdict on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReportedVerdict {
    /// Accepted.
    Allow,
    /// Accepted and recorded.
    Audit,
    /// Accepted with a warning.
    Warn,
    /// Accepted; an object stays Terminating until nothing uses it.
    Hold,
    /// Refused.
    Deny,
    /// Unknown, because reads failed.
    Unknown,
    /// Accepted, because there are no policies.
    NoPolicies,
}

impl From<Decision> for ReportedVerdict {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Allow => Self::Allow,
            Decision::Audit => Self::Audit,
            Decision::Warn => Self::Warn,
            Decision::Hold => Self::Hold,
            Decision::Deny => Self::Deny,
        }
    }
}

impl ReportedVerdict {
    /// The report of a verdict. During a Pause, the hold of an object remains.
    pub fn new(verdict: &Verdict) -> Self {
        match verdict.hold_blocker() {
            Some(_) => Self::Hold,
            None if verdict.is_unknown() => Self::Unknown,
            None => verdict.decision.into(),
        }
    }

    /// The text for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::Allow | Self::NoPolicies => "ALLOWED",
            Self::Audit => "ALLOWED, recorded",
            Self::Warn => "ALLOWED, with a warning",
            Self::Hold => "ALLOWED, and held",
            Self::Deny => "DENIED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The exit code of a command with this verdict.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Deny => 1,
            Self::Unknown => 3,
            _ => 0,
        }
    }
}
