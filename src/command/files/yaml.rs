//! Parses YAML, which includes JSON, into trees with positions.
//!
//! This module builds the tree from the events of serde-saphyr's parser. It does not use
//! serde-saphyr's deserializer, which resolves plain scalars by other rules than kubectl and quotes
//! values in its errors. Here every error has a position, and no error contains a value.

use std::collections::HashMap;

use serde_json::Value;
use serde_saphyr::granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Tag};

use super::scalars::parse_plain;
use super::tree::{Content, MapEntry, Node, Position};

/// Why a text is not valid YAML.
#[derive(Debug)]
pub struct SyntaxError {
    pub position: Position,
    pub message: String,
}

impl Node {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }

    /// The value at this path.
    pub fn at(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Whether the value is a list or empty.
    pub fn is_list(&self) -> bool {
        matches!(self.content, Content::List(_) | Content::Null)
    }

    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn items(&self) -> &[Self] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// The position of a field such as `spec.targets[0].names`. If the field is missing, the
    /// position of the last part of its path that exists.
    pub fn position_of(&self, field: &str) -> Position {
        let mut node = self;
        for step in field.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match step.strip_suffix(']') {
                Some(index) => index.parse().ok().and_then(|i: usize| node.items().get(i)),
                None => node.get(step),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.position
    }
}

/// A key for an error message, shortened and with special characters escaped.
pub fn escape_key(key: &str) -> String {
    key.chars().take(64).flat_map(char::escape_debug).collect()
}

impl From<Content> for Value {
    fn from(content: Content) -> Self {
        match content {
            Content::Null => Self::Null,
            Content::Bool(value) => Self::Bool(value),
            Content::Number(number) => Self::Number(number),
            Content::Text(text) => Self::String(text),
            Content::List(items) => items.into_iter().map(|item| item.content).collect(),
            Content::Map(entries) => {
                let pairs = entries.into_iter().map(|e| (e.key, e.value.content.into()));
                Self::Object(pairs.collect())
            }
        }
    }
}

/// The maximum depth of nested lists and maps.
const MAX_DEPTH: usize = 100;

/// The approximate maximum size in bytes of all expanded aliases of a text. Without a limit,
/// nine lines can expand to a billion values.
const MAX_COPIED: usize = 4 << 20;

/// Reads all documents of a text. An empty document is null.
pub fn parse(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let mut options = Options::default();
    options.emit_comments = false;
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax_error(&error))?;
        let position = Position { line: span.start.line().max(1), column: span.start.col() + 1 };
        builder.event(event, position)?;
    }
    Ok(builder.documents)
}

/// The error in belay's words. The parser's own message may quote the text.
fn syntax_error(error: &ScanError) -> SyntaxError {
    let marker = error.marker();
    let position = Position { line: marker.line().max(1), column: marker.col() + 1 };
    let message = match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart => "YAML needs spaces here, and this is a tab",
        ErrorKind::UnclosedQuotedScalar => "a quote is opened and not closed",
        ErrorKind::InvalidQuotedScalarIndent => {
            "a quote is opened above and not closed, or its text is not indented here"
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::MisplacedFlowCollectionEnd
        | ErrorKind::MismatchedFlowCollectionEnd { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator => {
            "brackets and braces do not fit together, or a comma is missing between two entries"
        }
        ErrorKind::UnknownAnchor => "an alias names an anchor that is not defined before it",
        ErrorKind::RecursionLimitExceeded => "lists and maps are nested too deeply",
        _ => {
            "this is not YAML; look at the indentation, colons and quotes of this line and of the \
             one before it"
        }
    };
    SyntaxError { position, message: message.to_owned() }
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, (Node, usize)>,
    /// The approximate size in bytes of the copied anchors and aliases.
    copied: usize,
}

/// A list or a map that is not complete yet.
struct OpenCollection {
    position: Position,
    anchor: usize,
    kind: Kind,
}

enum Kind {
    List(Vec<Node>),
    Map { entries: Vec<MapEntry>, merged: Vec<Node>, key: Option<Key> },
}

struct Key {
    text: String,
    position: Position,
    /// Whether the key is `<<`: the entries of its value are merged into the map.
    merges: bool,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, position: Position) -> Result<(), SyntaxError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let merges = style == ScalarStyle::Plain && tag.is_none() && text == "<<";
                let content = scalar(&text, style, tag.as_deref(), position)?;
                self.add(Node { position, content }, anchor, merges)
            }
            Event::Alias(anchor) => {
                // An anchor that refers to itself is not complete yet.
                let Some((node, size)) = self.anchors.get(&anchor) else {
                    return Err(error_at(position, "an alias contains itself"));
                };
                let node = Node { position, content: node.content.clone() };
                self.count_copied(*size, position)?;
                self.add(node, 0, false)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(position, anchor, Kind::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                let kind = Kind::Map { entries: Vec::new(), merged: Vec::new(), key: None };
                self.begin(position, anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(OpenCollection { position, anchor, kind }) = self.open.pop() else {
                    return Ok(());
                };
                let content = match kind {
                    Kind::List(items) => Content::List(items),
                    Kind::Map { entries, merged, .. } => Content::Map(merge(entries, merged)?),
                };
                self.add(Node { position, content }, anchor, false)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, position: Position, anchor: usize, kind: Kind) -> Result<(), SyntaxError> {
        if let Some(OpenCollection { kind: Kind::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(error_at(position, "a key is a list or a map; it must be text"));
        }
        self.open.push(OpenCollection { position, anchor, kind });
        Ok(())
    }

    /// Adds a complete value to its parent.
    fn add(&mut self, node: Node, anchor: usize, merges: bool) -> Result<(), SyntaxError> {
        if anchor != 0 {
            let size = size(&node);
            self.count_copied(size, node.position)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut().map(|frame| &mut frame.kind) {
            None => self.documents.push(node),
            Some(Kind::List(items)) => items.push(node),
            Some(Kind::Map { entries, merged, key }) => match key.take() {
                None => *key = Some(key_of(node, merges)?),
                Some(Key { merges: true, .. }) => merged.push(node),
                Some(Key { text, position, .. }) => {
                    entries.push(MapEntry { key: text, position, value: node });
                }
            },
        }
        Ok(())
    }

    fn count_copied(&mut self, size: usize, position: Position) -> Result<(), SyntaxError> {
        self.copied += size;
        if self.copied > MAX_COPIED {
            return Err(error_at(
                position,
                "the aliases of this file expand to too much; write the content out",
            ));
        }
        Ok(())
    }
}

fn error_at(position: Position, message: &str) -> SyntaxError {
    SyntaxError { position, message: message.to_owned() }
}

/// The approximate memory size of a value.
fn size(node: &Node) -> usize {
    64 + match &node.content {
        Content::Text(text) => text.len(),
        Content::List(items) => items.iter().map(size).sum(),
        Content::Map(entries) => entries.iter().map(|e| e.key.len() + size(&e.value)).sum(),
        _ => 0,
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    position: Position,
) -> Result<Content, SyntaxError> {
    let suffix = tag.map(|tag| tag.core_suffix());
    let literal = style != ScalarStyle::Plain;
    match suffix {
        None if literal => Ok(Content::Text(text.to_owned())),
        Some(Some("str")) => Ok(Content::Text(text.to_owned())),
        None | Some(Some("bool" | "int" | "float" | "null")) => {
            parse_plain(text).ok_or_else(|| {
                error_at(position, "JSON, and so Kubernetes, does not have this number")
            })
        }
        Some(_) => Err(error_at(position, "manifests do not have YAML tags like this; remove it")),
    }
}

fn key_of(node: Node, merges: bool) -> Result<Key, SyntaxError> {
    let text = match node.content {
        Content::Text(text) => text,
        Content::Bool(value) => value.to_string(),
        Content::Number(number) => number.to_string(),
        _ => return Err(error_at(node.position, "a key is empty; it must be text")),
    };
    Ok(Key { text, position: node.position, merges })
}

/// Merges the maps in `merged` into the entries of a map. The own entries take precedence.
fn merge(mut entries: Vec<MapEntry>, merged: Vec<Node>) -> Result<Vec<MapEntry>, SyntaxError> {
    let mut seen: HashMap<&str, Position> = HashMap::with_capacity(entries.len());
    for entry in &entries {
        if let Some(first) = seen.insert(&entry.key, entry.position) {
            let line = first.line;
            return Err(SyntaxError {
                position: entry.position,
                message: format!("this key is already in line {line}; keep one of the two"),
            });
        }
    }
    for node in merged {
        let maps = match node.content {
            Content::List(maps) => maps,
            _ => vec![node],
        };
        for map in maps {
            let Content::Map(more) = map.content else {
                return Err(error_at(map.position, "the value of << must be a map"));
            };
            for entry in more {
                if !entries.iter().any(|own| own.key == entry.key) {
                    entries.push(entry);
                }
            }
        }
    }
    Ok(entries)
}
