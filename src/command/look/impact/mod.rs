//! `belay impact`: what happens if something is deleted.

mod blocker;
mod markdown;
mod outcome;
mod report;
mod text;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

pub use self::report::Impact;
use super::change::Change;
use super::scene::{self, Scene};
use super::targets::SetArguments;
use super::verdict::verdict;
use crate::command::document::{ReportedVerdict, document};
use crate::command::screen::{Format, Screen};
use crate::command::target::asked_in;
use crate::command::{CommandError, block_on, print};
use crate::decide::Verdict;
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

    /// How the answer is written; markdown is for a comment on a pull request
    #[arg(
        short,
        long,
        value_name = "table|json|yaml|markdown",
        default_value = "table",
        ignore_case = true
    )]
    output: Form,

    /// Leave nothing out of long lists
    #[arg(long)]
    all: bool,
}

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Table,
    /// One JSON document, versioned
    Json,
    /// The same as YAML
    Yaml,
    /// For people who read it on a pull request
    Markdown,
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
    let ImpactArguments { set, cascade, output, all } = arguments;
    let asked = set.asked()?;
    let nothing = asked.change().and_then(Change::nothing);
    let scene = match nothing {
        Some(_) => Scene::empty(),
        None => scene::read(&asked, set.place, false).await?,
    };
    let verdict = verdict(&scene, cascade.into()).await;
    let mut impact = Impact::new(&scene, verdict.as_ref(), cascade.into());
    impact.says = nothing.or(impact.says);
    impact.you_may = match (impact.verdict, &verdict) {
        (ReportedVerdict::Deny, Some(verdict)) => may_approve(&scene, verdict).await,
        _ => None,
    };
    let of = |format| document(format, &impact);
    let written = match output {
        Form::Table => None,
        Form::Json => of(Format::Json)?,
        Form::Yaml => of(Format::Yaml)?,
        Form::Markdown => Some(markdown::markdown(&impact, all)),
    };
    print(&written.unwrap_or_else(|| text::text(&impact, Screen::stdout(), all)))?;
    Ok(ExitCode::from(impact.verdict.code()))
}

/// Whether the one who asks may approve what is refused; nobody says it of
/// files.
async fn may_approve(scene: &Scene, verdict: &Verdict) -> Option<bool> {
    let (caller, _) = scene.person.as_ref()?;
    let blocker = verdict.blockers.first()?;
    let covered = if blocker.is_content { &verdict.target } else { &blocker.object };
    let place = asked_in(covered).unwrap_or_default();
    let (kind, name) = match blocker.is_content {
        true => (("*", "*"), ""),
        false => ((covered.group.as_str(), covered.resource.as_str()), covered.name.as_str()),
    };
    caller.may("approve-deletion", kind, (place, name)).await
}
