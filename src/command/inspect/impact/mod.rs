//! `kubectl belay impact`: shows the effects of a deletion.

mod accepted;
mod affected;
mod answer;
mod cascade;
mod collected;
mod content;
mod deletion;
mod destroyed;
mod markdown;
mod nodes;
mod order;
mod outcome;
mod picture;
mod plan;
mod report;
mod target_effects;
mod text;
mod unread;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::accepted::AcceptedPart;
pub use self::answer::ask_hold_reason;
use self::answer::{MAX_ASKED, TargetAnswers, ask_server};
pub use self::cascade::Cascade;
use self::order::{OrderSearch, RequiredOrder};
pub use self::plan::{
    ClusterIdentity, DeletedBy, DeletionPlan, Drift, PlanChange, PlannedObject, PlannedOrder,
};
pub use self::report::Impact;
use super::change::Change;
use super::inspection::{self, Inspection, PolicyState};
use super::targets::SelectionArguments;
use super::verdict::verdict;
use crate::command::diagnosis::given_approvals;
use crate::command::document::{FailedRead, ReportedVerdict};
use crate::command::picture::Picture;
use crate::command::report::{Format, OutputArguments, Report, View, WatchArguments, name_lines};
use crate::command::{CommandError, block_on};
use crate::decide::{Decision, Verdict};
use crate::graph::NodeId;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0: the deletion is allowed; 1: a DELETE is denied, even if the only reason is \
                  the order of the targets; 2: wrong arguments; 3: unknown, because a read failed"
)]
pub struct ImpactArguments {
    #[command(flatten)]
    set: SelectionArguments,

    /// How the deletion treats dependents, as in kubectl delete
    #[arg(long, value_name = "background|foreground|orphan", default_value = "background")]
    cascade: Cascade,

    /// The output format; name lists the objects that would be deleted or would stay Terminating
    #[arg(
        short,
        long,
        value_name = "table|wide|json|yaml|name|markdown|dot|mermaid|html",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and_wide(&[
            Format::Wide, Format::Name, Format::Markdown, Format::Dot, Format::Mermaid,
            Format::Html
        ], "The table, with each object written as kubectl accepts it, such as pods/web-0 -n shop")
    )]
    output: Format,

    /// Write the plan of the deletion to this file, for kubectl belay delete --plan
    #[arg(
        long,
        value_name = "FILE",
        value_parser = plan_file,
        conflicts_with_all = ["from", "watch"]
    )]
    out: Option<PathBuf>,

    #[command(flatten)]
    watch: WatchArguments,

    /// List each kind that could not be read
    #[arg(long)]
    verbose: bool,
}

fn plan_file(path: &str) -> Result<PathBuf, String> {
    match path {
        "-" => Err("the impact is on standard output; name a file".to_owned()),
        path => Ok(path.into()),
    }
}

pub fn run(arguments: ImpactArguments) -> Result<ExitCode, CommandError> {
    let ImpactArguments { output, watch, verbose, .. } = arguments;
    let output = OutputArguments { output, all: arguments.set.objects.all, verbose };
    let files = arguments.set.reads_files();
    block_on(watch.print(output, files, async || impact(arguments.clone()).await))?
}

async fn impact(arguments: ImpactArguments) -> Result<Impact, CommandError> {
    let ImpactArguments { set, cascade, out, .. } = arguments;
    let query = set.query()?;
    let nothing_removed = query.change().and_then(Change::nothing_removed);
    let inspection = match nothing_removed {
        Some(_) => Inspection::default(),
        None => inspection::read(&query, set.search, false).await?,
    };
    let (mut impact, mut verdict, server_predecessors) = assess(&inspection, cascade).await;
    if query.change().is_none() && impact.message.is_some() {
        impact.message = Some("no objects are selected".to_owned());
    }
    impact.message = nothing_removed.or(impact.message);
    // For a change of manifests, the tool that prunes chooses the order.
    if query.change().is_none() && impact.verdict != ReportedVerdict::Deny {
        let found = order::find(&inspection, cascade.into(), &server_predecessors).await;
        if let Some(OrderSearch { order, accepted, denied }) = found {
            let is_partial = impact.verdict != ReportedVerdict::Unknown && !accepted.is_empty();
            // The found order deletes the denied targets as well.
            let others = if order.targets.is_empty() { Vec::new() } else { denied };
            impact.accepted = is_partial
                .then(|| AcceptedPart::new(&inspection, &accepted, &others, cascade.into()));
            impact.order = Some(order);
        }
    }
    if let Some(part) = &mut impact.accepted {
        part.is_prune = query.change().is_some();
    }
    let lacks_order = impact.order.as_ref().is_some_and(|order| order.targets.is_empty());
    if out.is_none() && !lacks_order {
        return Ok(impact);
    }
    let order = plan_order(&inspection, &mut impact, &mut verdict, cascade).await;
    if let Some(path) = out {
        let plan = DeletionPlan::new(&inspection, &impact, verdict.as_ref(), order, cascade).await;
        let nothing =
            || CommandError::Refused("no plan was written: no objects are removed".to_owned());
        let plan = plan.ok_or_else(nothing)?;
        plan.write(&path)?;
    }
    Ok(impact)
}

/// The order of the DELETEs. If belay denies one of them, although it does not deny the deletion of
/// all targets together, the denial replaces the verdict and is added to the impact.
pub async fn plan_order(
    inspection: &Inspection,
    impact: &mut Impact,
    verdict: &mut Option<Verdict>,
    cascade: Cascade,
) -> PlannedOrder {
    let mut order = PlannedOrder::new(inspection, impact, verdict.as_ref(), cascade).await;
    impact.cycles = order.cycles.iter().map(|cycle| cycle.objects.clone()).collect();
    if verdict.is_some()
        && let Some(denial) = order.denial.take()
    {
        impact.add_denial(inspection, &denial);
        add_approvers(inspection, impact, &denial).await;
        *verdict = Some(denial);
    }
    order
}

/// The impact of a deletion of the targets, with the verdict, and the targets that must be deleted
/// before others according to the API server.
pub async fn assess(
    inspection: &Inspection,
    cascade: Cascade,
) -> (Impact, Option<Verdict>, RequiredOrder) {
    let targets = inspection.deletable_targets();
    let mut verdict = verdict(inspection, &targets, cascade.into()).await;
    let asked = ask_server(inspection, &targets, verdict.as_ref(), cascade).await;
    let is_denied = |verdict: &Verdict| verdict.decision == Decision::Deny && !verdict.is_unknown();
    // An approval that could not be read may allow the DELETE of the content.
    let denies_content_deletes = inspection.rules_not_read.is_empty()
        && (verdict.as_ref().is_some_and(is_denied)
            && asked.as_ref().is_some_and(|asked| asked.answer.is_unwatched)
            || denies_remaining_content(inspection, &targets).await);
    if let Some(asked) = &asked {
        verdict = Some(asked.answer.verdict.clone());
    }
    let hold_reason = match &asked {
        Some(asked) => asked.answer.hold_reason.clone(),
        None => ask_hold_reason(inspection).await,
    };
    let mut impact = Impact::new(
        inspection,
        verdict.as_ref(),
        cascade.into(),
        hold_reason.as_deref(),
        denies_content_deletes,
    );
    let mut server_predecessors = RequiredOrder::new();
    if let Some(asked) = asked {
        let TargetAnswers { answer, predecessors, accepted, accepted_later } = asked;
        impact.add_answer(inspection, answer);
        let is_partial = impact.verdict == ReportedVerdict::Deny && !accepted.is_empty();
        impact.accepted = is_partial
            .then(|| AcceptedPart::new(inspection, &accepted, &accepted_later, cascade.into()));
        server_predecessors = predecessors;
    } else if inspection.caller.is_none() && impact.verdict == ReportedVerdict::Deny {
        let first = &targets[..targets.len().min(MAX_ASKED)];
        let accepted = order::accepted_in_order(inspection, first, cascade.into()).await;
        impact.accepted = (!accepted.is_empty())
            .then(|| AcceptedPart::new(inspection, &accepted, &[], cascade.into()));
    }
    if let Some(verdict) = verdict.as_ref().filter(|_| !impact.is_belay_silent)
        && impact.verdict == ReportedVerdict::Deny
        && verdict.decision == Decision::Deny
    {
        add_approvers(inspection, &mut impact, verdict).await;
    }
    (impact, verdict, server_predecessors)
}

/// Adds the users who have approved the denied deletion, and whether the caller may approve it.
async fn add_approvers(inspection: &Inspection, impact: &mut Impact, denial: &Verdict) {
    let situation = inspection.situation();
    let given = |first| given_approvals(&situation, &denial.target, first);
    impact.approved_by = denial.blockers.first().map_or_else(Vec::new, given);
    impact.has_approved =
        inspection.caller.as_ref().is_some_and(|(_, me)| impact.approved_by.contains(&me.name));
    impact.you_may = match impact.has_approved {
        // A second approval by the same user does not count.
        true => Some(false),
        false => may_approve(inspection, denial).await,
    };
}

/// Whether belay denies the DELETEs of protected objects by the controller that deletes the content
/// of a Terminating target.
async fn denies_remaining_content(inspection: &Inspection, targets: &[NodeId]) -> bool {
    let mut nodes = targets.iter().filter_map(|target| inspection.graph.get(*target));
    let is_enforced = inspection.policy_state == PolicyState::Known
        && inspection.policies.pause(inspection.now()).is_none();
    is_enforced && nodes.any(|node| node.is_terminating()) && !inspection.lacks_webhooks().await
}

impl Report for Impact {
    const KIND: &'static str = "Impact";

    fn text(&self, view: View) -> String {
        text::text(self, view)
    }

    fn names(&self) -> Option<String> {
        let affected = self.objects.iter();
        let deleted = affected.filter(|affected| matches!(affected.outcome, "Deleted" | "Held"));
        Some(name_lines(deleted.map(|deleted| deleted.object.arguments.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn markdown(&self, all: bool) -> Option<String> {
        Some(markdown::markdown(self, all))
    }

    fn picture(&self) -> Option<Picture> {
        Some(picture::picture(self))
    }

    fn exit_code(&self) -> u8 {
        match self.order {
            // A script runs the DELETEs in the given order.
            Some(_) => ReportedVerdict::Deny.exit_code(),
            None => self.verdict.exit_code(),
        }
    }
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
