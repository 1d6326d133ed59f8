//! Builds the world from which belay computes verdicts.

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

/// The content of files: the objects and the policies.
#[derive(Debug, Default)]
pub struct World {
    /// The objects. An object that is not in the files does not exist.
    pub graph: Graph,
    pub policies: PolicySet,
    /// Notes for the user.
    pub notes: FileNotes,
}

/// Called with every added object and its whole content in the file.
pub type OnObject<'s> = &'s mut dyn FnMut(&KindInfo, &Value);

/// Facts to report that are not errors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileNotes {
    /// The number of policies.
    pub policies: usize,
    /// The number of approvals.
    pub approvals: usize,
    /// The number of pauses.
    pub pauses: usize,
    /// The number of relations.
    pub relations: usize,
    /// Kinds without a CRD, whose plural is a guess.
    pub guessed: Vec<String>,
    /// Kinds that policies and relations name and that are not served.
    pub unknown: Vec<String>,
}

impl World {
    /// Reads files. `with_objects`: the files contain all objects, so a missing object does not
    /// exist. Otherwise the existence of objects is unknown.
    pub fn read(files: &[File], with_objects: bool) -> Result<Self, FileError> {
        Self::from_documents(parse_all(files)?, with_objects, &mut |_, _| {})
    }

    /// Reads layers of files. If several layers contain an object, the last layer wins.
    /// `default_namespace` is the namespace of objects without one.
    pub fn read_layers(
        layers: &[&[File]],
        default_namespace: &str,
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        let mut later: HashSet<DocumentKey> = HashSet::new();
        let mut read = Vec::new();
        for layer in layers.iter().rev() {
            let mut documents = parse_all(layer)?;
            documents.retain(|document| !later.contains(&identity(document, default_namespace)));
            later.extend(documents.iter().map(|document| identity(document, default_namespace)));
            read.push(documents);
        }
        let documents = read.into_iter().rev().flatten().collect();
        // The layers can contain belay's own objects as targets, without their CRDs.
        let options = ReadOptions { default_namespace, with_own: true, ..ReadOptions::default() };
        Self::build(documents, options, on_object)
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
        Self::build(read, ReadOptions { identities, ..ReadOptions::default() }, on_object)
    }

    /// The world of these documents.
    pub fn from_documents(
        documents: Vec<Document>,
        with_objects: bool,
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        Self::build(documents, ReadOptions { with_objects, ..ReadOptions::default() }, on_object)
    }

    fn build(
        documents: Vec<Document>,
        options: ReadOptions<'_>,
        on_object: OnObject<'_>,
    ) -> Result<Self, FileError> {
        let mut own = BelayObjects::default();
        for document in documents.iter().filter(|document| document.group == GROUP) {
            own.add(document)?;
        }
        let mut kinds = Kinds::default();
        for kind in own::kinds().into_iter().filter(|_| options.with_own) {
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
        let rules = Rules::compile(&kinds, &own.relations, own.policies, options.identities, None)
            .map_err(|error| FileError::about_file("the built-in relations", error.to_string()))?;
        let mut graph = Graph::new(kinds);
        rules.set_kept_annotations(&mut graph);
        let Rules { catalogue, mut policies } = rules;
        policies.approvals = Approvals::new(own.approvals);
        policies.pauses = own.pauses;
        add_objects(&mut graph, &catalogue, documents, options.default_namespace, on_object)?;
        let served: Vec<_> =
            graph.kinds.iter().map(|(id, _)| id).filter(|id| graph.kinds.is_served(*id)).collect();
        for kind in served {
            if options.with_objects {
                graph.set_complete(kind, true);
            } else {
                graph.set_incomplete(kind, "belay was given no --objects");
            }
        }
        let unknown = policies.unknown_kinds(&graph.kinds);
        let texts = unknown.into_iter().map(|(policy, kind)| format!("{policy}: {kind}"));
        notes.unknown.extend(texts);
        Ok(Self { graph, policies, notes })
    }

    /// The verdict on a review at this time, in seconds since 1970.
    pub fn decide(&self, review: &Review<'_>, now: i64) -> Verdict {
        let Self { graph, policies, .. } = self;
        decide(&Situation::new(graph, policies, ObjectSource::Files, now), review)
    }
}

struct ReadOptions<'r> {
    /// Whether the files contain all objects, so that a missing object does not exist.
    with_objects: bool,
    /// The namespace of documents without one.
    default_namespace: &'r str,
    /// Whether the graph contains belay's own objects even if the files have no CRD for them.
    with_own: bool,
    identities: Identities,
}

impl Default for ReadOptions<'_> {
    /// Like kubectl in a context without a namespace.
    fn default() -> Self {
        let identities = Identities::default();
        Self { with_objects: true, default_namespace: "default", with_own: false, identities }
    }
}

/// Group, kind, namespace and name.
type DocumentKey = (String, String, String, String);

/// The key of a document. Its kind is not resolved yet, so the key of a cluster-scoped object
/// contains a namespace as well.
fn identity(document: &Document, default_namespace: &str) -> DocumentKey {
    let text = |keys: &[&str]| document.node.at(keys).and_then(Node::text).unwrap_or_default();
    let namespace = match text(&["metadata", "namespace"]) {
        "" => default_namespace,
        namespace => namespace,
    };
    let name = text(&["metadata", "name"]);
    (document.group.clone(), document.kind.clone(), namespace.to_owned(), name.to_owned())
}

/// Adds all objects and their Namespaces to the graph. If several documents describe an object,
/// the last document wins.
fn add_objects(
    graph: &mut Graph,
    catalogue: &Catalogue,
    documents: Vec<Document>,
    default_namespace: &str,
    on_object: OnObject<'_>,
) -> Result<(), FileError> {
    let mut last_index = HashMap::new();
    let mut keys = Vec::with_capacity(documents.len());
    for (index, document) in documents.iter().enumerate() {
        // belay's own kinds are known only if the files contain their CRDs or `with_own` is set.
        let kind = graph.kinds.find(&document.group, &document.kind);
        let key = kind
            .map(|kind| objects::key(&graph.kinds, kind, document, default_namespace))
            .transpose()?;
        if let Some(key) = &key {
            last_index.insert(key.clone(), index);
        }
        keys.push(key);
    }
    let mut namespaces = BTreeSet::new();
    for (index, (document, key)) in documents.into_iter().zip(keys).enumerate() {
        let Some(key) = key else { continue };
        if last_index.get(&key) != Some(&index) {
            continue;
        }
        let origin = (document.file.clone(), document.node.position);
        let object = objects::complete(&graph.kinds, &key, document);
        on_object(graph.kinds.info(key.0), &object);
        // `objects::key` has checked the metadata, with better error messages.
        catalogue.parse_and_apply(graph, key.0, &object.to_string()).map_err(|_| {
            let message = "the metadata of this object cannot be read; compare it with a dump";
            FileError::at(&origin.0, origin.1, message)
        })?;
        namespaces.insert(key.1);
    }
    let Some(kind) = graph.kinds.namespace() else { return Ok(()) };
    for name in namespaces.iter().filter(|name| !name.is_empty()) {
        if !last_index.contains_key(&(kind, String::new(), name.clone())) {
            let object = objects::namespace(name);
            on_object(graph.kinds.info(kind), &object);
            catalogue
                .parse_and_apply(graph, kind, &object.to_string())
                .map_err(|error| FileError::about_file("a made-up Namespace", error.to_string()))?;
        }
    }
    Ok(())
}

/// Kinds that relations name and that are not served.
fn unknown_relations(kinds: &Kinds, objects: &BelayObjects) -> Vec<String> {
    let unknown = |(_, group, resource): &&(String, String, String)| {
        kinds.find_resource(group, resource).is_none()
    };
    let texts =
        objects.related.iter().filter(unknown).map(|(name, group, resource)| {
            format!("relation {name}: {}", full_name(group, resource))
        });
    texts.collect()
}
