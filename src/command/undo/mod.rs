//! `kubectl belay undo`: undoes the deletion of an object that is Terminating and still exists.
//!
//! Kubernetes can't remove a deletionTimestamp. The command saves the object, keeps its data and
//! dependents, lets the deletion end, and creates the object again.
//!
//! ```text
//!  cluster ─► read (what to save, or a refusal) ─► record (file) ─► question ─► restore
//!                                                      └── --resume FILE ──────────┘
//! ```

mod already_deleted;
mod dependents;
mod kinds;
mod live;
mod manifest;
mod others;
mod read;
mod record;
mod recreate;
mod report;
mod restore;
mod status;
mod terminating;
mod volumes;
mod workloads;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use self::record::{CompletedSteps, LostObject, UndoRecord, all_typed};
pub use self::report::UndoReport;
use self::report::UndoResult;
use self::restore::{Undo, UndoOutcome};
use super::approve::check_release;
use super::confirm::ConfirmArguments;
use super::duration::parse_timeout;
use super::inspect::ClusterIdentity;
use super::place::{self, ClusterArguments};
use super::report::{FormatArguments, Report as _};
use super::screen::{Screen, progress};
use super::session::UserSession;
use super::target::{TargetArguments, TargetObject};
use super::{CommandError, block_on};
use crate::decide::approve_command_with;
use crate::objects::shell_word;
use crate::webhook::random_hex;

/// The reason in the approval of a release.
const REASON: &str = "kubectl belay undo";

#[derive(Debug, Args)]
#[command(
    after_help = "Every change is sent with your permissions. On a terminal the command asks first.\n\n\
                  Exit codes: 0 undone (with --dry-run: can be undone), 1 refused or not complete, 2 \
                  wrong arguments, 3 a request failed"
)]
pub struct UndoArguments {
    /// The Terminating object. TYPE is a plural, singular or short name of a kind, with its
    /// group if the name is ambiguous
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required_unless_present = "resume")]
    target: Vec<String>,

    /// The namespace of the object [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = place::namespace)]
    namespace: Option<String>,

    /// Continue an interrupted undo
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "namespace", "out"])]
    resume: Option<PathBuf>,

    /// The file for the saved objects [default: undo-UID.json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Show the steps, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// The time limit of all waits together
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_timeout)]
    timeout: Duration,

    /// For a cluster-scoped object: skip its dependents in this namespace. The garbage collector
    /// can then delete them
    #[arg(long, value_name = "NAME", value_parser = place::namespace)]
    ignore_namespace: Vec<String>,

    #[command(flatten)]
    confirm: ConfirmArguments,

    #[command(flatten)]
    output: FormatArguments,

    #[command(flatten)]
    cluster: ClusterArguments,
}

pub fn run(arguments: UndoArguments) -> Result<ExitCode, CommandError> {
    block_on(undo(arguments))?
}

async fn undo(arguments: UndoArguments) -> Result<ExitCode, CommandError> {
    let UndoArguments {
        target,
        namespace,
        resume,
        out,
        dry_run,
        timeout,
        output,
        cluster,
        confirm,
        ..
    } = arguments;
    let (output, ignored) = (output.output, arguments.ignore_namespace);
    let (record, path) = match &resume {
        Some(path) => (UndoRecord::read(path)?, path.clone()),
        None => {
            let arguments =
                TargetArguments { targets: target, namespace, cluster: cluster.clone() };
            let target = arguments.read_one().await?;
            let target = target.document();
            let marker = random_hex().map_err(|why| CommandError::Remote(why.to_string()))?;
            let record = read::build_record(&target, cluster.clone(), &marker, &ignored).await?;
            let path = out.unwrap_or_else(|| format!("undo-{}.json", record.target.uid).into());
            (record, path)
        }
    };
    let (session, names) = UserSession::open_with_names(None, cluster.clone()).await?;
    let now = ClusterIdentity::of(&session.caller, &names.kinds()).await;
    if !record.cluster.is_same(&now) {
        return Err(CommandError::Refused(format!(
            "the file is for another cluster, at {}; nothing was changed; next: check the context \
             with kubectl config current-context",
            record.cluster.server
        )));
    }
    let again = format!(
        "kubectl belay undo --resume {}{}",
        shell_word(&path.to_string_lossy()),
        cluster.options()
    );
    let mut undo = Undo {
        session: Arc::new(session),
        names: &names,
        cluster,
        record,
        path: &path,
        deadline: Instant::now() + timeout,
        not_kept: HashMap::new(),
        search_error: None,
        changed: HashSet::new(),
        is_unsaved: false,
        account_limit: OnceCell::new(),
    };
    if resume.is_none() {
        undo.check().await?;
    } else if !ignored.is_empty() {
        let changed = undo.changed_in(&ignored).await?;
        undo.record.ignore(ignored, &changed);
    }
    let done = match resume.is_none() {
        true => CompletedSteps::none(),
        false => undo.completed_steps().await,
    };
    let steps = steps(&undo.record, resume.is_none().then_some(&path), &done);
    if dry_run {
        return UndoReport::new(UndoResult::WouldUndo, steps, &undo.record, &path).print(output);
    }
    // What can't be undone is refused without this question.
    if confirm.must_ask()? {
        super::confirm::ask(&format!("{steps}\nFor a moment the object does not exist."))?;
        undo.deadline = Instant::now() + timeout;
        if resume.is_none() && !undo.is_current().await? {
            return Err(CommandError::Refused(
                "the cluster has changed during the question; nothing was changed; next: run the \
                 same command again"
                    .to_owned(),
            ));
        }
    } else {
        progress(&steps);
    }
    if resume.is_none() {
        undo.record.create(&path)?;
        progress(&format!("saved {}", path.display()));
    } else {
        undo.record.replace(&path)?;
    }
    let outcome = undo.run().await;
    let is_restored = matches!(&outcome, Ok(UndoOutcome::Finished { not_restored, .. }) if not_restored.is_empty());
    let left = if is_restored { String::new() } else { undo.left_changed().await };
    let record = undo.record;
    let outcome = outcome.map_err(|error| {
        let text = format!("{error}; continue with the file{left}; next: {again}");
        match error {
            CommandError::Refused(_) => CommandError::Refused(text),
            _ => CommandError::Remote(text),
        }
    })?;
    let report = |result, says: String| UndoReport::new(result, says, &record, &path);
    let typed = &record.target.typed;
    match outcome {
        UndoOutcome::Finished { not_restored, by_another_undo } if not_restored.is_empty() => {
            let says = match by_another_undo.target {
                true => format!("another undo restored {typed}; nothing is left to do"),
                false => format!("{typed} is restored"),
            };
            if by_another_undo.unproven {
                let says = format!(
                    "{says}; {} is kept, because others can write its annotation too; next: compare \
                     what was restored with the file, and delete the file, which may contain Secrets",
                    path.display()
                );
                return report(UndoResult::Undone, says).print(output);
            }
            if let Err(error) = std::fs::remove_file(&path) {
                let path = path.display();
                progress(&format!("warning: delete {path}, which may contain Secrets: {error}"));
            }
            report(UndoResult::Undone, says).print(output)
        }
        UndoOutcome::Finished { not_restored, by_another_undo }
            if by_another_undo.target && record.is_of_namespace() =>
        {
            let says = format!(
                "another undo seems to have created {typed}, so nothing was restored into it; the \
                 manifests are in {}{left}; next: check who has created it, wait until that undo ends, \
                 and continue with {again}",
                path.display()
            );
            report(UndoResult::Incomplete, says).with_lost(not_restored).print(output)
        }
        UndoOutcome::Finished { not_restored, .. } => {
            let is_target = |lost: &LostObject| lost.object.uid == record.target.uid;
            let what = match not_restored.iter().any(is_target) {
                true => "is not restored",
                false => "is restored, but not all of its objects",
            };
            let says = format!(
                "{typed} {what}; the manifests are in {}{left}; next: end what prevents it, and \
                 continue with {again}",
                path.display()
            );
            report(UndoResult::Incomplete, says).with_lost(not_restored).print(output)
        }
        UndoOutcome::Taken { advice } => {
            let says = format!(
                "nothing was restored as {typed}: {advice}, and continue with {again}{left}"
            );
            report(UndoResult::NameTaken, says).print(output)
        }
        UndoOutcome::TimedOut { remaining } => {
            let says = format!(
                "{} still existed at the end of the time limit{left}; next: {again}",
                all_typed(&remaining)
            );
            report(UndoResult::TimedOut, says).print(output)
        }
    }
}

/// Refuses an undo that would wait for belay or for approvals while workloads are stopped. `state`: a
/// suffix of the message with what the undo has changed.
async fn check_release_by_belay(
    target: &TargetObject,
    cluster: &ClusterArguments,
    state: &str,
) -> Result<(), CommandError> {
    let typed = target.object_ref.arguments();
    let refused = |why: String| CommandError::Refused(format!("belay holds {typed}, and {why}"));
    if let Ok(None) = target.session.leader().await {
        return Err(refused(format!(
            "has no leader that could release it{state}; next: kubectl belay status{}",
            cluster.options()
        )));
    }
    match check_release(target, REASON).await? {
        None => Ok(()),
        Some(missing) => Err(refused(format!(
            "{missing}{state}; next: have others run: {}",
            approve_command_with(&typed)
        ))),
    }
}

/// The steps, as text for the question.
fn steps(record: &UndoRecord, path: Option<&PathBuf>, done: &CompletedSteps) -> String {
    let typed = &record.target.typed;
    let mut text = match path {
        Some(_) => format!("To undo the deletion of {typed}:\n"),
        None => format!("To continue the undo of the deletion of {typed}:\n"),
    };
    for (number, step) in record.steps(path.map(PathBuf::as_path), done).iter().enumerate() {
        text.push_str(&format!("{}. {step}\n", number + 1));
    }
    if record.is_of_namespace() {
        text.push_str("objects of the Namespace that are deleted already are not restored\n");
    }
    for claim in &record.missing_claims {
        text.push_str(&format!(
            "not restored: {}: it is deleted already, and workloads wait until you create it\n",
            claim.typed
        ));
    }
    for lost in &record.lost {
        text.push_str(&format!("not restored: {}: {}\n", lost.object.typed, lost.why));
    }
    Screen::pipe().clean(text.trim_end())
}
