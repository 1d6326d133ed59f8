//! The release: when the hold goes, and how.
//!
//! A held object that is Terminating stays until a *live pass* finds that
//! nothing needs it. [`Release`] is that pass as a state machine, one for each
//! target: it is told what the watch says, what requests came to, and the
//! time, and says what to do next. [`count`] is the question it asks in the
//! middle: who, of what was read, still counts. [`plan`] says where a hold is
//! missing, or is no longer wanted.
//!
//! ```text
//!  settle ─► mark ─► read, live ─► count ─┬─► kept, unknown: look again later
//!            (token)  producers    ▲      │
//!                     first        └──────┤   something is still unread
//!                                         └─► remove, while the reads are fresh
//! ```
//!
//! What is promised, under which assumptions, and what each guard is there for
//! is told in docs/THEORY.md; the model checker of `model/` holds it.

mod chain;
mod count;
mod excuses;
mod patch;
mod plan;
mod protocol;
mod release;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use count::{
    Count, PASS_STEPS, ReleaseReason, UnknownUse, as_released, count, keeping_policies,
};
pub use patch::{HoldRemoval, TOKEN, TargetState, TokenWrite};
pub use plan::{Plan, Wanted, hold_want, plan, plan_patch, policies_wanting_hold, wants_hold};
pub use protocol::{Answer, End, Input, Limits, Output, Waiting};
pub use release::{ROUNDS, Release};
