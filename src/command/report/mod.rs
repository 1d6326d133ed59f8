//! Reports: the output of commands. Users read tables and sentences, and programs read one
//! versioned document. Every command with `-o` prints through this trait.

mod file;
mod format;
mod object_report;
mod schema;
mod watch;

use std::collections::HashSet;
use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::file::{MAX_DOCUMENT, read_document};
pub use self::format::{Format, FormatArguments, GraphArguments, ListArguments, OutputArguments};
pub use self::object_report::{ObjectReport, print_each};
pub use self::schema::{Kind, kind};
pub use self::watch::WatchArguments;
use super::document::FailedRead;
use super::picture::Picture;
use super::screen::{Screen, Table, cut, print_error};
use super::{CommandError, print};
use crate::objects::{is_control, order_by_turns};

/// The version of all documents. Within a version, no field changes its meaning or is removed.
pub const VERSION: &str = "belay.dev/v1alpha1";

/// One line for each object, without duplicates.
pub fn name_lines<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut seen = HashSet::new();
    let names = names.into_iter().filter(|name| seen.insert(*name));
    names.map(|name| format!("{name}\n")).collect()
}

/// The exit code of a command that looks for something: 1 if it was found, 3 if that is unknown because
/// reads failed, and 0 otherwise.
pub fn exit_code_of(is_found: bool, is_certain: bool) -> u8 {
    match (is_found, is_certain) {
        (true, _) => 1,
        (false, false) => 3,
        (false, true) => 0,
    }
}

/// The output of a command.
pub trait Report: Serialize + JsonSchema {
    /// The kind of its document.
    const KIND: &'static str;

    /// The report as a table or sentences.
    fn text(&self, view: View) -> String;

    /// The objects, one on each line; `None` if the command does not offer this format.
    fn names(&self) -> Option<String> {
        None
    }

    /// The failed reads. With `-o name`, they are printed on standard error.
    fn unread(&self) -> &[FailedRead] {
        &[]
    }

    /// The report as Markdown; `None` if the command does not offer this format.
    fn markdown(&self, _all: bool) -> Option<String> {
        None
    }

    /// The report as JUnit XML; `None` if the command does not offer this format.
    fn junit(&self) -> Option<String> {
        None
    }

    /// The report as a graph; `None` if the command does not offer these formats.
    fn picture(&self) -> Option<Picture> {
        None
    }

    /// The exit code of the command.
    fn exit_code(&self) -> u8 {
        0
    }

    /// The report in this format.
    fn render(&self, format: Format, view: View) -> Result<String, CommandError> {
        let document = Document::new(Self::KIND, self);
        let failed = |error: String| CommandError::Output(std::io::Error::other(error));
        let special = match format {
            Format::Json => {
                let text = serde_json::to_string_pretty(&document);
                return text.map(|text| escape(&text) + "\n").map_err(|e| failed(e.to_string()));
            }
            Format::Yaml => {
                let text = serde_saphyr::to_string(&document);
                return text
                    .map(|text| text.trim_end().to_owned() + "\n")
                    .map_err(|e| failed(e.to_string()));
            }
            Format::Name => self.names(),
            Format::Markdown => self.markdown(view.all),
            Format::Junit => self.junit(),
            Format::Dot => self.picture().map(Picture::dot),
            Format::Mermaid => self.picture().map(|picture| picture.mermaid(None)),
            Format::Html => self.picture().map(Picture::html),
            Format::Table | Format::Wide => None,
        };
        Ok(special.unwrap_or_else(|| self.text(view)))
    }

    /// The report for standard output.
    fn output(&self, arguments: OutputArguments) -> Result<String, CommandError> {
        let OutputArguments { output, all, verbose } = arguments;
        if output == Format::Name {
            let lines = self.unread().iter().map(|unread| unread.line() + "\n");
            print_error(&lines.collect::<String>());
        }
        let wide = output == Format::Wide;
        self.render(output, View { screen: Screen::stdout(), all, wide, verbose })
    }

    /// Prints the report on standard output.
    fn print(&self, output: impl Into<OutputArguments>) -> Result<ExitCode, CommandError> {
        print(&self.output(output.into())?)?;
        Ok(ExitCode::from(self.exit_code()))
    }
}

/// A document looks like an object of belay's API, but the API server does not store it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a, R: ?Sized> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    report: &'a R,
}

impl<'a, R: ?Sized> Document<'a, R> {
    pub fn new(kind: &'static str, report: &'a R) -> Self {
        Self { api_version: VERSION, kind, report }
    }
}

/// Escapes the control characters that JSON allows, because a terminal may interpret them. They
/// occur only in strings, so the meaning of the document does not change.
fn escape(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_control(c) && c != '\n' {
            true => {
                let mut units = [0; 2];
                text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => text.push(c),
        }
    }
    text
}

/// How a report is written as text.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The capabilities of the output.
    pub screen: Screen,
    /// Whether long lists are complete on a terminal as well (`--all`).
    pub all: bool,
    /// Whether tables have all columns (`-o wide`).
    pub wide: bool,
    /// Whether the text lists each kind that could not be read (`--verbose`).
    pub verbose: bool,
}

impl View {
    /// Whether long lists are complete. They are cut only on a terminal.
    pub fn is_complete(self) -> bool {
        self.all || self.screen.width.is_none()
    }

    /// The columns of a table: the first columns, the columns for `-o wide`, and the last column.
    pub fn columns<T>(
        self,
        first: impl IntoIterator<Item = T>,
        wide: impl IntoIterator<Item = T>,
        last: T,
    ) -> Vec<T> {
        let wide = wide.into_iter().filter(|_| self.wide);
        first.into_iter().chain(wide).chain([last]).collect()
    }

    /// A table with one row for each item. It ends with the number of omitted rows. `plural`: the
    /// plural name of the items.
    pub fn table<T>(
        self,
        heading: &[&'static str],
        (items, limit, plural): (&[T], usize, &str),
        add_row: impl Fn(&mut Table, &T),
    ) -> String {
        let mut table = Table::new(heading);
        let (shown, more) = cut(items, limit, self.is_complete(), plural);
        shown.iter().for_each(|item| add_row(&mut table, item));
        table.text(self.screen) + &more.map_or(String::new(), |more| more + "\n")
    }

    /// A table of a list. If the list is cut, namespaces take turns.
    pub fn table_in_turns<T>(
        self,
        heading: &[&'static str],
        (items, limit, plural): (&[T], usize, &str),
        namespace: impl Fn(&T) -> &str,
        add_row: impl Fn(&mut Table, &T),
    ) -> String {
        let (shown, _) = cut(items, limit, self.is_complete(), plural);
        let items = order_by_turns(items, shown.len(), namespace);
        self.table(heading, (&items, limit, plural), |table, item| add_row(table, item))
    }

    /// The lines about failed reads.
    pub fn not_read(self, not_read: &[FailedRead]) -> String {
        let lines = FailedRead::grouped(not_read, self.verbose);
        lines.iter().map(|unread| self.screen.paragraph(0, &unread.line())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::document::List;
    use serde_json::json;

    const PIPE: View = View { screen: Screen::pipe(), all: false, wide: false, verbose: false };

    #[test]
    fn programs_get_a_versioned_document() {
        #[derive(Serialize, JsonSchema)]
        struct Item {
            name: &'static str,
            says: &'static str,
        }
        impl Report for List<Item> {
            const KIND: &'static str = "ThingList";

            fn text(&self, _: View) -> String {
                "things".to_owned()
            }
        }
        let items = vec![Item { name: "yes", says: "a: b\nc" }, Item { name: "1", says: "# x" }];
        let not_read =
            vec![FailedRead { resource: "secrets".to_owned(), why: "forbidden".to_owned() }];
        let list = List { items, not_read };
        let expected = json!({
            "apiVersion": "belay.dev/v1alpha1",
            "kind": "ThingList",
            "items": [{"name": "yes", "says": "a: b\nc"}, {"name": "1", "says": "# x"}],
            "notRead": [{"resource": "secrets", "why": "forbidden"}],
        });
        let text = list.render(Format::Json, PIPE).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        let text = list.render(Format::Yaml, PIPE).unwrap();
        assert!(text.starts_with("apiVersion: belay.dev/v1alpha1\nkind: ThingList\n"), "{text}");
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap(), expected, "{text}");
        for format in [Format::Table, Format::Name, Format::Markdown, Format::Junit] {
            assert_eq!(list.render(format, PIPE).unwrap(), "things", "{format:?}");
        }
    }

    #[test]
    fn documents_have_no_control_characters_and_keep_their_content() {
        #[derive(Serialize, JsonSchema)]
        struct Quote {
            text: String,
        }
        impl Report for Quote {
            const KIND: &'static str = "Quote";

            fn text(&self, _: View) -> String {
                self.text.clone()
            }
        }
        let text = "one\u{1b}[2J\u{9b}2J\u{7f}\r\ntwo\ttabs\u{e0041}\n".to_owned();
        for format in [Format::Json, Format::Yaml] {
            let written = Quote { text: text.clone() }.render(format, PIPE).unwrap();
            assert_eq!(Screen::pipe().clean(&written), written, "{written:?}");
            assert!(format != Format::Json || !written.contains('\u{e0041}'), "{written:?}");
            let read: serde_json::Value = match format {
                Format::Json => serde_json::from_str(&written).unwrap(),
                _ => serde_saphyr::from_str(&written).unwrap(),
            };
            assert_eq!(read["text"], text.as_str(), "{written:?}");
        }
    }
}
