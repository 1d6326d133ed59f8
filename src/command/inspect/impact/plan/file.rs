//! Reads and writes the file of a plan.

use std::path::Path;

use super::DeletionPlan;
use crate::command::CommandError;
use crate::command::report::{Format, Report as _, View, read_document};
use crate::command::screen::Screen;

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
        read_document(path, Self::KIND, "write one with kubectl belay impact … --out FILE")
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
        for (text, message) in [
            (String::new(), "this is not a DeletionPlan"),
            ("{\"kind\": \"DeletionPlan\"}".to_owned(), "this is not a DeletionPlan"),
            (format!("{{{header}}}"), "the DeletionPlan is not valid: line 1"),
            (
                format!("{{{header}, \"cascade\": \"secret\"}}"),
                "the DeletionPlan is not valid: line 1",
            ),
        ] {
            let error = error(&text);
            assert!(error.to_string().contains(message), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = DeletionPlan::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.ends_with("a DeletionPlan has at most 64 MiB"), "{error}");
    }
}
