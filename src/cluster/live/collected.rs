//! The results of live reads, in the form that verdicts read.

use std::sync::Arc;

use serde_json::Value;

use super::super::world::{SharedWorld, World, store};
use super::api_reads::LiveObjects;
use crate::decide::{LiveRead, LiveReads};
use crate::graph::{Graph, NodeId};
use crate::hold::without_hold;
use crate::objects::{ApiError, KindId, Uid, text_at};
use crate::relations::Catalogue;

/// How many bytes of JSON are parsed and stored in about the time of one step.
const BYTES_PER_STEP: usize = 4;

/// A read and its result.
pub type ReadAnswer = (LiveRead, Result<LiveObjects, ApiError>);

/// Stores the objects of the answers in the graph of live reads, and the result of each read.
/// The graph must number kinds like the catalogue.
pub fn merge(catalogue: &Catalogue, into: &mut LiveReads, answers: &[ReadAnswer]) {
    for (read, answer) in answers {
        let result = match answer {
            Ok(found) => store_objects(catalogue, &mut into.graph, read, found),
            Err(error) => Err(error.clone()),
        };
        into.results.insert(read.clone(), result);
    }
}

fn store_objects(
    catalogue: &Catalogue,
    graph: &mut Graph,
    read: &LiveRead,
    found: &LiveObjects,
) -> Result<(), ApiError> {
    if found.objects().len() == 0 && found.unreadable().is_empty() {
        return Ok(());
    }
    if !found.has_fields_for(catalogue, graph) {
        let why = "a policy or a Relation changed while they were read";
        return Err(ApiError::Other(why.to_owned()));
    }
    let (group, resource) = read.kind();
    let Some(kind) = graph.kinds.find_resource(group, resource) else {
        return Err(ApiError::Other("belay has only just learned of their kind".to_owned()));
    };
    // An unreadable object does not make the list incomplete.
    for unreadable in found.unreadable() {
        graph.set_unreadable(kind, unreadable);
    }
    for json in found.objects() {
        let Err(unreadable) = store(graph, catalogue, kind, json, None) else { continue };
        match read {
            LiveRead::List { .. } => drop(graph.set_unreadable(kind, &unreadable)),
            LiveRead::Object(_) => {
                return Err(ApiError::Unreadable(unreadable.to_string()));
            }
        }
    }
    Ok(())
}

/// The target of a release, in the form that it has without its hold.
#[derive(Debug)]
pub struct TargetBody {
    namespace: String,
    name: String,
    uid: Uid,
    json: String,
}

impl TargetBody {
    /// Reads the target from the answer to a write or a GET; `None` without metadata.
    pub fn new(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let json = without_hold(object).to_string();
        let [namespace, name, uid] =
            ["/namespace", "/name", "/uid"].map(|pointer| text_at(metadata, pointer));
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: Uid::new(uid),
            json,
        })
    }

    /// The size of the JSON in bytes.
    pub fn bytes(&self) -> usize {
        self.json.len()
    }
}

/// All live reads for one verdict or release. The graph identifies kinds and relations by number.
/// If the numbers of the world change meanwhile, the answers are stored again.
#[derive(Debug)]
pub struct CollectedReads {
    reads: LiveReads,
    catalogue: Arc<Catalogue>,
    answers: Vec<ReadAnswer>,
    /// The number of answers that are stored in the graph.
    stored: usize,
}

impl CollectedReads {
    /// Creates an empty collection with the numbers of this world.
    pub fn new(world: &World) -> Self {
        let mut graph = Graph::new(world.graph.kinds.clone());
        graph.keep_annotations(world.policies.annotation_keys().map(str::to_owned));
        let reads = LiveReads { graph, ..LiveReads::default() };
        Self { reads, catalogue: Arc::clone(&world.catalogue), answers: Vec::new(), stored: 0 }
    }

    /// The results, for a verdict.
    pub fn reads(&self) -> &LiveReads {
        &self.reads
    }

    /// Whether kinds and relations still have the same numbers in the world.
    pub fn fits(&self, world: &World) -> bool {
        let (own_kinds, kinds) = (&self.reads.graph.kinds, &world.graph.kinds);
        let mut numbered = own_kinds.iter();
        Arc::ptr_eq(&self.catalogue, &world.catalogue)
            && (own_kinds.is_same(kinds) || kinds.iter().all(|kind| numbered.next() == Some(kind)))
    }

    /// Adds answers. [`CollectedReads::update`] stores them in the graph.
    pub fn add(&mut self, answers: Vec<ReadAnswer>) {
        self.answers.extend(answers);
    }

    /// The steps of [`CollectedReads::update`].
    pub fn update_steps(&self, world: &World) -> usize {
        let stored = if self.fits(world) { self.stored } else { 0 };
        let found = self.answers.iter().skip(stored).filter_map(|(_, answer)| answer.as_ref().ok());
        let bytes: usize = found.flat_map(LiveObjects::objects).map(str::len).sum();
        bytes / BYTES_PER_STEP
    }

    /// Calls `answer` with the object in the form that it has without its hold, and restores the
    /// object afterwards. The node is `None` if the object can't be parsed, or if another object
    /// has its name now.
    pub fn without_hold<R>(
        &mut self,
        kind: KindId,
        target: &TargetBody,
        answer: impl FnOnce(&LiveReads, Option<NodeId>) -> R,
    ) -> R {
        let TargetBody { namespace, name, uid, json } = target;
        let graph = &mut self.reads.graph;
        if let Some(node) = graph.object(kind, namespace, name) {
            let id = node.id();
            if node.uid() != *uid {
                return answer(&self.reads, None);
            }
            let hidden = graph.hide_hold(id);
            let answer = answer(&self.reads, Some(id));
            hidden.into_iter().for_each(|hidden| self.reads.graph.restore_hold(hidden));
            return answer;
        }
        if graph.is_unreadable(kind, namespace, name)
            || self.catalogue.parse_and_apply(graph, kind, json).is_err()
        {
            return answer(&self.reads, None);
        }
        let added = graph.find(kind, namespace, name);
        let answer = answer(&self.reads, added);
        added.into_iter().for_each(|id| self.reads.graph.discard(id));
        answer
    }

    /// Stores the new answers, and all answers again if the numbers of the world have changed. The
    /// lock is not held meanwhile, so the numbers may change again.
    pub fn update(&mut self, world: &SharedWorld) {
        let renumbered = {
            let world = world.read();
            (!self.fits(&world)).then(|| Self::new(&world))
        };
        if let Some(renumbered) = renumbered {
            let answers = std::mem::take(&mut self.answers);
            *self = Self { answers, ..renumbered };
        }
        let new = self.answers.get(self.stored..).unwrap_or_default();
        merge(&self.catalogue, &mut self.reads, new);
        self.stored = self.answers.len();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::HOLD;

    fn object(name: &str, uid: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": uid,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y", HOLD]}})
    }

    fn finalizers(graph: &Graph, kind: KindId, name: &str) -> Vec<String> {
        let node = graph.object(kind, "shop", name);
        node.iter().flat_map(|node| node.finalizers().iter()).map(str::to_owned).collect()
    }

    #[test]
    fn only_the_target_is_without_its_hold() {
        let mut world = World::default();
        world.graph.keep_annotations([]);
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let mut collected = CollectedReads::new(&world);
        let listed = object("listed", "u1");
        world
            .catalogue
            .parse_and_apply(&mut collected.reads.graph, kind, &listed.to_string())
            .unwrap();
        let held = ["x/y", HOLD];
        let node_id = |name: &str, graph: &Graph| graph.object(kind, "shop", name).map(|n| n.id());

        let target = TargetBody::new(&listed).unwrap();
        collected.without_hold(kind, &target, |reads, node| {
            assert_eq!(node, node_id("listed", &reads.graph));
            assert_eq!(finalizers(&reads.graph, kind, "listed"), ["x/y"]);
            let node = reads.graph.get(node.unwrap()).unwrap();
            assert_eq!(node.hold(), crate::objects::HoldAge::NotHeld);
        });
        assert_eq!(finalizers(&collected.reads.graph, kind, "listed"), held);

        // An object that no list contains exists only during the call.
        let target = TargetBody::new(&object("other", "u2")).unwrap();
        let objects = collected.reads.graph.object_count();
        collected.without_hold(kind, &target, |reads, node| {
            assert_eq!(node, node_id("other", &reads.graph));
            assert_eq!(finalizers(&reads.graph, kind, "other"), ["x/y"]);
            assert_eq!(finalizers(&reads.graph, kind, "listed"), held);
        });
        assert_eq!(node_id("other", &collected.reads.graph), None);
        assert_eq!(collected.reads.graph.object_count(), objects);

        // Another object has its name now.
        let target = TargetBody::new(&object("listed", "u3")).unwrap();
        collected.without_hold(kind, &target, |_, node| assert_eq!(node, None));
        assert_eq!(finalizers(&collected.reads.graph, kind, "listed"), held);
    }
}
