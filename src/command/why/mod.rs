//! `belay why`: explains what blocks the deletion of an object by the current user.

mod approvers;
mod manager;
mod rbac;
mod report;
mod resolves;
mod terminating;

use std::process::ExitCode;

use clap::Args;

pub use self::report::WhyReport;
use super::diagnosis::verdict_on_delete;
use super::place::FromArguments;
use super::report::{OutputArguments, Report};
use super::target::{TargetArguments, unprotected};
use super::{CommandError, block_on};

#[derive(Debug, Args)]
pub struct WhyArguments {
    #[command(flatten)]
    target: TargetArguments,

    #[command(flatten)]
    from: FromArguments,

    #[command(flatten)]
    output: OutputArguments,
}

pub fn run(arguments: WhyArguments) -> Result<ExitCode, CommandError> {
    block_on(why(arguments))?
}

async fn why(arguments: WhyArguments) -> Result<ExitCode, CommandError> {
    let WhyArguments { target, from, output } = arguments;
    let target = target.read_from(&from).await?;
    let snapshot = target.read_rules().await?;
    if !snapshot.context.world.read().loaded {
        return Err(CommandError::Remote(unprotected(&target.session, &snapshot)));
    }
    let verdict = verdict_on_delete(&target, &snapshot).await?;
    WhyReport::new(&target, &snapshot, &verdict).await.print(output)
}
