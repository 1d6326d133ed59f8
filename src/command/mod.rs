//! The command line: the subcommands, and the code that they share.
//!
//! `inspect` has `impact` and `used-by`. `diagnosis` explains why an object stays, for `why`,
//! `stuck`, `release` and `approve`.

mod access;
mod admin;
mod approvals;
mod approve;
mod completion;
mod confirm;
mod delete;
mod delete_answer;
mod denials;
mod diagnosis;
mod document;
mod duration;
mod examples;
mod files;
mod inspect;
mod object_words;
mod pause;
mod picture;
mod place;
mod policy_tests;
mod reason;
mod release;
mod report;
mod screen;
mod selector;
mod serve;
mod session;
mod signals;
mod status;
mod stuck;
mod target;
mod timing;
mod undo;
mod version;
mod wait;
mod webhooks;
mod welcome;
mod why;
mod xml;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{FromArgMatches as _, Parser, Subcommand};

use self::screen::{Screen, print_error};
use crate::certs::CertError;
use crate::cluster::StartError;
use crate::objects::{NEXT_STEP_SEPARATOR, parse_former_hold, set_former_holds};
use crate::webhook::ServeError;

#[derive(Debug, Parser)]
#[command(
    name = "belay",
    version,
    about = "Protect Kubernetes objects from unsafe deletion",
    after_help = "Run \"kubectl belay <command> --help\" for examples and options of a command."
)]
struct Arguments {
    /// The old finalizer name, if you renamed the hold. Use the same value as in the chart value
    /// formerHolds (docs/guides/helm.md, "Upgrade")
    #[arg(
        id = FORMER_HOLD,
        long = FORMER_HOLD,
        value_name = "DOMAIN/NAME",
        global = true,
        hide = true,
        value_parser = parse_former_hold
    )]
    former_holds: Vec<String>,

    #[command(subcommand)]
    command: Command,
}

const FORMER_HOLD: &str = "former-hold";

/// The commands that read or write holds. Only their help contains `--former-hold`.
const HOLD_COMMANDS: &[&[&str]] = &[
    &["serve"],
    &["why"],
    &["stuck"],
    &["impact"],
    &["delete"],
    &["used-by"],
    &["test"],
    &["release"],
    &["admin", "uninstall"],
    &["approve"],
    &["status"],
    &["admin", "manifests"],
];

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the effects of a deletion
    #[command(override_usage = "kubectl belay impact [OPTIONS] <TARGET>...\n       \
                                kubectl belay impact [OPTIONS] --filename <FILE|DIR|->\n       \
                                kubectl belay impact [OPTIONS] --removed <OLD> <NEW>")]
    Impact(Box<inspect::ImpactArguments>),
    /// Explain why objects can't be deleted
    #[command(override_usage = "kubectl belay why [OPTIONS] <TYPE/NAME | TYPE NAME>...")]
    Why(why::WhyArguments),
    /// Approve the deletion of objects
    #[command(
        override_usage = "kubectl belay approve [OPTIONS] --reason <TEXT> <TYPE/NAME | TYPE NAME>..."
    )]
    Approve(approve::ApproveArguments),
    /// List Terminating objects and explain what blocks them
    #[command(override_usage = "kubectl belay stuck [OPTIONS]")]
    Stuck(stuck::StuckArguments),
    /// Delete objects in a safe order
    #[command(override_usage = "kubectl belay delete [OPTIONS] <TARGET>...\n       \
                                kubectl belay delete [OPTIONS] --filename <FILE|DIR|->\n       \
                                kubectl belay delete [OPTIONS] --plan <FILE>")]
    Delete(Box<delete::DeleteArguments>),
    /// Undo a deletion: re-create the object with its data
    #[command(override_usage = "kubectl belay undo [OPTIONS] <TYPE/NAME | TYPE NAME>\n       \
                                kubectl belay undo [OPTIONS] --resume <FILE>")]
    Undo(Box<undo::UndoArguments>),
    /// List the objects that use an object
    #[command(override_usage = "kubectl belay used-by [OPTIONS] <TYPE/NAME | TYPE NAME>")]
    UsedBy(inspect::UsedByArguments),
    /// Test policies on files
    #[command(override_usage = "kubectl belay test [OPTIONS] <DIR|FILE|->...")]
    Test(policy_tests::TestArguments),
    /// Let Kubernetes delete an unused Terminating object
    ///
    /// Checks now whether anything uses the object. If nothing does, belay's leader removes the hold,
    /// and Kubernetes deletes the object. The leader also does this automatically: run the command if
    /// you don't want to wait. If belay is down, the command itself removes the hold.
    #[command(override_usage = "kubectl belay release [OPTIONS] <TYPE/NAME | TYPE NAME>")]
    Release(Box<release::ReleaseArguments>),
    /// List approvals
    #[command(override_usage = "kubectl belay approvals [OPTIONS]")]
    Approvals(approvals::ApprovalsArguments),
    /// List recent denials
    #[command(override_usage = "kubectl belay denials [OPTIONS]")]
    Denials(denials::DenialsArguments),
    /// Show policies and the health of belay
    #[command(override_usage = "kubectl belay status [OPTIONS]\n       \
                                kubectl belay status [OPTIONS] --plan --filename <FILE|DIR|->")]
    Status(status::StatusArguments),
    /// Temporarily disable enforcement in the whole cluster
    #[command(
        override_usage = "kubectl belay pause [OPTIONS] --for <DURATION> --reason <TEXT>\n       \
                                kubectl belay pause [OPTIONS] --end"
    )]
    Pause(pause::PauseArguments),
    /// Print the versions of the client and of belay in the cluster
    #[command(override_usage = "kubectl belay version [OPTIONS]")]
    Version(version::VersionArguments),
    /// Generate shell completion scripts
    #[command(override_usage = "kubectl belay completion <bash|zsh|fish|kubectl>")]
    Completion(completion::CompletionArguments),
    /// Answer admission reviews over TLS
    Serve(Box<serve::ServeArguments>),
    /// Install, test and uninstall belay
    #[command(subcommand)]
    Admin(admin::AdminCommand),
}

/// The error of a command. The message contains what failed, why, and what to do.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// The arguments are invalid, or contradict each other.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{path}: {detail}")]
    Content {
        /// The file.
        path: PathBuf,
        detail: String,
    },
    /// Policies or objects in files are invalid.
    #[error(transparent)]
    Files(#[from] files::FileError),
    /// Standard output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] std::io::Error),
    #[error(transparent)]
    Certificate(#[from] CertError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Cluster(#[from] StartError),
    /// The request is denied, or the condition that the command checks is false.
    #[error("{0}")]
    Refused(String),
    /// The object of the command does not exist.
    #[error("{0}")]
    NoObject(String),
    /// A request to the API server failed, or the result is unknown.
    #[error("{0}")]
    Remote(String),
}

impl CommandError {
    fn usage(text: &str) -> Self {
        Self::Usage(text.to_owned())
    }

    /// Prints the error. Its text may come from the cluster, and belay does not color errors.
    fn print(&self) {
        print_error(&error_text(&self.to_string()));
    }

    /// 1: denied, 2: usage error, 3: failed or unknown.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 1,
            Self::Files(error) if error.is_unread() => 3,
            Self::Usage(_)
            | Self::Content { .. }
            | Self::Files(_)
            | Self::Certificate(CertError::Name(_) | CertError::Days(_)) => 2,
            Self::Read { .. }
            | Self::Output(_)
            | Self::Certificate(_)
            | Self::Serve(_)
            | Self::Cluster(_)
            | Self::NoObject(_)
            | Self::Remote(_) => 3,
        }
    }
}

/// The commands that change nothing. Only they are suggested for a mistyped command.
const READ_ONLY: &[&str] = &[
    "approvals",
    "completion",
    "denials",
    "impact",
    "status",
    "stuck",
    "test",
    "used-by",
    "version",
    "why",
];

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    // TLS needs a crypto provider. An error means that one is already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let matches = program().try_get_matches().map_err(with_safe_suggestions);
    let arguments = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { former_holds, command } = arguments.unwrap_or_else(|error| error.exit());
    set_former_holds(former_holds);
    let result = match command {
        Command::Serve(arguments) => serve::run(*arguments).map(|()| ExitCode::SUCCESS),
        Command::Approve(arguments) => wait(approve::run(arguments)),
        Command::Why(arguments) => wait(why::run(arguments)),
        Command::Stuck(arguments) => wait(stuck::run(arguments)),
        Command::Impact(arguments) => inspect::impact(*arguments),
        Command::Delete(arguments) => delete::run(*arguments),
        Command::Undo(arguments) => undo::run(*arguments),
        Command::UsedBy(arguments) => wait(inspect::used_by(arguments)),
        Command::Test(arguments) => policy_tests::run(&arguments),
        Command::Release(arguments) => wait(release::run(*arguments)),
        Command::Approvals(arguments) => wait(approvals::run(arguments)),
        Command::Denials(arguments) => wait(denials::run(arguments)),
        Command::Status(arguments) => wait(status::run(arguments)),
        Command::Pause(arguments) => wait(pause::run(arguments)),
        Command::Version(arguments) => wait(version::run(arguments)),
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Admin(command) => admin::run(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}

/// Removes suggestions of commands that may change something: `relase` is similar to `release`.
/// For a command of `admin`, suggests its help. Removes suggestions of options that begin with
/// another letter: `--all` is not `--installation`.
fn with_safe_suggestions(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
        && admin::AdminCommand::has_subcommand(typed)
    {
        let tip = format!("see 'kubectl belay admin {typed} --help'").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    let initial = |kind| match error.get(kind) {
        Some(ContextValue::String(option)) => option.trim_start_matches('-').chars().next(),
        _ => None,
    };
    if initial(ContextKind::InvalidArg) != initial(ContextKind::SuggestedArg) {
        error.remove(ContextKind::SuggestedArg);
    }
    let suggested = error.remove(ContextKind::SuggestedSubcommand);
    let names = match suggested {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    let safe: Vec<String> =
        names.into_iter().filter(|name| READ_ONLY.contains(&name.as_str())).collect();
    if !safe.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(safe));
    }
    error
}

/// The lines of an error. A message may end with the next command, after "; next: ".
fn error_text(message: &str) -> String {
    match message.rsplit_once(NEXT_STEP_SEPARATOR).filter(|(_, hint)| !hint.contains('\n')) {
        Some((message, hint)) => format!("error: {message}\nhint: {hint}\n"),
        None => format!("error: {message}\n"),
    }
}

/// The clap command of the program, for parsing, completion and tests.
fn program() -> clap::Command {
    use clap::CommandFactory as _;
    let program = Arguments::command();
    let former_hold = program.get_arguments().find(|option| option.get_id() == FORMER_HOLD);
    let Some(former_hold) = former_hold.map(|option| option.clone().hide(false)) else {
        return program;
    };
    let program =
        HOLD_COMMANDS.iter().fold(program, |program, path| add_option(program, path, &former_hold));
    examples::add_examples(program)
}

/// Adds an option to the subcommand at this path. Its help is in the group of `--installation`, after
/// it, if the command has that option.
fn add_option(command: clap::Command, path: &[&'static str], option: &clap::Arg) -> clap::Command {
    match path {
        [] if command.get_arguments().any(|other| other.get_id() == "installation") => {
            command.arg(option.clone().help_heading(access::CONNECTION).display_order(usize::MAX))
        }
        [] => command.arg(option.clone()),
        [first, rest @ ..] => {
            command.mut_subcommand(*first, |command| add_option(command, rest, option))
        }
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(command: F) -> Result<F::Output, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Threads)?;
    Ok(runtime.block_on(command))
}

/// Runs a command on this thread.
fn wait(
    command: impl Future<Output = Result<ExitCode, CommandError>>,
) -> Result<ExitCode, CommandError> {
    block_on(command)?
}

/// Writes a command's result to standard output, which may be a terminal.
fn print(text: &str) -> Result<(), CommandError> {
    ignore_closed_pipe(write_output(text))
}

fn write_output(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let text = Screen::stdout().clean(text);
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Ignores a closed pipe: `kubectl belay … | head` closes the pipe early, and the exit code must
/// not depend on that.
fn ignore_closed_pipe(result: std::io::Result<()>) -> Result<(), CommandError> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(CommandError::Output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        program().debug_assert();
    }

    #[test]
    fn a_mistyped_command_is_no_reason_to_suggest_a_change() {
        let answer = |typed: &[&str]| {
            let arguments = ["belay"].iter().chain(typed);
            with_safe_suggestions(program().try_get_matches_from(arguments).unwrap_err())
                .to_string()
        };
        let suggested = |typed: &str| answer(&[typed]);
        for typed in ["delet", "remove", "relase", "pausee", "admn"] {
            let text = suggested(typed);
            assert!(text.contains(&format!("unrecognized subcommand '{typed}'")), "{text}");
            assert!(!text.contains("similar"), "{text}");
        }
        assert!(suggested("uninstall").contains("see 'kubectl belay admin uninstall --help'"));
        assert!(suggested("statsu").contains("a similar subcommand exists: 'status'"));
        assert!(suggested("approvls").contains("a similar subcommand exists: 'approvals'"));
        let all = answer(&["release", "--all"]);
        assert!(all.contains("unexpected argument '--all'") && !all.contains("similar"), "{all}");
        assert!(answer(&["release", "--dryrun"]).contains("exists: '--dry-run'"));
    }

    #[test]
    fn a_closed_pipe_ends_no_command() {
        use std::io::{Error, ErrorKind};
        assert!(ignore_closed_pipe(Ok(())).is_ok());
        assert!(ignore_closed_pipe(Err(Error::from(ErrorKind::BrokenPipe))).is_ok());
        let full = ignore_closed_pipe(Err(Error::from(ErrorKind::StorageFull))).unwrap_err();
        assert_eq!(full.exit_code(), 3, "{full}");
    }

    #[test]
    fn options_that_do_not_fit_each_other_are_refused() {
        for (line, fits) in [
            ("belay admin uninstall", true),
            ("belay admin uninstall --yes --abandon --timeout=9", true),
            ("belay admin uninstall --dry-run -o yaml", true),
            ("belay admin uninstall cm/x", false),
            ("belay release cm/x --timeout=9", true),
            ("belay release", false),
            ("belay release --all", false),
            ("belay release cm/x -o json", true),
            ("belay release cm/x --force=x --dry-run", true),
            ("belay pause --end --yes", false),
            ("belay pause --end -o json", true),
            ("belay approvals -A", true),
            ("belay approvals -A -n x", false),
            ("belay denials -A --would", true),
            ("belay denials -A -n x", false),
        ] {
            let parsed = Arguments::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), fits, "{line}");
        }
    }
}
