//! `belay impact`: what happens if something is deleted.

mod outcome;
mod report;
mod text;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use self::report::Impact;
use super::scene::{self, Scene};
use super::targets::SetArguments;
use super::verdict::{Ruling, Word, ruling};
use crate::command::screen::{OutputArguments, Screen, document};
use crate::command::target::asked_in;
use crate::command::{CommandError, block_on, print};
use crate::graph::Propagation;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 it may be deleted, 1 it is refused, 2 the command is wrong, 3 \
                        nobody can tell with what could be read"
)]
pub struct ImpactArguments {
    #[command(flatten)]
    set: SetArguments,

    /// What the deletion does with dependents, as kubectl delete has it
    #[arg(long, value_name = "background|foreground|orphan", default_value = "background")]
    cascade: Cascade,

    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// They go once it is gone
    Background,
    /// It waits for them
    Foreground,
    /// They stay
    Orphan,
}

impl From<Cascade> for Propagation {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}

/// Computes it and prints it.
pub fn run(arguments: ImpactArguments) -> Result<ExitCode, CommandError> {
    block_on(impact(arguments))?
}

async fn impact(arguments: ImpactArguments) -> Result<ExitCode, CommandError> {
    let ImpactArguments { set, cascade, output } = arguments;
    let asked = set.asked()?;
    let scene = scene::read(&asked, set.place, false).await?;
    let ruling = ruling(&scene, Some(cascade.into()));
    let mut impact = Impact::new(&scene, &ruling, cascade.into());
    impact.verdict.you_may = may_approve(&scene, &ruling).await;
    print(&match document(output.output, "Impact", &impact)? {
        Some(document) => document,
        None => text::text(&impact, Screen::stdout(), output.all),
    })?;
    Ok(ExitCode::from(ruling.word.code()))
}

/// Whether the one who asks may approve what is refused; nobody says it of
/// files.
async fn may_approve(scene: &Scene, ruling: &Ruling) -> Option<bool> {
    let (caller, _) = scene.person.as_ref()?;
    let verdict = ruling.verdict.as_ref().filter(|_| ruling.word == Word::Denied)?;
    let blocker = verdict.blockers.first()?;
    let covered = if blocker.along { &verdict.target } else { &blocker.object };
    let place = asked_in(covered).unwrap_or_default();
    let (kind, name) = match blocker.along {
        true => (("*", "*"), ""),
        false => ((covered.group.as_str(), covered.resource.as_str()), covered.name.as_str()),
    };
    caller.may("approve-deletion", kind, (place, name)).await
}
