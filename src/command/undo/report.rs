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
    /// The objects that can't be restored, or were not.
    lost: Vec<LostObject>,
}

/// The result of an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum UndoResult {
    /// All saved objects are restored.
    Undone,
    /// A dry run: the undo is possible.
    WouldUndo,
    /// Some of the objects are not restored or not kept.
    Incomplete,
    /// Another object has the name.
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
            objects: record.objects_to_recreate().map(|saved| saved.object.clone()).collect(),
            lost: record.lost.clone(),
        }
    }

    pub fn with_lost(mut self, lost: Vec<LostObject>) -> Self {
        self.lost.extend(lost);
        self
    }
}

impl Report for UndoReport {
    const KIND: &'static str = "Undone";

    fn text(&self, view: View) -> String {
        let mut text: String =
            self.says.lines().map(|line| view.screen.paragraph(0, line)).collect();
        if self.result == UndoResult::Incomplete {
            for LostObject { object, why } in &self.lost {
                let line = format!("{}: {why}", object.typed);
                text.push_str(&view.screen.behind("- ", 2, &line));
            }
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
