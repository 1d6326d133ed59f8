//! Reads and writes the file of a plan. The content of a file is untrusted.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use super::DeletionPlan;
use crate::command::CommandError;
use crate::command::report::{Format, Report as _, VERSION, View};
use crate::command::screen::Screen;

/// The maximum size of a file, for about 100,000 objects.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
}

impl DeletionPlan {
    /// Writes the plan, in place of an existing file.
    pub fn write(&self, path: &Path) -> Result<(), CommandError> {
        let view = View { screen: Screen::pipe(), all: true, wide: false, verbose: true };
        let text = self.render(Format::Json, view)?;
        std::fs::write(path, text).map_err(|error| {
            CommandError::Output(std::io::Error::other(format!("{}: {error}", path.display())))
        })
    }

    /// Reads a plan.
    pub fn read(path: &Path) -> Result<Self, CommandError> {
        let content = |detail: String| CommandError::Content { path: path.to_owned(), detail };
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text));
        read.map_err(|source| CommandError::Read { path: path.to_owned(), source })?;
        if text.len() as u64 > MAX_BYTES {
            return Err(content(format!("a plan has at most {} MiB", MAX_BYTES >> 20)));
        }
        let header: Option<Header> = serde_json::from_slice(&text).ok();
        let is_plan = header.is_some_and(|Header { api_version, kind }| {
            api_version == VERSION && kind == Self::KIND
        });
        if !is_plan {
            return Err(content(format!(
                "this is not a {} of {VERSION}; next: write one with kubectl belay impact … --out \
                 FILE",
                Self::KIND
            )));
        }
        serde_json::from_slice(&text).map_err(|error| {
            // The error may quote the file.
            content(format!(
                "the plan is not valid: line {}, column {}",
                error.line(),
                error.column()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> CommandError {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        std::fs::write(&path, text).unwrap();
        DeletionPlan::read(&path).unwrap_err()
    }

    #[test]
    fn a_file_that_is_no_plan_is_refused_without_its_content() {
        let header = r#""apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPlan""#;
        for (text, says) in [
            (String::new(), "this is not a DeletionPlan"),
            ("{\"kind\": \"DeletionPlan\"}".to_owned(), "this is not a DeletionPlan"),
            (format!("{{{header}}}"), "the plan is not valid: line 1"),
            (format!("{{{header}, \"cascade\": \"secret\"}}"), "the plan is not valid: line 1"),
        ] {
            let error = error(&text);
            assert!(error.to_string().contains(says), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = DeletionPlan::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.ends_with("a plan has at most 64 MiB"), "{error}");
    }
}
