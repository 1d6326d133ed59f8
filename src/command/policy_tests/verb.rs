//! The request of a case.

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Deletes an object.
    Delete,
    /// Changes an object.
    Update,
    /// Removes the finalizer `kubernetes` of a Namespace.
    Finalize,
    /// Evicts a Pod, as a drain does.
    Evict,
    /// Creates an object.
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
