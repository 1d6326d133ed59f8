//! What a user can do when belay lacks data for a decision.

use crate::graph::Incomplete;
use crate::objects::{ApiError, text_enum};

text_enum! {
    /// What a user can do when belay lacks data for a decision.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum NextStep {
        /// The reason is temporary.
        Retry = "try again",
        /// belay's account may not read the data.
        GrantPermission = "grant belay's service account this permission, then try again",
        /// The API server does not serve the kind.
        ServeKind = "make sure that the API server serves this kind, then try again",
        /// The API server can't convert the objects of the kind.
        RepairConversion = "repair the conversion webhook of this kind, then try again",
        /// belay can't read this object.
        ChangeObject = "correct or delete the unreadable object, then try again",
        /// belay can't resolve the owner that the object would lose.
        KeepOwner = "keep the owner reference",
    }

    /// The words of a message.
    pub(super) fn as_str;
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
            Incomplete::NotYetRead => Some(Self::Retry),
            Incomplete::Failed(error) => Some(Self::after(error)),
            Incomplete::OtherReason(_) => None,
        }
    }
}
