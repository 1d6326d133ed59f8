//! Reads the edges of an object from its JSON.
//!
//! The built-in relations are a table ([`rows`]). Each row has the kind of the user, the path of
//! the reference, the kind of the used object, and the strength of the edge. The paths of a
//! kind are merged into one tree, so that one walk reads all edges of an object. Relations
//! that users write are compiled to the same form.

mod catalogue;
mod compiled;
mod custom;
mod edges;
mod fields;
mod path;
mod rows;
mod rule;

#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, Parsed, ReadScope, UserKinds};
pub use custom::{CustomRelation, CustomTarget, DifferentElementsError};
pub use path::{Path, PathError};
pub use rows::{USUAL_DEPENDENTS, related_kinds};
