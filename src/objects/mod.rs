//! The few fields of Kubernetes objects that belay reads from JSON, and plain values that all
//! modules share: kinds and names, operations of JSON patches, hash maps, and text for terminals.
//!
//! [`Object`] borrows from the bytes (or the JSON tree) that it was read from. A
//! review can contain two copies of an object of several MiB, but a verdict
//! needs only a few hundred bytes of metadata. [`PackedList`] and [`PackedMap`]
//! save memory in a graph of a million objects.

mod api_error;
mod builtin;
mod digest;
mod hold;
mod hold_writes;
mod interner;
mod json;
mod kinds;
mod lossy_reader;
mod maps;
mod name_rules;
mod names;
mod object;
mod object_ref;
mod one_line;
pub(crate) mod operations;
mod packed;
mod protect_label;
mod text;
mod text_enum;
mod time;
mod tolerant_reader;
mod turns;
mod uid;
mod unreadable;
mod value_reader;

pub use api_error::ApiError;
pub use digest::{digest, short_digest};
#[cfg(test)]
pub use hold::{FORMER_HOLD_FOR_TESTS, set_former_hold_for_tests};
pub use hold::{
    HOLD, HoldEntry, finalizers_after_bulk_removal, former_holds, is_hold, is_kubernetes_finalizer,
    parse_former_hold, set_former_holds,
};
pub use hold_writes::{HoldWrites, hold_fields};
pub use interner::Interner;
pub use json::{condition, list_at, text_at, texts_at};
pub use kinds::{
    CLAIMS, CRDS, DefaultPropagation, KindId, KindInfo, Kinds, NAMESPACES, SCALABLE, STATEFUL_SETS,
    STORAGE_CLASSES, VOLUMES, claim_prefix, full_name, is_namespace, split_api_version,
    split_full_name, watch_also_value,
};
pub use lossy_reader::read_lossy;
pub use maps::{KeyedHasher, KeyedMap, KeyedSet, NumberHasher, NumberMap, NumberSet, shrink_map};
pub use name_rules::{is_dns_label, is_dns_subdomain, is_path_segment};
pub use names::{KindNames, ServedKind};
pub(crate) use object::null_is_default;
pub use object::{HoldAge, Metadata, Object, OwnerReference};
pub use object_ref::{ObjectRef, write_sentence_name};
pub use one_line::{
    LONGEST_NAME, NEXT_STEP_SEPARATOR, and_more, counted, in_namespace, is_control, is_plain_name,
    more, namespace_option, one_line, one_line_name, quote_if_ambiguous, shell_word,
    without_controls,
};
pub use packed::{PackedList, PackedMap};
pub use protect_label::{LABEL_VALUES, PROTECT_LABEL, label_warning};
pub use text::Text;
pub(crate) use text_enum::text_enum;
pub use tolerant_reader::{
    read_tolerant, read_tolerant_with_managed_fields, read_without_managed_fields,
};
pub use turns::{in_turns, order_by_turns};
pub use uid::Uid;
pub use unreadable::{Flaw, MAX_REFERENCES, Unreadable};
pub use value_reader::{ValueParts, read_parts};

/// The reporter of belay's Events.
pub const EVENT_REPORTER: &str = "belay";

/// The reason of belay's Events about requests that passed only because of a Pause.
pub const WOULD_DENY_EVENT: &str = "WouldDeny";

/// The finalizer by which the garbage collector deletes in the foreground (R7,
/// R8, R9).
pub const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer that keeps a claim while Pods use it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The finalizer by which the garbage collector orphans (R7, R8).
pub const ORPHAN: &str = "orphan";
