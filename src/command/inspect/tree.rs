//! Draws trees in aligned columns. A long list is cut, and its last line counts the omitted
//! objects.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr as _;

use crate::command::screen::{Screen, Tone};
use crate::objects::without_controls;

/// The number of children and grandchildren of one parent without --all.
const SHOWN: usize = 8;

/// The number of kinds that a note about omitted lines names.
const MAX_KINDS: usize = 3;

/// The maximum width of the column of names.
const MAX_WIDTH: usize = 56;

/// A line and its children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeLine {
    /// The short name of the object.
    pub label: String,
    /// The short name of its kind.
    pub kind: String,
    /// The outcome of the object, or how it uses the target, in one word.
    pub state: String,
    pub tone: Tone,
    pub note: String,
    /// The most important line has the smallest number and comes first.
    pub rank: u8,
    /// The children.
    pub below: Vec<TreeLine>,
}

/// A line before it is aligned.
struct Line<'b> {
    guide: String,
    /// The guides in front of a note on a line of its own.
    note_guide: String,
    branch: &'b TreeLine,
}

impl TreeLine {
    /// The number of lines including children.
    fn size(&self) -> usize {
        1 + self.below.iter().map(Self::size).sum::<usize>()
    }

    /// Sorts all levels by importance.
    pub fn sort(&mut self) {
        self.below.iter_mut().for_each(Self::sort);
        let smallest = self.below.iter().map(|branch| branch.rank).min();
        self.rank = self.rank.min(smallest.unwrap_or(u8::MAX));
        self.below.sort_by(|a, b| (a.rank, &a.label).cmp(&(b.rank, &b.label)));
    }
}

/// Draws trees, one below the other. `all`: no list is cut.
pub fn draw(roots: &[TreeLine], screen: Screen, all: bool) -> String {
    // `Err`: the guide and the text of a note about omitted lines.
    let mut lines: Vec<Result<Line<'_>, (String, String)>> = Vec::new();
    for root in roots {
        lines.push(Ok(Line {
            guide: String::new(),
            note_guide: note_guide("", root),
            branch: root,
        }));
        add_children(root, "", all, &mut lines);
    }
    let width = |line: &Line<'_>| line.guide.width() + without_controls(&line.branch.label).width();
    let narrow = |line: &&Line<'_>| width(line) <= MAX_WIDTH;
    let shown = lines.iter().filter_map(|line| line.as_ref().ok());
    let label_width = shown.clone().filter(narrow).map(width).max().unwrap_or_default();
    let state_width = shown.map(|line| line.branch.state.width()).max().unwrap_or_default();
    let mut text = String::new();
    for line in &lines {
        match line {
            Ok(line) => text.push_str(&draw_line(line, (label_width, state_width), screen)),
            Err((guide, hidden)) => {
                let pad = (label_width + 2).saturating_sub(guide.width() + hidden.width()).max(2);
                text.push_str(&screen.paint(Tone::Quiet, &format!("{guide}{hidden}")));
                text.push_str(&format!("{}--all\n", " ".repeat(pad)));
            }
        }
    }
    text
}

fn note_guide(before: &str, branch: &TreeLine) -> String {
    format!("{before}{}", if branch.below.is_empty() { "   " } else { "│  " })
}

/// Adds the lines below a branch.
fn add_children<'b>(
    branch: &'b TreeLine,
    before: &str,
    all: bool,
    lines: &mut Vec<Result<Line<'b>, (String, String)>>,
) {
    let count = branch.below.len();
    // A note about one omitted line would take as much space as the line.
    let hides = !all && count > SHOWN + 1
        || !all && count == SHOWN + 1 && branch.below.last().is_some_and(|b| b.size() > 1);
    let shown = if hides { SHOWN } else { count };
    for (index, child) in branch.below.iter().take(shown).enumerate() {
        let last = index + 1 == shown && !hides;
        let (corner, bar) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let next = format!("{before}{bar}");
        lines.push(Ok(Line {
            guide: format!("{before}{corner}"),
            note_guide: note_guide(&next, child),
            branch: child,
        }));
        add_children(child, &next, all, lines);
    }
    if hides {
        let hidden = branch.below.get(shown..).unwrap_or_default();
        lines.push(Err((format!("{before}└─ "), hidden_text(hidden))));
    }
}

/// `4 more: secret 3, ingress 1`: the number of omitted lines, by kind.
fn hidden_text(hidden: &[TreeLine]) -> String {
    fn count<'b>(branches: &'b [TreeLine], kinds: &mut BTreeMap<&'b str, usize>) {
        for branch in branches {
            *kinds.entry(&branch.kind).or_default() += 1;
            count(&branch.below, kinds);
        }
    }
    let mut kinds = BTreeMap::new();
    count(hidden, &mut kinds);
    let total: usize = hidden.iter().map(TreeLine::size).sum();
    let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut parts: Vec<String> = kinds
        .iter()
        .take(MAX_KINDS)
        .map(|(kind, count)| format!("{} {count}", without_controls(kind)))
        .collect();
    let others: usize = kinds.iter().skip(MAX_KINDS).map(|(_, count)| count).sum();
    if others > 0 {
        parts.push(format!("other {others}"));
    }
    format!("{total} more: {}", parts.join(", "))
}

fn draw_line(
    line: &Line<'_>,
    (label_width, state_width): (usize, usize),
    screen: Screen,
) -> String {
    let Line { guide, note_guide, branch } = line;
    let label = without_controls(&branch.label);
    let own_width = guide.width() + label.width();
    let mut text =
        format!("{}{}", screen.paint(Tone::Quiet, guide), screen.paint(Tone::Plain, &label));
    if branch.state.is_empty() && branch.note.is_empty() {
        return text + "\n";
    }
    let pad = label_width.saturating_sub(own_width) + 2;
    text.push_str(&" ".repeat(pad));
    text.push_str(&screen.paint(branch.tone, &branch.state));
    if branch.note.is_empty() {
        return text + "\n";
    }
    let note_column = own_width + pad + state_width + 2;
    let note = without_controls(&branch.note);
    if screen.width.is_some_and(|width| note_column + note.width() > width) {
        let guide = screen.paint(Tone::Quiet, note_guide);
        let lines = screen.lines(note_guide.width() + 2, &note).into_iter();
        let lines = lines.map(|line| format!("\n{guide}  {}", screen.paint(Tone::Quiet, &line)));
        return format!("{text}{}\n", lines.collect::<String>());
    }
    text.push_str(&" ".repeat(state_width - branch.state.width().min(state_width) + 2));
    text.push_str(&note);
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(label: &str, below: Vec<TreeLine>) -> TreeLine {
        TreeLine {
            label: label.into(),
            kind: label.split('/').next().unwrap_or_default().into(),
            state: "deleted".into(),
            rank: 9,
            below,
            ..TreeLine::default()
        }
    }

    #[test]
    fn the_most_important_line_comes_first_with_its_parents() {
        let bad = TreeLine { rank: 0, note: "spec.x".into(), ..branch("z", vec![]) };
        let mut root = branch("root", vec![branch("a", vec![]), branch("b", vec![bad])]);
        root.sort();
        let drawn = draw(&[root], Screen::pipe(), false);
        let expected =
            "root     deleted\n├─ b     deleted\n│  └─ z  deleted  spec.x\n└─ a     deleted\n";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_long_list_is_cut_with_the_number_of_omitted_lines() {
        let many =
            |count: usize| (0..count).map(|n| branch(&format!("pod/{n:02}"), vec![])).collect();
        let lines = |count: usize, all: bool| {
            let drawn = draw(&[branch("root", many(count))], Screen::pipe(), all);
            (drawn.lines().count(), drawn.lines().last().unwrap().to_owned())
        };
        assert_eq!(lines(9, false).0, 10, "a note would take as much space as the last line");
        let (count, last) = lines(30, false);
        assert_eq!((count, last.as_str()), (10, "└─ 22 more: pod 22  --all"));
        assert_eq!(lines(30, true).0, 31);
        let role = TreeLine { kind: "role".into(), ..branch("'role/a b'", vec![]) };
        assert_eq!(hidden_text(&[role]), "1 more: role 1");
    }
}
