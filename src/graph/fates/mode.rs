//! The modes of a deletion, and the states of an owner reference.

use super::Propagation;

/// How an object is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeletionMode {
    Background,
    Foreground,
    Orphan,
    /// Foreground or background, depending on timing (R6 or R7).
    ForegroundOrBackground,
    /// Orphan or another mode, depending on timing.
    OrphanOrNot,
}

impl DeletionMode {
    /// The mode of a deletion that has either this mode or `other`.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Orphan | Self::OrphanOrNot, _) | (_, Self::Orphan | Self::OrphanOrNot) => {
                Self::OrphanOrNot
            }
            _ => Self::ForegroundOrBackground,
        }
    }
}

impl From<Propagation> for DeletionMode {
    fn from(propagation: Propagation) -> Self {
        match propagation {
            Propagation::Background => Self::Background,
            Propagation::Foreground => Self::Foreground,
            Propagation::Orphan => Self::Orphan,
        }
    }
}

/// The state of an owner reference (R1 to R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerReferenceState {
    /// The reference can't be resolved.
    Unresolved,
    /// The owner does not exist.
    Absent,
    /// The owner waits for its dependents.
    Waiting,
    /// The owner exists.
    Solid,
    /// The garbage collector removes the reference because the deletion of the owner orphans.
    Orphaning,
}
