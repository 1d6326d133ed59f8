//! The relations of one kind, merged into one tree of paths.

use serde_json::Value;

use super::edges::{EdgeBuilder, ORDINAL_FIELDS};
use super::fields::Fields;
use super::path::{Path, Step, for_each};
use super::rows::GroupKind;
use super::rule::{ReferenceRule, ReferenceTarget};
use crate::graph::{Edges, ObjectPhase};
use crate::objects::{Kinds, MAX_REFERENCES, PROTECT_LABEL, split_api_version};

/// The limit of values that belay reads of one object: 8 for each of [`MAX_REFERENCES`]. An
/// EndpointSlice needs 6, because each endpoint has at most six values for one reference.
const MAX_VALUES: usize = 8 * MAX_REFERENCES;

/// The number of bytes of a path that count as one more reference, because the edge stores the
/// path.
const PATH_BYTES_PER_REFERENCE: usize = 256;

/// The paths that are read from the objects of one kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CompiledRelations {
    pub(super) tree: PathTree,
    /// The entries of [`FINISHED`](super::rows::FINISHED) for the kind: the field and the
    /// values of a finished object.
    pub(super) finished: Vec<(Path, &'static [&'static str])>,
    /// The entry of [`SCALED_DOWN`](super::rows::SCALED_DOWN) for the kind: the field with the
    /// replicas, and the controllers.
    pub(super) scaled_down: Option<(Path, &'static [GroupKind])>,
    /// The field of [`ESTABLISHED`](super::rows::ESTABLISHED), if the kind is CRDs.
    pub(super) established: Option<Path>,
    /// All fields that relations read.
    pub(super) fields: Fields,
}

/// A tree of paths. Paths with a common prefix share its nodes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PathTree {
    children: Vec<(Step, PathTree)>,
    /// The rules for the value at this path.
    rules: Vec<ReferenceRule>,
}

impl CompiledRelations {
    pub(super) fn collect_fields(&mut self) {
        let mut fields = Fields::default();
        for field in ["name", "namespace"] {
            fields.add_steps(&[Step::Field("metadata".to_owned()), Step::Field(field.to_owned())]);
        }
        self.tree.add_fields(&mut fields);
        self.tree.visit_rules(&mut |rule| {
            if let Some((path, _)) = &rule.ends_when {
                fields.add(path);
            }
            if let ReferenceTarget::Claims { .. } = rule.target {
                for path in ORDINAL_FIELDS {
                    fields.add_steps(&pointer_steps(path));
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
                &[pointer_steps("/metadata/labels"), vec![Step::Field(PROTECT_LABEL.to_owned())]]
                    .concat(),
            );
            for field in ["apiVersion", "kind", "controller"] {
                let owners = fields.add_steps(&pointer_steps("/metadata/ownerReferences"));
                owners.add_steps(&[Step::Each, Step::Field(field.to_owned())]);
            }
        }
        fields.finish();
        self.fields = fields;
    }

    /// Whether relations read only fields of the metadata.
    pub(super) fn reads_only_metadata(&self) -> bool {
        let metadata = |(step, _): &(Step, PathTree)| *step == Step::Field("metadata".to_owned());
        self.tree.rules.is_empty()
            && self.tree.children.iter().all(metadata)
            && self.finished.is_empty()
            && self.scaled_down.is_none()
            && self.established.is_none()
    }

    /// The fields that relations read; `None` if they contain too many references.
    pub(super) fn read_fields(&self, json: &str) -> Result<Option<Value>, serde_json::Error> {
        let fields = self.fields.read(json, MAX_VALUES)?;
        Ok(fields.filter(|fields| {
            let mut references = 0_usize;
            self.tree.walk(fields, &mut String::new(), &mut |rule, value, place| {
                references +=
                    rule.max_references(value) * (1 + place.len() / PATH_BYTES_PER_REFERENCE);
            });
            references <= MAX_REFERENCES
        }))
    }

    /// The phase and the edges of an object, from the result of [`Self::read_fields`].
    pub(super) fn read(&self, kinds: &mut Kinds, object: &Value) -> (ObjectPhase, Edges) {
        let scaled_down = self.scaled_down.as_ref().is_some_and(|(path, controllers)| {
            path.get(object).and_then(Value::as_u64) == Some(0)
                && is_kept_for_rollback(object, controllers)
        });
        let mut builder = EdgeBuilder::new(object, kinds, scaled_down);
        self.tree.walk(object, &mut String::new(), &mut |rule, value, place| {
            builder.add_edges(rule, value, place);
        });
        (self.phase(object), builder.edges)
    }

    fn phase(&self, object: &Value) -> ObjectPhase {
        let has = |path: &Path, values: &[&str]| {
            let mut has_value = false;
            path.visit(object, &mut |_, value| {
                has_value |= value.as_str().is_some_and(|value| values.contains(&value));
            });
            has_value
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
    pub(super) fn add(&mut self, steps: &[Step], rule: ReferenceRule) {
        let Some((step, rest)) = steps.split_first() else {
            self.rules.push(rule);
            return;
        };
        let index =
            self.children.iter().position(|(other, _)| other == step).unwrap_or_else(|| {
                self.children.push((step.clone(), Self::default()));
                self.children.len() - 1
            });
        self.children[index].1.add(rest, rule);
    }

    pub(super) fn visit_rules(&self, visit: &mut dyn FnMut(&ReferenceRule)) {
        self.rules.iter().for_each(&mut *visit);
        self.children.iter().for_each(|(_, tree)| tree.visit_rules(visit));
    }

    fn add_fields(&self, fields: &mut Fields) {
        self.rules.iter().for_each(|rule| fields.add_rule(rule));
        for (step, tree) in &self.children {
            tree.add_fields(fields.add_steps(std::slice::from_ref(step)));
        }
    }

    /// Calls `visit` for each rule and each value at its path, with the path of the value.
    fn walk(
        &self,
        value: &Value,
        place: &mut String,
        visit: &mut dyn FnMut(&ReferenceRule, &Value, &str),
    ) {
        for rule in &self.rules {
            visit(rule, value, place);
        }
        for (step, tree) in &self.children {
            for_each(step, value, place, &mut |place, value| tree.walk(value, place, visit));
        }
    }
}

/// The steps of a JSON pointer that has only fields.
fn pointer_steps(pointer: &str) -> Vec<Step> {
    pointer.split('/').skip(1).map(|name| Step::Field(name.to_owned())).collect()
}

/// Whether one of these controllers keeps an object for a rollback if it has zero replicas. False
/// for an object with the value Always of belay's label.
fn is_kept_for_rollback(object: &Value, controllers: &[GroupKind]) -> bool {
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
