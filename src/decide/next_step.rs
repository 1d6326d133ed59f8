//! What a user can do when belay lacks data for a decision.

use std::fmt;

use crate::graph::Incomplete;
use crate::objects::{ApiError, watch_also_value};

/// What a user can do when belay lacks data for a decision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextStep {
    /// The reason is temporary.
    Retry,
    /// belay's account may not read objects of a kind: its group and plural name.
    GrantPermission(String, String),
    /// The API server does not serve the kind.
    ServeKind,
    /// The API server can't convert the objects of the kind.
    RepairConversion,
    /// belay can't read this object.
    ChangeObject,
    /// The objects are larger than a live read may be.
    ReduceObjects,
    /// belay can't resolve the owner that the object would lose.
    KeepOwner,
}

/// The words of a message.
impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retry => "try again",
            Self::GrantPermission(group, resource) => {
                let value = watch_also_value(group, resource);
                return write!(
                    f,
                    "grant belay's service account this permission (add {value} to the chart \
                     value rbac.watchAlso), then try again"
                );
            }
            Self::ServeKind => "make sure that the API server serves this kind, then try again",
            Self::RepairConversion => "repair the conversion webhook of this kind, then try again",
            Self::ChangeObject => "correct or delete the unreadable object, then try again",
            Self::ReduceObjects => "make these objects fewer or smaller, then try again",
            Self::KeepOwner => "keep the owner reference",
        })
    }
}

/// The error of a live read that needs more memory than one read may use.
pub const READ_TOO_LARGE: &str = "they are larger than a live read may be (32 MiB)";

impl NextStep {
    /// The next step after a failed read of objects of a kind: its group and plural name.
    pub(super) fn after(error: &ApiError, (group, resource): (&str, &str)) -> Self {
        match error {
            ApiError::Forbidden(_) => Self::GrantPermission(group.to_owned(), resource.to_owned()),
            ApiError::NotFound => Self::ServeKind,
            other if other.to_string().contains("conversion webhook") => Self::RepairConversion,
            other if other.to_string().contains(READ_TOO_LARGE) => Self::ReduceObjects,
            _ => Self::Retry,
        }
    }

    /// The next step while belay does not know all objects of a kind.
    pub(super) fn for_incomplete(why: &Incomplete, kind: (&str, &str)) -> Option<Self> {
        match why {
            Incomplete::NotYetRead => Some(Self::Retry),
            Incomplete::Failed(error) => Some(Self::after(error, kind)),
            Incomplete::OtherReason(_) => None,
        }
    }
}
