//! The look of output: the capabilities of the terminal, tables, long lists, and progress.

use std::cell::Cell as Slot;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use terminal_size::Width;
use unicode_width::UnicodeWidthStr as _;

pub use crate::objects::without_controls;

/// The meaning of a colour. The text contains the same information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Less important.
    Quiet,
    /// As it should be.
    Good,
    /// To be looked at.
    Doubtful,
    /// Refused, broken or deleted.
    Bad,
}

impl Tone {
    /// The parameters of the escape sequence.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Quiet => "2",
            Self::Good => "32",
            Self::Doubtful => "33",
            Self::Bad => "31",
        }
    }
}

/// The capabilities of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// The number of columns. `None`: the output is not a terminal, and lines are not
    /// wrapped so that they can be searched.
    pub width: Option<usize>,
    colour: bool,
}

impl Screen {
    /// Output that is not a terminal.
    pub const fn pipe() -> Self {
        Self { width: None, colour: false }
    }

    /// A terminal without colours, for tests.
    #[cfg(test)]
    pub const fn terminal(columns: usize) -> Self {
        Self { width: Some(columns), colour: false }
    }

    /// Standard output, as it is.
    pub fn stdout() -> Self {
        let stdout = std::io::stdout();
        let measured = terminal_size::terminal_size_of(&stdout);
        let measured = measured.map(|(Width(columns), _)| usize::from(columns));
        let environment = |name: &str| std::env::var(name).ok();
        Self::of(stdout.is_terminal(), measured, environment)
    }

    /// The capabilities, from the facts about the terminal.
    fn of(
        terminal: bool,
        measured: Option<usize>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let said = environment("COLUMNS").and_then(|columns| columns.parse().ok());
        let columns = said.or(measured).filter(|columns| *columns > 0).unwrap_or(80);
        let silenced = environment("NO_COLOR").is_some_and(|said| !said.is_empty());
        let dumb = environment("TERM").is_some_and(|term| term == "dumb");
        Self { width: terminal.then_some(columns), colour: terminal && !silenced && !dumb }
    }

    /// The text in its colour, if colours are used, without control characters: texts come
    /// from a cluster where many users write.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let text = without_controls(text);
        match tone.code() {
            "" => text,
            _ if !self.colour || text.is_empty() => text,
            code => format!("\x1b[{code}m{text}{END}"),
        }
    }

    /// A whole text without control characters, except for line breaks, tabs, and the
    /// colours of [`Screen::paint`]. It cleans the texts that were put together without a
    /// screen.
    pub fn clean(self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
            let (before, after) = rest.split_at(at);
            clean.push_str(before);
            let painted = if self.colour { painted(after) } else { 0 };
            let (own, after) = after.split_at(painted);
            clean.push_str(own);
            let mut left = after.chars();
            if own.is_empty() && left.next().is_some() {
                clean.push(' ');
            }
            rest = left.as_str();
        }
        clean + rest
    }

    /// A text below a line of a table: on a terminal its lines are broken at
    /// spaces, and all of them are indented.
    pub fn paragraph(self, indent: usize, text: &str) -> String {
        let margin = " ".repeat(indent);
        self.lines(indent, text).iter().map(|line| format!("{margin}{line}\n")).collect()
    }

    /// The same text after a heading with the width of the indent.
    pub fn behind(self, heading: &str, indent: usize, text: &str) -> String {
        format!("{heading}{}", self.paragraph(indent, text).get(indent..).unwrap_or_default())
    }

    /// A text of several lines, broken at spaces on a terminal. Further lines are indented by
    /// two more columns than their first one.
    pub fn wrap(self, text: &str) -> String {
        let lines = text.lines().map(|line| {
            let indent = line.len() - line.trim_start_matches(' ').len();
            let (margin, line) = line.split_at(indent);
            self.behind(margin, indent + BELOW, line)
        });
        lines.collect()
    }

    /// The lines of a text behind so many columns.
    pub fn lines(self, indent: usize, text: &str) -> Vec<String> {
        wrapped(&without_controls(text), self.width.map(|width| width.saturating_sub(indent)))
    }
}

/// The length of the painted piece at the start of a text; 0: there is none. A colour
/// without an end is not from belay.
fn painted(text: &str) -> usize {
    let tones = [Tone::Strong, Tone::Quiet, Tone::Good, Tone::Doubtful, Tone::Bad];
    let begins = |tone: Tone| format!("\x1b[{}m", tone.code());
    let Some(begin) = tones.into_iter().map(begins).find(|begin| text.starts_with(begin)) else {
        return 0;
    };
    let Some(length) = text[begin.len()..].find(char::is_control) else { return 0 };
    let end = begin.len() + length;
    if text[end..].starts_with(END) { end + END.len() } else { 0 }
}

/// The end of a colour.
const END: &str = "\x1b[0m";

/// Lines of at most this many columns, broken at spaces. A longer word or command stays whole,
/// because half a name or half a command is useless. A very narrow text is not broken.
fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width.filter(|width| *width >= 20) else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in parts(text) {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() {
                line.push_str(word);
                continue;
            }
            if line.width() + 1 + word.width() <= width {
                line.push(' ');
                line.push_str(word);
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    lines
}

/// The parts of a text between which a line may be broken: its words and its commands.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text.trim_start_matches(' '));
    while !rest.is_empty() {
        let end = command_end(rest).or_else(|| rest.find(' ')).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after.trim_start_matches(' ');
    }
    parts
}

/// The verbs of kubectl in messages. Elsewhere the word is a part of a sentence.
const VERBS: &[&str] = &[
    "annotate", "apply", "auth", "belay", "delete", "describe", "get", "label", "logs", "patch",
    "wait",
];

/// Words of a sentence after a command.
const AFTER: &[&str] = &["and", "or", "says", "shows", "to"];

/// The end of the command at the start of a text, with the punctuation after it.
fn command_end(text: &str) -> Option<usize> {
    let bare = text.trim_start_matches('(');
    let verb = |after: &str| after.split(' ').next().unwrap_or_default().to_owned();
    let of_kubectl = bare.strip_prefix("kubectl ").map(verb);
    let is_command = of_kubectl
        .is_some_and(|verb| VERBS.contains(&verb.trim_end_matches(['.', ',', ')'])))
        || bare.starts_with("belay admin ");
    if !is_command {
        return None;
    }
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') if matches!(before, ' ' | '=') => {
                quote = Some(c).filter(|_| text[at + 1..].contains(c));
            }
            (None, ' ') => {
                let next = text[at..].trim_start_matches(' ');
                let word = next.split(' ').next().unwrap_or_default();
                let ends = matches!(before, '.' | ',' | ';' | ':' | ')');
                if ends || next.starts_with('(') || AFTER.contains(&word) {
                    return Some(at);
                }
            }
            _ => {}
        }
        before = c;
    }
    Some(text.len())
}

/// One field of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Field {
    text: String,
    tone: Tone,
}

impl Field {
    /// A field with a colour.
    pub fn toned(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

/// Rows below a heading, aligned.
#[derive(Debug)]
pub struct Table {
    /// The names of the columns, in capitals as kubectl has them.
    heading: Vec<&'static str>,
    /// Each row with the lines below it.
    rows: Vec<(Vec<Field>, String)>,
}

impl Table {
    /// A table with these columns.
    pub fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// One more row.
    pub fn row(&mut self, fields: impl IntoIterator<Item = Field>) {
        self.rows.push((fields.into_iter().collect(), String::new()));
    }

    /// Adds whole lines below the last row, as [`Screen::paragraph`] makes them.
    pub fn below(&mut self, lines: &str) {
        if let Some((_, below)) = self.rows.last_mut() {
            below.push_str(lines);
        }
    }

    /// The whole table. Its last column is wrapped below itself on a terminal, or below the row
    /// if there is little space for it.
    pub fn text(&self, screen: Screen) -> String {
        let heading: Vec<Field> =
            self.heading.iter().map(|name| Field::toned(Tone::Quiet, *name)).collect();
        let mut widths: Vec<usize> = Vec::new();
        let all = std::iter::once(&heading).chain(self.rows.iter().map(|(fields, _)| fields));
        for fields in all {
            for (column, field) in fields.iter().enumerate() {
                let wide = without_controls(&field.text).width();
                match widths.get_mut(column) {
                    Some(width) => *width = wide.max(*width),
                    None => widths.push(wide),
                }
            }
        }
        let layout = Layout::of(&widths, screen);
        let mut text = line(&heading, &widths, layout, screen);
        for (fields, below) in &self.rows {
            text.push_str(&line(fields, &widths, layout, screen));
            text.push_str(below);
        }
        text
    }
}

/// Between two columns, as kubectl has it.
const GAP: usize = 3;

/// The smallest width of the last column beside the others.
const NARROWEST: usize = 40;

/// The indent of the lines below a row.
const BELOW: usize = 2;

/// The place of the fields of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// All beside each other. The last one has so many columns; `None`: any number.
    Beside(Option<usize>),
    /// The last field is below the others, unless it fits into so many columns.
    Below(usize),
    /// Even the others need several lines of so many columns.
    Lines(usize),
}

impl Layout {
    fn of(widths: &[usize], screen: Screen) -> Self {
        let Some(columns) = screen.width else { return Self::Beside(None) };
        let Some((last, before)) = widths.split_last() else { return Self::Beside(None) };
        match columns.checked_sub(before.iter().map(|width| width + GAP).sum()) {
            None => Self::Lines(columns),
            Some(left) if left < NARROWEST.min(*last) => Self::Below(left),
            Some(left) => Self::Beside(Some(left)),
        }
    }
}

fn line(fields: &[Field], widths: &[usize], layout: Layout, screen: Screen) -> String {
    let Some((last, before)) = fields.split_last() else { return "\n".to_owned() };
    let (mut text, mut at) = (String::new(), 0);
    for (field, width) in before.iter().zip(widths) {
        let shown = without_controls(&field.text).width();
        match layout {
            Layout::Lines(columns) if at > 0 && at + shown > columns => {
                text.truncate(text.trim_end_matches(' ').len());
                text.push_str(&format!("\n{:BELOW$}", ""));
                at = BELOW;
            }
            _ => {}
        }
        let width = if matches!(layout, Layout::Lines(_)) { shown } else { *width };
        text.push_str(&screen.paint(field.tone, &field.text));
        text.push_str(&" ".repeat(width + GAP - shown));
        at += width + GAP;
    }
    let length = without_controls(&last.text).width();
    let (left, is_below) = match layout {
        Layout::Beside(left) => (left, false),
        Layout::Below(left) => (screen.width, length > left),
        Layout::Lines(columns) => (screen.width, at + length > columns),
    };
    let (left, at) = match is_below {
        true => {
            text.truncate(text.trim_end_matches(' ').len());
            text.push_str(&format!("\n{:BELOW$}", ""));
            (left.map(|left| left.saturating_sub(BELOW)), BELOW)
        }
        false => (left, at),
    };
    for (index, part) in wrapped(&without_controls(&last.text), left).iter().enumerate() {
        if index > 0 {
            text.push_str(&" ".repeat(at));
        }
        text.push_str(&screen.paint(last.tone, part));
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// The part of a list that is shown, and a note about the rest. `what`: the plural of the
/// items.
pub fn cut<'l, T>(list: &'l [T], limit: usize, all: bool, what: &str) -> (&'l [T], Option<String>) {
    match list.split_at_checked(limit) {
        // A note about one missing item takes as much space as the item.
        Some((shown, rest)) if !all && rest.len() > 1 => {
            (shown, Some(format!("… and {} more {what}; --all", rest.len())))
        }
        _ => (list, None),
    }
}

/// One line on the terminal of standard error with the progress of long work. It is cleared
/// at the end. A pipe gets no progress.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    began: Instant,
    last: Slot<Option<Instant>>,
}

/// Shorter waits show no progress.
const PATIENCE: Duration = Duration::from_millis(400);

/// How often the line changes at the most.
const RATE: Duration = Duration::from_millis(100);

impl Progress {
    /// The beginning of work.
    pub fn begin() -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let shown = std::io::stderr().is_terminal() && !dumb;
        Self { shown, began: Instant::now(), last: Slot::new(None) }
    }

    /// Shows the progress, such as `reading 12 kinds … 34,000 objects`.
    pub fn say(&self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        let early = now.duration_since(self.began) < PATIENCE
            || self.last.get().is_some_and(|last| now.duration_since(last) < RATE);
        if self.shown && !early {
            self.last.set(Some(now));
            // A line that cannot be shown is not missed.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", without_controls(&text()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.get().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests;
