//! Edges: how they come in, and how a node keeps them.

use std::sync::Arc;

use super::NodeId;
use crate::objects::{KindId, Uid};

/// What a use edge means for the one who has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strength {
    /// It breaks without the other object. The only strength that blocks.
    Needs,
    /// It names the other object. Shown, never blocks.
    Mentions,
    /// It makes the other object. Shown, never blocks.
    Produces,
}

/// Why an edge that *needs* is read as *mentions*, unless a policy counts it
/// all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeQualifier {
    /// The object needs the other one.
    None,
    /// The reference says `optional: true`.
    Optional,
    /// The workload is scaled to none: a ReplicaSet kept for a rollback.
    ScaledDown,
}

/// The number of a relation, as the catalogue gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelationId(pub u16);

/// So many references of one object are kept: names, selectors, and what these
/// require of labels. Nothing real has more: an EndpointSlice has 1,000 endpoints
/// with two references each. An object with more may use anything that objects of
/// its kind can use ([`Graph::describe_unreadable`](super::Graph::describe_unreadable)).
pub const MAX_REFERENCES: usize = 4_000;

/// The edges of one object, as relations read them from its JSON.
#[derive(Debug, Default, PartialEq)]
pub struct Edges {
    /// To objects by name.
    pub uses: Vec<UnresolvedUse>,
    /// To whatever matches, now or later.
    pub selector_edges: Vec<SelectorEdge>,
    /// Whether there are more than [`MAX_REFERENCES`], so that none was read.
    pub too_many: bool,
}

/// A use edge on its way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedUse {
    /// The kind of what is needed.
    pub kind: KindId,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid where the reference says one.
    pub uid: Option<Uid>,
    /// What the edge means.
    pub strength: Strength,
    /// Why it means less.
    pub qualifier: EdgeQualifier,
    /// Which relation found it.
    pub relation: RelationId,
    /// Where: `spec.volumes[0].secret.secretName`.
    pub path: String,
}

/// An edge to whatever matches: a selector, or the ordinals of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorEdge {
    /// The kind of what is needed.
    pub kind: KindId,
    /// The namespace in which it is looked for; empty: cluster-scoped, or
    /// every namespace.
    pub namespace: String,
    /// What matches.
    pub selector: Selector,
    /// What the edge means.
    pub strength: Strength,
    /// Which relation found it.
    pub relation: RelationId,
    /// Where.
    pub path: Arc<str>,
}

/// What an open edge matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Labels, exactly as Kubernetes matches them: every requirement holds.
    Labels(Vec<Requirement>),
    /// Names that are this prefix and an ordinal: `data-postgres-` and a
    /// number of at least `from` and, where there is one, below `below`.
    Ordinals {
        /// The name without its ordinal.
        prefix: String,
        /// The first ordinal.
        from: u32,
        /// Ordinals from here on are not needed.
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
    /// The label is there.
    Exists(String),
    /// The label is not there.
    Absent(String),
}

impl Requirement {
    fn size(&self) -> usize {
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

    /// Whether a label with this value, or none, satisfies it.
    pub fn holds<'a>(&self, label: impl FnOnce(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::In(key, values) => label(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(key, values) => !label(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
        }
    }
}

impl Selector {
    /// How many steps it takes to look whether something matches.
    pub fn size(&self) -> usize {
        match self {
            Self::Labels(requirements) => requirements.iter().map(Requirement::size).sum(),
            Self::Ordinals { .. } => 1,
        }
    }

    /// Whether an object of the right kind and place matches.
    pub fn matches<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Labels(requirements) => requirements.iter().all(|r| r.holds(&label)),
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

/// A use edge, as a node keeps it.
#[derive(Debug, Clone)]
pub struct UseEdge {
    /// What is needed; it may be absent.
    pub to: NodeId,
    /// What the edge means.
    pub strength: Strength,
    /// Why it means less.
    pub qualifier: EdgeQualifier,
    /// Which relation found it.
    pub relation: RelationId,
    /// The uid where the reference says one: another object of that name is
    /// not meant.
    pub uid: Option<Box<Uid>>,
    /// Where.
    pub path: Arc<str>,
}

/// An owner reference, as a node keeps it (R1: by its coordinates).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerEdge {
    /// The object at the reference's coordinates; it may be absent, and it may
    /// be another one (its uid tells).
    pub to: NodeId,
    /// The uid that the reference names.
    pub uid: Uid,
    /// Whether a foreground deletion of the owner waits for this dependent.
    pub blocking: bool,
    /// Whether the owner manages this dependent.
    pub controller: bool,
    /// The version that the reference names. Whether it is served may change.
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
        assert!(Requirement::In(app(), vec!["web".into()]).holds(has));
        assert!(!Requirement::In(other(), vec!["web".into()]).holds(has));
        assert!(Requirement::NotIn(app(), vec!["db".into()]).holds(has));
        assert!(Requirement::NotIn(other(), vec!["db".into()]).holds(has), "absent is not in");
        assert!(!Requirement::NotIn(app(), vec!["web".into()]).holds(has));
        assert!(Requirement::Exists(app()).holds(has) && !Requirement::Exists(other()).holds(has));
        assert!(Requirement::Absent(other()).holds(has) && !Requirement::Absent(app()).holds(has));
    }
}
