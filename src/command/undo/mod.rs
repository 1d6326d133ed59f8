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
mod requests;
mod restore;
mod status;
mod terminating;
mod volumes;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use self::record::{CompletedSteps, UndoRecord};
pub use self::report::UndoReport;
use self::report::UndoResult;
use self::restore::{Undo, UndoOutcome};
use super::confirm::ConfirmArguments;
use super::duration::parse_timeout;
use super::inspect::ClusterIdentity;
use super::place::{self, ClusterArguments};
use super::report::{FormatArguments, Report as _};
use super::screen::{Screen, progress};
use super::session::UserSession;
use super::target::TargetArguments;
use super::{CommandError, block_on};
use crate::objects::{more, shell_word};
use crate::webhook::random_hex;

#[derive(Debug, Args)]
#[command(
    after_help = "Kubernetes can't undo a deletion. The command saves the object in a file, keeps its volumes \
                  (reclaimPolicy Retain), waits until the object is deleted, and creates it again.\n\n\
                  Every change is sent with your permissions. The command asks first. Without a \
                  terminal, add --yes.\n\n\
                  Exit codes: 0: undone (with --dry-run: can be undone); 1: refused or not complete; 2: \
                  wrong arguments; 3: a request failed"
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

    /// The total time to wait
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_timeout)]
    timeout: Duration,

    /// Let the garbage collector delete the object's dependents in the namespace NAME. Use it if
    /// undo refuses because of such a dependent. Only for a cluster-scoped object
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

/// The suffix of the message about an object that does not exist.
const DELETED: &str = "a deleted object can't be restored, because nothing can be read any longer; a \
                       volume with the reclaim policy Retain still has its data";

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
            let target = arguments.read_one().await.map_err(|error| match error {
                CommandError::NoObject(text) => {
                    CommandError::NoObject(format!("{text}; {DELETED}"))
                }
                error => error,
            })?;
            let target = target.document();
            let secret = random_hex().map_err(|why| CommandError::Remote(why.to_string()))?;
            let record = read::build_record(&target, cluster.clone(), &secret, &ignored).await?;
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
    let session = Arc::new(session);
    let mut undo = Undo::new(session, &names, cluster, (record, &path), timeout);
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
    // Before this question, the command has refused deletions that can't be undone.
    if confirm.must_ask()? {
        super::confirm::ask(&format!("{steps}\nFor a moment the object does not exist."))?;
        undo.begin_timeout(timeout);
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
    let is_restored = outcome.as_ref().is_ok_and(UndoOutcome::is_complete);
    let left = if is_restored { String::new() } else { undo.left_changed().await };
    let outcome = outcome.map_err(|error| {
        let text = format!("{error}; continue with the file{left}; next: {again}");
        match error {
            CommandError::Refused(_) => CommandError::Refused(text),
            _ => CommandError::Remote(text),
        }
    })?;
    if !outcome.needs_file()
        && let Err(error) = std::fs::remove_file(&path)
    {
        let path = path.display();
        progress(&format!("warning: delete {path}, which may contain Secrets: {error}"));
    }
    UndoReport::of_outcome(outcome, &undo.record, &path, (&left, &again)).print(output)
}

const MISSING_CLAIM: &str = "it does not exist, and workloads wait until you create it";

/// The most objects that the question names as not restored.
const MAX_LOST_LINES: usize = 20;

/// The steps, as text for the question.
fn steps(record: &UndoRecord, path: Option<&PathBuf>, done: &CompletedSteps) -> String {
    let typed = &record.target.arguments;
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
    let missing = record.missing_claims.iter().map(|claim| (claim, MISSING_CLAIM));
    let lost = record.lost.iter().map(|lost| (&lost.object, lost.why.as_str()));
    // Others can attach any number of objects to a cluster-scoped target.
    let (of_others, own): (Vec<_>, Vec<_>) =
        missing.chain(lost).partition(|(object, _)| record.is_of_others(object));
    let mut lines = own.into_iter().chain(of_others);
    for (object, why) in lines.by_ref().take(MAX_LOST_LINES) {
        text.push_str(&format!("not restored: {}: {why}\n", object.arguments));
    }
    match lines.count() {
        0 => {}
        left => text
            .push_str(&format!("not restored: {}, which the file lists\n", more(left, "object"))),
    }
    Screen::pipe().clean(text.trim_end())
}
