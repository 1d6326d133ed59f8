//! The question before a command removes protection.

use std::io::{IsTerminal as _, Write as _};

use clap::Args;

use super::CommandError;

#[derive(Debug, Args)]
pub struct ConfirmArguments {
    /// Don't ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArguments {
    /// Whether the user has to answer. An error: there is no terminal to ask on.
    pub fn has_to_ask(&self) -> Result<bool, CommandError> {
        if !self.yes && !std::io::stdin().is_terminal() {
            return Err(CommandError::Usage(
                "this command asks for confirmation, and standard input is not a terminal; \
                 nothing was changed; next: add --yes"
                    .to_owned(),
            ));
        }
        Ok(!self.yes)
    }
}

/// Asks whether to go on. `effect`: what the command does. An error: the user does not agree.
pub fn ask(effect: &str) -> Result<(), CommandError> {
    let mut answer = String::new();
    let mut stderr = std::io::stderr();
    let asked = write!(stderr, "{effect} Type yes to continue: ").and_then(|()| stderr.flush());
    asked.and_then(|()| std::io::stdin().read_line(&mut answer)).map_err(CommandError::Output)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(CommandError::Refused("not confirmed; nothing was changed".to_owned())),
    }
}
