//! What is done about one object.

use json_patch::Patch;
use serde_json::Value;

use crate::hold::{self, TargetState, plan_patch};
use crate::objects::{HOLD, former_holds};

/// What is done about one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It has no hold.
    Nothing,
    /// Its hold goes, whoever needs it: it stays all the same, unless its owner
    /// or its Namespace is on its way out.
    TakeOff(Patch),
    /// It is Terminating: without its hold it would go.
    Waits,
}

/// What is done about an object as it was read; with its namespace and name.
/// None: this is no object.
pub fn plan(object: &Value) -> Option<(Step, String, String)> {
    let sight = TargetState::read(object)?;
    let text = |field: &str| {
        let value = object.pointer(&format!("/metadata/{field}"));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let plan = match (sight.hold, &sight.deleted) {
        (None, _) => Step::Nothing,
        (Some(_), Some(_)) => Step::Waits,
        // It tests the version, so what is patched is not Terminating either.
        (Some(hold), None) => plan_patch(&hold::Plan::TakeOff(hold), &sight.uid, &sight.version)
            .map_or(Step::Nothing, Step::TakeOff),
    };
    Some((plan, text("namespace"), text("name")))
}

/// Whether the JSON of an object can have the hold in it at all: most have not,
/// and are not read any further.
pub fn mentions_hold(json: &str) -> bool {
    json.contains(HOLD) || former_holds().iter().any(|name| json.contains(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(finalizers: &[&str], deleted: bool) -> Value {
        let mut object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u",
            "resourceVersion": "7", "finalizers": finalizers, "labels": {"l": "v"}}});
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        object
    }

    #[test]
    fn only_our_finalizer_goes_and_only_from_what_stays() {
        let held = object(&["x/y", HOLD, "z/z"], false);
        let Some((Step::TakeOff(patch), namespace, name)) = plan(&held) else { panic!() };
        assert_eq!((namespace.as_str(), name.as_str()), ("n", "a"));
        let mut after = held.clone();
        json_patch::patch(&mut after, &patch).unwrap();
        assert_eq!(after, object(&["x/y", "z/z"], false));
        // Upon another version it changes nothing.
        let mut other = held;
        other["metadata"]["resourceVersion"] = json!("8");
        assert!(json_patch::patch(&mut other, &patch).is_err());

        assert_eq!(plan(&object(&["x/y"], false)).unwrap().0, Step::Nothing);
        assert_eq!(plan(&object(&["x/y"], true)).unwrap().0, Step::Nothing);
        assert_eq!(plan(&object(&[HOLD], true)).unwrap().0, Step::Waits);
        assert_eq!(plan(&json!({"kind": "Status"})), None);
    }

    #[test]
    fn what_says_nothing_of_the_hold_is_not_read() {
        assert!(mentions_hold(&object(&[HOLD], false).to_string()));
        assert!(!mentions_hold(&object(&["x/y"], true).to_string()));
    }
}
