//! What a user can do when belay lacks data for a decision.

use crate::graph::Incomplete;
use crate::objects::ApiError;

/// What a user can do when belay lacks data for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextStep {
    /// The reason is temporary.
    Retry,
    /// belay's account may not read the data.
    GrantPermission,
    /// The API server does not serve the kind.
    ServeKind,
    /// The API server can't convert the objects of the kind.
    RepairConversion,
    /// belay can't read this object.
    ChangeObject,
    /// belay can't resolve the owner that the object would lose.
    KeepOwner,
}

impl NextStep {
    /// The next step after a failed read.
    pub(super) fn after(error: &ApiError) -> Self {
        match error {
            ApiError::Forbidden(_) => Self::GrantPermission,
            ApiError::NotFound => Self::ServeKind,
            other if other.to_string().contains("conversion webhook") => Self::RepairConversion,
            _ => Self::Retry,
        }
    }

    /// The next step while belay does not know all objects of a kind.
    pub(super) fn for_incomplete(why: &Incomplete) -> Option<Self> {
        match why {
            Incomplete::Unread => Some(Self::Retry),
            Incomplete::Failed(error) => Some(Self::after(error)),
            Incomplete::NotRead(_) => None,
        }
    }

    /// The words of a message.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "try again",
            Self::GrantPermission => {
                "grant belay's service account this permission, then try again"
            }
            Self::ServeKind => "make sure that the API server serves this kind, then try again",
            Self::RepairConversion => "repair the conversion webhook of this kind, then try again",
            Self::ChangeObject => "correct or delete the unreadable object, then try again",
            Self::KeepOwner => "keep the owner reference",
        }
    }
}
