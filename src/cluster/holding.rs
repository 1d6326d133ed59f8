//! The progress of the holds of a policy, for its condition.

/// The progress of the holds of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldProgress {
    /// The value of `Signals::changed` before the objects were counted.
    pub generation: u64,
    /// How many objects have and need the hold.
    pub counts: HoldCounts,
    /// Whether the first list of a kind has not ended, so objects are missing in `counts`.
    pub unread: bool,
    /// The kinds to which `hold: Auto` adds no hold.
    pub unsafe_kinds: Vec<String>,
    /// The kinds that belay's account may not patch.
    pub forbidden: Vec<String>,
    /// True for a policy that adds no hold because it binds only some subjects.
    pub binds_some: bool,
    /// The kinds with more missing holds than the limit.
    pub stopped: Vec<BackfillStop>,
    /// The objects on which the API server refused the hold.
    pub refused: Option<RefusedHolds>,
}

/// The numbers of the holds of a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoldCounts {
    /// Objects that have the hold.
    pub done: usize,
    /// Objects that need the hold.
    pub total: usize,
    /// Terminating objects that have the hold. `done` and `total` don't include them.
    pub terminating: usize,
    /// The time at which all these holds are effective, in seconds since 1970, for a policy with
    /// `onDelete: Hold`. `None` if they are effective now.
    pub effective_at: Option<i64>,
}

/// Objects on which the API server refused the hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHolds {
    pub objects: usize,
    /// Kind and name of the first object.
    pub first: String,
    pub why: String,
}

/// A kind with more missing holds than the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillStop {
    pub resource: String,
    /// Objects without the hold.
    pub missing: usize,
    pub limit: usize,
}
