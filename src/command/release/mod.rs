//! `belay release`: has belay release one Terminating object or all objects that it holds.

mod all;
mod answer;
mod left;
mod one;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

pub use self::answer::Released;
pub use self::left::ReleasedAll;
use super::place::{self, PlaceArguments};
use super::report::FormatArguments;
use super::target::TargetArguments;
use super::timing::TimingArguments;
use super::{CommandError, block_on};
use crate::cluster::uninstall::UninstallOptions;

/// How long to wait for one object to go.
const USUAL: u64 = 20;

#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// The object. TYPE is a plural, singular or short name of a kind, with its group if
    /// the name is ambiguous
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required_unless_present = "all")]
    target: Vec<String>,

    /// The namespace of the object [default: that of the context]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all", value_parser = place::namespace)]
    namespace: Option<String>,

    #[command(flatten)]
    place: PlaceArguments,

    /// The maximum time to wait until the object is deleted [default: 20]. With --all:
    /// until all holds are removed, after the webhook configurations were deleted
    /// [default: unlimited]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,

    /// Remove the hold with your own permissions. Requires sufficient approvals, and the
    /// exact name of the object
    #[arg(long, value_name = "NAME", require_equals = true, conflicts_with = "all")]
    force: Option<String>,

    /// Uninstall belay, running or not: delete its Lease, its webhook configurations, all
    /// holds and its own objects. It lists Terminating objects that are in use and waits
    /// for them. You can interrupt and repeat the command
    #[arg(long, conflicts_with = "target")]
    all: bool,

    /// With --all: release Terminating objects although they are in use
    #[arg(long, requires = "all")]
    abandon: bool,

    /// With --all: print the steps without executing them
    #[arg(long, requires = "all")]
    dry_run: bool,

    #[command(flatten)]
    timing: TimingArguments,

    #[command(flatten)]
    output: FormatArguments,
}

pub fn run(arguments: ReleaseArguments) -> Result<ExitCode, CommandError> {
    let ReleaseArguments { target, namespace, place, .. } = arguments;
    let ReleaseArguments { timeout, force, all, abandon, dry_run, timing, output, .. } = arguments;
    let output = output.output;
    if all {
        let limit = timeout.map(Duration::from_secs);
        let options = UninstallOptions { abandon, dry_run, limit };
        return block_on(all::release(place, options, timing, output))?;
    }
    // clap does not require an option that another one excludes.
    if abandon || dry_run {
        let option = if abandon { "--abandon" } else { "--dry-run" };
        return Err(CommandError::Usage(format!("{option} goes with --all, and with no object")));
    }
    let limit = Duration::from_secs(timeout.unwrap_or(USUAL));
    block_on(one::release(
        TargetArguments { targets: target, namespace, place },
        limit,
        force,
        output,
    ))?
}
