//! Builds the world that verdicts are computed from.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::documents::{Document, File, parse_all};
use super::own::{self, BelayObjects};
use super::tree::Node;
use super::{FileError, kinds, objects};
use crate::decide::{ObjectSource, Review, Situation, Verdict, decide};
use crate::graph::Graph;
use crate::objects::{KindInfo, Kinds, full_name};
use crate::policy::api::GROUP;
use crate::policy::{Approvals, Identities, PolicySet, Rules};
use crate::relations::Catalogue;

/// The content of files: the objects, and what users want of them.
#[derive(Debug, Default)]
pub struct World {
    /// The objects. All of them: in a folder, absence is a fact.
    pub graph: Graph,
    /// The policies of the users.
    pub policies: PolicySet,
    /// Notes for the user.
    pub notes: FileNotes,
}

/// Called with every added object and its whole content in the file.
pub type OnObject<'s> = &'s mut dyn FnMut(&KindInfo, &Value);

/// Facts to report that are not errors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileNotes {
    /// How many there are.
    pub policies: usize,
    /// How many there are.
    pub approvals: usize,
    /// How many there are.
    pub pauses: usize,
    /// How many there are.
    pub relations: usize,
    /// Kinds that have no CRD and whose plural is a guess.
    pub guessed: Vec<String>,
    /// Kinds that policies and relations name and that are not served.
    pub unknown: Vec<String>,
}

impl World {
    /// Reads files. If they contain objects, an object that is missing does not exist. If
    /// the user gave no objects, their existence is unknown.
    pub fn read(files: &[File], with_objects: bool) -> Result<Self, FileError> {
        Self::from_documents(parse_all(files)?, with_objects, &mut |_, _| {})
    }

    /// Reads layers of files, the topmost last. If several layers contain an object, the
    /// topmost wins. `home` is the namespace of objects without one.
    pub fn read_layers(
        layers: &[&[File]],
        (home, identities): (&str, Identities),
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        let mut above: HashSet<DocumentKey> = HashSet::new();
        let mut read = Vec::new();
        for layer in layers.iter().rev() {
            let mut documents = parse_all(layer)?;
            documents.retain(|document| !above.contains(&identity(document, home)));
            above.extend(documents.iter().map(|document| identity(document, home)));
            read.push(documents);
        }
        let documents = read.into_iter().rev().flatten().collect();
        // The compared states of manifests contain policies.
        let reading = Reading { home, with_own: true, identities, ..Reading::default() };
        Self::build(documents, reading, on_object)
    }

    /// The policies and relations of some files, and the objects of others.
    pub fn read_plan(
        rules: &[File],
        objects: &[File],
        identities: Identities,
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        let (mut read, mut own) = (parse_all(objects)?, parse_all(rules)?);
        read.retain(|document| document.group != GROUP);
        own.retain(|document| document.group == GROUP);
        read.append(&mut own);
        Self::build(read, Reading { identities, ..Reading::default() }, on_object)
    }

    /// The world of these documents.
    pub fn from_documents(
        documents: Vec<Document>,
        with_objects: bool,
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        Self::build(documents, Reading { with_objects, ..Reading::default() }, on_object)
    }

    fn build(
        documents: Vec<Document>,
        reading: Reading<'_>,
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        let mut own = BelayObjects::default();
        for document in documents.iter().filter(|document| document.group == GROUP) {
            own.add(document)?;
        }
        let mut kinds = Kinds::default();
        for kind in own::kinds().into_iter().filter(|_| reading.with_own) {
            kinds.learn(kind);
        }
        let guessed = kinds::learn(&mut kinds, &documents)?;
        let mut notes = FileNotes {
            policies: own.policies.len(),
            approvals: own.approvals.len(),
            pauses: own.pauses.len(),
            relations: own.relations.len(),
            guessed,
            unknown: unknown_relations(&kinds, &own),
        };
        let rules = Rules::load(&kinds, &own.relations, own.policies, reading.identities)
            .map_err(|error| FileError::whole("the built-in relations", error.to_string()))?;
        let mut graph = Graph::new(kinds);
        rules.prepare(&mut graph);
        let Rules { catalogue, mut policies } = rules;
        policies.approvals = Approvals::new(own.approvals);
        policies.pauses = own.pauses;
        add_objects(&mut graph, &catalogue, documents, reading.home, on_object)?;
        let served: Vec<_> =
            graph.kinds.iter().map(|(id, _)| id).filter(|id| graph.kinds.is_served(*id)).collect();
        for kind in served {
            if reading.with_objects {
                graph.set_complete(kind, true);
            } else {
                graph.set_incomplete(kind, "belay was given no --objects");
            }
        }
        let unknown = policies.unknown_kinds(&graph.kinds);
        notes.unknown.extend(unknown.into_iter().map(|(by, kind)| format!("{by}: {kind}")));
        Ok(Self { graph, policies, notes })
    }

    /// The verdict on a review at this time, in seconds since 1970.
    pub fn decide(&self, review: &Review<'_>, now: i64) -> Verdict {
        let Self { graph, policies, .. } = self;
        decide(&Situation::new(graph, policies, ObjectSource::Files, now), review)
    }
}

/// The options of a read.
struct Reading<'r> {
    /// Whether the files contain objects: a missing object does not exist then.
    with_objects: bool,
    /// The namespace of documents without one.
    home: &'r str,
    /// Whether belay's own objects are in the graph without a CRD for them as well.
    with_own: bool,
    identities: Identities,
}

impl Default for Reading<'_> {
    /// Like kubectl in a context without a namespace.
    fn default() -> Self {
        let identities = Identities::default();
        Self { with_objects: true, home: "default", with_own: false, identities }
    }
}

/// Group, kind, namespace and name.
type DocumentKey = (String, String, String, String);

/// The identity of a document, as far as it is known before its kind.
fn identity(document: &Document, home: &str) -> DocumentKey {
    let text = |keys: &[&str]| document.node.at(keys).and_then(Node::text).unwrap_or_default();
    let place = match text(&["metadata", "namespace"]) {
        "" => home,
        place => place,
    };
    let name = text(&["metadata", "name"]);
    (document.group.clone(), document.kind.clone(), place.to_owned(), name.to_owned())
}

/// Adds all objects to the graph, and the Namespaces that they live in. Of two documents
/// for one object the later one wins.
fn add_objects(
    graph: &mut Graph,
    catalogue: &Catalogue,
    documents: Vec<Document>,
    home: &str,
    on_object: OnObject<'_>,
) -> Result<(), FileError> {
    let mut last = HashMap::new();
    let mut keys = Vec::with_capacity(documents.len());
    for (index, document) in documents.iter().enumerate() {
        // belay's own objects are in the graph as well if their CRD is there.
        let kind = graph.kinds.find(&document.group, &document.kind);
        let key = kind.map(|kind| objects::key(&graph.kinds, kind, document, home)).transpose()?;
        if let Some(key) = &key {
            last.insert(key.clone(), index);
        }
        keys.push(key);
    }
    let mut places = BTreeSet::new();
    for (index, (document, key)) in documents.into_iter().zip(keys).enumerate() {
        let Some(key) = key else { continue };
        if last.get(&key) != Some(&index) {
            continue;
        }
        let origin = (document.file.clone(), document.node.position);
        let object = objects::complete(&graph.kinds, &key, document);
        on_object(graph.kinds.info(key.0), &object);
        // The metadata was read before, with better error messages.
        catalogue.feed(graph, key.0, &object.to_string()).map_err(|_| {
            let message = "the metadata of this object cannot be read; compare it with a dump";
            FileError::at(&origin.0, origin.1, message)
        })?;
        places.insert(key.1);
    }
    let Some(namespaces) = graph.kinds.find("", "Namespace") else { return Ok(()) };
    for place in places.iter().filter(|place| !place.is_empty()) {
        if !last.contains_key(&(namespaces, String::new(), place.clone())) {
            let object = objects::namespace(place);
            on_object(graph.kinds.info(namespaces), &object);
            catalogue
                .feed(graph, namespaces, &object.to_string())
                .map_err(|error| FileError::whole("a made-up Namespace", error.to_string()))?;
        }
    }
    Ok(())
}

/// Kinds that relations name and that are not served.
fn unknown_relations(kinds: &Kinds, own: &BelayObjects) -> Vec<String> {
    let unknown = |(_, group, resource): &&(String, String, String)| {
        kinds.find_resource(group, resource).is_none()
    };
    let named =
        own.related.iter().filter(unknown).map(|(name, group, resource)| {
            format!("relation {name}: {}", full_name(group, resource))
        });
    named.collect()
}
