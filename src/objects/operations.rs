//! The operations of JSON patches (RFC 6902). A path is a list of keys and indexes.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::Value;

/// Fails unless the value at the path is equal.
pub fn test(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: pointer(path), value: value.into() })
}

/// Adds a value, or replaces the value of a key.
pub fn add(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: pointer(path), value: value.into() })
}

/// Replaces a value that exists.
pub fn replace(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: pointer(path), value: value.into() })
}

/// Removes a value that exists.
pub fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: pointer(path) })
}

/// Removes a finalizer by its index, and fails if the list has another finalizer there.
pub fn remove_finalizer(index: usize, finalizer: &str) -> [PatchOperation; 2] {
    let index = index.to_string();
    let path = ["metadata", "finalizers", index.as_str()];
    [test(&path, finalizer), remove(&path)]
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}
