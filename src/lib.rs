//! belay decides whether a Kubernetes object may be deleted, and holds it
//! while something still needs it.
//!
//! This file is the table of contents. The rooms stand in their order of
//! dependency: each may use those above it, never those below (a test in
//! `tests/rooms.rs` holds the order). How a DELETE travels from the socket to
//! the verdict is told in `docs/ARCHITECTURE.md`.

// Tests may unwrap: a panic there is a failed test, which is what is wanted.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

// Values: no IO, no clock, no async.
pub mod objects;

pub mod graph;

pub mod relations;

// What people write, compiled for reading.
pub mod policy;

// Decisions: a review in, a verdict out. Still no IO.
pub mod decide;

// What the cluster side carries out, step by step: pure as well.
pub mod hold;

pub mod lease;

// The intervals of what runs.
pub mod timing;

// Support for what runs.
pub mod certs;

pub mod telemetry;

// The edges: the socket and the command line.
pub mod webhook;

pub mod cluster;

pub mod command;
