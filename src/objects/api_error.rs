//! The errors of requests to the API server.

use std::time::Duration;

/// Why a request to the API server failed. The text completes the sentence "belay cannot read
/// them:".
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum ApiError {
    /// The object does not exist. For a list, its kind is not served.
    #[error("the API server does not serve them")]
    NotFound,
    /// The API server forbids the request. Its message names the user.
    #[error("{0}")]
    Forbidden(String),
    /// The Namespace in which an object was to be created is Terminating.
    #[error("{0}")]
    NamespaceTerminating(String),
    /// belay must start a list or watch again.
    #[error("the list changed while it was read")]
    Expired,
    /// Another Status.
    #[error("the API server answers {code}: {message}")]
    Status {
        /// The HTTP code.
        code: u16,
        /// The message.
        message: String,
    },
    /// The API server did not answer within this time.
    #[error("the API server did not answer within {0:.1?}")]
    TimedOut(Duration),
    /// The request or the answer did not arrive.
    #[error("{0}")]
    Unreachable(String),
    /// The answer has an unexpected form.
    #[error("{0}")]
    Unreadable(String),
    /// belay did not send the request, or not the intended one.
    #[error("{0}")]
    Other(String),
}

impl ApiError {
    /// Whether the same request fails until a user changes something.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::NotFound | Self::Forbidden(_) | Self::NamespaceTerminating(_) => true,
            Self::Status { code, .. } => (400..500).contains(code) && !matches!(code, 409 | 429),
            _ => false,
        }
    }

    /// Whether the object was changed, or replaced by another one with its name.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Status { code: 409, .. })
    }

    /// The user may list only the objects in these namespaces.
    pub fn forbidden_outside(namespaces: &str) -> Self {
        Self::Other(format!("forbidden for you outside of namespace {namespaces}"))
    }

    /// A short reason for the user without the permission.
    pub fn reason_for_user(&self) -> String {
        match self {
            Self::Forbidden(_) => "forbidden for you".to_owned(),
            other => other.to_string(),
        }
    }
}
