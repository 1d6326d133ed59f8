//! What was found, as a person types or reads it.

use serde_json::Value;

use crate::cluster::terminating::{DeadConversion, Dependent};
use crate::objects::full_name;

/// The strings of a list.
pub fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What helps when nobody converts a kind.
pub fn way_out(dead: &DeadConversion) -> String {
    format!(
        "bring the webhook back; what it is: kubectl get crd {} -o jsonpath={{.spec.conversion}}",
        dead.definition
    )
}

/// The same, where its namespace is plain.
pub fn named(dependent: &Dependent) -> String {
    let resource = full_name(&dependent.info.group, &dependent.info.resource);
    format!("{resource}/{}", dependent.name)
}
