//! The JSON Schema of a document, generated from the types that commands print.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{Report, VERSION};

/// A kind of documents.
pub struct Kind {
    pub name: &'static str,
    pub schema: Schema,
}

/// The kind of the document with this content.
pub fn kind<T: Report>() -> Kind {
    // The schema describes the serialized form, in which optional fields can be absent.
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let object = schema.ensure_object();
    object.insert("title".to_owned(), T::KIND.into());
    for (field, value, description) in [
        ("apiVersion", VERSION, "The version of the document."),
        ("kind", T::KIND, "The kind of the document."),
    ] {
        let schema = json!({"type": "string", "const": value, "description": description});
        if let Some(Value::Object(fields)) = object.get_mut("properties") {
            fields.insert(field.to_owned(), schema);
        }
        if let Some(Value::Array(required)) = object.get_mut("required") {
            required.insert(0, field.into());
        }
    }
    Kind { name: T::KIND, schema }
}
