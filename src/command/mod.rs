//! The command line: one file a subcommand.

mod access;
mod admin;
mod approvals;
mod approve;
mod completion;
mod denials;
mod document;
mod duration;
mod files;
mod finalizers;
mod hold_state;
mod inspect;
mod pause;
mod place;
mod policy_tests;
mod refusal;
mod release;
mod screen;
mod selector;
mod serve;
mod status;
mod stuck;
mod target;
mod timing;
mod visitor;
mod welcome;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::screen::Screen;
use crate::certs::CertError;
use crate::cluster::StartError;
use crate::objects::{parse_former_hold, set_former_holds};
use crate::webhook::ServeError;

/// Everything that the program can do.
#[derive(Debug, Parser)]
#[command(
    name = "belay",
    version,
    about = "Decides whether a Kubernetes object may be deleted, and holds it while something needs it",
    propagate_version = true
)]
struct Arguments {
    /// A finalizer by which the hold went before: an object that has it is held,
    /// and the leader writes belay.dev/hold in its place
    #[arg(long, value_name = "DOMAIN/NAME", global = true, value_parser = parse_former_hold)]
    parse_former_hold: Vec<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer admission reviews over TLS
    Serve(Box<serve::ServeArguments>),
    /// Approve the deletion of an object
    Approve(approve::ApproveArguments),
    /// Say what stands against the end of an object, now and for you
    Why(why::WhyArguments),
    /// Say what has been Terminating for too long, why, and what to do next
    Stuck(stuck::StuckArguments),
    /// Say what goes, what breaks and what is lost for good if something is deleted
    Impact(Box<inspect::ImpactArguments>),
    /// Say who needs an object, or what it needs; exit code 1 if somebody does
    UsedBy(inspect::UsedByArguments),
    /// Try policies on files: cases that say what is asked and what is expected;
    /// exit code 1 if one fails
    Test(policy_tests::TestArguments),
    /// Have belay let go of a Terminating object, if nothing needs it; or of all,
    /// and take belay out of the cluster
    Release(Box<release::ReleaseArguments>),
    /// Say who approved what, until when; with --all what has expired, too
    Approvals(approvals::ApprovalsArguments),
    /// Say what was refused lately, or would have been
    Denials(denials::DenialsArguments),
    /// Say which policies there are, what they cover, and how belay itself is
    Status(status::StatusArguments),
    /// For a while refuse nothing in the whole cluster, and record it
    Pause(pause::PauseArguments),
    /// Print what completes commands in a shell
    Completion(completion::CompletionArguments),
    /// Make certificates, print manifests
    #[command(subcommand)]
    Admin(admin::AdminCommand),
}

/// The error of a command. The message contains what failed, why, and what to do.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// The arguments parse, but do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file could be read and not understood.
    #[error("{path}: {detail}")]
    Content {
        /// The file.
        path: PathBuf,
        detail: String,
    },
    /// Policies or objects in files are not as they should be.
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
    /// The answer is no.
    #[error("{0}")]
    Refused(String),
    /// The cluster could not be asked, or did not do it.
    #[error("{0}")]
    Remote(String),
}

impl CommandError {
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
            | Self::Remote(_) => 3,
        }
    }
}

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    // Must run before any TLS code. An error means that a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let Arguments { parse_former_hold, command } = Arguments::parse();
    set_former_holds(parse_former_hold);
    let result = match command {
        Command::Serve(arguments) => serve::run(*arguments).map(|()| ExitCode::SUCCESS),
        Command::Approve(arguments) => approve::run(arguments),
        Command::Why(arguments) => why::run(arguments),
        Command::Stuck(arguments) => stuck::run(arguments),
        Command::Impact(arguments) => inspect::impact(*arguments),
        Command::UsedBy(arguments) => inspect::used_by(arguments),
        Command::Test(arguments) => policy_tests::run(&arguments),
        Command::Release(arguments) => release::run(*arguments),
        Command::Approvals(arguments) => approvals::run(arguments),
        Command::Denials(arguments) => denials::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Pause(arguments) => pause::run(arguments),
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Admin(command) => admin::run(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // The text may come from the cluster, and belay does not color errors.
            eprintln!("belay: {}", Screen::pipe().clean(&error.to_string()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The definition of the command line, for completion and tests.
fn program() -> clap::Command {
    use clap::CommandFactory as _;
    Arguments::command()
}

/// Runs a future on this thread.
fn block_on<F: Future>(command: F) -> Result<F::Output, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Threads)?;
    Ok(runtime.block_on(command))
}

/// Writes a command's result to standard output, which may be a terminal.
fn print(text: &str) -> Result<(), CommandError> {
    use std::io::Write as _;
    let text = Screen::stdout().clean(text);
    let mut out = std::io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Whether a failed write ends the command. `kubectl belay … | head` closes the pipe
/// early, and the exit code must not depend on that.
fn printed(written: std::io::Result<()>) -> Result<(), CommandError> {
    match written {
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
    fn that_nobody_reads_on_ends_no_command() {
        use std::io::{Error, ErrorKind};
        assert!(printed(Ok(())).is_ok());
        assert!(printed(Err(Error::from(ErrorKind::BrokenPipe))).is_ok());
        let full = printed(Err(Error::from(ErrorKind::StorageFull))).unwrap_err();
        assert_eq!(full.exit_code(), 3, "{full}");
    }

    #[test]
    fn options_that_do_not_fit_each_other_are_refused() {
        for (line, fits) in [
            ("belay release --all", true),
            ("belay release --all --abandon --timeout=9", true),
            ("belay release cm/x --timeout=9", true),
            ("belay release", false),
            ("belay release --all cm/x", false),
            ("belay release --all -n x", false),
            ("belay release --all --force=x", false),
            ("belay release cm/x -o json", true),
            ("belay release --all --dry-run -o yaml", true),
            ("belay pause --end -o json", true),
            ("belay approvals -A", true),
            ("belay approvals -A -n x", false),
            ("belay denials -A --would", true),
            ("belay denials -A -n x", false),
        ] {
            let parsed = Arguments::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), fits, "{line}");
        }
        for option in ["--abandon", "--dry-run"] {
            let line = ["belay", "release", "cm/x", option];
            let Command::Release(arguments) = Arguments::parse_from(line).command else { panic!() };
            let refused = release::run(*arguments).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{option}: {refused}");
        }
    }
}
