//! The server as its clients see it: the program itself, over real TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod bad_input;
mod bodies;
mod certificates;
mod ending;
mod files;
mod load;
mod standalone;
mod threads;
mod verdicts;

use std::path::Path;

use harness::Belay;
use harness::client::{self, Client};

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belay"))
}

/// A belay for one test, and the folder of its log.
pub fn belay(args: &[&str]) -> (Belay, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let belay = Belay::start("belay", program(), args, folder.path()).unwrap();
    (belay, folder)
}

/// A client that trusts that belay's CA.
pub fn client(belay: &Belay) -> Client {
    Client::new(belay.listen, &belay.ca)
}

/// A sample review.
pub fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    std::fs::read_to_string(path).unwrap()
}
