//! How far the holds of a policy are, as its condition says it.

/// How far the holds of a policy are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// So many objects have the hold.
    pub done: usize,
    /// So many are to have it.
    pub total: usize,
    /// The kinds on which `hold: Auto` puts none.
    pub none_on: Vec<String>,
    /// The kinds that belay's account may not patch.
    pub forbidden: Vec<String>,
    /// Whether the policy places no hold at all, because it binds only some
    /// subjects.
    pub binds_some: bool,
    /// The kinds of which too many objects lack it for putting it on.
    pub stopped: Vec<Stopped>,
    /// The objects on which the API server let belay put none.
    pub refused: Option<RefusedHolds>,
}

/// Objects on which the API server let belay put no hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHolds {
    /// So many.
    pub objects: usize,
    /// The kind and name of the first one.
    pub first: String,
    /// Why it was refused.
    pub why: String,
}

/// A kind of which too many objects lack the hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Its name.
    pub resource: String,
    /// So many lack it.
    pub missing: usize,
    /// So many may get it late.
    pub limit: usize,
}
