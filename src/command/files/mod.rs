//! Policies and objects from files of YAML or JSON, instead of from a cluster.
//!
//! ```text
//!  folders ─► folder ─► yaml ─► documents ─┬► own    (kinds of belay.dev) ─┐
//!             texts     trees   objects    ├► kinds  (from CRDs)           ├─► World
//!                                          └► objects                     ─┘
//!  watch: reads the files again when they change
//!  archive: answers the requests of a client from files
//! ```
//!
//! Errors have the form `file:line:column: sentence`. No sentence repeats a value from a
//! file, because the value may be part of a Secret.

mod archive;
mod documents;
mod folder;
mod inputs;
mod kinds;
mod objects;
mod own;
mod reader;
mod scalars;
mod tree;
mod watch;
mod world;
mod yaml;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use archive::Archive;
pub use documents::{Document, File, inline, nodes, parse_all};
pub use folder::Folders;
pub use inputs::{
    Manifest, UserRules, read_manifests, read_names, read_nonempty, read_rules, read_texts,
    short_names, stdin_once,
};
pub use reader::{Strictness, read};
pub use tree::{Content, Node, Position};
pub use watch::{FileStatus, watch};
pub use world::World;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    file: Arc<str>,
    position: Option<Position>,
    message: String,
    /// Whether the content is unknown: the system failed to read the file, or a failed command
    /// wrote it.
    unread: bool,
}

impl FileError {
    /// An error about a complete file or folder.
    fn about_file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.into(), position: None, message: message.into(), unread: false }
    }

    /// An error at a position in a file.
    fn at(file: &Arc<str>, position: Position, message: impl Into<String>) -> Self {
        Self {
            file: file.clone(),
            position: Some(position),
            message: message.into(),
            unread: false,
        }
    }

    /// The error at the position where another document names this file.
    pub fn named_at(&self, document: &Document, position: Position) -> Self {
        let unread = self.unread;
        Self { unread, ..Self::at(&document.file, position, self.to_string()) }
    }

    /// Whether the content is unknown, although the file exists.
    pub fn is_unread(&self) -> bool {
        self.unread
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "{}:{position}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}
