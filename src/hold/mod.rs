//! The release: when and how belay removes a hold.
//!
//! A held object that is Terminating stays until a *live pass* finds that nothing uses
//! it. [`Release`] is the state machine of one target, which runs passes until one succeeds.
//! Its inputs are events of the watch, results of requests and the time; its outputs are the next
//! actions. [`count`] counts the remaining users in the live reads. [`plan`] finds
//! missing and unwanted holds.
//!
//! ```text
//!  settle ─► write ─► read, live ─► count ─┬─► in use or unknown: a new pass later
//!            token    controllers  ▲       │
//!                     first        └───────┤   more reads are needed
//!                                          └─► remove, while the reads are fresh
//! ```
//!
//! docs/THEORY.md has the guarantees, the assumptions and the reason for each check. The
//! model checker in `model/` verifies them.

mod count;
mod exceptions;
mod forecast;
mod owners;
mod patch;
mod plan;
mod protocol;
mod release;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use count::{
    MAX_READ_ROUNDS, PASS_STEPS, ReleaseReason, UnknownUse, UseCheck, check_use,
    longest_settle_seconds, without_hold,
};
pub use forecast::{HoldForecast, forecast};
pub use patch::{HoldRemoval, TOKEN_ANNOTATION, TargetState, TokenWrite};
pub use plan::{DesiredHold, HoldPlan, desired_hold, plan, plan_patch, policies_wanting_hold};
pub use protocol::{Input, Output, ReleaseEnd, ReleaseTiming, RequestResult, WaitReason};
pub use release::Release;
