//! The report of `belay stuck`, as data and as a table.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::terminating::TerminatingObject;
use crate::command::diagnosis::{Cause, Finding};
use crate::command::document::{NotRead, Object};
use crate::command::duration::format_age;
use crate::command::place::OF_FILES;
use crate::command::report::{Report, View};
use crate::command::screen::{Field, Table, Tone, cut, without_controls};
use crate::objects::{ObjectRef, full_name};

/// The number of objects in the table, unless the user requests all.
const SHOWN: usize = 20;

/// The number of reasons for an object.
const REASONS: usize = 3;

/// An object that does not go.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckObject {
    /// The object.
    object: Object,
    /// The time of the DELETE.
    since: String,
    /// The causes, most likely first.
    causes: Vec<Finding>,
    #[serde(skip)]
    seconds: i64,
}

impl StuckObject {
    pub fn new(stuck: &TerminatingObject, causes: Vec<Finding>, now: Timestamp) -> Self {
        let ObjectRef { namespace, name, .. } = &stuck.object_ref;
        Self {
            object: Object::of_kind(&stuck.info, namespace, name).with_uid(&stuck.uid),
            since: stuck.since.to_string(),
            causes,
            seconds: now.as_second().saturating_sub(stuck.since.as_second()),
        }
    }

    fn row(&self, table: &mut Table, view: View) {
        let Object { group, resource, namespace, name, .. } = &self.object;
        let resource = full_name(group, resource);
        let cause = self.causes.first().map_or(Cause::Unknown, |finding| finding.cause);
        let tone = match cause {
            Cause::HeldByBelay | Cause::InUse | Cause::Owner => Tone::Plain,
            Cause::Foreground | Cause::Content | Cause::Unknown => Tone::Doubtful,
            _ => Tone::Bad,
        };
        table.row([
            Field::from(format!("{resource}/{name}")),
            namespace.as_str().into(),
            format_age(self.seconds).into(),
            Field::toned(tone, cause.as_str()),
        ]);
        let (causes, more) = cut(&self.causes, REASONS, view.is_complete(), "causes");
        // The first cause is the likeliest one, and its step comes first.
        let mut told: Vec<&str> = Vec::new();
        for Finding { says, evidence, next, .. } in causes {
            table.below(&view.screen.paragraph(2, says));
            for evidence in evidence {
                table.below(&view.screen.paragraph(4, evidence));
            }
            if told.contains(&next.as_str()) {
                continue;
            }
            let heading = if told.is_empty() { "next" } else { "also" };
            told.push(next);
            // Commands are to be copied: no line of them is broken.
            table.below(&format!("  {heading}: {}\n", without_controls(next)));
        }
        if let Some(more) = more {
            table.below(&view.screen.paragraph(2, &more));
        }
    }
}

/// Everything that is said.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckReport {
    /// All stuck objects.
    pub items: Vec<StuckObject>,
    /// Failed reads. The list may be incomplete.
    pub not_read: Vec<NotRead>,
    /// Failed reads of evidence for the causes.
    pub evidence_not_read: Vec<NotRead>,
    /// Whether files were asked in the place of a cluster.
    #[serde(skip)]
    pub of_files: bool,
    #[serde(skip)]
    pub place: String,
    #[serde(skip)]
    pub longer_than: String,
}

impl Report for StuckReport {
    const KIND: &'static str = "StuckList";

    fn text(&self, view: View) -> String {
        let mut text = String::new();
        if self.items.is_empty() {
            let place = match self.place.as_str() {
                "" if self.of_files => "in the files".to_owned(),
                "" => "in the cluster".to_owned(),
                place => format!("in namespace {place}"),
            };
            let found = if self.not_read.is_empty() { "nothing" } else { "nothing that was read" };
            let longer_than = &self.longer_than;
            text = format!("{found} {place} has been Terminating for longer than {longer_than}\n");
        } else {
            let heading = ["OBJECT", "NAMESPACE", "FOR", "CAUSE"];
            let row = |table: &mut Table, stuck: &StuckObject| stuck.row(table, view);
            text.push_str(&view.table(&heading, (&self.items, SHOWN, "objects"), row));
        }
        text.push_str(&view.not_read(&self.not_read));
        // A user who may read one namespace has many failed reads with the same message.
        let told = |unread: &&NotRead| !self.not_read.iter().any(|n| n.resource == unread.resource);
        let more = self.evidence_not_read.iter().filter(told).map(|unread| &*unread.resource);
        let more: Vec<&str> = more.collect();
        if !more.is_empty() {
            let line = format!("not read, and may contain more: {}", more.join(", "));
            text.push_str(&view.screen.paragraph(0, &line));
        }
        if self.of_files && !self.items.is_empty() {
            text.push_str(&view.screen.paragraph(0, OF_FILES));
        }
        text
    }

    /// 1 if an object is stuck, 3 if that is unknown, 0 if none is.
    fn exit_code(&self) -> u8 {
        match (self.items.is_empty(), self.not_read.is_empty()) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 0,
        }
    }
}
