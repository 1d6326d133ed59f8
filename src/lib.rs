//! belay decides whether a Kubernetes object may be deleted, and keeps it with
//! a finalizer while other objects need it.
//!
//! The modules below are listed in their order of dependency: each may use the
//! modules above it, never the modules below it. Exception: `certs` uses the
//! metrics of `telemetry`. The test `tests/layers.rs` checks this order.
//! `docs/ARCHITECTURE.md` describes how a DELETE travels from the socket to the
//! verdict.
//!
//! Where to find what several modules share:
//! - approvals: `policy::approvals`, `decide::approved`, `decide::ancestors`,
//!   `cluster::expired_approvals`
//! - certificates: `certs` creates and serves them, `cluster::certificates::rotation` rotates them
//! - owner reference changes: `decide::update`
//! - unreadable objects in watches, and kinds whose watch is incomplete: `cluster::feed::objects`,
//!   `graph::coverage_methods`, `graph::coverage`
//! - releases of holds: `cluster::release` reads and patches, `hold::count` and `hold::release` decide
//! - PersistentVolumeClaims that `undo` saves: `command::undo::terminating`,
//!   `command::undo::already_deleted`
//! - why an object stays Terminating: `command::diagnosis`, from facts of `cluster::terminating`
//! - `kubectl belay impact`: `command::inspect::impact`

// Tests may unwrap, because a panic there is a failed test. A test called `h12_…` stops attack
// H12 of `docs/THREATS.md`, and `s12_…` is scenario 12 of the tests. R1 to R14 are the rules of
// `docs/THEORY.md`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

// Plain values, without IO, clock or async.
pub mod objects;

pub mod graph;

pub mod relations;

// The compiled policies that users write.
pub mod policy;

// Computes the verdict of an admission review, without IO.
pub mod decide;

// State machines without IO: the holds and their release, and leader election.
pub(crate) mod hold;

pub(crate) mod lease;

// The intervals of the running program.
pub mod timing;

// Certificates (their rotation is in `cluster`), logs and metrics of the running program.
pub mod certs;

pub mod telemetry;

// Input and output: the webhook, the API server and the command line.
pub mod webhook;

pub mod cluster;

pub mod command;
