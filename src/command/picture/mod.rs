//! The picture of a report: a graph that `-o dot`, `-o mermaid` and `-o html` draw.
//!
//! ```text
//!  report ─► Picture ─► collapsed ─┬─► dot
//!                                  ├─► mermaid
//!                                  └─► layout ─► svg ─► html
//! ```
//!
//! Users of the cluster write names, fields and messages. Each format escapes all of them, and
//! uses numbers as the names of its nodes.

mod collapse;
mod dot;
mod fate;
mod html;
mod layout;
mod mermaid;
mod svg;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

pub use self::fate::DrawnFate;
use super::document::{FailedRead, Object};
use crate::objects::one_line;

/// The maximum length of a title, a note or a field.
const MAX_TEXT: usize = 300;

/// The maximum length of a label in a picture. HTML contains the whole label as well.
const MAX_LABEL: usize = 60;

/// The maximum number of notes.
const MAX_NOTES: usize = 8;

/// A graph of objects. An edge leads from an object to the object that its field names.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    title: String,
    /// Facts about the whole picture, such as failed reads.
    notes: Vec<String>,
    nodes: Vec<PictureNode>,
    edges: Vec<PictureEdge>,
    /// The nodes by `Object::arguments`.
    index: HashMap<String, usize>,
    /// The namespace that labels omit.
    omitted: String,
}

/// An object, or a group of objects.
#[derive(Debug, Clone, Default)]
pub struct PictureNode {
    label: String,
    kind: String,
    namespace: String,
    fate: DrawnFate,
    /// The fate as the table calls it: `deleted?`.
    word: String,
    /// The data or address that is lost.
    detail: String,
    note: String,
    is_target: bool,
    /// The labels of a group.
    members: Vec<String>,
    /// The number of objects.
    count: usize,
}

#[derive(Debug, Clone)]
struct PictureEdge {
    from: usize,
    to: usize,
    label: String,
    /// Whether the object does not need the other object.
    is_weak: bool,
}

impl Picture {
    /// A picture without nodes. `omitted`: the namespace that labels omit.
    pub fn new(title: String, omitted: &str, not_read: &[FailedRead]) -> Self {
        let notes = FailedRead::grouped(not_read, false);
        let notes = notes.iter().map(FailedRead::line).collect();
        Self { title, omitted: omitted.to_owned(), notes, ..Self::default() }
    }

    pub fn with_note(mut self, note: String) -> Self {
        self.notes.insert(0, note);
        self
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn has_edges(&self) -> bool {
        !self.edges.is_empty()
    }

    /// The node of an object, which is added if there is none.
    pub fn node(&mut self, object: &Object) -> &mut PictureNode {
        let index = self.index_of(object);
        &mut self.nodes[index]
    }

    /// Adds the edge from an object to the object that its field names.
    pub fn add_edge(&mut self, from: &Object, to: &Object, label: &str, is_weak: bool) {
        let (from, to) = (self.index_of(from), self.index_of(to));
        self.edges.push(PictureEdge { from, to, label: label.to_owned(), is_weak });
    }

    fn index_of(&mut self, object: &Object) -> usize {
        if let Some(index) = self.index.get(&object.arguments) {
            return *index;
        }
        let index = self.nodes.len();
        self.index.insert(object.arguments.clone(), index);
        self.nodes.push(PictureNode {
            label: object.label(&self.omitted),
            kind: object.kind_word(),
            namespace: object.namespace.clone(),
            count: 1,
            ..PictureNode::default()
        });
        index
    }

    /// The picture for Graphviz.
    pub fn dot(self) -> String {
        dot::dot(&self.collapsed(collapse::MAX_NODES))
    }

    /// The picture as Mermaid, with at most this many nodes.
    pub fn mermaid(self, max_nodes: Option<usize>) -> String {
        mermaid::mermaid(&self.collapsed(max_nodes.unwrap_or(collapse::MAX_NODES)))
    }

    /// The picture as a page.
    pub fn html(self) -> String {
        html::html(&self.collapsed(collapse::MAX_NODES))
    }

    /// The names of the nodes that match.
    fn node_names(&self, matches: impl Fn(&PictureNode) -> bool) -> Vec<String> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| matches(node));
        nodes.map(|(index, _)| format!("n{index}")).collect()
    }

    /// The title and notes, on one line each.
    fn heading(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let more = self.notes.len().saturating_sub(MAX_NOTES);
        let more = (more > 0).then(|| Cow::Owned(format!("… and {more} more notes")));
        let lines = std::iter::once(&self.title).chain(self.notes.iter().take(MAX_NOTES));
        lines.map(|line| one_line(line, MAX_TEXT)).chain(more)
    }
}

impl PictureNode {
    /// Sets the fate unless the object has a more severe one. `word`: the fate as the table calls
    /// it.
    pub fn set_fate(&mut self, fate: DrawnFate, word: &str, note: &str) {
        if self.word.is_empty() || fate > self.fate {
            self.fate = fate;
            self.word = word.to_owned();
            self.note = note.to_owned();
        }
    }

    /// Adds a resource that is lost with the object.
    pub fn add_detail(&mut self, detail: &str) {
        let comma = if self.detail.is_empty() { "" } else { ", " };
        self.detail = format!("{}{comma}{detail}", self.detail);
    }

    pub fn set_target(&mut self) {
        self.is_target = true;
    }

    /// The lines in a box: the fate, the name, and the data that is lost.
    fn lines(&self) -> Vec<Cow<'_, str>> {
        let lines = [&self.word, &self.label, &self.detail];
        let lines = lines.into_iter().filter(|line| !line.is_empty());
        lines.map(|line| one_line(line, MAX_LABEL)).collect()
    }

    /// Whether the fate is uncertain.
    fn is_uncertain(&self) -> bool {
        self.word.ends_with('?')
    }
}
