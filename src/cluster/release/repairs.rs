//! Repairs of objects that the API server stores but can't read back or send: unusual times, and
//! deep managedFields.
//!
//! The API server accepts `9999-12-31T23:59:59-23:59` and writes it as
//! `10000-01-01T23:58:59Z`. From then on it rejects each patch that leaves this time in the
//! object (H131), so the patch has to write the time again.

use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cluster::api::MANAGER;
use crate::cluster::list::is_too_deep;
use crate::objects::{HOLD, operations, read_without_managed_fields};

/// About how many operations a repair has at most. Real objects need few: only
/// `managedFields` has many times, and each such list takes one operation.
const MAX_OPERATIONS: usize = 1_000;

/// The managedFields of a repaired object. The hold must not look older (H18), so the only entry
/// names it.
pub fn managed_fields(api_version: &str) -> Value {
    let key = format!("v:\"{HOLD}\"");
    let seconds = jiff::Timestamp::now().as_second();
    json!([{
        "manager": MANAGER, "operation": "Update", "apiVersion": api_version,
        "time": jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string(),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:finalizers": {key: {}}}},
    }])
}

/// The fields of an object that may be nested too deeply.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DeepFields<'a> {
    #[serde(borrow)]
    metadata: DeepMetadata<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DeepMetadata<'a> {
    uid: String,
    resource_version: String,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

/// The strategic merge patch that removes what is nested too deeply for JSON from managedFields
/// (H137). `None` if managedFields are not too deep. A patch of an object that stays too deep would
/// only end its watch again.
pub fn reset_deep_fields(json: &str, api_version: &str) -> Option<Value> {
    let DeepFields { metadata } = serde_json::from_str(json).ok()?;
    metadata.managed_fields.filter(|fields| is_too_deep(fields.get(), 2))?;
    let mut patch = json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version,
        "managedFields": managed_fields(api_version),
    }});
    let object = read_without_managed_fields(json).unwrap_or_default();
    for template in TEMPLATES {
        let time = object.pointer(&format!("{template}/metadata/creationTimestamp"));
        let time = time.and_then(Value::as_str);
        if time.is_some_and(is_unreadable) {
            let mut place = &mut patch;
            for field in template.split('/').skip(1).chain(["metadata"]) {
                place = &mut place[field];
            }
            place["creationTimestamp"] = Value::Null;
        }
    }
    Some(patch)
}

/// The templates in objects of Kubernetes, except those in lists, which a merge would replace.
const TEMPLATES: [&str; 4] =
    ["/spec/template", "/spec/jobTemplate", "/spec/jobTemplate/spec/template", "/template"];

/// The operations that make an object readable for the API server. `object` has all fields
/// but its own managedFields, which the operations replace. All other times keep their value,
/// even in immutable fields.
pub fn repair(object: &Value, api_version: &str) -> Vec<PatchOperation> {
    let reset = operations::add(&["metadata", "managedFields"], managed_fields(api_version));
    let mut repairs = vec![reset];
    collect(object, &mut PointerBuf::new(), &mut repairs);
    repairs
}

fn collect(value: &Value, path: &mut PointerBuf, operations: &mut Vec<PatchOperation>) {
    if operations.len() >= MAX_OPERATIONS {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                path.push_back(key);
                collect_field(key, value, path, operations);
                path.pop_back();
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                path.push_back(index);
                collect(value, path, operations);
                path.pop_back();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn collect_field(
    key: &str,
    value: &Value,
    path: &mut PointerBuf,
    operations: &mut Vec<PatchOperation>,
) {
    let is_time = key == "time" || key.ends_with("Time") || key.ends_with("Timestamp");
    match (key, value) {
        // Their values are texts.
        ("annotations" | "data", _) => {}
        (_, Value::String(text)) if is_time => {
            let (path, value) = (path.clone(), value.clone());
            let test = PatchOperation::Test(TestOperation { path: path.clone(), value });
            match readable_time(text) {
                Some(readable) => {
                    let value = json!(readable);
                    let replace = PatchOperation::Replace(ReplaceOperation { path, value });
                    operations.extend([test, replace]);
                }
                None if key == "creationTimestamp" && is_unreadable(text) => {
                    operations.extend([test, PatchOperation::Remove(RemoveOperation { path })]);
                }
                None => {}
            }
        }
        _ => collect(value, path, operations),
    }
}

/// Whether no client can write this time in JSON: protobuf has more years. A `creationTimestamp`
/// means nothing in a template, so a repair may remove it.
fn is_unreadable(time: &str) -> bool {
    time.parse::<jiff::Timestamp>().is_err()
}

/// The same time with an offset, so that its year has four digits; `None` if it has them.
fn readable_time(text: &str) -> Option<String> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut clock = clock.splitn(3, ':');
    let mut number = || clock.next()?.parse::<u16>().ok().map(u32::from);
    let minute = number()? * 60 + number()?;
    let second = clock.next()?;
    let day = |text: &str| text.parse::<u8>().ok().map(u32::from);
    let (start, sign, offset) = match date.strip_prefix("10000-01-") {
        Some(text) => ("9999-12-31T23:59", '-', (day(text)? * 1440 + minute).checked_sub(1439)?),
        None => {
            let day = day(date.strip_prefix("-0001-12-")?)?;
            ("0000-01-01T00:00", '+', (32 * 1440_u32).checked_sub(day * 1440 + minute)?)
        }
    };
    // The API server reads offsets up to 24:60.
    let hours = (offset / 60).min(24);
    let minutes = offset - hours * 60;
    (offset > 0 && minutes <= 60).then(|| format!("{start}:{second}{sign}{hours:02}:{minutes:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h131_a_time_that_the_api_server_cannot_read_is_written_with_an_offset() {
        for (stored, readable) in [
            ("10000-01-01T00:00:00Z", "9999-12-31T23:59:00-00:01"),
            ("10000-01-01T23:58:59Z", "9999-12-31T23:59:59-23:59"),
            ("10000-01-02T00:59:59.000001Z", "9999-12-31T23:59:59.000001-24:60"),
            ("-0001-12-31T23:59:07Z", "0000-01-01T00:00:07+00:01"),
            ("-0001-12-31T00:01:00Z", "0000-01-01T00:00:00+23:59"),
            ("-0001-12-30T23:00:00Z", "0000-01-01T00:00:00+24:60"),
        ] {
            assert_eq!(readable_time(stored).as_deref(), Some(readable), "{stored}");
        }
        for other in [
            "9999-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z",
            "",
            "10000-01-00T00:00:00Z",
            "10000-01-01T99999:00:00Z",
            "-0001-12-32T00:00:00Z",
            "10000-01-01TZ",
            "10000-01-99T00:00:00Z",
            "10000-01-01T60000:60000:00Z",
        ] {
            assert_eq!(readable_time(other), None, "{other}");
        }
    }

    #[test]
    fn h137_only_managed_fields_that_are_too_deep_are_reset() {
        let fields = |levels: usize| {
            let (open, close) = ("{\"a\":".repeat(levels - 4), "}".repeat(levels - 4));
            format!("[{{\"fieldsV1\":{{\"f:a\":{open}{{}}{close}}}}}]")
        };
        let reset = |levels| {
            let metadata = format!(
                "{{\"uid\":\"u\",\"resourceVersion\":\"1\",\"managedFields\":{}}}",
                fields(levels)
            );
            reset_deep_fields(&format!("{{\"metadata\":{metadata}}}"), "v1")
        };
        assert_eq!(reset(9_998), None);
        let patch = reset(9_999).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "1");
        assert!(patch["metadata"]["managedFields"].is_array());
        assert_eq!(reset_deep_fields("{\"metadata\":{}}", "v1"), None);
    }

    #[test]
    fn h131_a_repair_keeps_texts_and_has_few_operations() {
        let (bad, good) = ("10000-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let object = json!({
            "metadata": {"name": bad, "annotations": {"bootTime": bad}},
            "data": {"bootTime": bad},
            "spec": {"claims": [{"metadata": {"creationTimestamp": good}},
                                {"metadata": {"creationTimestamp": bad}}]},
        });
        let mut repaired = object.clone();
        json_patch::patch(&mut repaired, &repair(&object, "apps/v1")).unwrap();
        let mut expected = object;
        let claim = "/spec/claims/1/metadata/creationTimestamp";
        *expected.pointer_mut(claim).unwrap() = json!("9999-12-31T23:59:00-00:01");
        expected["metadata"]["managedFields"] = repaired["metadata"]["managedFields"].clone();
        assert_eq!(repaired, expected);
        let claims = json!({"claims": vec![json!({"creationTimestamp": bad}); 20_000]});
        assert!(repair(&claims, "v1").len() <= MAX_OPERATIONS + 1);
    }
}
