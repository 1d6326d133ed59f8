//! From the values that paths lead to, to edges.

use std::sync::Arc;

use serde_json::Value;

use super::catalogue::NameableKinds;
use super::leaf::{ReferenceRule, ReferenceTarget};
use super::path::Path;
use crate::graph::{
    EdgeQualifier, Edges, Requirement, Selector, SelectorEdge, Strength, UnresolvedUse,
};
use crate::objects::{KindId, Kinds, Uid, split_api_version};

/// What decides about the claims of a StatefulSet beside its templates.
pub(super) const ORDINALS: [&str; 3] = [
    "/spec/ordinals/start",
    "/spec/replicas",
    "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
];

/// The fields of the object that all its edges need.
pub(super) struct Reading<'o> {
    object: &'o Value,
    namespace: &'o str,
    name: &'o str,
    scaled_down: bool,
    kinds: &'o mut Kinds,
    pub(super) edges: Edges,
}

impl<'o> Reading<'o> {
    pub(super) fn new(object: &'o Value, kinds: &'o mut Kinds, scaled_down: bool) -> Self {
        let metadata = |field: &str| {
            let value = object.get("metadata").and_then(|metadata| metadata.get(field));
            value.and_then(Value::as_str).unwrap_or_default()
        };
        let (namespace, name) = (metadata("namespace"), metadata("name"));
        Self { object, namespace, name, scaled_down, kinds, edges: Edges::default() }
    }

    /// Makes the edge, or edges, of one value that a relation's path found.
    pub(super) fn edge(&mut self, leaf: &ReferenceRule, value: &Value, place: &str) {
        let text = |path: &Path| path.get(value).and_then(Value::as_str).filter(|t| !t.is_empty());
        match &leaf.target {
            ReferenceTarget::Name { kind, name, namespace, uid } => {
                let Some(found) = text(name) else { return };
                let namespace = namespace.as_ref().and_then(text).unwrap_or(self.namespace);
                // Another program fills in a template.
                if found.contains("${") || namespace.contains("${") {
                    return;
                }
                let uid = uid.as_ref().and_then(text).map(Uid::new);
                let (namespace, found) = (namespace.to_owned(), found.to_owned());
                let path = joined(place, name);
                self.uses(leaf, value, *kind, namespace, found, uid, path);
            }
            ReferenceTarget::Typed { group, kind, name, namespace, default_group, kinds } => {
                let (Some(kind), Some(found)) = (text(kind), text(name)) else { return };
                let group = match group.steps().is_empty() {
                    // As Kubernetes' own references say it, in one of two ways.
                    true => match (value.get("apiVersion"), value.get("apiGroup")) {
                        (Some(version), _) => split_api_version(version.as_str().unwrap_or("")).0,
                        (None, Some(group)) => group.as_str().unwrap_or(""),
                        (None, None) => default_group,
                    },
                    false => text(group).map_or(default_group.as_str(), |text| {
                        text.split_once('/').map_or(text, |(group, _)| group)
                    }),
                };
                let kind = self.kinds.mention(group, kind);
                let can_be_named = match kinds {
                    NameableKinds::Any => true,
                    NameableKinds::Namespaced => self.kinds.info(kind).namespaced,
                    NameableKinds::Only(only) => only.contains(&kind),
                };
                if !can_be_named {
                    return;
                }
                let namespace =
                    namespace.as_ref().and_then(text).unwrap_or(self.namespace).to_owned();
                let found = found.to_owned();
                let path = joined(place, name);
                self.uses(leaf, value, kind, namespace, found, None, path);
            }
            ReferenceTarget::Labels { kind, plain } => {
                let found = if *plain { plain_labels(value) } else { requirements(value) };
                if let Some(requirements) = found {
                    self.open(leaf, *kind, Selector::Labels(requirements), place);
                }
            }
            ReferenceTarget::Claims { kind } => {
                let template = value.pointer("/metadata/name").and_then(Value::as_str);
                let Some(template) = template else { return };
                let selector = self.ordinals(template);
                self.open(leaf, *kind, selector, place);
            }
            ReferenceTarget::EphemeralClaim { kind } => {
                let name = value.get("name").and_then(Value::as_str);
                if let (Some(volume), Some(Value::Object(_))) = (name, value.get("ephemeral")) {
                    let claim = format!("{}-{volume}", self.name);
                    let namespace = self.namespace.to_owned();
                    let path = format!("{place}.ephemeral");
                    self.uses(leaf, value, *kind, namespace, claim, None, path);
                }
            }
            ReferenceTarget::SameName { kind } => {
                let name = self.name.to_owned();
                let path = "metadata.name".to_owned();
                self.uses(leaf, value, *kind, String::new(), name, None, path);
            }
        }
    }

    /// A scaled-down ordinal keeps its claim (scale to 0, delete the claims,
    /// and the database is gone), unless the StatefulSet itself would delete
    /// it.
    fn ordinals(&self, template: &str) -> Selector {
        let [start, replicas, when_scaled] = ORDINALS;
        let number = |pointer: &str| {
            let value = self.object.pointer(pointer).and_then(Value::as_u64);
            value.and_then(|n| u32::try_from(n).ok())
        };
        let from = number(start).unwrap_or(0);
        let policy = self.object.pointer(when_scaled);
        let deletes = policy.and_then(Value::as_str) == Some("Delete");
        let below = deletes.then(|| from.saturating_add(number(replicas).unwrap_or(1)));
        Selector::Ordinals { prefix: format!("{template}-{}-", self.name), from, below }
    }

    #[allow(clippy::too_many_arguments)]
    fn uses(
        &mut self,
        leaf: &ReferenceRule,
        value: &Value,
        kind: KindId,
        namespace: String,
        name: String,
        uid: Option<Uid>,
        path: String,
    ) {
        // A namespaced object with no namespace is none.
        if namespace.is_empty() && self.kinds.info(kind).namespaced {
            return;
        }
        let optional = leaf.optional.as_ref().and_then(|path| path.get(value));
        let excuse = match optional.and_then(Value::as_bool) {
            Some(true) => EdgeQualifier::Optional,
            _ if self.scaled_down => EdgeQualifier::ScaledDown,
            _ => EdgeQualifier::None,
        };
        let strength = self.strength(leaf);
        let relation = leaf.relation;
        self.edges.uses.push(UnresolvedUse {
            kind,
            namespace,
            name,
            uid,
            strength,
            qualifier: excuse,
            relation,
            path,
        });
    }

    fn open(&mut self, leaf: &ReferenceRule, kind: KindId, selector: Selector, place: &str) {
        let namespaced = self.kinds.info(kind).namespaced;
        let namespace = if namespaced { self.namespace } else { "" };
        self.edges.selector_edges.push(SelectorEdge {
            kind,
            namespace: namespace.to_owned(),
            selector,
            strength: self.strength(leaf),
            relation: leaf.relation,
            path: Arc::from(place),
        });
    }

    /// What the edge means now that the guard may have ended the need.
    fn strength(&self, leaf: &ReferenceRule) -> Strength {
        let mut ended = false;
        if let Some((path, equals)) = &leaf.ends_when {
            path.visit(self.object, &mut |_, value| {
                ended |= equals.iter().any(|equals| match value {
                    Value::Null | Value::Bool(false) => equals == "false",
                    _ if equals.is_empty() => true,
                    Value::String(text) => text == equals,
                    Value::Bool(true) => equals == "true",
                    Value::Number(number) => number.to_string() == *equals,
                    Value::Array(_) | Value::Object(_) => false,
                });
            });
        }
        if ended { Strength::Mentions } else { leaf.strength }
    }
}

fn joined(place: &str, rest: &Path) -> String {
    match rest.to_string() {
        rest if rest.is_empty() => place.to_owned(),
        rest if place.is_empty() || rest.starts_with('[') => format!("{place}{rest}"),
        rest => format!("{place}.{rest}"),
    }
}

/// A plain map of labels, as a Service has it: an empty one selects nothing.
fn plain_labels(value: &Value) -> Option<Vec<Requirement>> {
    let labels = value.as_object().filter(|labels| !labels.is_empty())?;
    Some(labels.iter().map(equals).collect())
}

fn equals((key, value): (&String, &Value)) -> Requirement {
    Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()])
}

/// A LabelSelector. One that is absent selects nothing, an empty one
/// everything.
fn requirements(value: &Value) -> Option<Vec<Requirement>> {
    let fields = value.as_object()?;
    let labels = fields.get("matchLabels");
    let expressions = fields.get("matchExpressions");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut requirements: Vec<_> =
        labels.and_then(Value::as_object).into_iter().flatten().map(equals).collect();
    for expression in expressions.and_then(Value::as_array).into_iter().flatten() {
        let key = text(expression.get("key")?);
        let values = expression.get("values").and_then(Value::as_array);
        let values = values.into_iter().flatten().map(text).collect();
        requirements.push(match expression.get("operator").and_then(Value::as_str)? {
            "In" => Requirement::In(key, values),
            "NotIn" => Requirement::NotIn(key, values),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::Absent(key),
            // An operator of tomorrow: matching nothing is the one safe guess
            // for an edge that is only shown.
            _ => return None,
        });
    }
    Some(requirements)
}
