//! The report of `impact` as Markdown for a comment on a pull request, for GitHub and
//! GitLab.
//!
//! Names from a cluster or manifest may contain any character. In prose, special
//! characters are escaped; in code, the fence is longer than any run of backticks.

use super::destroyed::Destroyed;
use super::report::Impact;
use super::text::{
    Line, answer, cascade, condition, order_text, reason, reasons, summary, tree, unread, what,
    you_may,
};
use crate::command::document::{BlockerReport, FailedRead};
use crate::command::screen::{Screen, cut};
use crate::objects::without_controls;

/// The maximum number of list items.
const MAX_LOST: usize = 10;

/// The maximum number of lines of the tree.
const LINES: usize = 60;

/// A tree with more lines is folded away.
const FOLDED: usize = 15;

/// The maximum size of the tree: GitHub accepts at most 65,536 characters.
const MAX_BYTES: usize = 30_000;

/// Everything, as a comment.
pub fn markdown(impact: &Impact, all: bool) -> String {
    let mut text = match &impact.says {
        Some(says) => format!("### {}\n", plain(says)),
        None => {
            let word = answer(impact);
            format!("### {word}: delete {}\n", plain(&(what(impact) + &cascade(impact))))
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
    let reasons = reasons(impact.verdict);
    let said = deciding.iter().map(|why| plain(&reason(why)));
    part(list(reasons, "reasons", said.collect(), impact.more, all));
    let next_step = impact.next_step.iter().map(|way| plain(way));
    let approve = impact.approve.iter().enumerate().map(|(at, approve)| {
        let may = if at == 0 { you_may(impact).unwrap_or_default() } else { "" };
        format!("{} {may}", code(approve)).trim_end().to_owned()
    });
    part(list("next step", "steps", next_step.chain(approve).collect(), 0, all));
    if let Some(order) = &impact.order {
        let commands = order.commands.iter().map(|command| code(command));
        let says = std::iter::once(plain(&order_text(order)));
        part(list("order", "commands", says.chain(commands).collect(), 0, all));
    }
    let destroyed = match condition {
        Some(condition) => format!("destroyed for good, {condition}"),
        None => "destroyed for good".to_owned(),
    };
    part(list(&destroyed, "resources", impact.destroyed.iter().map(lost_text).collect(), 0, all));
    let missing = impact.missing.iter().map(|missing| code(missing));
    part(list("not there", "objects", missing.collect(), 0, all));
    let warnings = impact.warnings.iter().map(|warning| plain(warning));
    part(list("warning", "warnings", warnings.collect(), 0, all));
    let refused = impact.refused_otherwise.iter().map(|refused| plain(refused));
    part(list("refused", "reasons", refused.collect(), 0, all));
    let not_read = FailedRead::grouped(&impact.not_read, all);
    let not_read = not_read.iter().map(|not_read| plain(&unread(not_read)));
    part(list("not read", "kinds", not_read.collect(), 0, all));
    part(tree_block(impact, condition, all));
    text
}

/// The table of counts.
fn table(lines: &[Line]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let rows = lines
        .iter()
        .map(|Line { name, count, said, .. }| format!("| {name} | {count} | {} |\n", plain(said)));
    // Above the rows there has to be a heading, and this one is empty.
    format!("| | | |\n|---|--:|---|\n{}", rows.collect::<String>())
}

/// A list with a heading. `what` is the plural of the items, `more` the number of items
/// without a name.
fn list(name: &str, what: &str, entries: Vec<String>, more: usize, all: bool) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let (shown, hidden) = cut(&entries, MAX_LOST, all, "");
    let hidden = hidden.map(|_| entries.len() - shown.len()).unwrap_or_default() + more;
    let rest = match hidden {
        0 => String::new(),
        hidden => format!("- … and {hidden} more {what}\n"),
    };
    let shown: String = shown.iter().map(|entry| format!("- {entry}\n")).collect();
    format!("**{name}**\n\n{shown}{rest}")
}

/// A destroyed resource.
fn lost_text(destroyed: &Destroyed) -> String {
    let Destroyed { what, name, by, size, .. } = destroyed;
    let by = code(&by.label(""));
    if *what == "Address" {
        return format!("address {} of {by}", code(name));
    }
    let size = if size.is_empty() { String::new() } else { format!(", {}", plain(size)) };
    let snapshot = plain(&destroyed.newest_snapshot());
    format!("volume {}{size}, of {by}; newest snapshot: {snapshot}", code(name))
}

/// The tree, folded away where it is long.
fn tree_block(impact: &Impact, condition: Option<&str>, all: bool) -> String {
    let tree = tree(impact, Screen::pipe(), all);
    let count = tree.lines().count();
    if count == 0 {
        return String::new();
    }
    let block = block(&tree, all);
    let what = format!("effects on {} objects", impact.objects.len());
    let what = condition.map_or_else(|| what.clone(), |condition| format!("{what}, {condition}"));
    match count > FOLDED {
        true => format!("<details><summary>{what}</summary>\n\n{block}\n</details>\n"),
        false if condition.is_some() => format!("**{what}**\n\n{block}"),
        false => block,
    }
}

/// A block of code, with the number of omitted lines.
fn block(text: &str, all: bool) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let mut room = MAX_BYTES;
    let fits = |line: &&str| {
        room = room.saturating_sub(line.len() + 1);
        all || room > 0
    };
    let most = if all { usize::MAX } else { LINES };
    let shown: Vec<&str> = text.lines().take(most).take_while(fits).collect();
    let rest = match text.lines().count() - shown.len() {
        0 => String::new(),
        rest => format!("… and {rest} more lines\n"),
    };
    format!("{fence}text\n{}\n{rest}{fence}\n", shown.join("\n"))
}

/// A text with Markdown characters escaped, for prose and tables.
fn plain(text: &str) -> String {
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

/// Text that can be copied. Not used in tables.
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
    fn nothing_in_a_text_is_markdown() {
        for (text, written) in [
            ("Secret shop/a is in use", "Secret shop/a is in use"),
            ("a|b", r"a\|b"),
            ("`<b>` *x* [y](z)", r"\`\<b\>\` \*x\* \[y\](z)"),
            ("a\nb\x1b[31m", r"a b \[31m"),
            ("clusterrole/@all", "clusterrole/@\u{200b}all"),
        ] {
            assert_eq!(plain(text), written);
        }
    }

    #[test]
    fn no_code_ends_before_its_end() {
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
    fn what_is_long_is_cut_with_its_count() {
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
