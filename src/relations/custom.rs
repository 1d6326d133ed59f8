//! Relations that users write, compiled to the same rules as the built-in rows.

use super::path::Path;
use super::rows::NameableKinds;
use super::rule::{ReferenceRule, ReferenceTarget};
use crate::graph::{RelationId, Strength};
use crate::objects::{KindId, Kinds};

/// A relation that a user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomRelation {
    /// Its name.
    pub name: String,
    from: (String, String),
    to: CustomTarget,
    strength: Strength,
    /// Replaces Needs for edges to an object of another namespace, or to a cluster-scoped
    /// object.
    pub cross_namespace_strength: Option<Strength>,
    until: Option<(Path, Vec<String>)>,
}

/// The target of a relation that a user wrote. Paths start at the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CustomTarget {
    /// An object of one kind, by name.
    Name {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// The path of the name.
        name: Path,
        /// The path of the namespace; `None` for the namespace of the object itself.
        namespace: Option<Path>,
    },
    /// An object of the kind in the reference.
    Typed {
        /// The path of the group or of an apiVersion.
        group: Path,
        /// The path of the kind.
        kind: Path,
        /// The path of the name.
        name: Path,
        /// The path of the namespace; `None` for the namespace of the object itself.
        namespace: Option<Path>,
    },
    /// Objects of one kind, by a selector.
    Selector {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// The path of the selector.
        selector: Path,
    },
}

/// The error of a Relation with two paths that do not belong to the same reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} leads through another list than the name does: both must be in the same element")]
pub struct DifferentElementsError {
    /// The field of the spec.
    pub field: &'static str,
    /// Its path.
    pub path: String,
}

impl CustomRelation {
    /// A relation from a kind (group, resource). The paths of one reference must lead through
    /// the same element of each list.
    pub fn new(
        name: &str,
        from: (&str, &str),
        to: CustomTarget,
        strength: Strength,
        until: Option<(Path, &str)>,
    ) -> Result<Self, DifferentElementsError> {
        let custom = Self {
            name: name.to_owned(),
            from: (from.0.to_owned(), from.1.to_owned()),
            to,
            strength,
            cross_namespace_strength: None,
            until: until.map(|(path, equals)| (path, vec![equals.to_owned()])),
        };
        custom.split_paths().map(|_| custom)
    }

    /// The kinds that it names, by group and resource.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        let to = match &self.to {
            CustomTarget::Name { group, resource, .. }
            | CustomTarget::Selector { group, resource, .. } => {
                Some((group.as_str(), resource.as_str()))
            }
            CustomTarget::Typed { .. } => None,
        };
        std::iter::once((self.from.0.as_str(), self.from.1.as_str())).chain(to)
    }

    /// The path of the reference, and the paths of its fields from there: the name, the group and
    /// the kind (only of `Typed`), and the namespace.
    fn split_paths(&self) -> Result<(Path, Vec<Path>), DifferentElementsError> {
        let paths: Vec<(&'static str, &Path)> = match &self.to {
            CustomTarget::Name { name, namespace, .. } => {
                let namespace = namespace.iter().map(|p| ("namespaceFieldPath", p));
                std::iter::once(("nameFieldPath", name)).chain(namespace).collect()
            }
            CustomTarget::Typed { group, kind, name, namespace } => {
                let to_ref = [("toRef.groupFieldPath", group), ("toRef.kindFieldPath", kind)];
                let namespace = namespace.iter().map(|p| ("namespaceFieldPath", p));
                std::iter::once(("nameFieldPath", name)).chain(to_ref).chain(namespace).collect()
            }
            CustomTarget::Selector { selector, .. } => {
                return Ok((selector.clone(), Vec::new()));
            }
        };
        // The path of the reference is the common prefix of all paths. It ends at the
        // innermost list in the path of the name, or before.
        let mut prefix = paths.first().map(|(_, path)| path.up_to_last_list()).unwrap_or_default();
        for (_, path) in &paths {
            prefix = prefix.split_common(path).0;
        }
        let mut rests = Vec::new();
        for (field, path) in paths {
            let (_, _, rest) = prefix.split_common(path);
            if !rest.is_single() {
                return Err(DifferentElementsError { field, path: path.to_string() });
            }
            rests.push(rest);
        }
        Ok((prefix, rests))
    }

    /// The kind, the path and the rule for the catalogue; `None` if a kind is not served.
    pub(super) fn compile(
        &self,
        kinds: &Kinds,
        relation: RelationId,
    ) -> Option<(KindId, Path, ReferenceRule)> {
        let from = kinds.find_resource(&self.from.0, &self.from.1)?;
        let (path, rests) = self.split_paths().ok()?;
        let rest = |index: usize| rests.get(index).cloned();
        let target = match &self.to {
            CustomTarget::Name { group, resource, .. } => ReferenceTarget::Name {
                kind: kinds.find_resource(group, resource)?,
                name: rest(0)?,
                namespace: rest(1),
                uid: None,
            },
            CustomTarget::Typed { .. } => ReferenceTarget::Typed {
                group: rest(1)?,
                kind: rest(2)?,
                name: rest(0)?,
                namespace: rest(3),
                default_group: String::new(),
                kinds: NameableKinds::Any,
            },
            CustomTarget::Selector { group, resource, .. } => ReferenceTarget::Labels {
                kind: kinds.find_resource(group, resource)?,
                plain: false,
            },
        };
        let rule = ReferenceRule {
            relation,
            target,
            strength: self.strength,
            cross_namespace_strength: self.cross_namespace_strength,
            optional: None,
            ends_when: self.until.clone(),
        };
        Some((from, path, rule))
    }
}
