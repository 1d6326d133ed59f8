//! Reads the edges of an object from its JSON.
//!
//! The catalogue is a table ([`catalogue`]). Each row has the kind of the user, the path of
//! the reference, the kind of the used object, and the strength of the edge. The paths of a
//! kind are merged into one tree, so that one walk reads all edges of an object. Relations
//! that users write are compiled to the same form.

mod catalogue;
mod compiled;
mod custom;
mod engine;
mod fields;
mod path;
mod reading;
mod rule;

#[cfg(test)]
mod tests;

pub use catalogue::OWNED;
pub use catalogue::related_kinds;
pub use custom::{CustomError, CustomRelation, CustomTo};
pub use engine::{Catalogue, Parsed, ReadScope, UserKinds};
pub use path::{Path, PathError};
