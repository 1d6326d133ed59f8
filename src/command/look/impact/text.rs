//! What `impact` says, as a person reads it.

use std::collections::{HashMap, HashSet};

use super::report::{Affected, Count, Impact, Why};
use crate::command::look::tree::{Branch, draw};
use crate::command::look::verdict::Word;
use crate::command::screen::{Screen, Tone, cut};
use crate::graph::NodeId;
use crate::policy::api::GROUP;

/// So many kinds are counted by name.
const KINDS: usize = 5;

/// The columns of a name and a count, before the kinds.
const HEADING: usize = 20;

/// So many reasons are told.
const TOLD: usize = 3;

/// So many roots are drawn.
const ROOTS: usize = 12;

/// Owners are as deep as somebody likes; what is deeper than this is drawn at
/// this depth.
const DEEPEST: usize = 24;

/// The kinds that are counted first.
const FIRST: &[&str] = &["Namespace", "StatefulSet", "Deployment", "DaemonSet", "Pod", "PVC", "PV"];

/// Everything, in lines.
pub fn text(impact: &Impact, screen: Screen, all: bool) -> String {
    let mut text = head(impact, screen);
    let summary = &impact.summary;
    let mut line = |name: &str, tone: Tone, count: usize, said: &str| {
        if count > 0 {
            let name = screen.paint(tone, &format!("{name:<9}"));
            let heading = format!("  {name} {count:>5}   ");
            text.push_str(screen.behind(&heading, HEADING, said).trim_end());
            text.push('\n');
        }
    };
    line("deleted", Tone::Plain, summary.deleted.total, &kinds(&summary.deleted, all));
    line("orphaned", Tone::Doubtful, summary.orphaned.total, &kinds(&summary.orphaned, all));
    line("held", Tone::Doubtful, summary.held.total, &kinds(&summary.held, all));
    line("broken", Tone::Bad, summary.broken.total, &kinds(&summary.broken, all));
    let volumes = impact.destroyed.iter().filter(|d| d.what == "Volume").count();
    let size = match impact.size() {
        size if size.is_empty() || volumes == 0 => String::new(),
        size => format!(", {size}"),
    };
    let said = format!("{}{size} (reclaimPolicy Delete)", plural(volumes, "volume"));
    line("destroyed", Tone::Bad, volumes, &said);
    let addresses: Vec<&str> = impact
        .destroyed
        .iter()
        .filter(|destroyed| destroyed.what == "Address")
        .map(|destroyed| destroyed.name.as_str())
        .collect();
    let said = format!(
        "{} ({})",
        if addresses.len() == 1 { "address" } else { "addresses" },
        addresses.join(", ")
    );
    line("released", Tone::Bad, addresses.len(), &said);
    let roots = roots(impact);
    let (shown, more) = cut(&roots, ROOTS, all);
    text.push_str(&draw(shown, screen, all));
    if let Some(more) = more {
        text.push_str(&format!("{}\n", screen.paint(Tone::Quiet, &more)));
    }
    text.push_str(&tail(impact, screen));
    text
}

/// `DELETE namespace/shop   DENIED   policy x`.
fn head(impact: &Impact, screen: Screen) -> String {
    let what = match impact.targets.as_slice() {
        [one] => one.label(""),
        many => {
            let names: Vec<String> = many.iter().take(3).map(|one| one.label("")).collect();
            let more = if many.len() > 3 { ", …" } else { "" };
            format!("{} objects ({}{more})", many.len(), names.join(", "))
        }
    };
    let tone = match impact.verdict.decision {
        Word::Allowed | Word::NoPolicies => Tone::Good,
        Word::Denied => Tone::Bad,
        _ => Tone::Doubtful,
    };
    let mut by: Vec<&str> = Vec::new();
    for why in impact.verdict.deciding().filter(|why| !why.by.is_empty()) {
        if !by.contains(&why.by.as_str()) {
            by.push(&why.by);
        }
    }
    let by = match (impact.verdict.decision, by.is_empty()) {
        (Word::NoPolicies, _) => "   no policies".to_owned(),
        (Word::Unknown, true) => "   the policies cannot be read".to_owned(),
        (_, true) => String::new(),
        (_, false) => format!("   {}", by.join("; ")),
    };
    let cascade = match impact.cascade {
        "background" => String::new(),
        other => format!(" --cascade={other}"),
    };
    let word = screen.paint(tone, impact.verdict.decision.shown());
    let head = screen.paint(Tone::Strong, &format!("DELETE {what}{cascade}"));
    format!("{head}   {word}{by}\n")
}

/// `StatefulSet 1 · Pod 9 · other 31`, and how much of it is not certain.
fn kinds(count: &Count, all: bool) -> String {
    let mut kinds: Vec<(&str, usize)> =
        count.by_kind.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    let place = |kind: &str| FIRST.iter().position(|first| *first == kind).unwrap_or(FIRST.len());
    kinds.sort_by(|a, b| (place(a.0), b.1, a.0).cmp(&(place(b.0), a.1, b.0)));
    let shown = if all || kinds.len() <= KINDS { kinds.len() } else { KINDS - 1 };
    let mut parts: Vec<String> =
        kinds.iter().take(shown).map(|(k, n)| format!("{k} {n}")).collect();
    let others: usize = kinds.iter().skip(shown).map(|(_, n)| n).sum();
    if others > 0 {
        parts.push(format!("other {others}"));
    }
    let maybe = match count.maybe {
        0 => String::new(),
        maybe => format!("   {maybe} of them perhaps"),
    };
    format!("{}{maybe}", parts.join(" · "))
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// The tree of everything that something happens to.
fn roots(impact: &Impact) -> Vec<Branch> {
    let known: HashSet<NodeId> = impact.objects.iter().filter_map(|object| object.id).collect();
    let mut below: HashMap<NodeId, Vec<&Affected>> = HashMap::new();
    let mut tops: Vec<&Affected> = Vec::new();
    for object in &impact.objects {
        match object.above.filter(|above| known.contains(above)) {
            Some(above) => below.entry(above).or_default().push(object),
            None => tops.push(object),
        }
    }
    let mut drawn: HashSet<NodeId> = HashSet::new();
    let home = impact.home();
    let mut roots: Vec<Branch> = Vec::new();
    // Owners may own each other: what no root leads to is a root as well.
    let others = impact.objects.iter().filter(|object| object.id.is_some());
    for object in tops.iter().copied().chain(others) {
        if object.id.is_none_or(|id| !drawn.contains(&id)) {
            roots.push(branch(object, &below, &mut drawn, home, 0));
        }
    }
    let mut all = Branch { below: roots, ..Branch::default() };
    all.sort();
    all.below
}

fn branch(
    object: &Affected,
    below: &HashMap<NodeId, Vec<&Affected>>,
    drawn: &mut HashSet<NodeId>,
    home: &str,
    depth: usize,
) -> Branch {
    let (sign, tone, rank) = match (object.outcome, object.certain) {
        ("Broken", true) => ("BROKEN", Tone::Bad, 0),
        ("Broken", false) => ("BROKEN?", Tone::Bad, 0),
        ("Held", true) => ("held", Tone::Doubtful, 2),
        ("Held", false) => ("held?", Tone::Doubtful, 2),
        ("Orphaned", true) => ("orphaned", Tone::Doubtful, 3),
        ("Orphaned", false) => ("orphaned?", Tone::Doubtful, 3),
        (_, true) => ("deleted", Tone::Plain, 5),
        (_, false) => ("deleted?", Tone::Doubtful, 4),
    };
    // What is destroyed with it matters more than that it goes.
    let rank = if rank > 3 && !object.note.is_empty() { 1 } else { rank };
    let children = match object.id {
        Some(id) if drawn.insert(id) => below.get(&id).map_or(&[][..], Vec::as_slice),
        _ => &[],
    };
    let mut lines = Vec::new();
    let mut next: Vec<&Affected> = children.to_vec();
    while let Some(child) = next.pop() {
        if child.id.is_some_and(|id| drawn.contains(&id)) {
            continue;
        }
        if depth + 1 >= DEEPEST {
            // Deeper ones beside it.
            let deeper = child.id.and_then(|id| below.get(&id)).into_iter().flatten();
            next.extend(deeper.filter(|deep| deep.id.is_none_or(|id| !drawn.contains(&id))));
            lines.push(branch(child, &HashMap::new(), drawn, home, depth + 1));
        } else {
            lines.push(branch(child, below, drawn, home, depth + 1));
        }
    }
    Branch {
        label: object.object.label(home),
        sign: sign.to_owned(),
        tone,
        note: object.note.clone(),
        rank,
        below: lines,
    }
}

/// What stands against it, what was not read, and the way out.
fn tail(impact: &Impact, screen: Screen) -> String {
    let mut text = String::new();
    let mut line = |name: &str, said: &str| {
        let name = screen.paint(Tone::Strong, &format!("{name:<12}"));
        text.push_str(&screen.behind(&name, 12, said));
    };
    let deciding: Vec<&Why> = impact.verdict.deciding().collect();
    let (shown, _) = cut(&deciding, TOLD, false);
    let name = match impact.verdict.decision {
        Word::Denied => "blocked by",
        Word::Held => "waits for",
        Word::Unknown => "not known",
        _ => "noted",
    };
    for why in shown {
        line(name, &format!("{}; {} ({})", why.says, why.by, why.reason));
    }
    let more = deciding.len() - shown.len() + impact.verdict.more;
    if more > 0 {
        line("", &format!("and {more} more reasons"));
    }
    for missing in &impact.missing {
        line("not there", missing);
    }
    for not_read in &impact.not_read {
        // What people have written counts nothing.
        let own = not_read.resource.ends_with(GROUP);
        let bounds = if own { "" } else { ": the counts are lower bounds" };
        line("not read", &format!("{} ({}){bounds}", not_read.resource, not_read.why));
    }
    if let Some(way_out) = &impact.verdict.way_out {
        line("way out", way_out);
    }
    for (at, approve) in impact.verdict.approve.iter().enumerate() {
        let may = match impact.verdict.you_may {
            Some(true) if at == 0 => "   you may: yes",
            Some(false) if at == 0 => "   you may: no",
            _ => "",
        };
        let name = if at == 0 && impact.verdict.way_out.is_none() { "way out" } else { "or" };
        line(name, &format!("{approve}{may}"));
    }
    text
}
