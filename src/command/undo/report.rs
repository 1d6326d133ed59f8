//! The report of an undo.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::record::{LostObject, UndoRecord, all_typed};
use super::restore::UndoOutcome;
use crate::command::document::Object;
use crate::command::report::{Report, View};
use crate::objects::and_more;

/// The maximum number of restored objects in the message. The document contains all of them.
const MAX_NAMED: usize = 20;

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoReport {
    /// The result.
    result: UndoResult,
    /// The result in sentences; with `--dry-run`, the steps.
    #[serde(rename = "says")]
    message: String,
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
            message: says,
            target: record.target.clone(),
            file: file.display().to_string(),
            objects: record.objects_to_recreate().map(|saved| saved.object.clone()).collect(),
            lost: record.lost.clone(),
        }
    }

    /// The report of an undo that has ended. `left`: a suffix with the changes that it leaves in
    /// the cluster; `again`: the command that continues it.
    pub fn of_outcome(
        outcome: UndoOutcome,
        record: &UndoRecord,
        file: &Path,
        (left, again): (&str, &str),
    ) -> Self {
        let is_complete = outcome.is_complete();
        let (target, path) = (record.target.sentence_name(), file.display());
        let mut lost = Vec::new();
        let (result, says) = match outcome {
            UndoOutcome::Finished { by_another_undo, .. } if is_complete => {
                let says = match by_another_undo.target {
                    true => format!("another undo restored {target}; nothing is left to do"),
                    false => restored_text(record.objects_to_recreate().map(|saved| &saved.object)),
                };
                let kept = match by_another_undo.unproven {
                    true => format!(
                        "; {path} is kept, because others can write the annotation of a restored \
                         object too; next: compare what was restored with the file, and delete the \
                         file, which may contain Secrets"
                    ),
                    false => String::new(),
                };
                (UndoResult::Undone, says + &kept)
            }
            UndoOutcome::Finished { not_restored, by_another_undo }
                if by_another_undo.target && record.is_of_namespace() =>
            {
                lost = not_restored;
                let says = format!(
                    "another undo seems to have created {target}, so nothing was restored into it; the \
                     manifests are in {path}{left}; next: check who has created it, wait until that \
                     undo ends, and continue with {again}"
                );
                (UndoResult::Incomplete, says)
            }
            UndoOutcome::Finished { not_restored, .. } => {
                let is_target = |lost: &LostObject| lost.object.uid == record.target.uid;
                let what = match not_restored.iter().any(is_target) {
                    true => "is not restored",
                    false => "is restored, but not all of its objects",
                };
                let missing = all_typed(not_restored.iter().map(|lost| &lost.object));
                lost = not_restored;
                let says = format!(
                    "{target} {what}; the manifests are in {path}{left}; next: end what prevents the \
                     restore of {missing}, and continue with {again}"
                );
                (UndoResult::Incomplete, says)
            }
            UndoOutcome::Taken { advice } => {
                let says = format!(
                    "nothing was restored as {target}: {advice}, and continue with {again}{left}"
                );
                (UndoResult::NameTaken, says)
            }
            UndoOutcome::TimedOut { remaining } => {
                let next = match record.steps_of_user().as_str() {
                    "" => again.to_owned(),
                    steps => format!("{steps}, and continue with {again}"),
                };
                let says = format!(
                    "{} still existed at the end of the time limit{left}; next: {next}",
                    all_names(&remaining)
                );
                (UndoResult::TimedOut, says)
            }
        };
        let mut report = Self::new(result, says, record, file);
        report.lost.extend(lost);
        report
    }
}

/// The restored objects.
fn restored_text<'o>(objects: impl Iterator<Item = &'o Object>) -> String {
    let objects: Vec<&Object> = objects.collect();
    let named = objects.iter().copied().take(MAX_NAMED);
    let more = and_more(objects.len().saturating_sub(MAX_NAMED), "object");
    let are = if objects.len() == 1 { "is" } else { "are" };
    format!("{}{more} {are} restored", all_names(named))
}

/// Objects in a sentence.
fn all_names<'o>(objects: impl IntoIterator<Item = &'o Object>) -> String {
    objects.into_iter().map(Object::sentence_name).collect::<Vec<_>>().join(", ")
}

impl Report for UndoReport {
    const KIND: &'static str = "Undone";

    fn text(&self, view: View) -> String {
        let mut text: String =
            self.message.lines().map(|line| view.screen.paragraph(0, line)).collect();
        if self.result == UndoResult::Incomplete {
            for LostObject { object, why } in &self.lost {
                let line = format!("{}: {why}", object.arguments);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Kinds, ObjectRef};

    #[test]
    fn an_undo_names_all_objects_that_it_restored() {
        let object = |name: String| {
            Object::of(&ObjectRef::new(("", "secrets"), "shop", &name), &Kinds::default())
        };
        let text = |count: usize| {
            let objects: Vec<Object> = (0..count).map(|n| object(n.to_string())).collect();
            restored_text(objects.iter())
        };
        assert_eq!(text(1), "Secret shop/0 is restored");
        assert_eq!(text(2), "Secret shop/0, Secret shop/1 are restored");
        let many = text(22);
        assert!(many.ends_with("Secret shop/19 and 2 more objects are restored"), "{many}");
    }
}
