//! All that is read from the objects of one kind, as one tree of paths.

use serde_json::Value;

use super::catalogue::GroupKind;
use super::fields::Fields;
use super::leaf::{ReferenceRule, ReferenceTarget};
use super::path::{Path, Step, for_each};
use super::reading::{ORDINALS, Reading};
use crate::graph::{Edges, MAX_REFERENCES, ObjectPhase};
use crate::objects::{Kinds, PROTECT_LABEL, split_api_version};

/// So many values are read of one object: of an endpoint that takes part in two
/// references there are eight.
const MAX_VALUES: usize = 8 * MAX_REFERENCES;

/// A place of this length counts as one more reference.
const LONG_NAME: usize = 256;

/// The paths that are read from the objects of one kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CompiledRelations {
    pub(super) tree: PathTree,
    pub(super) finished: Vec<(Path, &'static [&'static str])>,
    pub(super) scaled_down: Option<(Path, &'static [GroupKind])>,
    pub(super) established: Option<Path>,
    /// All that is read, of the body and of the metadata beside [`crate::objects::Object`].
    pub(super) fields: Fields,
}

/// Paths, merged where they begin alike.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PathTree {
    next: Vec<(Step, PathTree)>,
    /// The use of the value at the end of a path.
    leaves: Vec<ReferenceRule>,
}

impl CompiledRelations {
    pub(super) fn find_fields(&mut self) {
        let mut fields = Fields::default();
        for field in ["name", "namespace"] {
            fields.add_steps(&[Step::Field("metadata".to_owned()), Step::Field(field.to_owned())]);
        }
        self.tree.add_fields(&mut fields);
        self.tree.leaves(&mut |leaf| {
            if let Some((path, _)) = &leaf.ends_when {
                fields.add(path);
            }
            if let ReferenceTarget::Claims { .. } = leaf.target {
                for path in ORDINALS {
                    fields.add_steps(&names(path));
                }
            }
        });
        let finished = self.finished.iter().map(|(path, _)| path);
        for path in finished.chain(&self.established) {
            fields.add(path);
        }
        if let Some((path, _)) = &self.scaled_down {
            fields.add(path);
            fields.add_steps(
                &[names("/metadata/labels"), vec![Step::Field(PROTECT_LABEL.to_owned())]].concat(),
            );
            for field in ["apiVersion", "kind", "controller"] {
                let owners = fields.add_steps(&names("/metadata/ownerReferences"));
                owners.add_steps(&[Step::Each, Step::Field(field.to_owned())]);
            }
        }
        fields.finish();
        self.fields = fields;
    }

    /// Whether nothing of the body is read.
    pub(super) fn reads_only_metadata(&self) -> bool {
        let metadata = |(step, _): &(Step, PathTree)| *step == Step::Field("metadata".to_owned());
        self.tree.leaves.is_empty()
            && self.tree.next.iter().all(metadata)
            && self.finished.is_empty()
            && self.scaled_down.is_none()
            && self.established.is_none()
    }

    /// The fields that relations read; `None` if they have too many references.
    pub(super) fn read_fields(&self, json: &str) -> Result<Option<Value>, serde_json::Error> {
        let fields = self.fields.read(json, MAX_VALUES)?;
        Ok(fields.filter(|fields| {
            let mut references = 0_usize;
            self.tree.walk(fields, &mut String::new(), &mut |leaf, value, place| {
                // An edge keeps its place, which can be longer than the value.
                references += leaf.max_references(value) * (1 + place.len() / LONG_NAME);
            });
            references <= MAX_REFERENCES
        }))
    }

    /// The edges of an object of which the fields were read, and how far it has
    /// come, in one walk.
    pub(super) fn read(&self, kinds: &mut Kinds, object: &Value) -> (ObjectPhase, Edges) {
        let scaled_down = self.scaled_down.as_ref().is_some_and(|(path, controllers)| {
            path.get(object).and_then(Value::as_u64) == Some(0) && is_history(object, controllers)
        });
        let mut reading = Reading::new(object, kinds, scaled_down);
        self.tree.walk(object, &mut String::new(), &mut |leaf, value, place| {
            reading.edge(leaf, value, place);
        });
        (self.progress(object), reading.edges)
    }

    fn progress(&self, object: &Value) -> ObjectPhase {
        let has = |path: &Path, values: &[&str]| {
            let mut found = false;
            path.visit(object, &mut |_, value| {
                found |= value.as_str().is_some_and(|value| values.contains(&value));
            });
            found
        };
        if self.finished.iter().any(|(path, values)| has(path, values)) {
            return ObjectPhase::Finished;
        }
        match &self.established {
            Some(path) if !has(path, &["True"]) => ObjectPhase::CrdNotServed,
            _ => ObjectPhase::Active,
        }
    }
}

impl PathTree {
    pub(super) fn add(&mut self, steps: &[Step], leaf: ReferenceRule) {
        let Some((step, rest)) = steps.split_first() else {
            self.leaves.push(leaf);
            return;
        };
        let at = self.next.iter().position(|(other, _)| other == step).unwrap_or_else(|| {
            self.next.push((step.clone(), Self::default()));
            self.next.len() - 1
        });
        self.next[at].1.add(rest, leaf);
    }

    pub(super) fn leaves(&self, visit: &mut dyn FnMut(&ReferenceRule)) {
        self.leaves.iter().for_each(&mut *visit);
        self.next.iter().for_each(|(_, tree)| tree.leaves(visit));
    }

    fn add_fields(&self, fields: &mut Fields) {
        self.leaves.iter().for_each(|leaf| fields.add_leaf(leaf));
        for (step, tree) in &self.next {
            tree.add_fields(fields.add_steps(std::slice::from_ref(step)));
        }
    }

    /// Visits each value that a relation's path leads to, with its place.
    fn walk(
        &self,
        value: &Value,
        place: &mut String,
        visit: &mut dyn FnMut(&ReferenceRule, &Value, &str),
    ) {
        for leaf in &self.leaves {
            visit(leaf, value, place);
        }
        for (step, tree) in &self.next {
            for_each(step, value, place, &mut |place, value| tree.walk(value, place, visit));
        }
    }
}

/// The steps of a JSON pointer that leads through fields.
fn names(pointer: &str) -> Vec<Step> {
    pointer.split('/').skip(1).map(|name| Step::Field(name.to_owned())).collect()
}

/// Whether one of these controllers keeps an object that is scaled to none for a
/// rollback. What is protected always is not history.
fn is_history(object: &Value, controllers: &[GroupKind]) -> bool {
    let Some(metadata) = object.get("metadata") else { return false };
    let label = metadata.get("labels").and_then(|labels| labels.get(PROTECT_LABEL)?.as_str());
    let references = metadata.get("ownerReferences").and_then(Value::as_array);
    let controls = |reference: &Value| {
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let (group, _) = split_api_version(text("apiVersion"));
        reference.get("controller").and_then(Value::as_bool) == Some(true)
            && controllers.contains(&(group, text("kind")))
    };
    label != Some("Always") && references.into_iter().flatten().any(controls)
}
