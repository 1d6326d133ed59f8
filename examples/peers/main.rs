//! `make bench-peers`: belay's webhook beside other servers that answer the same reviews.
//!
//! ```text
//! peers OHA WEBHOOK PLOT
//!     the webhooks alone, and a plot
//! peers plane [GATEKEEPER CRDS KYVERNO CRDS]
//!     DELETEs on a control plane
//! peers constant|typed PORT DIR
//!     one of the servers in servers.rs, with the certificate in DIR
//! ```
//!
//! With other arguments, this program is belay itself. So all servers in Rust are built with the
//! same options, and have the allocator of belay.

#[path = "../../tests/harness/mod.rs"]
mod harness;

mod gatekeeper;
mod kyverno;
mod load;
mod plane;
mod plot;
mod reviews;
mod servers;
mod table;
mod webhooks;

// Modules of `numbers`. This program does not use all of their functions.
#[path = "../numbers/machine.rs"]
mod machine;
#[path = "../numbers/policies.rs"]
#[allow(dead_code)]
mod policies;
#[path = "../numbers/samples.rs"]
#[allow(dead_code)]
mod samples;
#[path = "../numbers/writer.rs"]
#[allow(dead_code)]
mod writer;

use std::path::Path;
use std::process::ExitCode;

use harness::Result;
use machine::with_load;
use plane::Peer;

// The allocator of belay.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["constant", port, folder] => servers::serve(servers::Answer::Constant, port, folder),
        ["typed", port, folder] => servers::serve(servers::Answer::Typed, port, folder),
        ["plane"] => with_load(|| plane::run(None)),
        ["plane", gatekeeper, gatekeeper_crds, kyverno, kyverno_crds] => {
            let peers = [Peer::new(gatekeeper, gatekeeper_crds), Peer::new(kyverno, kyverno_crds)];
            with_load(|| plane::run(Some(peers)))
        }
        [oha, webhook, plot] if Path::new(oha).is_file() => {
            with_load(|| measure(Path::new(oha), Path::new(webhook), Path::new(plot)))
        }
        _ => return belay::command::main(),
    };
    harness::folder::remove_own();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(oha: &Path, webhook: &Path, plot: &Path) -> Result<()> {
    let results = webhooks::measure(oha, webhook)?;
    print!("\n{}\n", table::markdown(&results));
    std::fs::write(plot, plot::svg(&results))?;
    Ok(())
}
