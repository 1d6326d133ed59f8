//! `kubectl belay delete`: deletes objects in the order of a plan, and waits for each wave.
//!
//! ```text
//!  arguments ─► state (impact and plan now) ─► changes since the plan? ─► preflight ─► question
//!                    ▲                                                                    │
//!                    └──── wait until the wave is deleted ◄── DELETEs of one wave ◄───────┘
//! ```
//!
//! The command reads the cluster before each wave, and deletes only what it has just read and
//! what the printed impact contains. A file with a plan limits this further. Every DELETE is an
//! ordinary request of the user. A command that was interrupted can be run again.

mod preflight;
mod report;
mod request;
mod run;
mod state;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::Instant;

pub use self::report::DeleteReport;
use self::report::DeleteResult;
use self::run::RunningDeletion;
use self::state::{DeletionState, Selection};
use super::confirm::{self, ConfirmArguments};
use super::document::Object;
use super::duration::parse_timeout;
use super::files::stdin_once;
use super::inspect::{Cascade, DeletionPlan, Drift, ObjectSelection, TargetQuery, missing_text};
use super::place::{self, ClusterArguments};
use super::report::{Format, Report as _, View};
use super::screen::{Screen, print_error, progress};
use super::wait::Waiter;
use super::{CommandError, block_on, print};
use crate::objects::counted;

#[derive(Debug, Args)]
#[command(
    mut_arg("all", |all| all.help("After a TYPE without a name: select every object of this type")),
    after_help = "Each DELETE is sent with your permissions. The command asks first; if the data on a volume \
                        is destroyed for good, it asks you to type the name of an object. Without a terminal, \
                        add --yes.\n\nExit codes: 0: all objects \
                        are deleted; 1: a DELETE is refused, the cluster has changed since the plan, or some \
                        objects are not deleted; 2: wrong arguments; 3: unknown, because a read failed"
)]
pub struct DeleteArguments {
    #[command(flatten)]
    objects: ObjectSelection,

    /// The plan of kubectl belay impact --out. The command stops if the cluster has changed
    /// since
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "targets", "filename", "selector", "all", "all_namespaces", "namespace", "cascade"
        ]
    )]
    plan: Option<PathBuf>,

    /// The namespace of the objects [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = place::namespace)]
    namespace: Option<String>,

    /// How the deletion treats dependents, as in kubectl delete
    #[arg(long, value_name = "background|foreground|orphan", default_value = "background")]
    cascade: Cascade,

    /// Check the deletion with dry runs, and delete nothing
    #[arg(long, value_name = "server")]
    dry_run: Option<DryRun>,

    /// The total time to wait
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_timeout)]
    timeout: Duration,

    /// By default, a dependent that is new since the plan stops the command. With this option the
    /// command continues, and the garbage collector also deletes the new dependents in the
    /// namespace NAME. Has no effect if the command sends a DELETE in NAME
    #[arg(long, value_name = "NAME", value_parser = place::namespace)]
    ignore_namespace: Vec<String>,

    #[command(flatten)]
    confirm: ConfirmArguments,

    /// The output format; dot, mermaid and html need --dry-run and print the graph of the impact
    #[arg(
        short,
        long,
        value_name = "table|json|yaml|dot|mermaid|html",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[Format::Dot, Format::Mermaid, Format::Html])
    )]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// The result of a dry run without a refusal.
const ACCEPTED: &str = "the API server accepts the DELETE of each object in this order";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// Ask the API server
    Server,
}

pub fn run(arguments: DeleteArguments) -> Result<ExitCode, CommandError> {
    if arguments.output.is_picture() && arguments.dry_run.is_none() {
        let text = "a graph of a deletion is the output of a dry run; add --dry-run=server";
        return Err(CommandError::usage(text));
    }
    if arguments.plan.is_none() && !arguments.objects.is_given() {
        arguments.objects.query()?;
    }
    let must_ask = arguments.dry_run.is_none() && arguments.confirm.must_ask()?;
    block_on(delete(arguments, must_ask))?
}

async fn delete(arguments: DeleteArguments, must_ask: bool) -> Result<ExitCode, CommandError> {
    let DeleteArguments { objects, plan, namespace, dry_run, timeout, output, cluster, .. } =
        arguments;
    let ignored_namespaces = arguments.ignore_namespace;
    let file = plan.as_deref().map(DeletionPlan::read).transpose()?;
    let (query, cascade) = match &file {
        Some(plan) => (TargetQuery::of_objects(&plan.targets), plan.cascade),
        None => {
            stdin_once(objects.files())?;
            (objects.query()?.with_missing_objects(), arguments.cascade)
        }
    };
    let selection = Selection { query, namespace, cascade, ignored_namespaces, cluster };
    let mut state = DeletionState::read(&selection).await?;
    if let Some(plan) = file.as_ref().filter(|plan| !plan.cluster.is_same(&state.plan.cluster)) {
        return Err(CommandError::Refused(format!(
            "the plan is for another cluster, at {}; nothing was deleted; next: check the context \
             with kubectl config current-context",
            plan.cluster.server
        )));
    }
    let selects_nothing = file.is_none() && state.inspection.targets.is_empty();
    let plan = file.unwrap_or_else(|| state.plan.clone());
    let began = Instant::now();
    let mut remaining = Vec::new();
    if dry_run.is_none() {
        let client = state.caller.client.clone();
        let waiter = Waiter::new(client, selection.cluster.clone(), began + timeout);
        (state, remaining) = wait_for_leftovers(&plan, state, &selection, &waiter).await?;
    }
    let timeout = timeout.saturating_sub(began.elapsed());
    let denial_by_expiry = async || {
        let end = state.me.now().saturating_add(timeout);
        let end = end.map_or(i64::MAX, |end| end.as_second());
        preflight::denial_by_expiry(&state, &selection, end).await
    };
    if !selects_nothing {
        show(&state, output)?;
    }
    let Drift { changes, others } = state.drift(&plan, &selection);
    let picture = output.is_picture().then(|| state.impact.picture()).flatten();
    let report = |result, message: String| {
        let picture = picture.clone().map(|picture| picture.with_note(message.clone()));
        let report = DeleteReport::new(result, message, &plan, &selection.cluster);
        DeleteReport { picture, other_changes: others.clone(), ..report }
    };
    if selects_nothing {
        let message = match state.inspection.missing.as_slice() {
            [] => "no objects match".to_owned(),
            missing => format!("nothing is left to delete: {}", missing_text(missing)),
        };
        return report(DeleteResult::Deleted, message).print(output);
    }
    if !changes.is_empty() {
        let message = "the cluster has changed since the plan; nothing was deleted".to_owned();
        return DeleteReport { changes, ..report(DeleteResult::Changed, message) }.print(output);
    }
    if !remaining.is_empty() {
        let message = "the time limit ended, and nothing was deleted: these objects still exist";
        let report = report(DeleteResult::TimedOut, message.to_owned());
        return report.with_remaining(remaining, &selection.cluster).await.print(output);
    }
    let preflight = preflight::check(&state, &selection).await;
    let refusal = match preflight.refusal(&state) {
        None => denial_by_expiry().await,
        refusal => refusal,
    };
    if let Some(message) = refusal {
        let approve = [state.impact.approve.clone(), preflight.approve].concat();
        let refusals = preflight.refusals;
        let refused = report(DeleteResult::Refused, message);
        return DeleteReport { approve, refusals, ..refused }.print(output);
    }
    if dry_run.is_some() {
        let (result, message) = match preflight.unknown.is_empty() {
            true => (
                DeleteResult::WouldDelete,
                match state.impact.unread_claims() {
                    None => ACCEPTED.to_owned(),
                    Some((object, _)) => format!("{ACCEPTED}. {}", unread_data(object)),
                },
            ),
            false => {
                let unknown = preflight.unknown.join("; ");
                (DeleteResult::Unknown, format!("some answers are unknown: {unknown}"))
            }
        };
        return report(result, message).print(output);
    }
    preflight.unknown.iter().for_each(|unknown| progress(&format!("warning: {unknown}")));
    if must_ask {
        ask(&state)?;
        if let Some(message) = denial_by_expiry().await {
            return report(DeleteResult::Refused, message).print(output);
        }
    }
    let report = RunningDeletion::new(selection, plan, state, timeout).run_waves().await?;
    report.print(output)
}

/// Waits for the objects whose deletion began before this command. Returns the new state, and the
/// objects that still exist at the time limit.
async fn wait_for_leftovers(
    plan: &DeletionPlan,
    state: DeletionState,
    selection: &Selection,
    waiter: &Waiter,
) -> Result<(DeletionState, Vec<Object>), CommandError> {
    let leftovers = state.leftovers(plan);
    let waiting = state.to_awaited(leftovers.awaited.iter());
    if waiting.is_empty() {
        return Ok((state, Vec::new()));
    }
    let names: Vec<&str> = waiting.iter().map(|(object, _)| object.arguments.as_str()).collect();
    progress(&format!("waiting for {}", names.join(", ")));
    waiter.watch(&waiting).await?;
    let remaining = waiter.wait(waiting).await;
    Ok((DeletionState::read(selection).await?, remaining))
}

/// Prints the complete impact: a list that is cut could hide a deleted object.
fn show(state: &DeletionState, output: Format) -> Result<(), CommandError> {
    let text = |screen| state.impact.text(View { screen, all: true, wide: false, verbose: false });
    match output {
        Format::Table => print(&text(Screen::stdout())),
        _ => {
            print_error(&text(Screen::pipe()));
            Ok(())
        }
    }
}

/// Asks for confirmation. If data may be destroyed for good, the user must type a name.
fn ask(state: &DeletionState) -> Result<(), CommandError> {
    let plan = &state.plan;
    let count = counted(plan.objects().count(), "object");
    let effect = format!("This deletes {count} in {}.", plan.cluster.server);
    let volumes: Vec<_> = plan.destroyed.iter().filter(|lost| lost.what == "Volume").collect();
    let unread = state.impact.unread_claims();
    let (data, default_name) = match (volumes.as_slice(), unread) {
        ([], None) => return confirm::ask(&effect),
        ([], Some((object, _))) => (unread_data(object), &object.name),
        ([first], _) => {
            (format!("It destroys the data on volume {} for good.", first.name), &first.by.name)
        }
        ([first, ..], _) => {
            let count = volumes.len();
            (format!("It destroys the data on {count} volumes for good."), &first.by.name)
        }
    };
    let more = unread.filter(|_| !volumes.is_empty());
    let more = more.map_or_else(String::new, |(object, _)| format!(" {}", unread_data(object)));
    let name = match plan.targets.as_slice() {
        [target] => &target.name,
        _ => default_name,
    };
    confirm::ask_for(&format!("{effect} {data}{more}"), name)
}

/// The text about claims that could not be read.
fn unread_data(object: &Object) -> String {
    let label = object.label("");
    format!("It may destroy data for good: the claims of {label} could not be read.")
}
