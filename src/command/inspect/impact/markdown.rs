//! The report of `impact` as Markdown for a comment on a pull request, for GitHub and
//! GitLab.
//!
//! Names from a cluster or manifest may contain any character. In prose, special
//! characters are escaped; in code, the fence is longer than any run of backticks.

use super::destroyed::Destroyed;
use super::picture::picture;
use super::report::Impact;
use super::text::{
    Line, cascade_option, condition, order_text, reason_text, reasons_heading, summary,
    targets_text, tree, unread_text, verdict_text, you_may,
};
use crate::command::document::{BlockerReport, FailedRead};
use crate::command::screen::{Screen, cut};
use crate::objects::without_controls;

/// The maximum number of list items.
const MAX_ITEMS: usize = 10;

/// The maximum number of lines of the tree.
const MAX_LINES: usize = 60;

/// A tree with more lines is collapsed.
const MAX_UNFOLDED_LINES: usize = 15;

/// The maximum number of nodes of the graph.
const MAX_NODES: usize = 40;

/// A graph with more nodes is collapsed.
const MAX_UNFOLDED_NODES: usize = 12;

/// The maximum size of the graph. Only a graph with long names reaches it.
const MAX_GRAPH_BYTES: usize = 20_000;

/// The maximum size of the tree: GitHub accepts at most 65,536 characters.
const MAX_BYTES: usize = 30_000;

/// The complete report.
pub fn markdown(impact: &Impact, all: bool) -> String {
    let mut text = match &impact.message {
        Some(message) => format!("### {}\n", escape(message)),
        None => {
            let verdict = verdict_text(impact);
            let targets = targets_text(impact) + &cascade_option(impact);
            format!("### {verdict}: delete {}\n", escape(&targets))
        }
    };
    let mut part = |part: String| {
        if !part.is_empty() {
            text.push('\n');
            text.push_str(&part);
        }
    };
    let condition = condition(impact);
    part(condition.map_or_else(String::new, |condition| format!("**{condition}**\n")));
    part(table(&summary(impact, all)));
    let deciding: Vec<&BlockerReport> = impact.deciding().collect();
    let reasons = deciding.iter().map(|blocker| escape(&reason_text(blocker)));
    let heading = reasons_heading(impact.verdict);
    part(list(heading, "reasons", reasons.collect(), impact.more, all));
    let next_step = impact.next_step.iter().map(|step| escape(step));
    let approve = impact.approve.iter().enumerate().map(|(index, approve)| {
        let may = if index == 0 { you_may(impact).unwrap_or_default() } else { String::new() };
        format!("{} {may}", code(approve)).trim_end().to_owned()
    });
    part(list("next step", "steps", next_step.chain(approve).collect(), 0, all));
    if let Some(order) = &impact.order {
        let commands = order.commands.iter().map(|command| code(command));
        let text = std::iter::once(escape(&order_text(order)));
        part(list("order", "commands", text.chain(commands).collect(), 0, all));
    }
    let destroyed = match condition {
        Some(condition) => format!("destroyed for good, {condition}"),
        None => "destroyed for good".to_owned(),
    };
    part(list(
        &destroyed,
        "resources",
        impact.destroyed.iter().map(destroyed_text).collect(),
        0,
        all,
    ));
    let missing = impact.missing.iter().map(|missing| code(missing));
    part(list("not found", "objects", missing.collect(), 0, all));
    let accepted = impact.accepted.iter().map(|part| escape(&part.text(impact.targets.len(), "")));
    part(list("in part", "parts", accepted.collect(), 0, all));
    let warnings = impact.warnings.iter().map(|warning| escape(warning));
    part(list("warning", "warnings", warnings.collect(), 0, all));
    let refused = impact.refused_otherwise.iter().map(|refused| escape(refused));
    part(list("refused", "reasons", refused.collect(), 0, all));
    let not_read = FailedRead::grouped(&impact.not_read, all);
    let not_read = not_read.iter().map(|not_read| escape(&unread_text(not_read)));
    part(list("not read", "kinds", not_read.collect(), 0, all));
    part(graph_block(impact));
    part(tree_block(impact, condition, all));
    text
}

/// The graph of the effects. Empty if the graph has no edges: then the tree shows the same.
fn graph_block(impact: &Impact) -> String {
    let graph = picture(impact);
    let (count, has_edges) = (graph.len(), graph.has_edges());
    let graph = graph.mermaid(Some(MAX_NODES));
    if !has_edges || graph.len() > MAX_GRAPH_BYTES {
        return String::new();
    }
    let block = format!("```mermaid\n{graph}```\n");
    match count > MAX_UNFOLDED_NODES {
        true => format!("<details><summary>graph</summary>\n\n{block}\n</details>\n"),
        false => block,
    }
}

/// The table of counts.
fn table(lines: &[Line]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let rows = lines.iter().map(|Line { name, count, details, .. }| {
        format!("| {name} | {count} | {} |\n", escape(details))
    });
    // A Markdown table needs a header row. This one is empty.
    format!("| | | |\n|---|--:|---|\n{}", rows.collect::<String>())
}

/// A list with a heading. `what` is the plural of the items, `more` the number of further items
/// that are not in `entries`.
fn list(name: &str, what: &str, entries: Vec<String>, more: usize, all: bool) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let (shown, hidden) = cut(&entries, MAX_ITEMS, all, "");
    let hidden = hidden.map(|_| entries.len() - shown.len()).unwrap_or_default() + more;
    let rest = match hidden {
        0 => String::new(),
        hidden => format!("- … and {hidden} more {what}\n"),
    };
    let shown: String = shown.iter().map(|entry| format!("- {entry}\n")).collect();
    format!("**{name}**\n\n{shown}{rest}")
}

/// A destroyed resource.
fn destroyed_text(destroyed: &Destroyed) -> String {
    let Destroyed { what, name, by, size, .. } = destroyed;
    let by = code(&by.label(""));
    if *what == "Address" {
        return format!("address {} of {by}", code(name));
    }
    let size = if size.is_empty() { String::new() } else { format!(", {}", escape(size)) };
    let snapshot = escape(&destroyed.newest_snapshot());
    let unread = destroyed.reclaim_policy_not_read.as_ref();
    let unread = unread.map_or_else(String::new, |why| {
        format!("; its reclaimPolicy is unknown ({})", escape(why))
    });
    format!("volume {}{size}, of {by}{unread}; newest snapshot: {snapshot}", code(name))
}

/// The tree. A long tree is collapsed.
fn tree_block(impact: &Impact, condition: Option<&str>, all: bool) -> String {
    let tree = tree(impact, Screen::pipe(), all, false);
    let count = tree.lines().count();
    if count == 0 {
        return String::new();
    }
    let block = block(&tree, all);
    let condition_text = condition.map_or_else(String::new, |condition| format!(", {condition}"));
    let title = format!("effects on {} objects{condition_text}", impact.objects.len());
    match count > MAX_UNFOLDED_LINES {
        true => format!("<details><summary>{title}</summary>\n\n{block}\n</details>\n"),
        false if condition.is_some() => format!("**{title}**\n\n{block}"),
        false => block,
    }
}

/// A block of code, with the number of omitted lines.
fn block(text: &str, all: bool) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let mut remaining_bytes = MAX_BYTES;
    let fits = |line: &&str| {
        remaining_bytes = remaining_bytes.saturating_sub(line.len() + 1);
        all || remaining_bytes > 0
    };
    let max_lines = if all { usize::MAX } else { MAX_LINES };
    let shown: Vec<&str> = text.lines().take(max_lines).take_while(fits).collect();
    let rest = match text.lines().count() - shown.len() {
        0 => String::new(),
        rest => format!("… and {rest} more lines\n"),
    };
    format!("{fence}text\n{}\n{rest}{fence}\n", shown.join("\n"))
}

/// A text with Markdown characters escaped, for prose and tables.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in without_controls(text).chars() {
        if "\\`*_[]<>|~#&$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
        // An object's name must not notify a user.
        if c == '@' {
            escaped.push('\u{200b}');
        }
    }
    escaped
}

/// A text as inline code, which a reader can copy. A table can't contain it.
fn code(text: &str) -> String {
    let text = without_controls(text);
    let fence = "`".repeat(longest_run(&text) + 1);
    // A backtick at the start or end would be part of the delimiter.
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// The length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_characters_of_texts_are_escaped() {
        for (text, written) in [
            ("Secret shop/a is in use", "Secret shop/a is in use"),
            ("a|b", r"a\|b"),
            ("`<b>` *x* [y](z)", r"\`\<b\>\` \*x\* \[y\](z)"),
            ("a\nb\x1b[31m", r"a b \[31m"),
            ("clusterrole/@all", "clusterrole/@\u{200b}all"),
        ] {
            assert_eq!(escape(text), written);
        }
    }

    #[test]
    fn the_fence_is_longer_than_backticks_in_the_code() {
        for (text, written) in [
            ("pvc/a", "`pvc/a`"),
            ("a`b", "``a`b``"),
            ("`a``b", "``` `a``b ```"),
            ("a\nb", "`a b`"),
        ] {
            assert_eq!(code(text), written);
        }
        assert_eq!(block("a\n", false), "```text\na\n```\n");
        assert_eq!(block("a ```` b\n", false), "`````text\na ```` b\n`````\n");
    }

    #[test]
    fn long_blocks_and_lists_are_cut_with_the_number_of_omitted_lines() {
        let lines = "pod/x  deleted\n".repeat(200);
        let cut = block(&lines, false);
        assert!(cut.ends_with("\n… and 140 more lines\n```\n"), "{cut}");
        assert_eq!(block(&lines, true).lines().count(), 202);
        let wide = format!("{}\n", "x".repeat(10_000)).repeat(9);
        let cut = block(&wide, false);
        assert!(
            cut.len() < MAX_BYTES && cut.ends_with("\n… and 7 more lines\n```\n"),
            "{}",
            cut.len()
        );
        let entries: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        assert!(
            list("x", "ends", entries.clone(), 0, false).ends_with("- 9\n- … and 20 more ends\n")
        );
        assert!(list("x", "ends", entries, 4, true).ends_with("- 29\n- … and 4 more ends\n"));
    }
}
