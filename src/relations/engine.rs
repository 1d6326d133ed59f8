//! The catalogue, compiled: for each kind one tree of all its paths.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::catalogue::{
    ESTABLISHED, FINISHED, GroupKind, Guard, Nameable, ROWS, Row, SCALED_DOWN, To,
};
use super::custom::Custom;
use super::fields::{Fields, add_value};
use super::leaf::{Leaf, Target};
use super::path::{Path, PathError, Step, for_each};
use crate::graph::{
    Edges, Excuse, Graph, MOST_REFERENCES, NewUse, OpenEdge, Progress, RelationId, Requirement,
    Selector, Strength,
};
use crate::objects::{KindId, Kinds, Object, PROTECT_LABEL, Uid, Unreadable, split_api_version};

/// So many values are read of one object: of an endpoint that takes part in two
/// references there are eight.
const MOST_VALUES: usize = 8 * MOST_REFERENCES;

/// A place of this length counts as one more reference.
const LONG_PLACE: usize = 256;

/// All relations, compiled against the kinds that are known. When kinds come
/// or go, or users write relations, another one is compiled, and the objects
/// of the kinds concerned are read again.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: Vec<String>,
    by_kind: HashMap<KindId, Compiled>,
}

/// Which kinds have edges that *need*: the absence of a user is a fact only
/// when all of these are known.
#[derive(Debug, Clone, Default)]
pub struct Needers {
    of: HashMap<KindId, BTreeMap<KindId, bool>>,
    /// Those whose references name the kind as well, and whether they can name a
    /// namespace.
    of_any: BTreeMap<KindId, bool>,
    /// The same, if they can name only namespaced kinds.
    of_namespaced: BTreeMap<KindId, bool>,
}

impl Needers {
    /// The kinds whose objects could need one of this kind, and whether they
    /// could do so from another namespace.
    pub fn of(&self, kinds: &Kinds, kind: KindId) -> impl Iterator<Item = (KindId, bool)> {
        let local = kinds.info(kind).namespaced.then_some(&self.of_namespaced);
        let mut needers = self.of_any.clone();
        for (needer, crosses) in self.of.get(&kind).into_iter().chain(local).flatten() {
            *needers.entry(*needer).or_default() |= crosses;
        }
        needers.into_iter()
    }
}

/// How much of an object relations read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reads {
    /// Nothing.
    Nothing,
    /// Its metadata: a Secret's annotation, and none of its data.
    Metadata,
    /// All of it.
    Body,
}

/// What is read from the objects of one kind.
#[derive(Debug, Default, PartialEq)]
struct Compiled {
    tree: Tree,
    finished: Vec<(Path, &'static [&'static str])>,
    scaled_down: Option<(Path, &'static [GroupKind])>,
    established: Option<Path>,
    /// All that is read, of the body and of the metadata beside [`Object`].
    fields: Fields,
}

/// Paths, merged where they begin alike.
#[derive(Debug, Default, PartialEq)]
struct Tree {
    next: Vec<(Step, Tree)>,
    /// What is made of a value that has been reached.
    leaves: Vec<Leaf>,
}

/// What the object at hand says of itself, for every edge it has.
struct Reading<'o> {
    object: &'o Value,
    namespace: &'o str,
    name: &'o str,
    scaled_down: bool,
    kinds: &'o mut Kinds,
    edges: Edges,
}

impl Catalogue {
    /// Compiles the built-in rows and these relations of users. Rows whose
    /// kinds are not served are left out.
    pub fn new(kinds: &Kinds, custom: &[Custom]) -> Result<Self, PathError> {
        let mut catalogue = Self::default();
        for row in ROWS {
            catalogue.add_row(kinds, row)?;
        }
        for relation in custom {
            let id = catalogue.name(&relation.name);
            if let Some((from, at, leaf)) = relation.compile(kinds, id) {
                catalogue.by_kind.entry(from).or_default().tree.add(at.steps(), leaf);
            }
        }
        for (group, resource, path, values) in FINISHED {
            if let Some(kind) = kinds.find_resource(group, resource) {
                let compiled = catalogue.by_kind.entry(kind).or_default();
                compiled.finished.push((Path::parse(path)?, values));
            }
        }
        for (group, resource, path, owners) in SCALED_DOWN {
            if let Some(kind) = kinds.find_resource(group, resource) {
                let compiled = catalogue.by_kind.entry(kind).or_default();
                compiled.scaled_down = Some((Path::parse(path)?, owners));
            }
        }
        let (group, resource, path) = ESTABLISHED;
        if let Some(kind) = kinds.find_resource(group, resource) {
            catalogue.by_kind.entry(kind).or_default().established = Some(Path::parse(path)?);
        }
        catalogue.by_kind.values_mut().for_each(Compiled::find_fields);
        Ok(catalogue)
    }

    fn name(&mut self, name: &str) -> RelationId {
        self.names.push(name.to_owned());
        RelationId(u16::try_from(self.names.len() - 1).unwrap_or(u16::MAX))
    }

    fn add_row(&mut self, kinds: &Kinds, row: &Row) -> Result<(), PathError> {
        let relation = self.name(row.name);
        let Some(target) = target(kinds, &row.to)? else { return Ok(()) };
        let path = |text: &str| (!text.is_empty()).then(|| Path::parse(text)).transpose();
        let leaf = Leaf {
            relation,
            target,
            strength: row.strength,
            optional: path(row.optional)?,
            until: match row.until {
                Some(Guard { path, equals }) => {
                    Some((Path::parse(path)?, equals.iter().map(ToString::to_string).collect()))
                }
                None => None,
            },
        };
        for from in row.from {
            let Some(kind) = kinds.find_resource(from.group, from.resource) else { continue };
            let base = Path::parse(from.base)?;
            let strength = if from.history { Strength::Mentions } else { row.strength };
            for at in row.at.iter().flat_map(|at| expand_containers(at)) {
                let at = base.join(&Path::parse(&at)?);
                let leaf = Leaf { strength, ..leaf.clone() };
                self.by_kind.entry(kind).or_default().tree.add(at.steps(), leaf);
            }
        }
        Ok(())
    }

    /// The stable name of a relation.
    pub fn relation_name(&self, id: RelationId) -> &str {
        self.names.get(usize::from(id.0)).map_or("", String::as_str)
    }

    /// The kinds that have edges to others by name or selector, or whose
    /// progress counts.
    pub fn kinds(&self) -> impl Iterator<Item = KindId> + '_ {
        self.by_kind.keys().copied()
    }

    /// Whether this catalogue reads from the objects of a kind what another one
    /// does. If not, they have to be read again.
    pub fn reads_like(&self, other: &Self, kind: KindId) -> bool {
        self.by_kind.get(&kind) == other.by_kind.get(&kind)
    }

    /// How much of the objects of a kind is read, beside owners and labels.
    pub fn reads(&self, kind: KindId) -> Reads {
        let Some(compiled) = self.by_kind.get(&kind) else { return Reads::Nothing };
        let metadata = |(step, _): &(Step, Tree)| *step == Step::Field("metadata".to_owned());
        let only_metadata = compiled.tree.leaves.is_empty()
            && compiled.tree.next.iter().all(metadata)
            && compiled.finished.is_empty()
            && compiled.scaled_down.is_none()
            && compiled.established.is_none();
        if only_metadata { Reads::Metadata } else { Reads::Body }
    }

    /// Which kinds have edges that *need*, to which.
    pub fn needers(&self) -> Needers {
        let mut needers = Needers::default();
        for (from, compiled) in &self.by_kind {
            compiled.tree.leaves(&mut |leaf| {
                if leaf.strength != Strength::Needs {
                    return;
                }
                if let Target::Typed { kinds: Nameable::Only(only), .. } = &leaf.target {
                    for kind in only {
                        needers.of.entry(*kind).or_default().entry(*from).or_default();
                    }
                    return;
                }
                let (of, crosses) = match &leaf.target {
                    Target::Name { kind, namespace, .. } => {
                        (needers.of.entry(*kind).or_default(), namespace.is_some())
                    }
                    Target::Labels { kind, .. }
                    | Target::Claims { kind }
                    | Target::EphemeralClaim { kind }
                    | Target::SameName { kind } => (needers.of.entry(*kind).or_default(), false),
                    Target::Typed { namespace, kinds: Nameable::Namespaced, .. } => {
                        (&mut needers.of_namespaced, namespace.is_some())
                    }
                    Target::Typed { namespace, .. } => (&mut needers.of_any, namespace.is_some()),
                };
                *of.entry(*from).or_default() |= crosses;
            });
        }
        needers
    }

    /// The edges of an object, and how far it has come. Only the fields that
    /// relations read are parsed; every other one is skipped, at any depth.
    #[cfg(test)]
    pub(super) fn read(
        &self,
        kinds: &mut Kinds,
        kind: KindId,
        json: &str,
    ) -> Result<(Progress, Edges), serde_json::Error> {
        match self.by_kind.get(&kind) {
            None => Ok((Progress::Ordinary, Edges::default())),
            Some(compiled) => Ok(match compiled.read_fields(json)? {
                Some(fields) => compiled.read(kinds, &fields),
                None => (Progress::Ordinary, Edges { too_many: true, ..Edges::default() }),
            }),
        }
    }

    /// The same of the whole object, to compare with.
    #[cfg(test)]
    pub(super) fn read_whole(
        &self,
        kinds: &mut Kinds,
        kind: KindId,
        object: &Value,
    ) -> (Progress, Edges) {
        self.by_kind.get(&kind).map(|c| c.read(kinds, object)).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn by_kind_fields(&self, kind: KindId) -> Option<&Fields> {
        self.by_kind.get(&kind).map(|compiled| &compiled.fields)
    }

    /// Reads an object and takes it into a graph.
    pub fn feed<'o>(
        &self,
        graph: &mut Graph,
        kind: KindId,
        json: &'o str,
    ) -> Result<Object<'o>, Unreadable> {
        let parsed = self.parse(kind, json)?;
        self.apply(graph, kind, &parsed);
        Ok(parsed.object)
    }

    /// Parses an object, as far as this catalogue reads it. This needs no graph,
    /// and so no lock of one.
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

    /// Takes an object that this catalogue parsed into a graph.
    pub fn apply(&self, graph: &mut Graph, kind: KindId, parsed: &Parsed<'_>) {
        let too_many = parsed.has_too_many_references();
        let (progress, edges) = match (self.by_kind.get(&kind), &parsed.fields) {
            (Some(compiled), FieldsRead::All(fields)) => compiled.read(&mut graph.kinds, fields),
            _ => (Progress::Ordinary, Edges { too_many, ..Edges::default() }),
        };
        graph.apply(kind, &parsed.object, progress, edges);
    }

    /// The object without all that nothing reads: [`Self::feed`] makes the same
    /// of both. `keeps` says which annotations to keep beside those that
    /// relations read. The result is good for this catalogue alone: another one
    /// may read fields that are no longer in it.
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
            add_value(&mut pruned, serde_json::to_value(&object)?);
            serde_json::value::to_raw_value(&pruned).map(Some)
        };
        let pruned = prune().map_err(|error: serde_json::Error| Unreadable::new(json, &error))?;
        pruned.ok_or_else(|| Unreadable::of_many_references(json))
    }
}

/// An object, parsed.
#[derive(Debug)]
pub struct Parsed<'o> {
    /// What every verdict needs of it.
    pub object: Object<'o>,
    fields: FieldsRead,
}

/// The fields of an object that relations read.
#[derive(Debug)]
enum FieldsRead {
    /// There are none.
    Nothing,
    /// These.
    All(Value),
    /// They have more references than are kept.
    TooMany,
}

impl Parsed<'_> {
    /// Whether it has more references than [`MOST_REFERENCES`]. Then it has no
    /// edges, and may use anything.
    pub fn has_too_many_references(&self) -> bool {
        matches!(self.fields, FieldsRead::TooMany)
    }
}

/// What decides about the claims of a StatefulSet beside its templates.
const ORDINALS: [&str; 3] = [
    "/spec/ordinals/start",
    "/spec/replicas",
    "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
];

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

/// The steps of a JSON pointer that leads through fields.
fn names(pointer: &str) -> Vec<Step> {
    pointer.split('/').skip(1).map(|name| Step::Field(name.to_owned())).collect()
}

/// `c[]` is three lists of containers.
fn expand_containers(at: &str) -> Vec<String> {
    match at.strip_prefix("c[]") {
        None => vec![at.to_owned()],
        Some(rest) => ["containers", "initContainers", "ephemeralContainers"]
            .iter()
            .map(|list| format!("{list}[*]{rest}"))
            .collect(),
    }
}

fn target(kinds: &Kinds, to: &To) -> Result<Option<Target>, PathError> {
    let path = |text: &str| (!text.is_empty()).then(|| Path::parse(text)).transpose();
    let find = |group: &str, resource: &str| kinds.find_resource(group, resource);
    Ok(match to {
        To::Name { group, resource, name, namespace, uid } => match find(group, resource) {
            None => None,
            Some(kind) => Some(Target::Name {
                kind,
                name: Path::parse(name)?,
                namespace: path(namespace)?,
                uid: path(uid)?,
            }),
        },
        To::Typed { group, namespace, kinds } => Some(Target::Typed {
            kinds: match kinds {
                Nameable::Any => Nameable::Any,
                Nameable::Namespaced => Nameable::Namespaced,
                Nameable::Only(only) => {
                    let only = only.iter().filter_map(|(group, resource)| find(group, resource));
                    Nameable::Only(only.collect())
                }
            },
            group: Path::default(),
            kind: Path::parse("kind")?,
            name: Path::parse("name")?,
            namespace: path(namespace)?,
            default_group: (*group).to_owned(),
        }),
        To::Labels { group, resource } => {
            find(group, resource).map(|kind| Target::Labels { kind, plain: false })
        }
        To::PlainLabels { group, resource } => {
            find(group, resource).map(|kind| Target::Labels { kind, plain: true })
        }
        To::Claims { group, resource } => find(group, resource).map(|kind| Target::Claims { kind }),
        To::EphemeralClaim { group, resource } => {
            find(group, resource).map(|kind| Target::EphemeralClaim { kind })
        }
        To::SameName { group, resource } => {
            find(group, resource).map(|kind| Target::SameName { kind })
        }
    })
}

impl Compiled {
    fn find_fields(&mut self) {
        let mut fields = Fields::default();
        for field in ["name", "namespace"] {
            fields.add_steps(&[Step::Field("metadata".to_owned()), Step::Field(field.to_owned())]);
        }
        self.tree.add_fields(&mut fields);
        self.tree.leaves(&mut |leaf| {
            if let Some((path, _)) = &leaf.until {
                fields.add(path);
            }
            if let Target::Claims { .. } = leaf.target {
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

    /// The fields that relations read; `None` if they have too many references.
    fn read_fields(&self, json: &str) -> Result<Option<Value>, serde_json::Error> {
        let fields = self.fields.read(json, MOST_VALUES)?;
        Ok(fields.filter(|fields| {
            let mut references = 0_usize;
            self.tree.walk(fields, &mut String::new(), &mut |leaf, value, place| {
                // An edge keeps its place, which can be longer than the value.
                references += leaf.references(value) * (1 + place.len() / LONG_PLACE);
            });
            references <= MOST_REFERENCES
        }))
    }

    /// The edges of an object of which the fields were read, and how far it has
    /// come, in one walk.
    fn read(&self, kinds: &mut Kinds, object: &Value) -> (Progress, Edges) {
        let metadata = |field: &str| {
            let value = object.get("metadata").and_then(|metadata| metadata.get(field));
            value.and_then(Value::as_str).unwrap_or_default()
        };
        let scaled_down = self.scaled_down.as_ref().is_some_and(|(path, controllers)| {
            path.get(object).and_then(Value::as_u64) == Some(0) && is_history(object, controllers)
        });
        let mut reading = Reading {
            object,
            namespace: metadata("namespace"),
            name: metadata("name"),
            scaled_down,
            kinds,
            edges: Edges::default(),
        };
        self.tree.walk(object, &mut String::new(), &mut |leaf, value, place| {
            reading.edge(leaf, value, place);
        });
        (self.progress(object), reading.edges)
    }

    fn progress(&self, object: &Value) -> Progress {
        let has = |path: &Path, values: &[&str]| {
            let mut found = false;
            path.visit(object, &mut |_, value| {
                found |= value.as_str().is_some_and(|value| values.contains(&value));
            });
            found
        };
        if self.finished.iter().any(|(path, values)| has(path, values)) {
            return Progress::Finished;
        }
        match &self.established {
            Some(path) if !has(path, &["True"]) => Progress::NotEstablished,
            _ => Progress::Ordinary,
        }
    }
}

impl Tree {
    fn add(&mut self, steps: &[Step], leaf: Leaf) {
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

    fn leaves(&self, visit: &mut dyn FnMut(&Leaf)) {
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
    fn walk(&self, value: &Value, place: &mut String, visit: &mut dyn FnMut(&Leaf, &Value, &str)) {
        for leaf in &self.leaves {
            visit(leaf, value, place);
        }
        for (step, tree) in &self.next {
            for_each(step, value, place, &mut |place, value| tree.walk(value, place, visit));
        }
    }
}

impl Leaf {
    /// How many references a value has at the most; of a selector, what it requires
    /// of labels as well.
    fn references(&self, value: &Value) -> usize {
        let has = |path: &Path| path.get(value).is_some_and(Value::is_string);
        let size = |value: Option<&Value>| match value {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        };
        match &self.target {
            Target::Name { name, .. } => usize::from(has(name)),
            Target::Typed { kind, name, .. } => usize::from(has(kind) && has(name)),
            Target::Labels { plain: true, .. } => 1 + size(Some(value)),
            Target::Labels { plain: false, .. } => {
                let expressions = value.get("matchExpressions").and_then(Value::as_array);
                let values = expressions.into_iter().flatten().map(|e| 1 + size(e.get("values")));
                1 + size(value.get("matchLabels")) + values.sum::<usize>()
            }
            Target::EphemeralClaim { .. } => usize::from(value.get("ephemeral").is_some()),
            Target::Claims { .. } | Target::SameName { .. } => 1,
        }
    }
}

impl Reading<'_> {
    /// Makes the edge, or edges, of one value that a relation's path found.
    fn edge(&mut self, leaf: &Leaf, value: &Value, place: &str) {
        let text = |path: &Path| path.get(value).and_then(Value::as_str).filter(|t| !t.is_empty());
        match &leaf.target {
            Target::Name { kind, name, namespace, uid } => {
                let Some(found) = text(name) else { return };
                let namespace = namespace.as_ref().and_then(text).unwrap_or(self.namespace);
                // A template is filled in by somebody else.
                if found.contains("${") || namespace.contains("${") {
                    return;
                }
                let uid = uid.as_ref().and_then(text).map(Uid::new);
                let (namespace, found) = (namespace.to_owned(), found.to_owned());
                let path = joined(place, name);
                self.uses(leaf, value, *kind, namespace, found, uid, path);
            }
            Target::Typed { group, kind, name, namespace, default_group, kinds } => {
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
                    Nameable::Any => true,
                    Nameable::Namespaced => self.kinds.info(kind).namespaced,
                    Nameable::Only(only) => only.contains(&kind),
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
            Target::Labels { kind, plain } => {
                let found = if *plain { plain_labels(value) } else { requirements(value) };
                if let Some(requirements) = found {
                    self.open(leaf, *kind, Selector::Labels(requirements), place);
                }
            }
            Target::Claims { kind } => {
                let template = value.pointer("/metadata/name").and_then(Value::as_str);
                let Some(template) = template else { return };
                let selector = self.ordinals(template);
                self.open(leaf, *kind, selector, place);
            }
            Target::EphemeralClaim { kind } => {
                let name = value.get("name").and_then(Value::as_str);
                if let (Some(volume), Some(Value::Object(_))) = (name, value.get("ephemeral")) {
                    let claim = format!("{}-{volume}", self.name);
                    let namespace = self.namespace.to_owned();
                    let path = format!("{place}.ephemeral");
                    self.uses(leaf, value, *kind, namespace, claim, None, path);
                }
            }
            Target::SameName { kind } => {
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
        leaf: &Leaf,
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
            Some(true) => Excuse::Optional,
            _ if self.scaled_down => Excuse::ScaledDown,
            _ => Excuse::None,
        };
        let strength = self.strength(leaf);
        let relation = leaf.relation;
        self.edges.uses.push(NewUse {
            kind,
            namespace,
            name,
            uid,
            strength,
            excuse,
            relation,
            path,
        });
    }

    fn open(&mut self, leaf: &Leaf, kind: KindId, selector: Selector, place: &str) {
        let namespaced = self.kinds.info(kind).namespaced;
        let namespace = if namespaced { self.namespace } else { "" };
        self.edges.open.push(OpenEdge {
            kind,
            namespace: namespace.to_owned(),
            selector,
            strength: self.strength(leaf),
            relation: leaf.relation,
            path: Arc::from(place),
        });
    }

    /// What the edge means now that the guard may have ended the need.
    fn strength(&self, leaf: &Leaf) -> Strength {
        let mut ended = false;
        if let Some((path, equals)) = &leaf.until {
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
