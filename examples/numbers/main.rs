//! The measurements of docs/PERFORMANCE.md that need a control plane:
//!
//! ```text
//! cargo run --release --example numbers -- lag
//! cargo run --release --example numbers -- start [OBJECTS]
//! cargo run --release --example numbers -- added
//! cargo run --release --example numbers -- release [OBJECTS]
//! cargo run --release --example numbers -- collect [OBJECTS]
//! cargo run --release --example numbers -- namespace [OBJECTS]
//! cargo run --release --example numbers -- look [OBJECTS]
//! cargo run --release --example numbers -- growth [OBJECTS]
//! ```
//!
//! With other arguments, this program is belay itself. So the measured program is built together
//! with the measuring program.

#[path = "../../tests/harness/mod.rs"]
mod harness;

mod added;
mod collect;
mod crowd;
mod etcd;
mod growth;
mod growth_plot;
mod lag;
mod look;
mod machine;
mod namespace;
mod plain;
mod policies;
mod release;
mod reviews;
mod samples;
mod start;
mod watch;
mod writer;

use std::path::PathBuf;
use std::process::ExitCode;

use machine::with_load;

// The allocator of belay.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match (arguments.next().as_deref(), arguments.next()) {
        (Some("lag"), None) => with_load(lag::run),
        (Some("start"), objects) => measure_with(objects, 100_000, start::run),
        (Some("added"), None) => with_load(added::run),
        (Some("release"), objects) => measure_with(objects, 2_000, release::run),
        (Some("collect"), objects) => measure_with(objects, 1_000, collect::run),
        (Some("namespace"), objects) => measure_with(objects, 10_000, namespace::run),
        (Some("growth"), objects) => measure_with(objects, 300_000, growth::run),
        (Some("look"), objects) => measure_with(objects, 10_000, look::run),
        _ => return belay::command::main(),
    };
    harness::folder::remove_own();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("numbers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures with this number of objects, or the default.
fn measure_with(
    objects: Option<String>,
    default: usize,
    run: impl FnOnce(usize) -> harness::Result<()>,
) -> harness::Result<()> {
    let objects = match objects {
        None => default,
        Some(objects) => objects
            .parse()
            .map_err(|error| format!("{objects} is no number of objects: {error}"))?,
    };
    with_load(|| run(objects))
}

/// The program to install: this program, which is also belay.
fn program() -> harness::Result<PathBuf> {
    Ok(std::env::current_exe()?)
}
