//! The report of `belay stuck`, as data and as a table.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::terminating::TerminatingObject;
use crate::command::diagnosis::{Cause, Finding, why_irreversible};
use crate::command::document::{FailedRead, Object};
use crate::command::duration::format_age;
use crate::command::place::OF_FILES;
use crate::command::report::{Report, View, exit_code_of, name_lines};
use crate::command::screen::{Field, Table, Tone, cut};
use crate::objects::{ObjectRef, counted, full_name, in_turns};

/// The number of groups on a terminal, unless the user requests all objects.
const SHOWN: usize = 20;

/// The number of objects of a group.
const SAMPLES: usize = 3;

/// The number of reasons for an object.
const REASONS: usize = 3;

/// An object that stays Terminating.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckObject {
    /// The object.
    object: Object,
    /// The time of the DELETE.
    since: String,
    /// The causes, most likely first.
    causes: Vec<Finding>,
    /// Whether the deletion would lose the data of a claim, and `undo` can create it again.
    #[serde(skip)]
    pub(super) loses_data: bool,
    /// The advice to undo the deletion.
    #[serde(skip)]
    pub(super) undo: String,
    #[serde(skip)]
    seconds: i64,
}

impl StuckObject {
    pub fn new(stuck: &TerminatingObject, causes: Vec<Finding>, now: Timestamp) -> Self {
        let ObjectRef { namespace, name, .. } = &stuck.object_ref;
        Self {
            object: Object::of_kind(&stuck.info, namespace, name).with_uid(&stuck.uid),
            since: stuck.since.to_string(),
            loses_data: stuck.object_ref.is_volume()
                && why_irreversible(&stuck.info).is_none()
                && causes.iter().any(|cause| cause.finalizer.is_some()),
            undo: String::new(),
            causes,
            seconds: now.as_second().saturating_sub(stuck.since.as_second()),
        }
    }

    /// The likeliest cause, and the finalizer that it is about.
    fn cause(&self) -> (Cause, Option<&str>) {
        let first = self.causes.first();
        first.map_or((Cause::Unknown, None), |first| (first.cause, first.finalizer.as_deref()))
    }

    fn namespace(&self) -> &str {
        &self.object.namespace
    }

    /// The object and its causes in one line.
    pub fn line(&self) -> String {
        let causes: Vec<&str> = self.causes.iter().map(|cause| cause.message.as_str()).collect();
        let next = self.causes.first().map_or("", |cause| cause.next.as_str());
        let next = next.replace('\n', "; ");
        format!("{} stays: {}; next: {next}", self.object.sentence_name(), causes.join("; "))
    }

    fn fields(&self) -> [Field; 3] {
        let Object { group, resource, namespace, name, .. } = &self.object;
        [
            format!("{}/{name}", full_name(group, resource)).into(),
            namespace.as_str().into(),
            format_age(self.seconds).into(),
        ]
    }

    fn row(&self, table: &mut Table, view: View) {
        let (cause, _) = self.cause();
        let wide = [self.since.as_str().into(), self.object.uid.as_str().into()];
        table.row(view.columns(self.fields(), wide, Field::toned(tone(cause), cause.as_str())));
        table.below(&self.causes_text(view));
    }

    /// The causes with their evidence and the next step.
    fn causes_text(&self, view: View) -> String {
        let (causes, more) = cut(&self.causes, REASONS, view.is_complete(), "causes");
        let mut text = String::new();
        // The first cause is the likeliest one, and its step comes first. A step follows all causes
        // that it is for.
        let mut written: Vec<&str> = Vec::new();
        for Finding { next, .. } in causes {
            if written.contains(&next.as_str()) {
                continue;
            }
            for Finding { message, evidence, .. } in causes.iter().filter(|one| one.next == *next) {
                text.push_str(&view.screen.paragraph(2, message));
                for evidence in evidence {
                    text.push_str(&view.screen.paragraph(4, evidence));
                }
            }
            let heading = if written.is_empty() { "  next: " } else { "  also: " };
            written.push(next);
            let mut steps = next.lines();
            text.push_str(&view.screen.behind(heading, 8, steps.next().unwrap_or_default()));
            steps.for_each(|step| text.push_str(&view.screen.behind("  ", 4, step)));
        }
        text.push_str(&more.map_or(String::new(), |more| view.screen.paragraph(2, &more)));
        if !self.undo.is_empty() {
            let heading = "  if the deletion is a mistake: ";
            text.push_str(&view.screen.behind(heading, 8, &self.undo));
        }
        text
    }
}

fn tone(cause: Cause) -> Tone {
    match cause {
        Cause::HeldByBelay | Cause::InUse | Cause::Controller => Tone::Plain,
        Cause::Foreground | Cause::Content | Cause::Unknown => Tone::Doubtful,
        _ => Tone::Bad,
    }
}

/// The objects that have the same likeliest cause, the largest group first.
fn groups(items: &[StuckObject]) -> Vec<Vec<&StuckObject>> {
    let mut groups: Vec<Vec<&StuckObject>> = Vec::new();
    let mut places = HashMap::new();
    for item in items {
        let place = *places.entry(item.cause()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups.sort_by_key(|group| Reverse(group.len()));
    groups
}

/// The groups. The first `most` are chosen in turns of namespaces, so that many causes in one
/// namespace hide no object of others.
fn chosen_first(groups: Vec<Vec<&StuckObject>>, most: usize) -> Vec<Vec<&StuckObject>> {
    let mut seen = HashSet::new();
    let all = groups.iter().enumerate();
    let all = all.flat_map(|(index, group)| group.iter().map(move |s| (s.namespace(), index)));
    let all: Vec<(&str, usize)> = all.filter(|turn| seen.insert(*turn)).collect();
    let mut chosen = HashSet::new();
    for position in in_turns(all.iter().map(|(namespace, _)| namespace)) {
        if let Some((_, index)) = all.get(position).filter(|_| chosen.len() < most) {
            chosen.insert(*index);
        }
    }
    let all = groups.into_iter().enumerate();
    let (first, rest): (Vec<_>, Vec<_>) = all.partition(|(index, _)| chosen.contains(index));
    first.into_iter().chain(rest).map(|(_, group)| group).collect()
}

/// A group with some of its objects. Other objects of the group usually have the evidence of
/// the first one.
fn group_text(group: &[&StuckObject], view: View) -> String {
    let Some(first) = group.first() else { return String::new() };
    let (cause, finalizer) = first.cause();
    let count = counted(group.len(), "object");
    let finalizer = finalizer.map_or(String::new(), |name| format!(" ({name})"));
    let heading = format!("{count}: {}{finalizer}", cause.as_str());
    let lines = view.screen.lines(0, &heading);
    let lines = lines.iter().map(|line| view.screen.paint(tone(cause), line) + "\n");
    let mut text: String = lines.collect();
    let more = "objects with this cause";
    let list = (group, SAMPLES, more);
    let row = |table: &mut Table, stuck: &&StuckObject| table.row(stuck.fields());
    text += &view.table_in_turns(&HEADING, list, |stuck| stuck.namespace(), row);
    if group.len() > 1 {
        text += &view.screen.paragraph(0, &format!("for example {}:", first.object.arguments));
    }
    text + &first.causes_text(view)
}

const HEADING: [&str; 3] = ["OBJECT", "NAMESPACE", "FOR"];

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckReport {
    /// All stuck objects.
    pub items: Vec<StuckObject>,
    /// Failed reads. The list may be incomplete.
    pub not_read: Vec<FailedRead>,
    /// Failed reads of evidence for the causes.
    pub evidence_not_read: Vec<FailedRead>,
    /// Whether the data is from files instead of a cluster.
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
            let row = |table: &mut Table, stuck: &StuckObject| stuck.row(table, view);
            let of_group = |group: &Vec<&StuckObject>| group_text(group, view);
            text.push_str(&match view.is_complete() || view.wide {
                true => {
                    let heading = view.columns(HEADING, ["SINCE", "UID"], "CAUSE");
                    view.table(&heading, (&self.items, usize::MAX, ""), row)
                }
                false => {
                    let groups = chosen_first(groups(&self.items), SHOWN);
                    let (shown, more) = cut(&groups, SHOWN, false, "causes");
                    let texts: Vec<String> = shown.iter().map(of_group).collect();
                    texts.join("\n") + &more.map_or(String::new(), |more| format!("\n{more}\n"))
                }
            });
        }
        text.push_str(&view.not_read(&self.not_read));
        // A user who may read one namespace has many failed reads with the same message.
        let is_new =
            |unread: &&FailedRead| !self.not_read.iter().any(|n| n.resource == unread.resource);
        let more = self.evidence_not_read.iter().filter(is_new).map(|unread| &*unread.resource);
        let more: Vec<&str> = more.collect();
        if let Some(line) = FailedRead::evidence_line(&more, view.verbose) {
            text.push_str(&view.screen.paragraph(0, &line));
        }
        if self.of_files && !self.items.is_empty() {
            text.push_str(&view.screen.paragraph(0, OF_FILES));
        }
        text
    }

    fn names(&self) -> Option<String> {
        Some(name_lines(self.items.iter().map(|item| item.object.arguments.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    /// 1 if an object is stuck, 3 if that is unknown, 0 if none is.
    fn exit_code(&self) -> u8 {
        exit_code_of(!self.items.is_empty(), self.not_read.is_empty())
    }
}
