//! Relations that users write, compiled to the same leaves as the built-in
//! rows.

use super::catalogue::NameableKinds;
use super::leaf::{ReferenceRule, ReferenceTarget};
use super::path::{Path, PathError};
use crate::graph::{RelationId, Strength};
use crate::objects::{KindId, Kinds};

/// A relation of a user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomRelation {
    /// Its name.
    pub name: String,
    from: (String, String),
    to: CustomTo,
    strength: Strength,
    until: Option<(Path, Vec<String>)>,
}

/// What such a relation leads to. Paths start at the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CustomTo {
    /// An object of one kind, by name.
    Name {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// Where the name is.
        name: Path,
        /// Where the namespace is; none: that of the object itself.
        namespace: Option<Path>,
    },
    /// An object of the kind in the reference.
    Typed {
        /// Where the group, or an apiVersion, is.
        group: Path,
        /// Where the kind is.
        kind: Path,
        /// Where the name is.
        name: Path,
        /// Where the namespace is; none: that of the object itself.
        namespace: Option<Path>,
    },
    /// Objects of one kind, by a selector.
    Selector {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// Where the selector is.
        selector: Path,
    },
}

/// An error in a Relation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CustomError {
    /// A path cannot be parsed.
    #[error("{field}: {source}")]
    Path {
        /// Which field of the spec.
        field: &'static str,
        /// The problem.
        source: PathError,
    },
    /// Two paths do not belong to one reference.
    #[error(
        "{field} leads through another list than the name does ({path}): both must be in the same \
         element"
    )]
    Apart {
        /// Which field of the spec.
        field: &'static str,
        /// Its path.
        path: String,
    },
}

impl CustomRelation {
    /// A relation from a kind (group, resource). The paths of one reference have to be in the
    /// same element of each list that they lead through.
    pub fn new(
        name: &str,
        from: (&str, &str),
        to: CustomTo,
        strength: Strength,
        until: Option<(&str, &str)>,
    ) -> Result<Self, CustomError> {
        let until = match until {
            None => None,
            Some((path, equals)) => {
                Some((parse("until.fieldPath", path)?, vec![equals.to_owned()]))
            }
        };
        let custom = Self {
            name: name.to_owned(),
            from: (from.0.to_owned(), from.1.to_owned()),
            to,
            strength,
            until,
        };
        custom.place().map(|_| custom)
    }

    /// The kinds that it names, by group and resource.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        let to = match &self.to {
            CustomTo::Name { group, resource, .. } | CustomTo::Selector { group, resource, .. } => {
                Some((group.as_str(), resource.as_str()))
            }
            CustomTo::Typed { .. } => None,
        };
        std::iter::once((self.from.0.as_str(), self.from.1.as_str())).chain(to)
    }

    /// The place of the reference, and the paths from there.
    fn place(&self) -> Result<(Path, Vec<Path>), CustomError> {
        let paths: Vec<(&'static str, &Path)> = match &self.to {
            CustomTo::Name { name, namespace, .. } => {
                let namespace = namespace.iter().map(|p| ("namespaceFieldPath", p));
                std::iter::once(("nameFieldPath", name)).chain(namespace).collect()
            }
            CustomTo::Typed { group, kind, name, namespace } => {
                let rest = [("toRef.groupFieldPath", group), ("toRef.kindFieldPath", kind)];
                let namespace = namespace.iter().map(|p| ("namespaceFieldPath", p));
                std::iter::once(("nameFieldPath", name)).chain(rest).chain(namespace).collect()
            }
            CustomTo::Selector { selector, .. } => {
                return Ok((selector.clone(), Vec::new()));
            }
        };
        // The reference is what all paths share: at the most the element of
        // the innermost list that the name leads through.
        let mut at = paths.first().map(|(_, path)| path.without_fields()).unwrap_or_default();
        for (_, path) in &paths {
            at = at.split_common(path).0;
        }
        let mut rests = Vec::new();
        for (field, path) in paths {
            let (_, _, rest) = at.split_common(path);
            if !rest.is_single() {
                return Err(CustomError::Apart { field, path: path.to_string() });
            }
            rests.push(rest);
        }
        Ok((at, rests))
    }

    /// The leaf for the engine; `None` while a kind is not served.
    pub(super) fn compile(
        &self,
        kinds: &Kinds,
        relation: RelationId,
    ) -> Option<(KindId, Path, ReferenceRule)> {
        let from = kinds.find_resource(&self.from.0, &self.from.1)?;
        let (at, rests) = self.place().ok()?;
        let rest = |index: usize| rests.get(index).cloned();
        let target = match &self.to {
            CustomTo::Name { group, resource, .. } => ReferenceTarget::Name {
                kind: kinds.find_resource(group, resource)?,
                name: rest(0)?,
                namespace: rest(1),
                uid: None,
            },
            CustomTo::Typed { .. } => ReferenceTarget::Typed {
                group: rest(1)?,
                kind: rest(2)?,
                name: rest(0)?,
                namespace: rest(3),
                default_group: String::new(),
                kinds: NameableKinds::Any,
            },
            CustomTo::Selector { group, resource, .. } => ReferenceTarget::Labels {
                kind: kinds.find_resource(group, resource)?,
                plain: false,
            },
        };
        let leaf = ReferenceRule {
            relation,
            target,
            strength: self.strength,
            optional: None,
            ends_when: self.until.clone(),
        };
        Some((from, at, leaf))
    }
}

/// Parses the path of a field of a relation's spec.
fn parse(field: &'static str, path: &str) -> Result<Path, CustomError> {
    Path::parse(path).map_err(|source| CustomError::Path { field, source })
}
