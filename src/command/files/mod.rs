//! Policies and objects from files of YAML or JSON, instead of from a cluster.
//!
//! ```text
//!  folders ─► folder ─► yaml ─► documents ─┬► own    (kinds of belay.dev) ─┐
//!             texts     trees   Lists flat ├► kinds  (what CRDs teach)     ├─► World
//!                                          └► objects                     ─┘
//!  watch: the same again, when the files change
//! ```
//!
//! Whatever is wrong is said as `file:line:column: sentence`. No sentence
//! repeats a value that was found: it may stand in a Secret.

mod documents;
mod folder;
mod given;
mod kinds;
mod objects;
mod own;
mod reader;
mod scalars;
mod watch;
mod world;
mod yaml;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use documents::File;
pub use folder::Folders;
pub use given::{Manifest, Rules, manifests, names, rules, texts};
pub use watch::{Signs, watch};
pub use world::World;
use yaml::Place;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    file: Arc<str>,
    place: Option<Place>,
    message: String,
}

impl FileError {
    /// About a whole file or folder.
    fn whole(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.into(), place: None, message: message.into() }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{}:{place}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}
