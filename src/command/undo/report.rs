//! The report of an undo.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::record::{LostObject, UndoRecord};
use crate::command::document::Object;
use crate::command::report::{Report, View};

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoReport {
    /// The result.
    result: UndoResult,
    /// The result in sentences; with `--dry-run`, the steps.
    says: String,
    /// The object of the undo, with the uid of the deleted object.
    target: Object,
    /// The file with the saved objects.
    file: String,
    /// The saved objects, with their old uids.
    objects: Vec<Object>,
    /// The objects that can't be restored.
    lost: Vec<LostObject>,
    /// The saved objects whose names other objects have.
    taken: Vec<Object>,
}

/// The result of an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum UndoResult {
    /// All saved objects are restored.
    Undone,
    /// A dry run: the undo is possible.
    WouldUndo,
    /// Other objects have the names of saved objects.
    NameTaken,
    /// The old object still existed at the end of `--timeout`.
    TimedOut,
}

impl UndoReport {
    pub fn new(result: UndoResult, says: String, record: &UndoRecord, file: &Path) -> Self {
        Self {
            result,
            says,
            target: record.target.clone(),
            file: file.display().to_string(),
            objects: record.objects.iter().map(|saved| saved.object.clone()).collect(),
            lost: record.lost.clone(),
            taken: Vec::new(),
        }
    }

    pub fn with_taken(self, taken: Vec<Object>) -> Self {
        Self { taken, ..self }
    }
}

impl Report for UndoReport {
    const KIND: &'static str = "Undone";

    fn text(&self, view: View) -> String {
        let mut text: String =
            self.says.lines().map(|line| view.screen.paragraph(0, line)).collect();
        for taken in &self.taken {
            text.push_str(&view.screen.behind("- ", 2, &taken.typed));
        }
        text
    }

    fn exit_code(&self) -> u8 {
        match self.result {
            UndoResult::Undone | UndoResult::WouldUndo => 0,
            _ => 1,
        }
    }
}
