//! What the API server is told to ask.
//!
//! Whoever installs belay installs two webhook configurations with no rules
//! and no authorities in them ([`configurations`]): such a webhook matches
//! nothing. The leader fills both in, from what policies protect ([`rules`]),
//! with one JSON patch a configuration ([`patch`]), and again whenever somebody
//! takes them out ([`run`]). What else a webhook says belongs to the
//! installation: where that was changed, belay reports it ([`changed`]).
//!
//! ```text
//!   policies, kinds, owners ─► rules ─┐
//!   authorities ──────────────────────┼─► patch ─► API server ─┐
//!   the configuration, as it stands ──┘                        │
//!            ▲────────────────────── watch ────────────────────┘
//! ```
//!
//! Both belong to belay's own Namespace ([`owner`]), so that they go with it.
//!
//! A patch never makes a configuration: what somebody has uninstalled stays
//! away.

mod changed;
mod conditions;
pub mod configurations;
mod driver;
mod events;
mod follow;
mod owner;
pub mod patch;
pub mod rules;
mod watched;

pub use driver::run;
pub use rules::{Rules, rules};
