//! `kubectl belay impact`: shows the effects of a deletion.

mod deletion;
mod destroyed;
mod markdown;
mod nodes;
mod order;
mod outcome;
mod report;
mod text;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use futures_util::{StreamExt as _, stream};
use kube::api::PropagationPolicy;

pub use self::report::Impact;
use super::change::Change;
use super::inspection::{self, Inspection, PolicyState};
use super::targets::SelectionArguments;
use super::verdict::verdict;
use crate::command::delete_answer::{DeleteAnswer, ServerAnswer};
use crate::command::document::{FailedRead, ReportedVerdict};
use crate::command::report::{Format, OutputArguments, Report, View, WatchArguments, name_lines};
use crate::command::{CommandError, block_on};
use crate::decide::{Decision, Verdict};
use crate::graph::{Node, NodeId, Propagation};
use crate::objects::ObjectRef;

/// The limit of objects about which the command asks the API server.
const MAX_ASKED: usize = 100;

/// How many of these requests are in progress at once.
const CONCURRENT_REQUESTS: usize = 8;

/// The warning about denials of one of several objects.
const ASKED_ALONE: &str = "the API server judged the delete of each object alone; if one of them \
                           uses another, delete the user first";

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 the deletion is allowed, 1 it is denied, 2 wrong arguments, \
                  3 unknown (failed reads)"
)]
pub struct ImpactArguments {
    #[command(flatten)]
    set: SelectionArguments,

    /// How the deletion treats dependents, as in kubectl delete
    #[arg(long, value_name = "background|foreground|orphan", default_value = "background")]
    cascade: Cascade,

    /// The output format; name lists the objects that the deletion deletes or keeps Terminating;
    /// markdown is for a comment on a pull request
    #[arg(
        short,
        long,
        value_name = "table|json|yaml|name|markdown",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[Format::Name, Format::Markdown])
    )]
    output: Format,

    #[command(flatten)]
    watch: WatchArguments,

    /// List each kind that could not be read
    #[arg(long)]
    verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// The dependents are deleted after the owner
    Background,
    /// The owner is deleted after its dependents
    Foreground,
    /// The dependents stay
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

impl From<Cascade> for PropagationPolicy {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}

pub fn run(arguments: ImpactArguments) -> Result<ExitCode, CommandError> {
    let ImpactArguments { output, watch, verbose, .. } = arguments;
    let output = OutputArguments { output, all: arguments.set.all, verbose };
    let files = arguments.set.reads_files();
    block_on(watch.print(output, files, async || impact(arguments.clone()).await))?
}

async fn impact(arguments: ImpactArguments) -> Result<Impact, CommandError> {
    let ImpactArguments { set, cascade, .. } = arguments;
    let query = set.query()?;
    let nothing_removed = query.change().and_then(Change::nothing_removed);
    let inspection = match nothing_removed {
        Some(_) => Inspection::default(),
        None => inspection::read(&query, set.search, false).await?,
    };
    let targets = inspection.deletable_targets();
    let mut verdict = verdict(&inspection, &targets, cascade.into()).await;
    let answer = ask_server(&inspection, &targets, verdict.as_ref(), cascade).await;
    if let Some(answer) = &answer {
        verdict = Some(answer.verdict.clone());
    }
    let mut impact = Impact::new(&inspection, verdict.as_ref(), cascade.into());
    if let Some(answer) = answer {
        impact.add_answer(answer);
    }
    if query.change().is_none() && impact.says.is_some() {
        impact.says = Some("no objects are selected".to_owned());
    }
    impact.says = nothing_removed.or(impact.says);
    impact.you_may = match &verdict {
        Some(verdict) if verdict.decision == Decision::Deny && !verdict.is_unknown() => {
            may_approve(&inspection, verdict).await
        }
        _ => None,
    };
    // For a change of manifests, the tool that prunes chooses the order.
    if query.change().is_none() && impact.verdict != ReportedVerdict::Deny {
        impact.order = order::find(&inspection, cascade.into()).await;
    }
    Ok(impact)
}

impl Report for Impact {
    const KIND: &'static str = "Impact";

    fn text(&self, view: View) -> String {
        text::text(self, view)
    }

    fn names(&self) -> Option<String> {
        let deleted = self.objects.iter().filter(|one| matches!(one.outcome, "Deleted" | "Held"));
        Some(name_lines(deleted.map(|one| one.object.typed.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn markdown(&self, all: bool) -> Option<String> {
        Some(markdown::markdown(self, all))
    }

    fn exit_code(&self) -> u8 {
        self.verdict.exit_code()
    }
}

/// Merges the verdict and the answers of the API server about the targets. `None`: the API server
/// was not asked, because the user could read everything.
async fn ask_server(
    inspection: &Inspection,
    targets: &[NodeId],
    verdict: Option<&Verdict>,
    cascade: Cascade,
) -> Option<DeleteAnswer> {
    let (caller, me) = inspection.caller.as_ref()?;
    let complete = inspection.rules_not_read.is_empty() && inspection.not_read.is_empty();
    let is_known = |verdict: &Verdict| !verdict.is_unknown();
    let several = inspection.targets.len() > 1;
    if complete || inspection.policy_state == PolicyState::None {
        return None;
    }
    // Several objects can be deleted in an order in which each DELETE passes. The API server only
    // judges each of them alone.
    if !inspection.unread_targets.is_empty() || (several && verdict.is_some_and(is_known)) {
        return None;
    }
    let nodes = targets.iter().filter_map(|target| inspection.graph.get(*target));
    // The API server has accepted the DELETE of a Terminating object.
    let nodes: Vec<_> = nodes.filter(|node| !node.is_terminating()).collect();
    let first = nodes.first().map(|node| object_of(*node))?;
    let asking = nodes.iter().take(MAX_ASKED).map(|node| async {
        let (object, uid) = (object_of(*node), node.uid().to_string());
        let request = (caller, me);
        let propagation = Some(cascade.into());
        let answer = ServerAnswer::ask(request, node.info(), (&object, &uid), propagation).await;
        (object, answer)
    });
    let asking = stream::iter(asking).buffered(CONCURRENT_REQUESTS);
    let answers = match nodes.len() > MAX_ASKED {
        true => ServerAnswer::Unknown(format!("there are more than {MAX_ASKED} objects")),
        false => ServerAnswer::merge(asking.collect().await),
    };
    let mut answer = DeleteAnswer::merge(&first, verdict.cloned(), false, Some(answers));
    if several && !answer.blocker_texts.is_empty() {
        answer.warnings.push(ASKED_ALONE.to_owned());
    }
    Some(answer)
}

fn object_of(node: Node<'_>) -> ObjectRef {
    ObjectRef::of_kind(node.info(), node.namespace(), node.name())
}

/// Whether the caller may approve the denied deletion; `None` for files.
async fn may_approve(inspection: &Inspection, verdict: &Verdict) -> Option<bool> {
    let (caller, _) = inspection.caller.as_ref()?;
    let blocker = verdict.blockers.first()?;
    let covered = blocker.object_to_approve(&verdict.target);
    let namespace = covered.own_namespace();
    let (kind, name) = match blocker.covered_by_content_approval {
        true => (("*", "*"), ""),
        false => ((covered.group.as_str(), covered.resource.as_str()), covered.name.as_str()),
    };
    caller.may("approve-deletion", kind, (namespace, name)).await
}
