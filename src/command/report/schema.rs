//! The JSON Schema of a document, generated from the types that commands print.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{Report, VERSION};

/// One kind of documents.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its schema.
    pub schema: Schema,
}

/// The kind of the document with this content.
pub fn kind<T: Report>() -> Kind {
    // The schema describes the serialized form: an optional field that is left out is not
    // required.
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let object = schema.ensure_object();
    object.insert("title".to_owned(), T::KIND.into());
    for (field, always, meaning) in [
        ("apiVersion", VERSION, "The version of the document."),
        ("kind", T::KIND, "The kind of the document."),
    ] {
        let says = json!({"type": "string", "const": always, "description": meaning});
        if let Some(Value::Object(fields)) = object.get_mut("properties") {
            fields.insert(field.to_owned(), says);
        }
        if let Some(Value::Array(required)) = object.get_mut("required") {
            required.insert(0, field.into());
        }
    }
    Kind { name: T::KIND, schema }
}
