//! How to read a reference from the value at the end of a path.

use serde_json::Value;

use super::path::Path;
use super::rows::NameableKinds;
use crate::graph::{RelationId, Strength};
use crate::objects::KindId;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReferenceRule {
    pub(super) relation: RelationId,
    pub(super) target: ReferenceTarget,
    pub(super) strength: Strength,
    /// As in [`CustomRelation`](super::CustomRelation).
    pub(super) cross_namespace_strength: Option<Strength>,
    pub(super) optional: Option<Path>,
    /// While the field at this path has one of these values, the edge is only a mention.
    pub(super) ends_when: Option<(Path, Vec<String>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReferenceTarget {
    Name {
        kind: KindId,
        name: Path,
        namespace: Option<Path>,
        uid: Option<Path>,
    },
    Typed {
        /// If empty, the group is in `apiVersion` or `apiGroup` beside the name.
        group: Path,
        kind: Path,
        name: Path,
        namespace: Option<Path>,
        default_group: String,
        /// The kinds that the reference can name.
        kinds: NameableKinds<Vec<KindId>>,
    },
    Labels {
        kind: KindId,
        plain: bool,
    },
    Claims {
        kind: KindId,
    },
    EphemeralClaim {
        kind: KindId,
    },
    SameName {
        kind: KindId,
    },
}

impl ReferenceRule {
    /// Whether an object can need objects of another namespace, if its reference names one.
    pub(super) fn needs_across_namespaces(&self) -> bool {
        self.cross_namespace_strength.is_none_or(|strength| strength == Strength::Needs)
    }

    /// The maximum number of references in a value. For a selector, this includes its label
    /// requirements.
    pub(super) fn max_references(&self, value: &Value) -> usize {
        let has = |path: &Path| path.get(value).is_some_and(Value::is_string);
        let size = |value: Option<&Value>| match value {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        };
        match &self.target {
            ReferenceTarget::Name { name, .. } => usize::from(has(name)),
            ReferenceTarget::Typed { kind, name, .. } => usize::from(has(kind) && has(name)),
            ReferenceTarget::Labels { plain: true, .. } => 1 + size(Some(value)),
            ReferenceTarget::Labels { plain: false, .. } => {
                let expressions = value.get("matchExpressions").and_then(Value::as_array);
                let values = expressions.into_iter().flatten().map(|e| 1 + size(e.get("values")));
                1 + size(value.get("matchLabels")) + values.sum::<usize>()
            }
            ReferenceTarget::EphemeralClaim { .. } => usize::from(value.get("ephemeral").is_some()),
            ReferenceTarget::Claims { .. } | ReferenceTarget::SameName { .. } => 1,
        }
    }
}
