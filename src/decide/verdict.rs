//! The answer, as plain data.

/// What belay says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
}

impl Decision {
    /// The name in metrics, logs and audit annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
        }
    }
}

/// The fixed word that goes into `status.reason` of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The object itself is protected, whoever uses it.
    Protected,
    /// Something that the verdict needs could not be read.
    Unknown,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protected => "Protected",
            Self::Unknown => "Unknown",
        }
    }
}

/// One reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// The target carries the label `belay.dev/protect` with this value.
    Label(String),
    /// The review could not be read; the text says what and where.
    Unreadable(String),
}

/// The object that a request is about, for messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The plural resource name.
    pub resource: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name; empty when it is not known yet.
    pub name: String,
}

/// What the mutating phase does to the object's finalizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldChange {
    /// The hold becomes the first entry of an array that is not there yet.
    First,
    /// The hold is appended to the array that is there.
    Append,
}

/// A verdict: everything that any rendering of it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is said.
    pub decision: Decision,
    /// The fixed word of a refusal.
    pub reason: Option<Reason>,
    /// The object in question.
    pub target: Target,
    /// Why; empty when nothing stands against the request.
    pub blockers: Vec<Blocker>,
    /// What happens to the hold.
    pub hold: Option<HoldChange>,
}

impl Verdict {
    /// Nothing stands against it.
    pub fn allow(target: Target) -> Self {
        Self { decision: Decision::Allow, reason: None, target, blockers: Vec::new(), hold: None }
    }

    /// Refused, for one reason.
    pub fn deny(target: Target, reason: Reason, blocker: Blocker) -> Self {
        Self {
            decision: Decision::Deny,
            reason: Some(reason),
            target,
            blockers: vec![blocker],
            hold: None,
        }
    }
}
