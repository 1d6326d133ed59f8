//! `make play`: a control plane with belay, installed by its chart, in the foreground.
//!
//! Prints `export KUBECONFIG=…` and then `ready` on a separate line. Ctrl-C ends it, also
//! while it starts, and leaves no processes or files.

#[path = "harness/mod.rs"]
mod harness;

use std::path::PathBuf;
use std::process::ExitCode;

use harness::install::wait_until_called;
use harness::{Chart, ControlPlane, Options};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match play().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("play: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> harness::Result<()> {
    let program = PathBuf::from(std::env::args().nth(1).ok_or("usage: play PATH-OF-BELAY")?);
    if !program.exists() {
        return Err(
            format!("there is no program {}; make play builds it", program.display()).into()
        );
    }
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut starting = tokio::task::spawn_blocking(move || start(&program));
    let interrupted = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(interrupted);

    let world = tokio::select! {
        world = &mut starting => world??,
        () = &mut interrupted => {
            // The processes that were started end with this process.
            harness::folder::remove_own();
            std::process::exit(130);
        }
    };
    let (chart, plane) = &world;
    for line in chart.notes.lines() {
        println!("# {line}");
    }
    println!(
        "# kubectl and helm of the same version: export PATH={}:$PATH",
        plane.binaries().display()
    );
    println!("# logs: {}", plane.logs().display());
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    println!("ready");
    interrupted.await;
    drop(world);
    harness::folder::remove_own();
    Ok(())
}

fn start(program: &std::path::Path) -> harness::Result<(Chart, ControlPlane)> {
    let plane = ControlPlane::start_with(&Options { nodes: 2, ..Options::default() })?;
    // The user may write policies for every kind.
    let mut chart = Chart::prepare(&plane, program)?;
    chart.kubelet.use_production_timing();
    chart.notes = chart.deploy("install", &["--set=rbac.watchEverything=true"])?.success()?;
    wait_until_called(&plane)?;
    Ok((chart, plane))
}
