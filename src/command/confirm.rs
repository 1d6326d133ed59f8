//! Asks the user for confirmation before a command removes protection.

use std::io::{IsTerminal as _, Write as _};

use clap::Args;

use super::CommandError;
use super::screen::without_controls;

#[derive(Debug, Args)]
pub struct ConfirmArguments {
    /// Don't ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArguments {
    /// Whether the command must ask. Without a terminal, this is an error.
    pub fn must_ask(&self) -> Result<bool, CommandError> {
        if !self.yes && !std::io::stdin().is_terminal() {
            return Err(CommandError::usage(NO_TERMINAL));
        }
        Ok(!self.yes)
    }

    /// Whether the user has confirmed already.
    pub fn is_confirmed(&self) -> bool {
        self.yes
    }
}

/// The error of a command that can't ask.
const NO_TERMINAL: &str = "this command asks for confirmation, and standard input is not a \
                           terminal; nothing was changed; next: add --yes";

/// Asks for confirmation. `effect` describes what the command does. Returns an error if the user
/// does not confirm, and without a terminal.
pub fn ask(effect: &str) -> Result<(), CommandError> {
    ask_for(effect, "yes")
}

/// Asks the user to type this word.
pub fn ask_for(effect: &str, word: &str) -> Result<(), CommandError> {
    let mut answer = String::new();
    let mut stderr = std::io::stderr();
    let lines: Vec<_> = effect.lines().map(without_controls).collect();
    if !std::io::stdin().is_terminal() {
        writeln!(stderr, "{}", lines.join("\n")).map_err(CommandError::Output)?;
        return Err(CommandError::usage(NO_TERMINAL));
    }
    let question = format!("{} Type {word} to continue: ", lines.join("\n"));
    let written = write!(stderr, "{question}").and_then(|()| stderr.flush());
    written.and_then(|()| std::io::stdin().read_line(&mut answer)).map_err(CommandError::Output)?;
    match answer.trim() {
        answer if answer == word => Ok(()),
        _ => Err(CommandError::Refused("not confirmed; nothing was changed".to_owned())),
    }
}
