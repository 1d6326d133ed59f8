//! Strategic merge patches in place of JSON patches.
//!
//! The API server applies a JSON patch to the JSON of an object. JSON has only UTF-8, so other
//! bytes, which clients can store by protobuf, change. If their field is immutable, the API server
//! rejects every JSON patch of the object (H166). It applies a strategic merge patch to the object
//! itself, where the bytes stay as they are.

use serde_json::{Map, Value, json};

/// The strategic merge patch that does to this version of an object what a JSON patch does to its
/// finalizers and annotations. `None` if a test of the JSON patch fails.
pub fn strategic_patch(object: &Value, patch: &json_patch::Patch) -> Option<Value> {
    let mut patched = object.clone();
    json_patch::patch(&mut patched, patch).ok()?;
    let (before, after) = (&object["metadata"], &patched["metadata"]);
    let (removed_finalizers, added) = differences(&finalizers(before), &finalizers(after));
    let (removed, set) = (annotations(before), annotations(after));
    let removed = removed.into_iter().filter(|(key, _)| !set.contains_key(key));
    let removed: Map<_, _> = removed.map(|(key, _)| (key, Value::Null)).collect();
    let set = set.into_iter().filter(|(key, value)| before["annotations"][key] != *value);
    // The patch has no tests, so it applies to this version only.
    let mut metadata = json!({
        "uid": before["uid"], "resourceVersion": before["resourceVersion"],
        "annotations": removed.into_iter().chain(set).collect::<Map<_, _>>(),
    });
    for (field, names) in
        [("finalizers", added), ("$deleteFromPrimitiveList/finalizers", removed_finalizers)]
    {
        if !names.is_empty() {
            metadata[field] = names.into();
        }
    }
    Some(json!({ "metadata": metadata }))
}

/// What only the first list has, and what only the second has. The patch removes every occurrence
/// of a value, so a value with fewer occurrences counts as removed.
fn differences(before: &[Value], after: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let times = |list: &[Value], value: &Value| list.iter().filter(|one| *one == value).count();
    let less = |list: &[Value], other: &[Value]| -> Vec<_> {
        list.iter().filter(|one| times(list, one) > times(other, one)).cloned().collect()
    };
    (less(before, after), less(after, before))
}

fn finalizers(metadata: &Value) -> Vec<Value> {
    metadata["finalizers"].as_array().cloned().unwrap_or_default()
}

fn annotations(metadata: &Value) -> Map<String, Value> {
    metadata["annotations"].as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::operations::{add, remove, test};

    fn object() -> Value {
        json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "finalizers": ["a", "hold"],
            "annotations": {"token": "1", "note": "x"},
        }})
    }

    #[test]
    fn it_changes_what_the_json_patch_changes_on_the_same_version() {
        let release = json_patch::Patch(vec![
            test(&["metadata", "finalizers", "1"], "hold"),
            remove(&["metadata", "finalizers", "1"]),
            remove(&["metadata", "annotations", "token"]),
        ]);
        let expected = json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "annotations": {"token": null},
            "$deleteFromPrimitiveList/finalizers": ["hold"],
        }});
        assert_eq!(strategic_patch(&object(), &release), Some(expected));
        let mark = json_patch::Patch(vec![
            add(&["metadata", "finalizers", "0"], "new"),
            add(&["metadata", "annotations", "token"], "2"),
        ]);
        let expected = json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "annotations": {"token": "2"},
            "finalizers": ["new"],
        }});
        assert_eq!(strategic_patch(&object(), &mark), Some(expected));
    }

    #[test]
    fn there_is_none_if_a_test_of_the_json_patch_fails() {
        let stale = json_patch::Patch(vec![test(&["metadata", "annotations", "token"], "0")]);
        assert_eq!(strategic_patch(&object(), &stale), None);
    }
}
