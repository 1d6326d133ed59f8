//! The result of a release, as data and as sentences.

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;

use crate::command::CommandError;
use crate::command::diagnosis::first_finalizers;
use crate::command::document::Object;
use crate::command::report::{Format, Report, View};

/// The result of a release.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseOutput {
    /// The object.
    object: Object,
    /// The result.
    state: ReleaseState,
    /// The objects that use the object, if it is held.
    waits_for: Vec<String>,
    /// The finalizers of other controllers that still keep the object.
    finalizers: Vec<String>,
    /// The number of finalizers that `finalizers` leaves out.
    more_finalizers: usize,
    /// The account that the command impersonated. Absent if belay released the hold, or if your
    /// permissions were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    acted_as: Option<String>,
    /// The output for people, with the next step.
    lines: Vec<String>,
}

impl Report for ReleaseOutput {
    const KIND: &'static str = "Released";

    fn text(&self, _: View) -> String {
        self.lines.join("\n") + "\n"
    }

    fn exit_code(&self) -> u8 {
        match self.state {
            ReleaseState::Gone | ReleaseState::Released | ReleaseState::WouldRelease => 0,
            ReleaseState::Held | ReleaseState::NotHeld => 1,
            ReleaseState::Unknown => 3,
        }
    }
}

/// The state of the object after a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ReleaseState {
    /// The object is deleted.
    Gone,
    /// The hold is removed. The object is deleted, unless other finalizers keep it.
    Released,
    /// The hold would be removed, and this was a dry run.
    WouldRelease,
    /// The object is still held.
    Held,
    /// The object is still held, because it is unknown whether it is in use.
    Unknown,
    /// Nothing to release: belay does not hold the object, or it is not Terminating.
    NotHeld,
}

impl ReleaseOutput {
    pub fn new(object: Object, state: ReleaseState, sentence: String) -> Self {
        let (waits_for, finalizers, more_finalizers, acted_as) = Default::default();
        let lines = vec![sentence];
        Self { object, state, waits_for, finalizers, more_finalizers, acted_as, lines }
    }

    /// Sets the users of the object.
    pub fn with_users(self, waits_for: Vec<String>) -> Self {
        Self { waits_for, ..self }
    }

    /// Sets the finalizers that keep the object.
    pub fn with_finalizers<'f>(self, all: impl IntoIterator<Item = &'f str>) -> Self {
        let (first, more_finalizers) = first_finalizers(all);
        let finalizers = first.into_iter().map(|(_, name)| name.to_owned()).collect();
        Self { finalizers, more_finalizers, ..self }
    }

    /// Adds the account that removed the hold, and a sentence about it.
    pub fn with_actor(mut self, acted_as: Option<&str>, sentence: String) -> Self {
        self.acted_as = acted_as.map(str::to_owned);
        self.lines.push(sentence);
        self
    }

    /// Prints the result. In the table format, a failure is an error on standard error.
    pub fn print_or_fail(self, format: Format) -> Result<ExitCode, CommandError> {
        let failed: fn(String) -> CommandError = match self.exit_code() {
            1 => CommandError::Refused,
            3 => CommandError::Remote,
            _ => return self.print(format),
        };
        match format {
            Format::Table => Err(failed(self.lines.join("\n"))),
            _ => self.print(format),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_in_the_table_and_data_in_json() {
        let exits = |state, format| match ReleaseOutput::new(
            Object::default(),
            state,
            "so it is".to_owned(),
        )
        .print_or_fail(format)
        {
            Ok(code) => (format!("{code:?}"), None),
            Err(error) => {
                (format!("{:?}", ExitCode::from(error.exit_code())), Some(error.to_string()))
            }
        };
        let code = |code: u8| format!("{:?}", ExitCode::from(code));
        for (state, expected) in [
            (ReleaseState::Gone, 0),
            (ReleaseState::Released, 0),
            (ReleaseState::WouldRelease, 0),
            (ReleaseState::Held, 1),
            (ReleaseState::NotHeld, 1),
            (ReleaseState::Unknown, 3),
        ] {
            assert_eq!(exits(state, Format::Json), (code(expected), None), "{state:?}");
            let message = (expected > 0).then(|| "so it is".to_owned());
            assert_eq!(exits(state, Format::Table), (code(expected), message), "{state:?}");
        }
    }
}
