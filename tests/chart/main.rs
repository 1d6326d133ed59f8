//! The Helm chart, rendered by the real helm; no control plane is needed.
//!
//! What the chart says twice, because helm can ask nobody, is held against
//! what the program prints: definitions, checks, webhook configurations,
//! rights.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod helm;
mod names;
mod notes;
mod pods;
mod policies;
mod program;
mod refusals;
mod rights;
mod snapshots;
mod trials;
mod values;
