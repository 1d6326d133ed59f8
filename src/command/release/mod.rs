//! `belay release`: has belay let go, of one object that waits or of all that
//! it holds.

mod all;
mod left;
mod one;
mod said;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

pub use self::left::ReleasedAll;
pub use self::said::Released;
use super::place::{self, PlaceArguments};
use super::screen::FormatArguments;
use super::target::TargetArguments;
use super::timing::TimingArguments;
use super::{CommandError, block_on};
use crate::cluster::uninstall::Manners;

/// How long to wait for one object to go.
const USUAL: u64 = 20;

#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// The object, as TYPE/NAME or TYPE NAME; TYPE is a plural, a singular or a
    /// short name, with its group where that is needed
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required_unless_present = "all")]
    target: Vec<String>,

    /// Its namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all", value_parser = place::namespace)]
    namespace: Option<String>,

    #[command(flatten)]
    place: PlaceArguments,

    /// How long to wait for the object to go, in seconds [default: 20]; with
    /// --all: for all of it to be off, once the webhook configurations are gone
    /// [default: until what is in use goes]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,

    /// Take the hold off by hand: the exact name of the object, which enough
    /// people have approved
    #[arg(long, value_name = "NAME", require_equals = true, conflicts_with = "all")]
    force: Option<String>,

    /// Take belay out of the cluster, alive or dead: its Lease, its webhook
    /// configurations, every hold, and what it keeps for itself. What is
    /// Terminating and in use is listed and waited for. Killed and begun again
    /// it goes on
    #[arg(long, conflicts_with = "target")]
    all: bool,

    /// With --all: what is Terminating goes though something needs it
    #[arg(long, requires = "all")]
    abandon: bool,

    /// With --all: say what would be done, and do nothing
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
        let manners = Manners { abandon, dry_run, limit };
        return block_on(all::release(place, manners, timing, output))?;
    }
    // clap asks for nothing that what is there excludes.
    if abandon || dry_run {
        let option = if abandon { "--abandon" } else { "--dry-run" };
        return Err(CommandError::Usage(format!("{option} goes with --all, and with no object")));
    }
    let limit = Duration::from_secs(timeout.unwrap_or(USUAL));
    block_on(one::release(TargetArguments { target, namespace, place }, limit, force, output))?
}
