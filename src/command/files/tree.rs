//! A document as a tree whose nodes know their place.

use std::fmt;

use serde_json::Number;

/// A position in a file. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value with its place.
#[derive(Debug, Clone)]
pub struct Node {
    pub place: Place,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: String,
    pub place: Place,
    pub value: Node,
}
