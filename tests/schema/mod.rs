//! The schemas of the documents of `-o json`, as `belay admin schemas` prints them: their
//! fields, and the validation of documents.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// All kinds, with their schemas.
pub fn schemas() -> BTreeMap<String, Value> {
    let command = Command::new(env!("CARGO_BIN_EXE_belay")).args(["admin", "schemas"]).output();
    let output = command.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A part of a schema.
#[derive(Clone, Copy)]
pub struct Schema<'s> {
    /// The root document of references.
    pub root: &'s Value,
    /// The part.
    pub of: &'s Value,
}

impl<'s> Schema<'s> {
    /// Another part of the same.
    pub fn with(self, of: &'s Value) -> Self {
        Self { of, ..self }
    }

    /// The name of the referenced type, if the schema only refers to a type.
    pub fn refers(self) -> Option<&'s str> {
        self.of["$ref"].as_str()?.strip_prefix("#/$defs/")
    }

    /// The schema that a reference points to. For a nullable schema, the one that is not
    /// null.
    pub fn resolved(self) -> Self {
        if let Some(name) = self.refers() {
            return self.with(&self.root["$defs"][name]).resolved();
        }
        if let Some(all) = self.of["anyOf"].as_array() {
            let other = all.iter().find(|one| one["type"] != "null");
            return other.map_or(self, |other| self.with(other).resolved());
        }
        self
    }

    /// The description.
    pub fn meaning(self) -> String {
        let said = self.of["description"].as_str();
        said.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The words that it may be, each with its meaning.
    pub fn words(self) -> Vec<(String, String)> {
        let of = self.resolved();
        let plain = of.of["enum"].as_array().into_iter().flatten();
        let told = of.of["oneOf"].as_array().into_iter().flatten();
        let told = told.flat_map(|one| {
            let several = one["enum"].as_array().into_iter().flatten();
            several.chain(one.get("const")).map(|word| (word, of.with(one).meaning()))
        });
        let words = plain.map(|word| (word, String::new())).chain(told);
        words.filter_map(|(word, says)| Some((word.as_str()?.to_owned(), says))).collect()
    }

    /// Its types, without null.
    pub fn types(self) -> Vec<&'s str> {
        let of = self.resolved().of;
        let one = of["type"].as_str();
        let all = of["type"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut types: Vec<&str> = one.into_iter().chain(all).filter(|of| *of != "null").collect();
        if types.is_empty() && of["oneOf"].is_array() {
            types.push("string");
        }
        types
    }
}

/// The differences of a document from its schema. A field that the schema does not contain
/// is a difference.
pub fn differences(schema: Schema<'_>, value: &Value, path: &str) -> Vec<String> {
    let of = schema.resolved();
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types = of.types();
    let may_be = |of| types.contains(&of);
    if !(may_be(is) || is == "integer" && may_be("number")) {
        return vec![format!("{path}: {is}, and not {}", types.join(" or "))];
    }
    let words = of.words();
    if !words.is_empty() && !words.iter().any(|(word, _)| value == word.as_str()) {
        return vec![format!("{path}: {value} is none of its words")];
    }
    if of.of.get("const").is_some_and(|always| always != value) {
        return vec![format!("{path}: {value}, and not {}", of.of["const"])];
    }
    let mut wrong = Vec::new();
    match value {
        Value::Array(all) => {
            let one = of.with(&of.of["items"]);
            wrong
                .extend(all.iter().flat_map(|value| differences(one, value, &format!("{path}[]"))));
        }
        Value::Object(all) => {
            for (name, value) in all {
                let known = of.of["properties"].get(name);
                let known = known.or(of.of.get("additionalProperties").filter(|of| of.is_object()));
                match known {
                    Some(known) => {
                        wrong.extend(differences(of.with(known), value, &format!("{path}.{name}")));
                    }
                    None => wrong.push(format!("{path}.{name}: no known field")),
                }
            }
            let required = of.of["required"].as_array().into_iter().flatten();
            let missing =
                required.filter_map(Value::as_str).filter(|name| !all.contains_key(*name));
            wrong.extend(missing.map(|name| format!("{path}.{name}: it is not there")));
        }
        _ => {}
    }
    wrong
}
