//! End-to-end tests: the real API server, etcd and controllers, and belay as a
//! process in front of them.
//!
//! One control plane serves the whole program; each test has a namespace of
//! its own, so that all run side by side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod content;
mod control_plane;
mod feed;
mod forests;
mod journal;
mod label;
mod leader;
mod live;
mod policies;
mod registration;

use std::path::Path;
use std::sync::OnceLock;

use harness::{Belay, ControlPlane, Options, register};

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belay"))
}

/// The control plane with belay registered in it.
pub struct World {
    /// The control plane.
    pub plane: ControlPlane,
    /// belay in front of it.
    pub belay: Belay,
}

/// The one world of this program, started by whichever test comes first. If
/// it does not start, every test says why and none tries again.
pub fn world() -> &'static World {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    WORLD.get_or_init(|| start().map_err(|error| error.to_string())).as_ref().unwrap()
}

fn start() -> harness::Result<World> {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() })?;
    let belay = Belay::start("belay", program(), &["--log-format=json"], &plane.logs())?;
    register(&plane, program(), &[&belay])?;
    Ok(World { plane, belay })
}
