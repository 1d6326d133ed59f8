//! The program as a kubectl plugin: `kubectl belay …`.

use std::process::ExitCode;

/// As in `belay.rs`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    belay::command::main()
}
