//! What live reads found, as verdicts read it.

use std::sync::Arc;

use serde_json::Value;

use super::super::world::{SharedWorld, World, take};
use super::api_reads::{Found, coordinates};
use crate::decide::{LiveRead, LiveReads};
use crate::graph::{Graph, NodeId};
use crate::objects::{ApiError, KindId};
use crate::relations::Catalogue;

/// A read, and what was found.
pub type Answer = (LiveRead, Result<Found, ApiError>);

/// Applies what was found to a graph of live reads, and notes each read. The
/// graph has to number kinds as the graph does that the catalogue is of.
pub fn merge(catalogue: &Catalogue, into: &mut LiveReads, answers: &[Answer]) {
    for (read, answer) in answers {
        let noted = match answer {
            Ok(found) => apply(catalogue, &mut into.graph, read, found),
            Err(error) => Err(error.clone()),
        };
        into.done.insert(read.clone(), noted);
    }
}

fn apply(
    catalogue: &Catalogue,
    graph: &mut Graph,
    read: &LiveRead,
    found: &Found,
) -> Result<(), ApiError> {
    if found.objects().len() == 0 && found.unreadable().is_empty() {
        return Ok(());
    }
    if !found.has_all_of(catalogue, graph) {
        let why = "a policy or a Relation changed while they were read";
        return Err(ApiError::Other(why.to_owned()));
    }
    let (group, resource) = coordinates(read);
    let Some(kind) = graph.kinds.find_resource(group, resource) else {
        return Err(ApiError::Other("their kind has only just appeared".to_owned()));
    };
    // An unreadable object affects itself alone: the absence of others is a fact.
    for unreadable in found.unreadable() {
        graph.set_unreadable(kind, unreadable);
    }
    for json in found.objects() {
        let Err(unreadable) = take(graph, catalogue, kind, json, None) else { continue };
        match read {
            LiveRead::List { .. } => drop(graph.set_unreadable(kind, &unreadable)),
            LiveRead::Object(_) => {
                return Err(ApiError::Unreadable(unreadable.to_string()));
            }
        }
    }
    Ok(())
}

/// All that has been read for one question. Kinds and relations are known by
/// number, and while a question waits those of the world can change: then what
/// was found is applied again.
#[derive(Debug)]
pub struct CollectedReads {
    reads: LiveReads,
    catalogue: Arc<Catalogue>,
    answers: Vec<Answer>,
}

impl CollectedReads {
    /// Nothing so far, with the numbers of this world.
    pub fn new(world: &World) -> Self {
        let mut graph = Graph::new(world.graph.kinds.clone());
        graph.keep_annotations(world.policies.annotation_keys().map(str::to_owned));
        let reads = LiveReads { graph, ..LiveReads::default() };
        Self { reads, catalogue: Arc::clone(&world.catalogue), answers: Vec::new() }
    }

    /// As verdicts read it.
    pub fn reads(&self) -> &LiveReads {
        &self.reads
    }

    /// Whether the numbers are still those of the world.
    pub fn fits(&self, world: &World) -> bool {
        let (own, kinds) = (&self.reads.graph.kinds, &world.graph.kinds);
        let mut numbered = own.iter();
        Arc::ptr_eq(&self.catalogue, &world.catalogue)
            && (own.is_same(kinds) || kinds.iter().all(|kind| numbered.next() == Some(kind)))
    }

    /// Takes in what was read.
    pub fn add(&mut self, answers: Vec<Answer>) {
        merge(&self.catalogue, &mut self.reads, &answers);
        self.answers.extend(answers);
    }

    /// Adds one object in its current state, independent of any list. Returns its position.
    pub fn put(&mut self, kind: KindId, object: &Value) -> Option<NodeId> {
        let graph = &mut self.reads.graph;
        self.catalogue.feed(graph, kind, &object.to_string()).ok()?;
        let metadata = object.get("metadata")?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
        graph.find(kind, text("namespace"), text("name"))
    }

    /// The same with the numbers that the world has now. Its lock is held for a
    /// moment only, so they may change again.
    pub fn renumber(self, world: &SharedWorld) -> Self {
        let mut renumbered = {
            let world = world.read();
            if self.fits(&world) {
                return self;
            }
            Self::new(&world)
        };
        renumbered.add(self.answers);
        renumbered
    }
}
