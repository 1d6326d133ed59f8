//! `make play`: a control plane with belay in front of it, in the foreground.
//!
//! Says `export KUBECONFIG=…` and then `ready` on a line of its own; Ctrl-C
//! ends it and leaves nothing behind.

#[path = "harness/mod.rs"]
mod harness;

use std::path::PathBuf;

use harness::{Belay, ControlPlane, Options, register};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> harness::Result<()> {
    let program = PathBuf::from(std::env::args().nth(1).ok_or("usage: play PATH-OF-BELAY")?);
    // Asked for before anything starts: a Ctrl-C while it starts counts too.
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);

    let (plane, belay) = start(&program)?;
    let folder = plane.folder().to_owned();
    println!(
        "# kubectl and helm of the same version: export PATH={}:$PATH",
        plane.binaries().display()
    );
    println!("# logs: {}", plane.logs().display());
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    println!("ready");

    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    drop((belay, plane));
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn start(program: &std::path::Path) -> harness::Result<(ControlPlane, Belay)> {
    let plane = ControlPlane::start_with(&Options { nodes: 2, ..Options::default() })?;
    let belay = Belay::start("belay", program, &[], &plane.logs())?;
    register(&plane, program, &[&belay])?;
    Ok((plane, belay))
}
