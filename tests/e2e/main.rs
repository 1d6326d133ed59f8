//! The parts of belay against the real API server, etcd and controllers.
//!
//! One control plane serves the whole program. Each test has its own namespace, so that all
//! run in parallel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod content;
mod control_plane;
mod feed;
mod forests;
mod journal;
mod leader;
mod live;
mod policies;
mod preview;
mod registration;

use std::path::Path;
use std::sync::OnceLock;

use harness::{ControlPlane, Options};

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belay"))
}

/// The control plane without belay: these tests use parts of belay, and `tests/scenarios`
/// uses whole installations.
pub struct World {
    /// The control plane.
    pub plane: ControlPlane,
}

/// The shared world of this program. The first test starts it. If it does not start, every
/// test fails with the reason and none tries again.
pub fn world() -> &'static World {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    WORLD.get_or_init(|| start().map_err(|error| error.to_string())).as_ref().unwrap()
}

fn start() -> harness::Result<World> {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() })?;
    Ok(World { plane })
}
