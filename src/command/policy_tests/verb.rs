//! The request of a case.

use crate::objects::text_enum;

text_enum! {
    /// The kinds of requests.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verb {
        /// Deletes an object.
        Delete = "delete",
        /// Changes an object.
        Update = "update",
        /// Removes the finalizer `kubernetes` of a Namespace.
        Finalize = "finalize",
        /// Evicts a Pod, as a drain does.
        Evict = "evict",
        /// Creates an object.
        Create = "create",
        /// A complete AdmissionReview.
        Review = "review",
    }

    /// The field with this verb.
    pub fn as_str;
}
