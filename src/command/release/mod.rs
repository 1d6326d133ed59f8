//! `belay release`: requests the release of one Terminating object that belay holds.

mod answer;
mod one;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

pub use self::answer::ReleaseOutput;
use super::CommandError;
use super::duration::parse_timeout;
use super::place::{self, ClusterArguments};
use super::report::FormatArguments;
use super::target::TargetArguments;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0: the hold is removed, or would be with --dry-run; 1: the object is in \
                  use or not held; 2: wrong arguments; 3: unknown, because a read failed"
)]
pub struct ReleaseArguments {
    /// The object. TYPE is a plural, singular or short name of a kind, with its group if
    /// the name is ambiguous
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required = true)]
    target: Vec<String>,

    /// The namespace of the object [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = place::namespace)]
    namespace: Option<String>,

    #[command(flatten)]
    cluster: ClusterArguments,

    #[command(flatten)]
    options: ReleaseOptions,

    #[command(flatten)]
    output: FormatArguments,
}

/// How to release an object.
#[derive(Debug, Args)]
struct ReleaseOptions {
    /// The maximum time to wait until the object is deleted
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_timeout)]
    timeout: Duration,

    /// Remove the hold with your own permissions, even if the object is in use. Kubernetes then
    /// deletes the object for good. Use it only if belay doesn't release an approved object. You
    /// need the permission to patch the object. NAME: the object's exact name
    #[arg(long, value_name = "NAME", require_equals = true)]
    force: Option<String>,

    /// Show whether the object would be released, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(arguments: ReleaseArguments) -> Result<ExitCode, CommandError> {
    let ReleaseArguments { target, namespace, cluster, options, output } = arguments;
    let target = TargetArguments { targets: target, namespace, cluster };
    one::release(target, options, output.output).await
}
