//! Text output: the capabilities of the terminal, tables, long lists, and progress.

use std::cell::Cell as Slot;
use std::cmp::Ordering;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::objects::text_enum;
use unicode_width::UnicodeWidthStr as _;

pub use crate::objects::without_controls;

text_enum! {
    /// The meaning of a colour. The text contains the same information.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Tone {
        /// Normal text.
        #[default]
        Plain = "",
        /// A heading.
        Strong = "1",
        /// Less important.
        Quiet = "2",
        /// A good state.
        Good = "32",
        /// A state that the user should check.
        Doubtful = "33",
        /// Refused, broken or deleted.
        Bad = "31",
    }

    /// The parameters of the escape sequence.
    fn code;
}

/// The capabilities of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// The number of columns. `None`: the output is not a terminal. Lines are not wrapped then,
    /// so that tools can search them.
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

    /// The capabilities of standard output.
    pub fn stdout() -> Self {
        let stdout = std::io::stdout();
        // Some terminals have columns and 0 rows.
        let measured = rustix::termios::tcgetwinsize(&stdout);
        let measured = measured.ok().map(|size| usize::from(size.ws_col));
        let environment = |name: &str| std::env::var(name).ok();
        Self::detect(stdout.is_terminal(), measured, environment)
    }

    /// The capabilities, from the size of the terminal and environment variables.
    fn detect(
        terminal: bool,
        measured: Option<usize>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let requested = environment("COLUMNS").and_then(|columns| columns.parse().ok());
        let columns = requested.or(measured).filter(|columns| *columns > 0).unwrap_or(80);
        let no_color = environment("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = environment("TERM").is_some_and(|term| term == "dumb");
        Self { width: terminal.then_some(columns), colour: terminal && !no_color && !dumb }
    }

    /// Adds the colour, if colours are used. Removes control characters, because many users can
    /// write texts in a cluster.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let text = without_controls(text);
        match tone.code() {
            "" => text,
            _ if !self.colour || text.is_empty() => text,
            code => format!("\x1b[{code}m{text}{END}"),
        }
    }

    /// Removes all control characters except line breaks, tabs, and the colours of
    /// [`Screen::paint`]. Some texts are built without `paint`.
    pub fn clean(self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(position) = rest.find(|c: char| c.is_control() && !matches!(c, '\n' | '\t'))
        {
            let (before, after) = rest.split_at(position);
            clean.push_str(before);
            let length = if self.colour { painted_length(after) } else { 0 };
            let (painted, after) = after.split_at(length);
            clean.push_str(painted);
            let mut remaining = after.chars();
            if painted.is_empty() && remaining.next().is_some() {
                clean.push(' ');
            }
            rest = remaining.as_str();
        }
        clean + rest
    }

    /// An indented text. On a terminal, long lines are broken at spaces.
    pub fn paragraph(self, indent: usize, text: &str) -> String {
        let margin = " ".repeat(indent);
        self.lines(indent, text).iter().map(|line| format!("{margin}{line}\n")).collect()
    }

    /// A paragraph after a heading. The later lines are indented. The first line is broken as if
    /// the heading had the width of the indent.
    pub fn behind(self, heading: &str, indent: usize, text: &str) -> String {
        format!("{heading}{}", self.paragraph(indent, text).get(indent..).unwrap_or_default())
    }

    /// A text of several lines. On a terminal, long lines are broken at spaces, and the second and
    /// later parts of a line are indented by two more columns.
    pub fn wrap(self, text: &str) -> String {
        let lines = text.lines().map(|line| {
            let indent = line.len() - line.trim_start_matches(' ').len();
            let (margin, line) = line.split_at(indent);
            self.behind(margin, indent + CONTINUATION_INDENT, line)
        });
        lines.collect()
    }

    /// Whether a text fits in one line of the terminal.
    pub fn fits(self, text: &str) -> bool {
        self.width.is_none_or(|width| text.width() <= width)
    }

    /// The lines of a text that starts in column `indent`.
    pub fn lines(self, indent: usize, text: &str) -> Vec<String> {
        wrap_words(&without_controls(text), self.width.map(|width| width.saturating_sub(indent)))
    }
}

/// The length of the text at the start that [`Screen::paint`] has coloured, or 0. A colour without
/// an end is not from `paint`.
fn painted_length(text: &str) -> usize {
    let tones = [Tone::Strong, Tone::Quiet, Tone::Good, Tone::Doubtful, Tone::Bad];
    let begins = |tone: Tone| format!("\x1b[{}m", tone.code());
    let Some(begin) = tones.into_iter().map(begins).find(|begin| text.starts_with(begin)) else {
        return 0;
    };
    let Some(length) = text[begin.len()..].find(char::is_control) else { return 0 };
    let end = begin.len() + length;
    if text[end..].starts_with(END) { end + END.len() } else { 0 }
}

/// The escape sequence that ends a colour.
const END: &str = "\x1b[0m";

/// Breaks a text at spaces into lines of at most `width` columns. A longer word or command is not
/// broken, because a user can't copy a part of it. A very narrow text is not broken.
fn wrap_words(text: &str, width: Option<usize>) -> Vec<String> {
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

/// The verbs of the kubectl commands in messages. Before another word, `kubectl` is a part of a
/// sentence.
const VERBS: &[&str] = &[
    "annotate", "apply", "auth", "belay", "delete", "describe", "get", "label", "logs", "patch",
    "wait",
];

/// Words that continue a sentence after a command.
const WORDS_AFTER_COMMAND: &[&str] = &["and", "or", "says", "shows", "to"];

/// The end of the command at the start of a text, with the punctuation after it.
fn command_end(text: &str) -> Option<usize> {
    let bare = text.trim_start_matches('(');
    let verb = |after: &str| after.split(' ').next().unwrap_or_default().to_owned();
    let kubectl_verb = bare.strip_prefix("kubectl ").map(verb);
    let is_command =
        kubectl_verb.is_some_and(|verb| VERBS.contains(&verb.trim_end_matches(['.', ',', ')'])));
    if !is_command {
        return None;
    }
    let (mut quote, mut before) = (None, ' ');
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            // `'it'\''s'` is one word.
            (None, '"' | '\'') if matches!(before, ' ' | '=' | '\'') => {
                quote = Some(c).filter(|_| text[index + 1..].contains(c));
            }
            (None, ' ') => {
                let next = text[index..].trim_start_matches(' ');
                let word = next.split(' ').next().unwrap_or_default();
                let ends = matches!(before, '.' | ',' | ';' | ':' | ')');
                if ends || next.starts_with('(') || WORDS_AFTER_COMMAND.contains(&word) {
                    return Some(index);
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

/// A table with a heading and aligned columns.
#[derive(Debug)]
pub struct Table {
    /// The names of the columns, in capitals as in kubectl.
    heading: Vec<&'static str>,
    /// Each row with the lines below it.
    rows: Vec<(Vec<Field>, String)>,
}

impl Table {
    /// A table with these columns.
    pub fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, fields: impl IntoIterator<Item = Field>) {
        self.rows.push((fields.into_iter().collect(), String::new()));
    }

    /// Adds complete lines below the last row.
    pub fn below(&mut self, lines: &str) {
        if let Some((_, below)) = self.rows.last_mut() {
            below.push_str(lines);
        }
    }

    /// The complete table. On a terminal, a long last field is wrapped in its column, or below the
    /// row if the column is too narrow.
    pub fn text(&self, screen: Screen) -> String {
        let heading: Vec<Field> =
            self.heading.iter().map(|name| Field::toned(Tone::Quiet, *name)).collect();
        let mut widths: Vec<usize> = Vec::new();
        let all = std::iter::once(&heading).chain(self.rows.iter().map(|(fields, _)| fields));
        for fields in all {
            for (column, field) in fields.iter().enumerate() {
                let field_width = without_controls(&field.text).width();
                match widths.get_mut(column) {
                    Some(width) => *width = field_width.max(*width),
                    None => widths.push(field_width),
                }
            }
        }
        let layout = Layout::choose(&widths, screen);
        let mut text = line(&heading, &widths, layout, screen);
        for (fields, below) in &self.rows {
            text.push_str(&line(fields, &widths, layout, screen));
            text.push_str(below);
        }
        text
    }
}

/// The number of spaces between two columns, as in kubectl.
const GAP: usize = 3;

/// The minimum width of a wrapped last column beside the others.
const MIN_LAST_WIDTH: usize = 40;

/// The indent of the lines below a row.
const CONTINUATION_INDENT: usize = 2;

/// How the fields of a row are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// The number of columns beside each other. The later fields are below the row, except for a
    /// last field that fits in the row.
    aligned: usize,
    /// The number of columns of the terminal. `None`: no limit.
    columns: Option<usize>,
}

impl Layout {
    fn choose(widths: &[usize], screen: Screen) -> Self {
        let columns = screen.width;
        let limit = columns.unwrap_or(usize::MAX);
        let ends = widths.iter().scan(0, |end, width| {
            *end += width + GAP;
            Some(*end - GAP)
        });
        let fitting = ends.take_while(|end| *end <= limit).count();
        let (last, before) = widths.split_last().unwrap_or((&0, &[]));
        let start: usize = before.iter().map(|width| width + GAP).sum();
        let is_last_beside = start + MIN_LAST_WIDTH.min(*last) <= limit;
        Self { aligned: if is_last_beside { widths.len() } else { fitting.max(1) }, columns }
    }
}

fn line(fields: &[Field], widths: &[usize], layout: Layout, screen: Screen) -> String {
    let limit = layout.columns.unwrap_or(usize::MAX);
    let shown: Vec<usize> =
        fields.iter().map(|field| without_controls(&field.text).width()).collect();
    let (mut text, mut column) = (String::new(), 0);
    for (index, field) in fields.iter().enumerate() {
        let is_last = index + 1 == fields.len();
        // All rows break before the same fields, so that a field below the row is also below its
        // heading.
        let length = match index.cmp(&layout.aligned) {
            Ordering::Less => 0,
            Ordering::Equal if is_last => shown[index],
            Ordering::Equal => limit,
            Ordering::Greater if is_last => widths[index].min(MIN_LAST_WIDTH),
            Ordering::Greater => widths[index],
        };
        if column > CONTINUATION_INDENT && column.saturating_add(length) > limit {
            text.truncate(text.trim_end_matches(' ').len());
            text.push_str(&format!("\n{:CONTINUATION_INDENT$}", ""));
            column = CONTINUATION_INDENT;
        }
        if is_last {
            let max_width = layout.columns.map(|columns| columns.saturating_sub(column));
            let parts = wrap_words(&without_controls(&field.text), max_width);
            let parts = parts.iter().map(|part| screen.paint(field.tone, part));
            text.push_str(&parts.collect::<Vec<_>>().join(&format!("\n{:column$}", "")));
        } else {
            let width = widths[index];
            text.push_str(&screen.paint(field.tone, &field.text));
            text.push_str(&" ".repeat(width + GAP - shown[index]));
            column += width + GAP;
        }
    }
    text.truncate(text.trim_end_matches(' ').len());
    text + "\n"
}

/// The first items of a list, and a note about the others. `plural`: the plural name of the items.
pub fn cut<'l, T>(
    list: &'l [T],
    limit: usize,
    all: bool,
    plural: &str,
) -> (&'l [T], Option<String>) {
    match list.split_at_checked(limit) {
        // A note about one missing item takes as much space as the item.
        Some((shown, rest)) if !all && rest.len() > 1 => {
            (shown, Some(format!("… and {} more {plural}; --all", rest.len())))
        }
        _ => (list, None),
    }
}

/// Prints text on standard error, without an error if it is closed: that must not stop a command
/// between its writes to the cluster.
pub fn print_error(text: &str) {
    let _closed = std::io::stderr().write_all(Screen::pipe().clean(text).as_bytes());
}

/// Prints a line about a step of a command on standard error.
pub fn progress(line: &str) {
    print_error(&format!("{line}\n"));
}

/// One line on standard error with the progress of a long operation. It is cleared at the end. A
/// pipe gets no progress.
#[derive(Debug)]
pub struct Progress {
    enabled: bool,
    began: Instant,
    last: Slot<Option<Instant>>,
}

/// The time before the first progress, so that short operations show none.
const DELAY: Duration = Duration::from_millis(400);

/// The minimum time between two changes of the line.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

impl Progress {
    pub fn begin() -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let enabled = std::io::stderr().is_terminal() && !dumb;
        Self { enabled, began: Instant::now(), last: Slot::new(None) }
    }

    /// Shows the progress, such as `reading 12 kinds … 34,000 objects`.
    pub fn say(&self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        let early = now.duration_since(self.began) < DELAY
            || self.last.get().is_some_and(|last| now.duration_since(last) < MIN_INTERVAL);
        if self.enabled && !early {
            self.last.set(Some(now));
            // Progress is not important, so a failed write is ignored.
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
