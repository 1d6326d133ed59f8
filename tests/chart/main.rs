//! Tests of the chart with the real helm, without a control plane.
//!
//! The chart repeats CRDs, admission policies, webhook configurations and permissions,
//! because helm can't ask the program. The tests compare them with its output.

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
