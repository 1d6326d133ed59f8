//! Compiles the catalogue and reads objects with it.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use serde_json::value::RawValue;

use super::compiled::CompiledRelations;
use super::custom::CustomRelation;
#[cfg(test)]
use super::fields::Fields;
use super::fields::merge_value;
use super::path::{Path, PathError};
use super::rows::{
    ESTABLISHED, EndCondition, FINISHED, NameableKinds, ROWS, Row, RowTarget, SCALED_DOWN,
};
use super::rule::{ReferenceRule, ReferenceTarget};
use crate::graph::{Edges, Graph, ObjectPhase, RelationId, Strength};
use crate::objects::{KindId, Kinds, Object, Unreadable};

/// All relations, compiled for the served kinds. When kinds or relations change, belay
/// compiles a new catalogue and reads the objects of the affected kinds again.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: Vec<String>,
    by_kind: HashMap<KindId, CompiledRelations>,
}

/// The kinds whose objects can *need* others. To prove that an object has no users, a graph needs
/// all objects of its user kinds.
#[derive(Debug, Clone, Default)]
pub struct UserKinds {
    /// For each used kind, its user kinds, and whether they can use it from another
    /// namespace.
    by_kind: HashMap<KindId, BTreeMap<KindId, bool>>,
    /// The user kinds whose references can name any kind, and whether they can name a
    /// namespace.
    naming_any_kind: BTreeMap<KindId, bool>,
    /// The user kinds whose references can name any namespaced kind.
    naming_any_namespaced: BTreeMap<KindId, bool>,
}

impl UserKinds {
    /// The kinds whose objects may need an object of this kind, each with whether these objects
    /// may be in another namespace than the used object.
    pub fn user_kinds(&self, kinds: &Kinds, kind: KindId) -> impl Iterator<Item = (KindId, bool)> {
        let local = kinds.info(kind).namespaced.then_some(&self.naming_any_namespaced);
        let mut user_kinds = self.naming_any_kind.clone();
        for (user_kind, from_other_namespace) in
            self.by_kind.get(&kind).into_iter().chain(local).flatten()
        {
            *user_kinds.entry(*user_kind).or_default() |= from_other_namespace;
        }
        user_kinds.into_iter()
    }
}

/// How much of an object relations read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadScope {
    /// Nothing.
    Nothing,
    /// Only fields of its metadata. From a Secret, belay reads one annotation and no data.
    Metadata,
    /// The whole object.
    Body,
}

impl Catalogue {
    /// Compiles the built-in rows and the relations of users. Skips rows whose kinds are
    /// not served.
    pub fn new(kinds: &Kinds, custom: &[CustomRelation]) -> Result<Self, PathError> {
        let mut catalogue = Self::default();
        for row in ROWS {
            catalogue.add_row(kinds, row)?;
        }
        for relation in custom {
            let id = catalogue.add_name(&relation.name);
            if let Some((from, path, rule)) = relation.compile(kinds, id) {
                catalogue.by_kind.entry(from).or_default().tree.add(path.steps(), rule);
            }
        }
        for (group, resource, path, values) in FINISHED {
            if let Some(kind) = kinds.find_resource(group, resource) {
                let compiled = catalogue.by_kind.entry(kind).or_default();
                compiled.finished.push((Path::parse(path)?, values));
            }
        }
        for (group, resource, path, controllers) in SCALED_DOWN {
            if let Some(kind) = kinds.find_resource(group, resource) {
                let compiled = catalogue.by_kind.entry(kind).or_default();
                compiled.scaled_down = Some((Path::parse(path)?, controllers));
            }
        }
        let (group, resource, path) = ESTABLISHED;
        if let Some(kind) = kinds.find_resource(group, resource) {
            catalogue.by_kind.entry(kind).or_default().established = Some(Path::parse(path)?);
        }
        catalogue.by_kind.values_mut().for_each(CompiledRelations::collect_fields);
        Ok(catalogue)
    }

    fn add_name(&mut self, name: &str) -> RelationId {
        self.names.push(name.to_owned());
        RelationId(u16::try_from(self.names.len() - 1).unwrap_or(u16::MAX))
    }

    fn add_row(&mut self, kinds: &Kinds, row: &Row) -> Result<(), PathError> {
        let relation = self.add_name(row.name);
        let Some(target) = resolve_target(kinds, &row.to)? else { return Ok(()) };
        let rule = ReferenceRule {
            relation,
            target,
            strength: row.strength,
            cross_namespace_strength: None,
            optional: parse_optional(row.optional)?,
            ends_when: match row.ends_when {
                Some(EndCondition { path, equals }) => {
                    Some((Path::parse(path)?, equals.iter().map(ToString::to_string).collect()))
                }
                None => None,
            },
        };
        for from in row.from {
            let Some(kind) = kinds.find_resource(from.group, from.resource) else { continue };
            let base = Path::parse(from.base)?;
            let strength = if from.history { Strength::Mentions } else { row.strength };
            for path in row.paths.iter().flat_map(|path| expand_containers(path)) {
                let path = base.join(&Path::parse(&path)?);
                let rule = ReferenceRule { strength, ..rule.clone() };
                self.by_kind.entry(kind).or_default().tree.add(path.steps(), rule);
            }
        }
        Ok(())
    }

    /// The stable name of a relation.
    pub fn relation_name(&self, id: RelationId) -> &str {
        self.names.get(usize::from(id.0)).map_or("", String::as_str)
    }

    /// The kinds from whose objects relations read edges or a phase.
    pub fn kinds(&self) -> impl Iterator<Item = KindId> + '_ {
        self.by_kind.keys().copied()
    }

    /// Whether both catalogues read the same from the objects of a kind. If not, belay must
    /// read these objects again.
    pub fn reads_like(&self, other: &Self, kind: KindId) -> bool {
        self.by_kind.get(&kind) == other.by_kind.get(&kind)
    }

    /// How much of the objects of a kind relations read, besides owners and labels.
    pub fn reads(&self, kind: KindId) -> ReadScope {
        let Some(compiled) = self.by_kind.get(&kind) else { return ReadScope::Nothing };
        if compiled.reads_only_metadata() { ReadScope::Metadata } else { ReadScope::Body }
    }

    /// The kinds with edges that *need*, for each used kind.
    pub fn user_kinds(&self) -> UserKinds {
        let mut user_kinds = UserKinds::default();
        for (from, compiled) in &self.by_kind {
            compiled.tree.visit_rules(&mut |rule| {
                if rule.strength != Strength::Needs {
                    return;
                }
                if let ReferenceTarget::Typed { kinds: NameableKinds::Only(only), .. } =
                    &rule.target
                {
                    for kind in only {
                        user_kinds.by_kind.entry(*kind).or_default().entry(*from).or_default();
                    }
                    return;
                }
                let (users, from_other_namespace) = match &rule.target {
                    ReferenceTarget::Name { kind, namespace, .. } => {
                        (user_kinds.by_kind.entry(*kind).or_default(), namespace.is_some())
                    }
                    ReferenceTarget::Labels { kind, .. }
                    | ReferenceTarget::Claims { kind }
                    | ReferenceTarget::EphemeralClaim { kind }
                    | ReferenceTarget::SameName { kind } => {
                        (user_kinds.by_kind.entry(*kind).or_default(), false)
                    }
                    ReferenceTarget::Typed {
                        namespace, kinds: NameableKinds::Namespaced, ..
                    } => (&mut user_kinds.naming_any_namespaced, namespace.is_some()),
                    ReferenceTarget::Typed { namespace, .. } => {
                        (&mut user_kinds.naming_any_kind, namespace.is_some())
                    }
                };
                *users.entry(*from).or_default() |=
                    from_other_namespace && rule.needs_across_namespaces();
            });
        }
        user_kinds
    }

    /// The phase and the edges of an object. Parses only the fields that relations read,
    /// and skips all others at any depth.
    #[cfg(test)]
    pub(super) fn read(
        &self,
        kinds: &mut Kinds,
        kind: KindId,
        json: &str,
    ) -> Result<(ObjectPhase, Edges), serde_json::Error> {
        match self.by_kind.get(&kind) {
            None => Ok((ObjectPhase::Active, Edges::default())),
            Some(compiled) => Ok(match compiled.read_fields(json)? {
                Some(fields) => compiled.read(kinds, &fields),
                None => (ObjectPhase::Active, Edges { too_many: true, ..Edges::default() }),
            }),
        }
    }

    /// The phase and the edges of a completely parsed object, for comparison.
    #[cfg(test)]
    pub(super) fn read_whole(
        &self,
        kinds: &mut Kinds,
        kind: KindId,
        object: &Value,
    ) -> (ObjectPhase, Edges) {
        self.by_kind.get(&kind).map(|c| c.read(kinds, object)).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn by_kind_fields(&self, kind: KindId) -> Option<&Fields> {
        self.by_kind.get(&kind).map(|compiled| &compiled.fields)
    }

    /// [`Self::parse`], then [`Self::apply`].
    pub fn parse_and_apply<'o>(
        &self,
        graph: &mut Graph,
        kind: KindId,
        json: &'o str,
    ) -> Result<Object<'o>, Unreadable> {
        let parsed = self.parse(kind, json)?;
        self.apply(graph, kind, &parsed);
        Ok(parsed.object)
    }

    /// Parses the fields of an object that this catalogue reads. This needs no graph and
    /// therefore no lock.
    pub fn parse<'o>(&self, kind: KindId, json: &'o str) -> Result<Parsed<'o>, Unreadable> {
        let unreadable = |error| Unreadable::new(json, &error);
        let object = serde_json::from_str(json).map_err(unreadable)?;
        let fields = match self.by_kind.get(&kind) {
            None => FieldsRead::Nothing,
            Some(compiled) => match compiled.read_fields(json).map_err(unreadable)? {
                Some(fields) => FieldsRead::All(fields),
                None => FieldsRead::TooMany,
            },
        };
        Ok(Parsed { object, fields })
    }

    /// Applies an object that this catalogue parsed to a graph.
    pub fn apply(&self, graph: &mut Graph, kind: KindId, parsed: &Parsed<'_>) {
        let too_many = parsed.has_too_many_references();
        let (phase, edges) = match (self.by_kind.get(&kind), &parsed.fields) {
            (Some(compiled), FieldsRead::All(fields)) => compiled.read(&mut graph.kinds, fields),
            _ => (ObjectPhase::Active, Edges { too_many, ..Edges::default() }),
        };
        graph.apply(kind, &parsed.object, phase, edges);
    }

    /// Removes all fields that belay does not read. [`Self::parse_and_apply`] has the same effect
    /// with the result as with the whole object. `keeps` returns whether to keep an annotation that
    /// no relation reads. The result is only valid for this catalogue, because another one may
    /// read other fields.
    pub fn prune(
        &self,
        kind: KindId,
        json: &str,
        keeps: impl Fn(&str) -> bool,
    ) -> Result<Box<RawValue>, Unreadable> {
        let prune = || {
            let mut object: Object<'_> = serde_json::from_str(json)?;
            object.metadata.annotations.retain(|key, _| keeps(key));
            let pruned = match self.by_kind.get(&kind) {
                Some(compiled) => compiled.read_fields(json)?,
                None => Some(Value::Object(serde_json::Map::new())),
            };
            let Some(mut pruned) = pruned else { return Ok(None) };
            merge_value(&mut pruned, serde_json::to_value(&object)?);
            serde_json::value::to_raw_value(&pruned).map(Some)
        };
        let pruned = prune().map_err(|error: serde_json::Error| Unreadable::new(json, &error))?;
        pruned.ok_or_else(|| Unreadable::of_many_references(json))
    }
}

/// An object, parsed.
#[derive(Debug)]
pub struct Parsed<'o> {
    /// The fields that every verdict needs.
    pub object: Object<'o>,
    fields: FieldsRead,
}

/// The fields of an object that relations read.
#[derive(Debug)]
enum FieldsRead {
    /// Relations read nothing of this kind.
    Nothing,
    /// All fields that relations read.
    All(Value),
    /// The fields contain more than [`MAX_REFERENCES`](crate::objects::MAX_REFERENCES)
    /// references.
    TooMany,
}

impl Parsed<'_> {
    /// Whether it has too many references. Then its uses are unknown, and belay assumes that it can
    /// use any object.
    pub fn has_too_many_references(&self) -> bool {
        matches!(self.fields, FieldsRead::TooMany)
    }
}

/// Expands `c[]` to the three lists of containers.
fn expand_containers(path: &str) -> Vec<String> {
    match path.strip_prefix("c[]") {
        None => vec![path.to_owned()],
        Some(rest) => ["containers", "initContainers", "ephemeralContainers"]
            .iter()
            .map(|list| format!("{list}[*]{rest}"))
            .collect(),
    }
}

/// The path in a row; `None` if the text is empty.
fn parse_optional(text: &str) -> Result<Option<Path>, PathError> {
    (!text.is_empty()).then(|| Path::parse(text)).transpose()
}

fn resolve_target(kinds: &Kinds, to: &RowTarget) -> Result<Option<ReferenceTarget>, PathError> {
    let find = |group: &str, resource: &str| kinds.find_resource(group, resource);
    Ok(match to {
        RowTarget::Name { group, resource, name, namespace, uid } => match find(group, resource) {
            None => None,
            Some(kind) => Some(ReferenceTarget::Name {
                kind,
                name: Path::parse(name)?,
                namespace: parse_optional(namespace)?,
                uid: parse_optional(uid)?,
            }),
        },
        RowTarget::Typed { group, namespace, kinds } => Some(ReferenceTarget::Typed {
            kinds: match kinds {
                NameableKinds::Any => NameableKinds::Any,
                NameableKinds::Namespaced => NameableKinds::Namespaced,
                NameableKinds::Only(only) => {
                    let only = only.iter().filter_map(|(group, resource)| find(group, resource));
                    NameableKinds::Only(only.collect())
                }
            },
            group: Path::default(),
            kind: Path::parse("kind")?,
            name: Path::parse("name")?,
            namespace: parse_optional(namespace)?,
            default_group: (*group).to_owned(),
        }),
        RowTarget::Labels { group, resource } => {
            find(group, resource).map(|kind| ReferenceTarget::Labels { kind, plain: false })
        }
        RowTarget::PlainLabels { group, resource } => {
            find(group, resource).map(|kind| ReferenceTarget::Labels { kind, plain: true })
        }
        RowTarget::Claims { group, resource } => {
            find(group, resource).map(|kind| ReferenceTarget::Claims { kind })
        }
        RowTarget::EphemeralClaim { group, resource } => {
            find(group, resource).map(|kind| ReferenceTarget::EphemeralClaim { kind })
        }
        RowTarget::SameName { group, resource } => {
            find(group, resource).map(|kind| ReferenceTarget::SameName { kind })
        }
    })
}
