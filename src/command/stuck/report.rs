//! What `belay stuck` says, as data and as a table.

use std::process::ExitCode;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{Cause, Finding};
use crate::cluster::terminating::Found;
use crate::command::CommandError;
use crate::command::document::{Content, NotRead, Object, document};
use crate::command::duration::age;
use crate::command::place::OF_FILES;
use crate::command::screen::{Field, OutputArguments, Screen, Table, Tone, cut, without_controls};
use crate::objects::full_name;

/// So many objects are shown, unless all are asked for.
const SHOWN: usize = 20;

/// So many reasons of one object are.
const REASONS: usize = 3;

/// An object that does not go.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stuck {
    /// The object.
    object: Object,
    /// The time of the DELETE.
    since: String,
    /// The causes, most likely first.
    causes: Vec<Finding>,
    #[serde(skip)]
    seconds: i64,
}

impl Stuck {
    pub fn new(found: &Found, causes: Vec<Finding>, now: Timestamp) -> Self {
        Self {
            object: Object::of_kind(&found.info, &found.namespace, &found.name)
                .with_uid(&found.uid),
            since: found.since.to_string(),
            causes,
            seconds: now.as_second().saturating_sub(found.since.as_second()),
        }
    }

    fn row(&self, table: &mut Table, screen: Screen, all: bool) {
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
            age(self.seconds).into(),
            Field::toned(tone, cause.words()),
        ]);
        let (causes, more) = cut(&self.causes, REASONS, all);
        for Finding { says, evidence, next, .. } in causes {
            table.below(&screen.paragraph(2, says));
            for evidence in evidence {
                table.below(&screen.paragraph(4, evidence));
            }
            // Commands are to be copied: no line of them is broken.
            table.below(&format!("  next: {}\n", without_controls(next)));
        }
        if let Some(more) = more {
            table.below(&screen.paragraph(2, &more));
        }
    }
}

/// Everything that is said.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// All stuck objects.
    pub items: Vec<Stuck>,
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

impl Content for Report {
    const KIND: &'static str = "StuckList";
}

impl Report {
    pub fn rendered(
        &self,
        output: OutputArguments,
        screen: Screen,
    ) -> Result<String, CommandError> {
        Ok(document(output.output, self)?.unwrap_or_else(|| self.text(output.all, screen)))
    }

    fn text(&self, all: bool, screen: Screen) -> String {
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
            let mut table = Table::new(&["OBJECT", "NAMESPACE", "FOR", "CAUSE"]);
            let (shown, more) = cut(&self.items, SHOWN, all);
            shown.iter().for_each(|stuck| stuck.row(&mut table, screen, all));
            text.push_str(&table.text(screen));
            text.extend(more.map(|more| more + "\n"));
        }
        for NotRead { resource, why } in &self.not_read {
            let line = format!("not read: {resource}: {why}");
            text.push_str(&screen.paragraph(0, &line));
        }
        // Whoever may read one namespace meets many of these, and each says the
        // same.
        let told = |unread: &&NotRead| !self.not_read.iter().any(|n| n.resource == unread.resource);
        let more = self.evidence_not_read.iter().filter(told).map(|unread| &*unread.resource);
        let more: Vec<&str> = more.collect();
        if !more.is_empty() {
            let line = format!("not read, and might say more: {}", more.join(", "));
            text.push_str(&screen.paragraph(0, &line));
        }
        if self.of_files && !self.items.is_empty() {
            text.push_str(&screen.paragraph(0, OF_FILES));
        }
        text
    }

    /// 1 if something is stuck, 3 if that is not known, 0 if nothing is.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match (self.items.is_empty(), self.not_read.is_empty()) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 0,
        })
    }
}
