//! `kubectl belay impact`: shows the effects of a deletion.

mod blocker;
mod markdown;
mod outcome;
mod report;
mod text;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

pub use self::report::Impact;
use super::change::Change;
use super::inspection::{self, Inspection};
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
    after_help = "Exit codes: 0 the deletion is allowed, 1 it is denied, 2 wrong arguments, \
                  3 unknown (failed reads)"
)]
pub struct ImpactArguments {
    #[command(flatten)]
    set: SetArguments,

    /// How the deletion treats dependents, as in kubectl delete
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
    /// For a comment on a pull request
    Markdown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// Deleted after the owner
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
    let query = set.query()?;
    let nothing = query.change().and_then(Change::nothing);
    let inspection = match nothing {
        Some(_) => Inspection::empty(),
        None => inspection::read(&query, set.place, false).await?,
    };
    let verdict = verdict(&inspection, cascade.into()).await;
    let mut impact = Impact::new(&inspection, verdict.as_ref(), cascade.into());
    impact.says = nothing.or(impact.says);
    impact.you_may = match (impact.verdict, &verdict) {
        (ReportedVerdict::Deny, Some(verdict)) => may_approve(&inspection, verdict).await,
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

/// Whether the caller may approve the denied deletion; `None` for files.
async fn may_approve(inspection: &Inspection, verdict: &Verdict) -> Option<bool> {
    let (caller, _) = inspection.person.as_ref()?;
    let blocker = verdict.blockers.first()?;
    let covered = if blocker.is_content { &verdict.target } else { &blocker.object };
    let place = asked_in(covered).unwrap_or_default();
    let (kind, name) = match blocker.is_content {
        true => (("*", "*"), ""),
        false => ((covered.group.as_str(), covered.resource.as_str()), covered.name.as_str()),
    };
    caller.may("approve-deletion", kind, (place, name)).await
}
