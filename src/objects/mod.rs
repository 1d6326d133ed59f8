//! What belay knows of a Kubernetes object: slim facts, read from JSON once.
//!
//! [`Object`] borrows from the bytes (or the JSON tree) it was read from. A
//! review can carry two copies of an object of several MiB, and of those a
//! verdict needs a few hundred bytes of metadata. The packed types are how a
//! graph of a million objects keeps them.

mod api_error;
mod builtin;
mod digest;
mod hold;
mod hold_writes;
mod interner;
mod kinds;
mod maps;
mod names;
mod object;
mod object_ref;
mod packed;
mod shallow;
mod shown;
mod text;
mod uid;
mod unreadable;

pub use api_error::ApiError;
pub use digest::{digest, short_digest};
#[cfg(test)]
pub use hold::{FORMER_OF_TESTS, know_the_former_hold_of_tests};
pub use hold::{HOLD, StandingHold, former_hold, former_holds, is_hold, know_former_holds};
pub use hold_writes::HoldWrites;
pub use interner::Interner;
pub use kinds::{
    DefaultPropagation, KindId, KindInfo, Kinds, full_name, is_namespace, split_api_version,
};
pub use maps::{Keyed, KeyedMap, KeyedSet, NumberHasher, NumberMap, NumberSet, shrink_map};
pub use names::{Called, Names};
pub(crate) use object::null_is_default;
pub use object::{HoldAge, Metadata, Object, OwnerReference};
pub use object_ref::ObjectRef;
pub use packed::{PackedList, PackedMap};
pub use shallow::read_shallow;
pub use shown::{LONGEST_NAME, harmless, shell_word, shown, shown_name};
pub use text::Text;
pub use uid::Uid;
pub use unreadable::{Flaw, Unreadable};

/// The label that protects an object with no policy written.
pub const PROTECT_LABEL: &str = "belay.dev/protect";

/// The finalizer by which the garbage collector deletes in the foreground (R7,
/// R8, R9).
pub const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer by which the garbage collector orphans (R7, R8).
pub const ORPHAN: &str = "orphan";
