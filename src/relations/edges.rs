//! Creates edges from the values at the paths of relations.

use std::sync::Arc;

use serde_json::Value;

use super::path::Path;
use super::rows::NameableKinds;
use super::rule::{ReferenceRule, ReferenceTarget};
use crate::graph::{
    EdgeQualifier, Edges, Requirement, Selector, SelectorEdge, Strength, UnresolvedUse,
};
use crate::objects::{KindId, Kinds, Uid, claim_prefix, split_api_version};

/// The fields of a StatefulSet, besides its templates, that decide which claims it uses.
pub(super) const ORDINAL_FIELDS: [&str; 3] = [
    "/spec/ordinals/start",
    "/spec/replicas",
    "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
];

/// Creates the edges of one object.
pub(super) struct EdgeBuilder<'o> {
    object: &'o Value,
    namespace: &'o str,
    name: &'o str,
    scaled_down: bool,
    kinds: &'o mut Kinds,
    pub(super) edges: Edges,
}

impl<'o> EdgeBuilder<'o> {
    pub(super) fn new(object: &'o Value, kinds: &'o mut Kinds, scaled_down: bool) -> Self {
        let metadata = |field: &str| {
            let value = object.get("metadata").and_then(|metadata| metadata.get(field));
            value.and_then(Value::as_str).unwrap_or_default()
        };
        let (namespace, name) = (metadata("namespace"), metadata("name"));
        Self { object, namespace, name, scaled_down, kinds, edges: Edges::default() }
    }

    /// Adds the edges of one value. `place` is its path in the object.
    pub(super) fn add_edges(&mut self, rule: &ReferenceRule, value: &Value, place: &str) {
        let text = |path: &Path| path.get(value).and_then(Value::as_str).filter(|t| !t.is_empty());
        match &rule.target {
            ReferenceTarget::Name { kind, name, namespace, uid } => {
                let Some(used_name) = text(name) else { return };
                let namespace = namespace.as_ref().and_then(text).unwrap_or(self.namespace);
                // The name is a template that another program fills in.
                if used_name.contains("${") || namespace.contains("${") {
                    return;
                }
                let uid = uid.as_ref().and_then(text).map(Uid::new);
                let (namespace, used_name) = (namespace.to_owned(), used_name.to_owned());
                let path = join_path(place, name);
                self.add_use(rule, value, *kind, namespace, used_name, uid, path);
            }
            ReferenceTarget::Typed { group, kind, name, namespace, default_group, kinds } => {
                let (Some(kind), Some(used_name)) = (text(kind), text(name)) else { return };
                let group = match group.steps().is_empty() {
                    // References in Kubernetes have either apiVersion or apiGroup.
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
                let used_name = used_name.to_owned();
                let path = join_path(place, name);
                self.add_use(rule, value, kind, namespace, used_name, None, path);
            }
            ReferenceTarget::Labels { kind, plain } => {
                let requirements = if *plain { plain_labels(value) } else { requirements(value) };
                if let Some(requirements) = requirements {
                    self.add_selector(rule, *kind, Selector::Labels(requirements), place);
                }
            }
            ReferenceTarget::Claims { kind } => {
                let template = value.pointer("/metadata/name").and_then(Value::as_str);
                let Some(template) = template else { return };
                let selector = self.ordinals(template);
                self.add_selector(rule, *kind, selector, place);
            }
            ReferenceTarget::EphemeralClaim { kind } => {
                let name = value.get("name").and_then(Value::as_str);
                if let (Some(volume), Some(Value::Object(_))) = (name, value.get("ephemeral")) {
                    let claim = format!("{}-{volume}", self.name);
                    let namespace = self.namespace.to_owned();
                    let path = format!("{place}.ephemeral");
                    self.add_use(rule, value, *kind, namespace, claim, None, path);
                }
            }
            ReferenceTarget::SameName { kind } => {
                let name = self.name.to_owned();
                let path = "metadata.name".to_owned();
                self.add_use(rule, value, *kind, String::new(), name, None, path);
            }
        }
    }

    /// The claims that a StatefulSet uses. It also needs the claims of ordinals that it
    /// was scaled down from, unless `whenScaled` is `Delete`. Otherwise a user could scale
    /// a database to 0 and delete its data.
    fn ordinals(&self, template: &str) -> Selector {
        let [start, replicas, when_scaled] = ORDINAL_FIELDS;
        let number = |pointer: &str| {
            let value = self.object.pointer(pointer).and_then(Value::as_u64);
            value.and_then(|n| u32::try_from(n).ok())
        };
        let from = number(start).unwrap_or(0);
        let policy = self.object.pointer(when_scaled);
        let deletes = policy.and_then(Value::as_str) == Some("Delete");
        let below = deletes.then(|| from.saturating_add(number(replicas).unwrap_or(1)));
        Selector::Ordinals { prefix: claim_prefix(template, self.name), from, below }
    }

    #[allow(clippy::too_many_arguments)]
    fn add_use(
        &mut self,
        rule: &ReferenceRule,
        value: &Value,
        kind: KindId,
        namespace: String,
        name: String,
        uid: Option<Uid>,
        path: String,
    ) {
        // A namespaced object without a namespace can't exist.
        if namespace.is_empty() && self.kinds.info(kind).namespaced {
            return;
        }
        let optional = rule.optional.as_ref().and_then(|path| path.get(value));
        let qualifier = match optional.and_then(Value::as_bool) {
            Some(true) => EdgeQualifier::Optional,
            _ if self.scaled_down => EdgeQualifier::ScaledDown,
            _ => EdgeQualifier::None,
        };
        let is_elsewhere = namespace != self.namespace || !self.kinds.info(kind).namespaced;
        let strength = match (self.strength(rule), rule.cross_namespace_strength) {
            (Strength::Needs, Some(other)) if is_elsewhere => other,
            (strength, _) => strength,
        };
        let relation = rule.relation;
        self.edges.uses.push(UnresolvedUse {
            kind,
            namespace,
            name,
            uid,
            strength,
            qualifier,
            relation,
            path,
        });
    }

    fn add_selector(
        &mut self,
        rule: &ReferenceRule,
        kind: KindId,
        selector: Selector,
        place: &str,
    ) {
        let namespace = self.kinds.info(kind).namespace_or_empty(self.namespace);
        self.edges.selector_edges.push(SelectorEdge {
            kind,
            namespace: namespace.to_owned(),
            selector,
            strength: self.strength(rule),
            relation: rule.relation,
            path: Arc::from(place),
        });
    }

    /// The strength of the edge. While the end condition is met, the edge is only a mention.
    fn strength(&self, rule: &ReferenceRule) -> Strength {
        let mut has_ended = false;
        if let Some((path, values)) = &rule.ends_when {
            path.visit(self.object, &mut |_, value| {
                has_ended |= values.iter().any(|equals| match value {
                    Value::Null | Value::Bool(false) => equals == "false",
                    _ if equals.is_empty() => true,
                    Value::String(text) => text == equals,
                    Value::Bool(true) => equals == "true",
                    Value::Number(number) => number.to_string() == *equals,
                    Value::Array(_) | Value::Object(_) => false,
                });
            });
        }
        if has_ended { Strength::Mentions } else { rule.strength }
    }
}

fn join_path(place: &str, rest: &Path) -> String {
    match rest.to_string() {
        rest if rest.is_empty() => place.to_owned(),
        rest if place.is_empty() || rest.starts_with('[') => format!("{place}{rest}"),
        rest => format!("{place}.{rest}"),
    }
}

/// The selector of a Service, which is a plain map. An empty map selects nothing.
fn plain_labels(value: &Value) -> Option<Vec<Requirement>> {
    let labels = value.as_object().filter(|labels| !labels.is_empty())?;
    Some(labels.iter().map(label_requirement).collect())
}

fn label_requirement((key, value): (&String, &Value)) -> Requirement {
    Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()])
}

/// A LabelSelector. An absent selector selects nothing, and an empty one everything.
fn requirements(value: &Value) -> Option<Vec<Requirement>> {
    let fields = value.as_object()?;
    let labels = fields.get("matchLabels");
    let expressions = fields.get("matchExpressions");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut requirements: Vec<_> =
        labels.and_then(Value::as_object).into_iter().flatten().map(label_requirement).collect();
    for expression in expressions.and_then(Value::as_array).into_iter().flatten() {
        let Some(key) = expression.get("key").map(text) else { continue };
        let values = expression.get("values").and_then(Value::as_array);
        let values = values.into_iter().flatten().map(text).collect();
        requirements.push(match expression.get("operator").and_then(Value::as_str) {
            Some("In") => Requirement::In(key, values),
            Some("NotIn") => Requirement::NotIn(key, values),
            Some("Exists") => Requirement::Exists(key),
            Some("DoesNotExist") => Requirement::Absent(key),
            // Without the unreadable requirement, the selector matches too many objects, and
            // never too few.
            _ => continue,
        });
    }
    Some(requirements)
}
