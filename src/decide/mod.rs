//! A review in, a verdict out.
//!
//! Nothing here waits, reads a clock or talks to anybody: a verdict is a
//! value, and the functions that render it for a person, an audit log or an
//! API server are separate functions over that value.

mod label;
mod render;
mod review;
mod unreadable;
mod verdict;

pub use label::decide_by_label;
pub use render::{audit_annotations, message, patch};
pub use review::{DeleteOptions, Door, Operation, Resource, Review, User};
pub use unreadable::{FailurePolicy, decide_unreadable};
pub use verdict::{Blocker, Decision, HoldChange, Reason, Target, Verdict};
