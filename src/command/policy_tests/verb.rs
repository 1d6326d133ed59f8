//! The request of a case.

/// The kinds of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// An object is to go.
    Delete,
    /// It changes.
    Update,
    /// Removes the finalizer `kubernetes` of a Namespace.
    Finalize,
    /// Evicts a Pod, as a drain does.
    Evict,
    /// An object is new.
    Create,
    /// A complete AdmissionReview.
    Review,
}

impl Verb {
    /// The field with this verb.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Update => "update",
            Self::Finalize => "finalize",
            Self::Evict => "evict",
            Self::Create => "create",
            Self::Review => "review",
        }
    }
}
