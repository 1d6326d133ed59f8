//! What belay knows of a Kubernetes object: slim facts, read from JSON once.
//!
//! Everything borrows from the bytes it was read from. A review can carry two
//! copies of an object of several MiB, and of those a verdict needs a few
//! hundred bytes of metadata.

mod object;
mod text;

pub use object::{Metadata, Object, OwnerReference};
pub use text::Text;

/// The finalizer by which belay holds an object: the *hold*.
pub const HOLD: &str = "belay.dev/hold";

/// The label that protects an object with no policy written.
pub const PROTECT_LABEL: &str = "belay.dev/protect";
