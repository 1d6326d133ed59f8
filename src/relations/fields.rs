//! Reads only the fields of an object that relations need.
//!
//! Every tenant can write a megabyte of deeply nested JSON into fields that no relation
//! reads. The reader follows the paths of the relations. It skips every other value without
//! recursion and without storing it. So the longest path limits the stack of the reader, and
//! the number of values that it reads limits its memory.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde::de::Error;
use serde_json::Value;

use super::path::{Path, Step};
use super::rule::{ReferenceRule, ReferenceTarget};
use crate::objects::{ValueParts, read_lossy, read_parts};

/// The reader skips longer texts. They can't name an object, because Kubernetes limits names
/// to 253 characters.
const MAX_TEXT_BYTES: usize = 4096;

/// The fields to read of a value. A value that is no list or map is read whole, unless it is a long
/// text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields {
    named: BTreeMap<String, Fields>,
    /// The fields of each element of a list.
    each: Option<Box<Fields>>,
    /// The fields of each value of a map, besides the named ones.
    values: Option<Box<Fields>>,
}

impl Fields {
    /// Adds a path, and returns the fields at its end.
    pub(super) fn add(&mut self, path: &Path) -> &mut Self {
        self.add_steps(path.steps())
    }

    pub(super) fn add_steps(&mut self, steps: &[Step]) -> &mut Self {
        steps.iter().fold(self, |fields, step| match step {
            Step::Field(name) => fields.insert_named(name),
            Step::Each => fields.insert_each(),
            Step::Values => fields.insert_values(),
            Step::Where(field, _) => {
                let each = fields.insert_each();
                each.insert_named(field);
                each
            }
        })
    }

    fn insert_named(&mut self, name: &str) -> &mut Self {
        self.named.entry(name.to_owned()).or_default()
    }

    fn insert_each(&mut self) -> &mut Self {
        self.each.get_or_insert_default()
    }

    fn insert_values(&mut self) -> &mut Self {
        self.values.get_or_insert_default()
    }

    /// Adds the fields that a rule reads of this value.
    pub(super) fn add_rule(&mut self, rule: &ReferenceRule) {
        match &rule.target {
            ReferenceTarget::Name { name, namespace, uid, .. } => {
                self.add(name);
                for path in namespace.iter().chain(uid) {
                    self.add(path);
                }
            }
            ReferenceTarget::Typed { group, kind, name, namespace, .. } => {
                for path in [kind, name].into_iter().chain(namespace) {
                    self.add(path);
                }
                if group.steps().is_empty() {
                    self.insert_named("apiVersion");
                    self.insert_named("apiGroup");
                } else {
                    self.add(group);
                }
            }
            ReferenceTarget::Labels { plain: true, .. } => {
                self.insert_values();
            }
            ReferenceTarget::Labels { plain: false, .. } => {
                self.insert_named("matchLabels").insert_values();
                let expressions = self.insert_named("matchExpressions").insert_each();
                expressions.insert_named("key");
                expressions.insert_named("operator");
                expressions.insert_named("values").insert_each();
            }
            ReferenceTarget::Claims { .. } => {
                self.insert_named("metadata").insert_named("name");
            }
            ReferenceTarget::EphemeralClaim { .. } => {
                self.insert_named("name");
                self.insert_named("ephemeral");
            }
            ReferenceTarget::SameName { .. } => {}
        }
        if let Some(path) = &rule.optional {
            self.add(path);
        }
    }

    /// Adds the fields of `values` to each named field, because `{*}` also selects named fields.
    /// Call this function once, after the last path.
    pub(super) fn finish(&mut self) {
        if let Some(values) = &self.values {
            self.named.values_mut().for_each(|named| named.merge(values));
        }
        let children = self.each.iter_mut().chain(&mut self.values).map(|fields| &mut **fields);
        children.chain(self.named.values_mut()).for_each(Self::finish);
    }

    fn merge(&mut self, other: &Self) {
        for (name, fields) in &other.named {
            self.insert_named(name).merge(fields);
        }
        if let Some(each) = &other.each {
            self.insert_each().merge(each);
        }
        if let Some(values) = &other.values {
            self.insert_values().merge(values);
        }
    }

    fn child(&self, key: &str) -> Option<&Self> {
        self.named.get(key).or(self.values.as_deref())
    }

    /// Reads these fields of an object. Returns `None` if they have more than `limit` values.
    pub(super) fn read(
        &self,
        json: &str,
        limit: usize,
    ) -> Result<Option<Value>, serde_json::Error> {
        let read = |json: &str| {
            let remaining = Cell::new(Some(limit));
            let reader = FieldReader { fields: self, remaining: &remaining };
            match read_parts(json, reader) {
                Err(_) if remaining.get().is_none() => Ok(None),
                value => value.map(Some),
            }
        };
        match read_lossy(json, read)? {
            None => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(value)),
            Some(_) => Err(serde_json::Error::custom("expected an object")),
        }
    }
}

/// Reads fields of a value.
#[derive(Clone, Copy)]
struct FieldReader<'f> {
    fields: &'f Fields,
    /// The remaining number of values; `None` if there were too many.
    remaining: &'f Cell<Option<usize>>,
}

impl ValueParts for FieldReader<'_> {
    fn enter<E: Error>(self) -> Result<bool, E> {
        self.remaining.set(self.remaining.get().and_then(|remaining| remaining.checked_sub(1)));
        self.remaining.get().map(|_| true).ok_or_else(|| E::custom("too many values"))
    }

    fn text(self, text: &str) -> Value {
        if text.len() <= MAX_TEXT_BYTES { text.into() } else { Value::Null }
    }

    fn element(self) -> Option<Self> {
        self.fields.each.as_deref().map(|fields| Self { fields, ..self })
    }

    fn field(self, key: &str) -> Option<Self> {
        let fields = self.fields.child(key).filter(|_| key.len() <= MAX_TEXT_BYTES);
        fields.map(|fields| Self { fields, ..self })
    }
}

/// Merges another value into a value. Merges elements of lists by their index.
pub(super) fn merge_value(to: &mut Value, other: Value) {
    match (to, other) {
        (Value::Object(to), Value::Object(other)) => {
            for (key, value) in other {
                match to.get_mut(&key) {
                    Some(known) => merge_value(known, value),
                    None => drop(to.insert(key, value)),
                }
            }
        }
        (Value::Array(to), Value::Array(other)) => {
            let mut other = other.into_iter();
            to.iter_mut().zip(&mut other).for_each(|(known, value)| merge_value(known, value));
            to.extend(other);
        }
        (to, other) => *to = other,
    }
}

#[cfg(test)]
mod tests;
