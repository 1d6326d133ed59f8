//! Changes the metadata of objects in protobuf.
//!
//! Clients can store objects by protobuf that JSON can't express: deep managedFields (H137), bytes
//! that are no UTF-8 text (H166), times with a year that JSON can't express (H131, H167), ports
//! with a number and a text (H171). The API server patches the JSON of an object, so it rejects
//! patches of such objects. belay replaces the object by its protobuf, in which all fields but the
//! changed fields keep their bytes.
//!
//! After four bytes, a `runtime.Unknown` contains the object, and the object contains its
//! ObjectMeta.

use serde_json::{Value, json};

use crate::cluster::api::MANAGER;
use crate::cluster::list::is_too_deep;
use crate::objects::hold_fields;

const PREFIX: &[u8] = b"k8s\0";

/// The field of `runtime.Unknown` that contains the object, and the field of the object that
/// contains its ObjectMeta.
const OBJECT: u64 = 2;
const METADATA: u64 = 1;

/// The fields of ObjectMeta.
const UID: u64 = 5;
const RESOURCE_VERSION: u64 = 6;
const DELETION_TIMESTAMP: u64 = 9;
const ANNOTATIONS: u64 = 12;
const FINALIZERS: u64 = 14;
const MANAGED_FIELDS: u64 = 17;

/// The field `fieldsV1` of an entry of managedFields. Its field 1 contains the JSON.
const FIELDS_V1: u64 = 7;

/// The object after a JSON patch of its finalizers and annotations. The API server accepts the
/// result only while it still stores this version. With `reset`, the object gets new managedFields
/// of this API version. `None` if a test of the patch fails.
pub fn patch(object: &[u8], patch: &json_patch::Patch, reset: Option<&str>) -> Option<Vec<u8>> {
    change_metadata(object, |metadata| {
        let patched = patch_metadata(metadata, patch)?;
        reset.map_or(Some(patched.clone()), |version| reset_managed_fields(&patched, version))
    })
}

/// The object with new managedFields; `None` if its managedFields are not nested too deeply for
/// JSON (H137). If another part of the object is too deep, new managedFields would not help, and
/// the write would end the watch of its kind again.
pub fn reset_deep_fields(object: &[u8], api_version: &str) -> Option<Vec<u8>> {
    change_metadata(object, |metadata| {
        let mut is_deep = false;
        for field in Fields(metadata) {
            let field = field?;
            if field.number == MANAGED_FIELDS {
                let fields = find(field.content?, FIELDS_V1)?.and_then(|json| find(json, 1)?);
                let json = String::from_utf8_lossy(fields.unwrap_or_default());
                // The JSON starts at level four: below the object, its metadata, the list and the
                // entry.
                is_deep |= is_too_deep(&json, 4);
            }
        }
        if is_deep { reset_managed_fields(metadata, api_version) } else { None }
    })
}

fn change_metadata(
    object: &[u8],
    change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let object = object.strip_prefix(PREFIX)?;
    let changed = change_field(object, OBJECT, |object| change_field(object, METADATA, change))?;
    Some([PREFIX, &changed].concat())
}

fn patch_metadata(metadata: &[u8], patch: &json_patch::Patch) -> Option<Vec<u8>> {
    let before = json!({ "metadata": read_metadata(metadata)? });
    let mut after = before.clone();
    json_patch::patch(&mut after, patch).ok()?;
    let (before, after) = (&before["metadata"], &after["metadata"]);
    let mut changed = Vec::with_capacity(metadata.len());
    for field in Fields(metadata) {
        let field = field?;
        let stays = match field.number {
            FINALIZERS => false,
            ANNOTATIONS => {
                let (key, _) = read_annotation(field.content?)?;
                before["annotations"][&key] == after["annotations"][&key]
            }
            _ => true,
        };
        if stays {
            changed.extend(field.bytes);
        }
    }
    for finalizer in after["finalizers"].as_array().into_iter().flatten() {
        push_field(&mut changed, FINALIZERS, finalizer.as_str()?.as_bytes());
    }
    for (key, value) in after["annotations"].as_object().into_iter().flatten() {
        if before["annotations"][key] != *value {
            let entry = message(&[(1, key.as_bytes()), (2, value.as_str()?.as_bytes())]);
            push_field(&mut changed, ANNOTATIONS, &entry);
        }
    }
    Some(changed)
}

/// The fields of the metadata that patches test or change, as JSON.
fn read_metadata(metadata: &[u8]) -> Option<Value> {
    let (mut read, mut finalizers) = (json!({}), Vec::new());
    for field in Fields(metadata) {
        let field = field?;
        match field.number {
            UID => read["uid"] = text(field.content?).into(),
            RESOURCE_VERSION => read["resourceVersion"] = text(field.content?).into(),
            DELETION_TIMESTAMP => {
                let seconds = Fields(field.content?).flatten().find(|field| field.number == 1);
                let seconds = seconds.map_or(0, |field| field.value.cast_signed());
                read["deletionTimestamp"] =
                    jiff::Timestamp::from_second(seconds).ok()?.to_string().into();
            }
            ANNOTATIONS => {
                let (key, value) = read_annotation(field.content?)?;
                read["annotations"][key] = value.into();
            }
            FINALIZERS => finalizers.push(text(field.content?)),
            _ => {}
        }
    }
    if !finalizers.is_empty() {
        read["finalizers"] = finalizers.into();
    }
    Some(read)
}

fn read_annotation(entry: &[u8]) -> Option<(String, String)> {
    let read = |number| Some(text(find(entry, number)?.unwrap_or_default()));
    Some((read(1)?, read(2)?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The metadata with one entry of managedFields, which names the hold. Without this entry, the
/// hold would look as old as the object (H18).
fn reset_managed_fields(metadata: &[u8], api_version: &str) -> Option<Vec<u8>> {
    let fields = hold_fields().to_string();
    let mut time = vec![1 << 3];
    push_varint(&mut time, jiff::Timestamp::now().as_second().cast_unsigned());
    let entry = message(&[
        (1, MANAGER.as_bytes()),
        (2, b"Update"),
        (3, api_version.as_bytes()),
        (4, &time),
        (6, b"FieldsV1"),
        (FIELDS_V1, &message(&[(1, fields.as_bytes())])),
    ]);
    let mut changed = Vec::with_capacity(metadata.len());
    for field in Fields(metadata) {
        let field = field?;
        if field.number != MANAGED_FIELDS {
            changed.extend(field.bytes);
        }
    }
    push_field(&mut changed, MANAGED_FIELDS, &entry);
    Some(changed)
}

/// A field of a message.
struct Field<'a> {
    number: u64,
    /// The whole field.
    bytes: &'a [u8],
    /// The content of a field that has a length.
    content: Option<&'a [u8]>,
    /// The value of an integer.
    value: u64,
}

/// The fields of a message. The last one is `None` if the rest of the message is no field.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = std::mem::take(&mut self.0);
        let read = Field::read(message);
        if let Some((_, rest)) = &read {
            self.0 = rest;
        }
        Some(read.map(|(field, _)| field))
    }
}

impl<'a> Field<'a> {
    /// Reads the first field of a message. Returns it and the rest.
    fn read(message: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut rest = message;
        let key = read_varint(&mut rest)?;
        let (mut content, mut value) = (None, 0);
        match key & 7 {
            0 => value = read_varint(&mut rest)?,
            1 => drop(rest.split_off(..8)?),
            2 => {
                let length = usize::try_from(read_varint(&mut rest)?).ok()?;
                content = Some(rest.split_off(..length)?);
            }
            5 => drop(rest.split_off(..4)?),
            _ => return None,
        }
        let bytes = message.get(..message.len() - rest.len())?;
        Some((Self { number: key >> 3, bytes, content, value }, rest))
    }
}

/// The content of the first field with this number. The outer `None`: the message is malformed.
fn find(message: &[u8], number: u64) -> Option<Option<&[u8]>> {
    for field in Fields(message) {
        let field = field?;
        if field.number == number {
            return Some(field.content);
        }
    }
    Some(None)
}

/// Changes the content of the only field with this number; `None` if there is not exactly one.
fn change_field(
    message: &[u8],
    number: u64,
    change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut change = Some(change);
    let mut changed = Vec::with_capacity(message.len());
    for field in Fields(message) {
        let field = field?;
        match field.number == number {
            true => push_field(&mut changed, number, &change.take()?(field.content?)?),
            false => changed.extend(field.bytes),
        }
    }
    change.is_none().then_some(changed)
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn push_field(bytes: &mut Vec<u8>, number: u64, content: &[u8]) {
    push_varint(bytes, number << 3 | 2);
    push_varint(bytes, content.len() as u64);
    bytes.extend(content);
}

fn message(fields: &[(u64, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fields.iter().for_each(|(number, content)| push_field(&mut bytes, *number, content));
    bytes
}

/// An object with this ObjectMeta.
#[cfg(test)]
pub fn object_of_test(metadata: &[u8]) -> Vec<u8> {
    let object = message(&[(METADATA, metadata), (2, b"\xff spec")]);
    [PREFIX, &message(&[(1, b""), (OBJECT, &object)])].concat()
}

/// managedFields of an object that has this many levels.
#[cfg(test)]
pub fn managed_fields_of_test(levels: usize) -> Vec<u8> {
    let (open, close) = ("{\"a\":".repeat(levels - 5), "}".repeat(levels - 5));
    let json = format!("{open}{{}}{close}");
    let entry = message(&[(FIELDS_V1, &message(&[(1, json.as_bytes())]))]);
    message(&[(MANAGED_FIELDS, &entry)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::objects::HOLD;
    use crate::objects::operations::{add, remove, test};

    fn metadata() -> Vec<u8> {
        let note = message(&[(1, b"note"), (2, b"\xfe")]);
        let token = message(&[(1, b"token"), (2, b"1")]);
        let mut time = vec![1 << 3];
        push_varint(&mut time, 1_767_225_600);
        let fields = message(&[
            (1, b"name"),
            (UID, b"u"),
            (RESOURCE_VERSION, b"7"),
            (DELETION_TIMESTAMP, &time),
            (ANNOTATIONS, &note),
            (ANNOTATIONS, &token),
            (FINALIZERS, b"a"),
            (FINALIZERS, b"hold"),
        ]);
        // An integer and fields of fixed length.
        [
            fields,
            vec![7 << 3, 0xff, 1, 40 << 3 | 5, 1, 2, 3, 4],
            vec![0xc9, 2, 1, 2, 3, 4, 5, 6, 7, 8],
        ]
        .concat()
    }

    fn patched(operations: Vec<json_patch::PatchOperation>) -> Option<Vec<u8>> {
        patch(&object_of_test(&metadata()), &json_patch::Patch(operations), None)
    }

    #[test]
    fn a_patch_changes_only_its_finalizers_and_annotations() {
        let removed = patched(vec![
            test(&["metadata", "uid"], "u"),
            test(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z"),
            test(&["metadata", "finalizers", "1"], "hold"),
            remove(&["metadata", "finalizers", "1"]),
            remove(&["metadata", "annotations", "token"]),
            add(&["metadata", "annotations", "new"], "2"),
        ]);
        let mut expected = metadata();
        for (number, content) in
            [(ANNOTATIONS, message(&[(1, b"token"), (2, b"1")])), (FINALIZERS, b"hold".to_vec())]
        {
            let field = message(&[(number, &content)]);
            let at = expected.windows(field.len()).position(|part| part == field).unwrap();
            expected.drain(at..at + field.len());
        }
        // Finalizers and new annotations are at the end.
        let kept = message(&[(FINALIZERS, b"a")]);
        let at = expected.windows(kept.len()).position(|part| part == kept).unwrap();
        expected.drain(at..at + kept.len());
        expected.extend(kept);
        expected.extend(message(&[(ANNOTATIONS, &message(&[(1, b"new"), (2, b"2")]))]));
        assert_eq!(removed, Some(object_of_test(&expected)));
    }

    #[test]
    fn a_patch_gives_no_object_if_one_of_its_tests_fails() {
        for (field, value) in [("uid", "v"), ("resourceVersion", "6"), ("name", "name")] {
            assert_eq!(patched(vec![test(&["metadata", field], value)]), None, "{field}");
        }
        assert!(patched(vec![test(&["metadata", "resourceVersion"], "7")]).is_some());
    }

    #[test]
    fn h137_only_managed_fields_that_are_too_deep_are_reset() {
        let object = |levels| {
            object_of_test(&[metadata(), managed_fields_of_test(levels), metadata()].concat())
        };
        assert_eq!(reset_deep_fields(&object(10_000), "v1"), None);
        let reset = reset_deep_fields(&object(10_001), "v1").unwrap();
        let start = object_of_test(&[metadata(), metadata()].concat()).len();
        assert!((start..start + 200).contains(&reset.len()), "{}", reset.len());
        let hold = format!("{{\"v:\\\"{HOLD}\\\"\":{{}}}}");
        assert!(reset.windows(hold.len()).any(|part| part == hold.as_bytes()));
        assert_eq!(reset_deep_fields(&reset, "v1"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, at: prop::sample::Index) {
            let empty = json_patch::Patch(Vec::new());
            let mut damaged = object_of_test(&metadata());
            let at = at.index(damaged.len());
            damaged.splice(at..at + 1, bytes.iter().copied());
            for object in [&object_of_test(&bytes), &[PREFIX, &bytes].concat(), &bytes, &damaged] {
                let same = patch(object, &empty, Some("v1"));
                prop_assert!(same.is_none_or(|same| same.len() < 2 * object.len() + 400));
                reset_deep_fields(object, "v1");
            }
        }
    }
}
