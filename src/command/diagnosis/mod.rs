//! The diagnosis of one object: why its deletion is blocked or why it stays Terminating,
//! who removes the cause, and what to do next. `why`, `stuck`, `release` and `approve` all
//! describe an object through this module, so that they report the same state in the same
//! way.
//!
//! ```text
//!  refusal ─┐              ┌► admission ─┐
//!  finalizers ─► finding ─►├► controller ┼► causes: all reasons of one object
//!  hold ────┘              └► namespace ─┘
//!  approval: the required approvals    verdict: the verdict on a DELETE
//!  collector: whether the garbage collector deletes an object because of its owners
//!  orphaning: the owner references that belay denies the garbage collector to remove
//!  guarded: the finalizers that the user may not remove without an approval
//!  unreleased: the kinds whose holds belay does not release
//!  irreversible: the kinds whose deletion can't be undone    undo_advice: whether and by whom
//! ```

mod admission;
mod approval;
mod causes;
mod collector;
mod controller;
mod finalizers;
mod finding;
mod guarded;
mod hold;
mod irreversible;
mod namespace;
mod orphaning;
mod refusal;
#[cfg(test)]
mod tests;
mod undo_advice;
mod unreleased;
mod verdict;

pub use self::approval::{
    consent_to, given_approvals, holding_policies, policies_of, right_to_approve, unread_approvals,
};
pub use self::causes::{explain_finalizers, find_causes};
pub use self::collector::{COLLECTOR_WAITS, Collection};
pub use self::finalizers::{
    BlockingFinalizer, finalizers_of, first_finalizers, more_finalizers, remover,
};
pub use self::finding::{Cause, Finding};
pub use self::guarded::guarded_finalizers;
pub use self::hold::{Hold, HoldState, cause_text, reason_text};
pub use self::irreversible::why_irreversible;
pub use self::orphaning::{may_deny_orphaning, orphaning_denials};
pub use self::refusal::{
    denies, explain_unencodable, is_refusal, is_unanswered, policy_message, webhook_name,
};
pub use self::undo_advice::{UndoAdviser, terminating_crd};
pub use self::unreleased::Unreleased;
pub use self::verdict::{
    is_orphaning, orphaning_blockers, verdict_on_delete, verdict_on_orphaning,
};
