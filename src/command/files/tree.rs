//! A document as a tree of values with their positions.

use std::fmt;

use serde_json::Number;

/// A position in a file. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[derive(Debug, Clone)]
pub struct Node {
    pub position: Position,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<MapEntry>),
}

#[derive(Debug, Clone)]
pub struct MapEntry {
    pub key: String,
    pub position: Position,
    pub value: Node,
}
