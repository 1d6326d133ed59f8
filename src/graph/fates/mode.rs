//! How an object is being deleted, and what an owner reference amounts to.

use super::Propagation;

/// How an object is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Background,
    Foreground,
    Orphan,
    /// Foreground or background: which, depends on timing (R6 or R7).
    Either,
    /// Orphan or not: which, depends on timing.
    Unclear,
}

impl Mode {
    /// This way or that.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Orphan | Self::Unclear, _) | (_, Self::Orphan | Self::Unclear) => Self::Unclear,
            _ => Self::Either,
        }
    }
}

impl From<Propagation> for Mode {
    fn from(propagation: Propagation) -> Self {
        match propagation {
            Propagation::Background => Self::Background,
            Propagation::Foreground => Self::Foreground,
            Propagation::Orphan => Self::Orphan,
        }
    }
}

/// What an owner reference amounts to (R1 to R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    /// It cannot be resolved.
    Error,
    /// The owner is gone, or was never there.
    Dangling,
    /// The owner waits for its dependents.
    Waiting,
    /// The owner is there.
    Solid,
    /// The owner is taking the reference off.
    Orphaning,
}
