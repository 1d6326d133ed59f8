//! belay as its chart installs it, with the real helm, in front of the real
//! control plane: installed, upgraded under load, uninstalled.
//!
//! Each test has its own control plane, because a cluster has one belay.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../harness/mod.rs"]
mod harness;

mod certificates;
mod profiles;
mod renaming;
mod rights;
mod scenarios;
mod shop;
mod uninstalling;
mod whole;

use std::path::Path;

use harness::{ControlPlane, Options};

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belay"))
}

/// A control plane with a node, on which belay is not installed yet.
pub fn plane() -> ControlPlane {
    ControlPlane::start_with(&Options { nodes: 2, ..Options::default() }).unwrap()
}
