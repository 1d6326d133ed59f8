//! belay as it is installed, in front of the real API server, etcd and
//! controllers: the scenarios, by their numbers.
//!
//! One control plane with two replicas serves most of them. Each has its own namespace and
//! policies, so that all run in parallel. Tests that break something have their own control
//! plane.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod admin;
mod applying;
mod approvals;
mod attacks;
mod cascades;
mod conversion;
mod deleting;
mod ending;
mod faults;
mod faulty;
mod finalizing;
mod given;
mod held_cascades;
mod keeping;
mod label;
mod late;
mod leaders;
mod load;
mod one_identity;
mod orphaning;
mod outage;
mod pairs;
mod people;
mod prunes;
mod registration;
mod releasing;
mod reviews;
mod rollout;
mod rotation;
mod rounds;
mod status;
mod stripping;
mod team;
mod uninstall;
mod unreadable;
mod uses;
mod walks;
mod way;

use std::path::Path;
use std::sync::OnceLock;

use harness::{ControlPlane, Install, Installed, Options, policy};

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belay"))
}

/// The control plane with belay installed in it.
pub struct World {
    /// The control plane.
    pub plane: ControlPlane,
    /// belay in front of it.
    pub belay: Installed,
}

/// The shared world of this program. The first test starts it. If it does not start, every
/// test fails with the reason and none tries again.
pub fn world() -> &'static World {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    WORLD.get_or_init(|| start().map_err(|error| error.to_string())).as_ref().unwrap()
}

fn start() -> harness::Result<World> {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() })?;
    let belay = Install::of_everything(2).on(&plane, program())?;
    Ok(World { plane, belay })
}
