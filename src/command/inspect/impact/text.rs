//! The report of `impact` as text.

use std::collections::{HashMap, HashSet};

use super::affected::{AffectedObject, Count, Summary};
use super::destroyed::Destroyed;
use super::order::DeletionOrder;
use super::report::{FORBIDDEN, Impact};
use super::unread::UnreadContent;
use crate::command::delete_answer::DRY_RUN;
use crate::command::document::{BlockerReport, FailedRead, Object, ReportedVerdict};
use crate::command::inspect::tree::{TreeLine, draw};
use crate::command::report::View;
use crate::command::screen::{Screen, Tone, cut};
use crate::graph::NodeId;
use crate::objects::{and_more, more as count_more};
use crate::policy::api::GROUP;

/// The width of the headings below the tree.
const HEADING_WIDTH: usize = 12;

/// The indent of the later lines of a long header.
const HEAD_INDENT: usize = 2;

/// The number of kinds that a count names.
const MAX_KINDS: usize = 5;

/// The width of the columns of an effect and its count.
const COUNT_WIDTH: usize = 20;

/// The maximum number of reasons.
const MAX_REASONS: usize = 3;

/// The maximum number of missing objects.
const MAX_MISSING: usize = 8;

/// The maximum number of trees.
const MAX_ROOTS: usize = 12;

/// The maximum depth: deeper objects are drawn at this depth.
const MAX_DEPTH: usize = 24;

/// The kinds that a count names first.
const COUNTED_FIRST: &[&str] =
    &["Namespace", "PVC", "PV", "StatefulSet", "Deployment", "DaemonSet", "Pod"];

/// The kinds whose lines come first among lines of equal severity, by group and plural name.
const DRAWN_FIRST: &[(&str, &str)] = &[
    ("apps", "statefulsets"),
    ("apps", "deployments"),
    ("apps", "daemonsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
];

/// The factor between two severities in the rank of a line. It is larger than the number of
/// kinds in `DRAWN_FIRST`.
const SEVERITY_STEP: u8 = 10;

/// The complete report.
pub fn text(impact: &Impact, view: View) -> String {
    let (screen, all) = (view.screen, view.is_complete());
    let mut text = match &impact.message {
        Some(message) => screen.paragraph(0, message),
        None => head(impact, screen),
    };
    if let Some(condition) = condition(impact) {
        text.push_str(&format!("{condition}:\n"));
    }
    for Line { name, tone, count, details } in summary(impact, all) {
        let name = screen.paint(tone, &format!("{name:<10}"));
        let heading = format!("  {name}{count:>5}   ");
        text.push_str(screen.behind(&heading, COUNT_WIDTH, &details).trim_end());
        text.push('\n');
    }
    text.push_str(&tree(impact, screen, all, view.wide));
    text.push_str(&tail(impact, view));
    for cycle in &impact.cycles {
        let names: Vec<&str> = cycle.iter().map(|one| one.arguments.as_str()).collect();
        let line = format!("use each other, and are deleted in this order: {}", names.join(", "));
        text.push_str(&screen.paragraph(0, &line));
    }
    text
}

/// An effect with its count.
pub(super) struct Line {
    /// The effect.
    pub(super) name: &'static str,
    /// The severity.
    pub(super) tone: Tone,
    /// The number of affected objects or resources; `3+` if there may be more, `?` if unknown.
    pub(super) count: String,
    /// The kinds or names of the affected objects or resources.
    pub(super) details: String,
}

/// The effects that occur, with their counts.
pub(super) fn summary(impact: &Impact, all: bool) -> Vec<Line> {
    let Summary { deleted, orphaned, held_by_belay, waiting, denied, broken, stranded, .. } =
        &impact.summary;
    let line = |name, tone, count: usize, details| {
        let count = count.to_string();
        Line { name, tone, count, details }
    };
    let counted = |name, tone, count: &Count| line(name, tone, count.total, kinds(count, all));
    let [known, unknown] = [true, false].map(|known| impact.volumes(known));
    let with_size = |volumes: &[&Destroyed]| match Impact::size(volumes) {
        size if size.is_empty() || volumes.is_empty() => plural(volumes.len(), "volume"),
        size => format!("{}, {size}", plural(volumes.len(), "volume")),
    };
    let later = later_text(&known);
    let destroyed = format!("{} (reclaimPolicy Delete){later}", with_size(&known));
    let why = unknown.first().and_then(|volume| volume.reclaim_policy_not_read.as_deref());
    let why = why.unwrap_or_default();
    let perhaps = format!("{} (reclaimPolicy unknown: {why})", with_size(&unknown));
    let addresses: Vec<&str> = impact
        .destroyed
        .iter()
        .filter(|destroyed| destroyed.what == "Address")
        .map(|destroyed| destroyed.name.as_str())
        .collect();
    let released = format!(
        "{} ({})",
        if addresses.len() == 1 { "address" } else { "addresses" },
        addresses.join(", ")
    );
    let mut lines = vec![
        counted("deleted", Tone::Plain, deleted),
        counted("orphaned", Tone::Doubtful, orphaned),
        counted("held", Tone::Doubtful, held_by_belay),
        counted("waits", Tone::Doubtful, waiting),
        counted("stays", Tone::Doubtful, denied),
        counted("broken", Tone::Bad, broken),
        counted("stranded", Tone::Bad, stranded),
        line("destroyed", Tone::Bad, known.len(), destroyed),
        line("destroyed?", Tone::Bad, unknown.len(), perhaps),
        line("released", Tone::Bad, addresses.len(), released),
    ];
    lines.retain(|line| line.count != "0");
    // The content of a container that stays Terminating is deleted, too.
    let unread = impact.unread_content.first().map(|unread| (unread, unread.of.label("")));
    if let Some((UnreadContent { what, .. }, container)) = unread {
        if lines.first().is_none_or(|line| line.name != "deleted") {
            lines.insert(0, line("deleted", Tone::Plain, 0, String::new()));
        }
        if let Some(deleted) = lines.first_mut() {
            let others = and_more(impact.unread_content.len() - 1, "object");
            deleted.tone = Tone::Doubtful;
            deleted.count.push('+');
            let more = format!("   or more: {what} of {container}{others} could not be read");
            deleted.details.push_str(if deleted.details.is_empty() { more.trim() } else { &more });
        }
    }
    if let Some((object, why)) = impact.unread_claims() {
        let label = object.label("");
        lines.push(Line {
            name: "destroyed?",
            tone: Tone::Bad,
            count: "?".to_owned(),
            details: format!("unknown: the claims of {label} could not be read ({why})"),
        });
    }
    lines
}

/// The text after the number of volumes: when the volumes are destroyed whose claims stay or stay
/// Terminating. Empty if there are none.
fn later_text(volumes: &[&Destroyed]) -> String {
    let later: Vec<_> = volumes.iter().filter(|volume| volume.stays_terminating).collect();
    let deleted = match later.len() {
        0 => return String::new(),
        1 => "its claim is deleted",
        _ => "their claims are deleted",
    };
    match later.len() {
        count if count == volumes.len() => format!(", when {deleted}"),
        count => format!(", {count} of them when {deleted}"),
    }
}

/// The trees of the affected objects as text.
pub(super) fn tree(impact: &Impact, screen: Screen, all: bool, wide: bool) -> String {
    let roots = roots(impact, wide);
    let (shown, more) = cut(&roots, MAX_ROOTS, all, "objects with their effects");
    let mut text = draw(shown, screen, all);
    if let Some(more) = more {
        text.push_str(&format!("{}\n", screen.paint(Tone::Quiet, &more)));
    }
    text
}

/// The first line, such as `DELETE namespace/shop   DENIED   policy x`.
fn head(impact: &Impact, screen: Screen) -> String {
    let targets = targets_text(impact);
    let tone = match impact.verdict {
        _ if impact.order.is_some() => Tone::Doubtful,
        ReportedVerdict::Allow | ReportedVerdict::NoPolicies => Tone::Good,
        ReportedVerdict::Deny => Tone::Bad,
        _ => Tone::Doubtful,
    };
    let mut by: Vec<&str> = impact.refused_otherwise.iter().map(|_| "the API server").collect();
    for blocker in impact.deciding() {
        let name = if blocker.reason == FORBIDDEN { "the API server" } else { &blocker.by };
        if !name.is_empty() && !by.contains(&name) {
            by.push(name);
        }
    }
    let by = match (impact.verdict, by.is_empty()) {
        (ReportedVerdict::Unknown, true) if impact.has_unread_targets => {
            "   some targets could not be read".to_owned()
        }
        (ReportedVerdict::NoPolicies, _) => "   no policies".to_owned(),
        (ReportedVerdict::Unknown, true) => "   the policies cannot be read".to_owned(),
        (_, true) => String::new(),
        (_, false) => format!("   {}", by.join("; ")),
    };
    let cascade = cascade_option(impact);
    let word = screen.paint(tone, &verdict_text(impact));
    let head = format!("DELETE {targets}{cascade}");
    if screen.fits(&format!("{head}   {}{by}", verdict_text(impact))) {
        return format!("{}   {word}{by}\n", screen.paint(Tone::Strong, &head));
    }
    let lines = screen.lines(HEAD_INDENT, &head);
    let lines: Vec<String> = lines.iter().map(|line| screen.paint(Tone::Strong, line)).collect();
    let margin = " ".repeat(HEAD_INDENT);
    let heading = format!("{margin}{word}   ");
    let width = HEAD_INDENT + verdict_text(impact).chars().count() + 3;
    let verdict = screen.behind(&heading, width, by.trim_start());
    format!("{}\n{}\n", lines.join(&format!("\n{margin}")), verdict.trim_end())
}

/// The verdict as text. It also tells whether the deletion is denied only in the given order.
pub(super) fn verdict_text(impact: &Impact) -> String {
    let word = impact.verdict.text();
    match &impact.order {
        None if impact.accepted.is_some() => format!("{word} in part"),
        None => word.to_owned(),
        Some(_) if !word.starts_with("ALLOWED") => word.to_owned(),
        Some(order) if order.commands.is_empty() => "DENIED in each known order".to_owned(),
        Some(_) => "DENIED in this order".to_owned(),
    }
}

/// The condition for an order in which belay denies no DELETE.
const IN_ORDER: &str = "if deleted in the order that works";

/// The condition under which a denied DELETE has these effects.
pub(super) fn condition(impact: &Impact) -> Option<&'static str> {
    let is_denied = impact.verdict == ReportedVerdict::Deny && !impact.objects.is_empty();
    // An approval does not change what the API server forbids.
    let by_belay = impact.deciding().any(|blocker| blocker.reason != FORBIDDEN);
    let allowed = if impact.is_belay_silent { "if belay allows it" } else { "if approved" };
    let has_order = impact.order.as_ref().is_some_and(|order| !order.commands.is_empty());
    match is_denied && by_belay {
        true => Some(allowed),
        false => (has_order && impact.verdict.text().starts_with("ALLOWED")).then_some(IN_ORDER),
    }
}

/// A short text about the targets.
pub(super) fn targets_text(impact: &Impact) -> String {
    match impact.targets.as_slice() {
        [one] => one.label(""),
        all => {
            let names: Vec<String> = all.iter().take(3).map(|one| one.label("")).collect();
            let more = if all.len() > 3 { ", …" } else { "" };
            format!("{} objects ({}{more})", all.len(), names.join(", "))
        }
    }
}

/// The option of `kubectl delete` for the propagation policy.
pub(super) fn cascade_option(impact: &Impact) -> String {
    match impact.cascade {
        "background" => String::new(),
        other => format!(" --cascade={other}"),
    }
}

/// `(1 StatefulSet, 9 Pod, 31 other)`, and the number of uncertain outcomes.
fn kinds(count: &Count, all: bool) -> String {
    let mut kinds: Vec<(&str, usize)> =
        count.by_kind.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    let index = |kind: &str| {
        COUNTED_FIRST.iter().position(|first| *first == kind).unwrap_or(COUNTED_FIRST.len())
    };
    kinds.sort_by(|a, b| (index(a.0), b.1, a.0).cmp(&(index(b.0), a.1, b.0)));
    let shown = if all || kinds.len() <= MAX_KINDS { kinds.len() } else { MAX_KINDS - 1 };
    let mut parts: Vec<String> =
        kinds.iter().take(shown).map(|(k, n)| format!("{n} {k}")).collect();
    let others: usize = kinds.iter().skip(shown).map(|(_, n)| n).sum();
    if others > 0 {
        parts.push(format!("{others} other"));
    }
    let maybe = match count.maybe {
        0 => String::new(),
        maybe => format!("   {maybe} of them perhaps"),
    };
    format!("({}){maybe}", parts.join(", "))
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// The trees of the affected objects. `wide`: a label has the arguments for kubectl.
fn roots(impact: &Impact, wide: bool) -> Vec<TreeLine> {
    let affected: HashSet<NodeId> = impact.objects.iter().filter_map(|object| object.id).collect();
    let mut children: HashMap<NodeId, Vec<&AffectedObject>> = HashMap::new();
    let mut tops: Vec<&AffectedObject> = Vec::new();
    for object in &impact.objects {
        match object.parent.filter(|parent| affected.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(object),
            None => tops.push(object),
        }
    }
    let mut drawn: HashSet<NodeId> = HashSet::new();
    let omitted = impact.omitted_namespace();
    let label = |object: &Object| match wide {
        true => object.arguments.clone(),
        false => object.label(omitted),
    };
    let mut roots: Vec<TreeLine> = Vec::new();
    // Owners can form a cycle, so an object that no root reaches is a root as well.
    let others = impact.objects.iter().filter(|object| object.id.is_some());
    for object in tops.iter().copied().chain(others) {
        if object.id.is_none_or(|id| !drawn.contains(&id)) {
            roots.push(branch(object, &children, &mut drawn, &label, 0));
        }
    }
    let mut all = TreeLine { below: roots, ..TreeLine::default() };
    all.sort();
    all.below
}

/// The position of a kind among lines of equal severity.
fn kind_rank(object: &Object) -> u8 {
    let kind = (object.group.as_str(), object.resource.as_str());
    let index = DRAWN_FIRST.iter().position(|first| *first == kind);
    index.and_then(|index| u8::try_from(index).ok()).unwrap_or(SEVERITY_STEP - 1)
}

/// The outcome of an object in one word, its colour, and its severity: 0 is the worst.
pub(super) fn outcome_label(object: &AffectedObject) -> (&'static str, Tone, u8) {
    match (object.outcome, object.certain) {
        ("Broken", true) => ("BROKEN", Tone::Bad, 0),
        ("Broken", false) => ("BROKEN?", Tone::Bad, 0),
        ("Stranded", true) => ("stranded", Tone::Bad, 0),
        ("Stranded", false) => ("stranded?", Tone::Bad, 0),
        ("Held", true) if object.held_by_belay => ("held", Tone::Doubtful, 2),
        ("Held", false) if object.held_by_belay => ("held?", Tone::Doubtful, 2),
        ("Held", true) => ("waits", Tone::Doubtful, 2),
        ("Held", false) => ("waits?", Tone::Doubtful, 2),
        ("Denied", _) => ("stays", Tone::Doubtful, 2),
        ("Orphaned", true) => ("orphaned", Tone::Doubtful, 3),
        ("Orphaned", false) => ("orphaned?", Tone::Doubtful, 3),
        (_, true) => ("deleted", Tone::Plain, 5),
        (_, false) => ("deleted?", Tone::Doubtful, 4),
    }
}

fn branch(
    object: &AffectedObject,
    children: &HashMap<NodeId, Vec<&AffectedObject>>,
    drawn: &mut HashSet<NodeId>,
    label: &impl Fn(&Object) -> String,
    depth: usize,
) -> TreeLine {
    let (outcome, tone, rank) = outcome_label(object);
    // A note, for example about destroyed data, matters more than the deletion.
    let rank = if rank > 3 && !object.note.is_empty() { 1 } else { rank };
    // Workloads come first.
    let rank = rank * SEVERITY_STEP + kind_rank(&object.object);
    let mut next: Vec<&AffectedObject> = match object.id {
        Some(id) if drawn.insert(id) => children.get(&id).cloned().unwrap_or_default(),
        _ => Vec::new(),
    };
    let mut lines = Vec::new();
    while let Some(child) = next.pop() {
        if child.id.is_some_and(|id| drawn.contains(&id)) {
            continue;
        }
        if depth + 1 >= MAX_DEPTH {
            // The children of the child are drawn beside it.
            let deeper = child.id.and_then(|id| children.get(&id)).into_iter().flatten();
            next.extend(deeper.filter(|deep| deep.id.is_none_or(|id| !drawn.contains(&id))));
            lines.push(branch(child, &HashMap::new(), drawn, label, depth + 1));
        } else {
            lines.push(branch(child, children, drawn, label, depth + 1));
        }
    }
    TreeLine {
        label: label(&object.object),
        kind: object.object.kind_word(),
        state: outcome.to_owned(),
        tone,
        note: object.note.clone(),
        rank,
        below: lines,
    }
}

/// The blockers, the failed reads, and the next steps.
fn tail(impact: &Impact, view: View) -> String {
    let (screen, all) = (view.screen, view.is_complete());
    let mut text = String::new();
    let heading = |name: &str| screen.paint(Tone::Strong, &format!("{name:<HEADING_WIDTH$}"));
    let mut line = |name: &str, value: &str| {
        text.push_str(&screen.behind(&heading(name), HEADING_WIDTH, value));
    };
    let deciding: Vec<&BlockerReport> = impact.deciding().collect();
    let (shown, _) = cut(&deciding, MAX_REASONS, all, "reasons");
    let name = reasons_heading(impact.verdict);
    for blocker in shown {
        line(name, &reason_text(blocker));
    }
    if let Some(refused) = &impact.refused_otherwise {
        line("refused", refused);
    }
    if let Some(accepted) = &impact.accepted {
        line("in part", &accepted.text(impact.targets.len(), impact.omitted_namespace()));
    }
    for warning in &impact.warnings {
        line("warning", warning);
    }
    let more = deciding.len() - shown.len() + impact.more;
    if more > 0 {
        line("", &format!("and {}", count_more(more, "reason")));
    }
    let (missing, more) = cut(&impact.missing, MAX_MISSING, all, "objects");
    for missing in missing {
        line("not found", missing);
    }
    if let Some(more) = more {
        line("", &more);
    }
    for not_read in FailedRead::grouped(&impact.not_read, view.verbose) {
        line("not read", &unread_text(&not_read));
    }
    if let Some(next_step) = &impact.next_step {
        line("next step", next_step);
    }
    if let Some(order) = &impact.order {
        line("order", &order_text(order));
    }
    // A command to copy is neither cut nor wrapped.
    let mut command = |name: &str, command: &str| {
        text.push_str(&format!("{}{}\n", heading(name), screen.paint(Tone::Plain, command)));
    };
    for delete in impact.order.iter().flat_map(|order| &order.commands) {
        command("", delete);
    }
    for (index, approve) in impact.approve.iter().enumerate() {
        let name = if index == 0 && impact.next_step.is_none() { "next step" } else { "or" };
        command(name, approve);
    }
    if let Some(may) = you_may(impact).filter(|_| !impact.approve.is_empty()) {
        text.push_str(&screen.behind(&heading(""), HEADING_WIDTH, &may));
    }
    text
}

/// The heading of the deciding reasons.
pub(super) fn reasons_heading(decision: ReportedVerdict) -> &'static str {
    match decision {
        ReportedVerdict::Deny => "blocked by",
        ReportedVerdict::Hold => "waits for",
        ReportedVerdict::Unknown => "unknown",
        _ => "would deny",
    }
}

/// One reason, in a sentence.
pub(super) fn reason_text(blocker: &BlockerReport) -> String {
    let BlockerReport { message, reason, by, .. } = blocker;
    match by.as_str() {
        "" => format!("{message} ({reason})"),
        by => format!("{message}; {by} ({reason})"),
    }
}

/// The problem with the given order.
pub(super) fn order_text(order: &DeletionOrder) -> String {
    let denied: Vec<String> = order.denied.iter().map(Object::sentence_name).collect();
    let works = match order.commands.as_slice() {
        [] => "belay knows no order that works.",
        [_] => "This command uses an order that works:",
        _ => "These commands use an order that works. Run them one after the other:",
    };
    format!(
        "kubectl deletes the objects in the given order, so belay would deny the DELETE of {}, \
         because a later object uses it. Other clients, such as helm, use their own order. \
         {works}",
        denied.join(", ")
    )
}

/// A failed read and its consequence.
pub(super) fn unread_text(not_read: &FailedRead) -> String {
    let FailedRead { resource, why } = not_read;
    // belay's own objects and the verdict don't affect the counts.
    let is_counted = !resource.ends_with(GROUP) && resource != DRY_RUN;
    let bounds = if is_counted { ": the counts are lower bounds" } else { "" };
    format!("{resource} ({why}){bounds}")
}

/// Whether the caller may approve the deletion; `None` if unknown.
pub(super) fn you_may(impact: &Impact) -> Option<String> {
    let may = impact.you_may.map(|may| match may {
        true => "you can approve it",
        _ if impact.has_approved => "you have approved it; another person must approve it as well",
        false => "you can't approve it",
    });
    let approved = (!impact.approved_by.is_empty())
        .then(|| format!("approved so far by {}", impact.approved_by.join(", ")));
    let parts: Vec<String> = approved.into_iter().chain(may.map(str::to_owned)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
