//! From one object's JSON to its edges.
//!
//! The catalogue is data: a row says from which kind, by which path, to which
//! kind, and what that means ([`catalogue`]). The paths of a kind are merged
//! into one tree, so that an object is walked once whatever the number of its
//! rows. Relations that users write run through the same engine.

mod catalogue;
mod compiled;
mod custom;
mod engine;
mod fields;
mod leaf;
mod path;
mod reading;

#[cfg(test)]
mod tests;

pub use catalogue::OWNED;
pub use catalogue::related_kinds;
pub use custom::{CustomError, CustomRelation, CustomTo};
pub use engine::{Catalogue, Parsed, ReadScope, UserKinds};
pub use path::{Path, PathError};
