//! The program.

use std::process::ExitCode;

/// jemalloc gives memory back under churn and does not fragment under many
/// small allocations from several threads, which is what a graph fed by
/// watches makes.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    belay::command::main()
}
