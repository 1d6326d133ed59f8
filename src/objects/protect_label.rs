//! The label that protects one object.

use super::without_controls;

/// The label that protects an object without a policy.
pub const PROTECT_LABEL: &str = "belay.dev/protect";

/// The values of the label that protect an object.
pub const LABEL_VALUES: [&str; 2] = ["Always", "WhileUsed"];

/// The warning about a value that protects nothing. The API server rejects such values, but an
/// older object may have one.
pub fn label_warning(value: Option<&str>) -> Option<String> {
    let value = value.filter(|value| !LABEL_VALUES.contains(value))?;
    Some(format!(
        "the label {PROTECT_LABEL}={} protects nothing: set it to {} or remove it",
        without_controls(value),
        LABEL_VALUES.join(" or ")
    ))
}
