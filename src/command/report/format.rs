//! The options for the format of a report.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

/// How a report is written. Not every command offers all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[value(alias = "text")]
    Table,
    /// The table with more details (`common_and_wide`)
    Wide,
    /// One JSON document, versioned
    Json,
    /// The document as YAML
    Yaml,
    /// One object a line, as arguments for kubectl
    Name,
    /// For a comment on a pull request
    Markdown,
    /// For CI systems: JUnit XML
    Junit,
    /// The graph for Graphviz
    Dot,
    /// The graph for Markdown
    Mermaid,
    /// The graph as a page for a browser
    Html,
}

/// The formats that every command with `-o` offers.
const COMMON: &[Format] = &[Format::Table, Format::Json, Format::Yaml];

impl Format {
    /// The parser for a command that offers the common formats and these.
    pub fn common_and(also: &[Self]) -> impl TypedValueParser<Value = Self> + use<> {
        Self::common_and_wide(also, "The table with more details")
    }

    /// The same for a command with this description of `wide`.
    pub fn common_and_wide(
        also: &[Self],
        wide: &'static str,
    ) -> impl TypedValueParser<Value = Self> + use<> {
        let values = COMMON.iter().chain(also).filter_map(|format| {
            let value = format.to_possible_value()?;
            Some(if *format == Self::Wide { value.help(wide) } else { value })
        });
        PossibleValuesParser::new(values).try_map(|name| Self::from_str(&name, true))
    }

    /// Whether it is a graph.
    pub fn is_picture(self) -> bool {
        matches!(self, Self::Dot | Self::Mermaid | Self::Html)
    }
}

/// The output options of a command.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputArguments {
    /// The output format
    #[arg(
        short,
        long,
        value_name = "table|json|yaml",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[])
    )]
    pub output: Format,

    /// Print long lists completely
    #[arg(long)]
    pub all: bool,

    /// List each kind that could not be read
    #[arg(long)]
    pub verbose: bool,
}

/// The output options of a command that lists objects.
#[derive(Debug, Clone, Copy, Args)]
pub struct ListArguments {
    /// The output format
    #[arg(
        short,
        long,
        value_name = "table|wide|name|json|yaml",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[Format::Wide, Format::Name])
    )]
    pub output: Format,

    /// Print long lists completely
    #[arg(long)]
    pub all: bool,

    /// List each kind that could not be read
    #[arg(long)]
    pub verbose: bool,
}

/// The output options of a command that lists objects and draws them.
#[derive(Debug, Clone, Copy, Args)]
pub struct GraphArguments {
    /// The output format
    #[arg(
        short,
        long,
        value_name = "table|wide|name|json|yaml|dot|mermaid|html",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[
            Format::Wide, Format::Name, Format::Dot, Format::Mermaid, Format::Html
        ])
    )]
    pub output: Format,

    /// Print long lists completely
    #[arg(long)]
    pub all: bool,

    /// List each kind that could not be read
    #[arg(long)]
    pub verbose: bool,
}

impl From<GraphArguments> for OutputArguments {
    fn from(GraphArguments { output, all, verbose }: GraphArguments) -> Self {
        Self { output, all, verbose }
    }
}

impl From<ListArguments> for OutputArguments {
    fn from(ListArguments { output, all, verbose }: ListArguments) -> Self {
        Self { output, all, verbose }
    }
}

/// The output option of a command without long lists.
#[derive(Debug, Clone, Copy, Args)]
pub struct FormatArguments {
    /// The output format
    #[arg(
        short,
        long,
        value_name = "table|json|yaml",
        default_value = "table",
        ignore_case = true,
        value_parser = Format::common_and(&[])
    )]
    pub output: Format,
}

impl From<Format> for OutputArguments {
    fn from(output: Format) -> Self {
        Self { output, all: true, verbose: true }
    }
}
