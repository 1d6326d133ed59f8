//! Reads fields of JSON. A field that is absent, or has another type, is read as empty.

use serde_json::Value;

/// The text at a pointer.
pub fn text_at<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list at a pointer.
pub fn list_at<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts in the list at a pointer.
pub fn texts_at<'v>(value: &'v Value, pointer: &str) -> Vec<&'v str> {
    list_at(value, pointer).iter().filter_map(Value::as_str).collect()
}

/// The condition of this type in the status of an object.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list_at(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}
