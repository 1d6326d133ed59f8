//! Edges: as relations read them from JSON, and as nodes store them.

use std::sync::Arc;

use super::NodeId;
use crate::objects::{KindId, Uid};

/// What a use edge means for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strength {
    /// The user breaks without the other object. Only this strength blocks a deletion.
    Needs,
    /// The user names the other object. belay shows the edge, but it blocks nothing.
    Mentions,
    /// The user creates the other object. belay shows the edge, but it blocks nothing.
    Produces,
}

/// Why a *needs* edge counts only as a *mentions* edge. Policies can choose to count such
/// edges in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeQualifier {
    /// The edge counts in full.
    None,
    /// The reference has `optional: true`.
    Optional,
    /// The workload has zero replicas: a ReplicaSet that is kept for a rollback.
    ScaledDown,
}

/// The number of a relation in the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelationId(pub u16);

/// The edges of one object, as relations read them from JSON.
#[derive(Debug, Default, PartialEq)]
pub struct Edges {
    /// The edges to objects by name.
    pub uses: Vec<UnresolvedUse>,
    /// The edges to all objects that match, including objects created later.
    pub selector_edges: Vec<SelectorEdge>,
    /// Whether the object has more references than [`crate::objects::MAX_REFERENCES`]. Then it has
    /// no edges here.
    pub too_many: bool,
}

/// A use edge before the graph resolves its target to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedUse {
    /// The kind of the used object.
    pub kind: KindId,
    /// The namespace of the used object; empty if it is cluster-scoped.
    pub namespace: String,
    /// The name of the used object.
    pub name: String,
    /// The uid, if the reference has one.
    pub uid: Option<Uid>,
    /// What the edge means.
    pub strength: Strength,
    /// Why the edge counts for less.
    pub qualifier: EdgeQualifier,
    /// The relation that defines the edge.
    pub relation: RelationId,
    /// The field with the reference: `spec.volumes[0].secret.secretName`.
    pub path: String,
}

/// An edge to all objects that match a selector or the ordinals of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorEdge {
    /// The kind of the used objects.
    pub kind: KindId,
    /// The namespace of the used objects; empty for cluster-scoped objects, and for
    /// objects in every namespace.
    pub namespace: String,
    /// Selects the used objects.
    pub selector: Selector,
    /// What the edge means.
    pub strength: Strength,
    /// The relation that defines the edge.
    pub relation: RelationId,
    /// The field with the selector.
    pub path: Arc<str>,
}

/// Selects objects by their labels or names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By labels: an object matches if it satisfies all requirements, as in Kubernetes.
    Labels(Vec<Requirement>),
    /// By name: a prefix such as `data-postgres-`, and an ordinal from `from` to
    /// `below - 1`.
    Ordinals {
        /// The name without its ordinal.
        prefix: String,
        /// The first ordinal.
        from: u32,
        /// The first ordinal that is not needed; `None` if there is no limit.
        below: Option<u32>,
    },
}

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// The label has one of these values.
    In(String, Vec<String>),
    /// The label is absent or has none of these values.
    NotIn(String, Vec<String>),
    /// The label exists.
    Exists(String),
    /// The label does not exist.
    Absent(String),
}

impl Requirement {
    /// The number of steps to test one object.
    fn match_steps(&self) -> usize {
        match self {
            Self::In(_, values) | Self::NotIn(_, values) => 1 + values.len(),
            Self::Exists(_) | Self::Absent(_) => 1,
        }
    }

    /// The label.
    pub fn key(&self) -> &str {
        match self {
            Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::Absent(key) => key,
        }
    }

    /// Whether an object with these labels satisfies the requirement.
    pub fn is_satisfied_by<'a>(&self, label: impl FnOnce(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::In(key, values) => label(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(key, values) => !label(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
        }
    }
}

impl Selector {
    /// The number of steps to match one object.
    pub fn match_steps(&self) -> usize {
        match self {
            Self::Labels(requirements) => requirements.iter().map(Requirement::match_steps).sum(),
            Self::Ordinals { .. } => 1,
        }
    }

    /// Whether an object matches. The caller has compared its kind and namespace.
    pub fn matches<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Labels(requirements) => requirements.iter().all(|r| r.is_satisfied_by(&label)),
            Self::Ordinals { prefix, from, below } => {
                let Some(text) = name.strip_prefix(prefix.as_str()) else { return false };
                // `data-postgres-01` has no valid ordinal.
                let plain = text == "0" || !text.starts_with(['0', '+']);
                let ordinal = text.parse::<u32>().ok().filter(|_| plain);
                ordinal.is_some_and(|n| n >= *from && below.is_none_or(|below| n < below))
            }
        }
    }
}

/// A use edge, as a node stores it.
#[derive(Debug, Clone)]
pub struct UseEdge {
    /// The node of the used object, which may not exist.
    pub to: NodeId,
    /// What the edge means.
    pub strength: Strength,
    /// Why the edge counts for less.
    pub qualifier: EdgeQualifier,
    /// The relation that defines the edge.
    pub relation: RelationId,
    /// The uid, if the reference has one. Then the edge does not apply to another object
    /// with this name.
    pub uid: Option<Box<Uid>>,
    /// The field with the reference.
    pub path: Arc<str>,
}

/// An owner reference, as a node stores it (R1: by kind, namespace and name).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerEdge {
    /// The node with the kind, namespace and name in the reference. Its object may be
    /// absent, or may be another object with a different uid.
    pub to: NodeId,
    /// The uid in the reference.
    pub uid: Uid,
    /// Whether a foreground deletion of the owner waits for this dependent.
    pub blocking: bool,
    /// Whether the owner manages this dependent.
    pub controller: bool,
    /// The API version in the reference. The API server may stop serving it.
    pub version: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_numbers_as_the_controller_writes_them() {
        let selector = Selector::Ordinals { prefix: "data-db-".into(), from: 1, below: Some(11) };
        let matches = |name: &str| selector.matches(name, |_| None);
        assert!(matches("data-db-1") && matches("data-db-10"));
        for other in [
            "data-db-0",
            "data-db-11",
            "data-db-01",
            "data-db-+1",
            "data-db-",
            "data-db-x",
            "data-1",
        ] {
            assert!(!matches(other), "{other}");
        }
    }

    #[test]
    fn requirements_mean_what_kubernetes_means() {
        let has = |key: &str| (key == "app").then_some("web");
        let app = || "app".to_owned();
        let other = || "other".to_owned();
        assert!(Requirement::In(app(), vec!["web".into()]).is_satisfied_by(has));
        assert!(!Requirement::In(other(), vec!["web".into()]).is_satisfied_by(has));
        assert!(Requirement::NotIn(app(), vec!["db".into()]).is_satisfied_by(has));
        assert!(
            Requirement::NotIn(other(), vec!["db".into()]).is_satisfied_by(has),
            "absent is not in"
        );
        assert!(!Requirement::NotIn(app(), vec!["web".into()]).is_satisfied_by(has));
        assert!(
            Requirement::Exists(app()).is_satisfied_by(has)
                && !Requirement::Exists(other()).is_satisfied_by(has)
        );
        assert!(
            Requirement::Absent(other()).is_satisfied_by(has)
                && !Requirement::Absent(app()).is_satisfied_by(has)
        );
    }
}
