//! The verdict on a request, in a word that programs compare.

use schemars::JsonSchema;
use serde::Serialize;

use crate::decide::Decision;

/// What is said of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ReportedVerdict {
    /// It passes.
    Allow,
    /// It passes, and is recorded.
    Audit,
    /// It passes with a warning.
    Warn,
    /// It passes, and something stays Terminating until nothing needs it.
    Hold,
    /// It is refused.
    Deny,
    /// Nobody can tell with what could be read.
    Unknown,
    /// There are no policies, so nothing refuses it.
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
    /// As people read it.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Allow | Self::NoPolicies => "ALLOWED",
            Self::Audit => "ALLOWED, recorded",
            Self::Warn => "ALLOWED, with a warning",
            Self::Hold => "ALLOWED, and held",
            Self::Deny => "DENIED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Deny => 1,
            Self::Unknown => 3,
            _ => 0,
        }
    }
}
