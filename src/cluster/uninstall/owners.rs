//! Whether an object that is not Terminating is about to be deleted: with its owner,
//! or with its Namespace. Without its hold it would be lost, whatever uses it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::Snapshot;
use crate::cluster::world::{Place, World};
use crate::graph::{Node, OwnerEdge};
use crate::objects::{ApiError, KindId, Uid};

/// Live reads of owners and Namespaces: no watch and no list has every kind of owner.
pub struct OwnerReads {
    /// How long an answer is used: many objects have the same owner.
    fresh: Duration,
    answers: Mutex<HashMap<Place, OwnerAnswer>>,
}

/// When an owner was read, and the error if that failed.
type OwnerAnswer = (Instant, Result<(), ApiError>);

/// An owner or Namespace of an object.
struct Above {
    place: Place,
    /// The uid that the owner reference names.
    uid: Option<Uid>,
    text: String,
}

impl OwnerReads {
    pub fn new(fresh: Duration) -> Self {
        Self { fresh, answers: Mutex::default() }
    }

    /// Why the object is about to be deleted, or may be; `None`: as far as its owners
    /// and its Namespace say, it stays. An owner that does not exist deletes nothing.
    pub async fn why_leaving(
        &self,
        snapshot: &Snapshot,
        kind: KindId,
        object: &Value,
    ) -> Option<String> {
        let id = snapshot.put(kind, object);
        let above = {
            let mut world = snapshot.context.world.write();
            let node = id.and_then(|id| world.graph.get(id));
            let above = node.map(|node| above(&world, snapshot, node));
            if let Some((namespace, name)) = node.map(|node| (node.namespace(), node.name())) {
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                world.graph.delete(kind, &namespace, &name, None);
            }
            above
        };
        let Some(Ok(above)) = above else {
            return Some(match above {
                Some(Err(why)) => why,
                _ => "its owner references cannot be read".to_owned(),
            });
        };
        for Above { place, uid, text } in above {
            if let Err(why) = self.read(snapshot, &place).await {
                return Some(format!("{text} may be, which cannot be read: {why}"));
            }
            let world = snapshot.context.world.read();
            let node = world.graph.object(place.0, &place.1, &place.2);
            let same = node.filter(|node| uid.is_none_or(|uid| uid == node.uid()));
            if same.is_some_and(Node::is_terminating) {
                return Some(format!("{text} is"));
            }
        }
        None
    }

    /// Reads an owner or a Namespace into the snapshot.
    async fn read(&self, snapshot: &Snapshot, place: &Place) -> Result<(), ApiError> {
        if let Some((at, answer)) = self.answers.lock().get(place)
            && at.elapsed() < self.fresh
        {
            return answer.clone();
        }
        let read = snapshot.look_up(place.0, &place.1, &place.2).await.map(drop);
        self.answers.lock().insert(place.clone(), (Instant::now(), read.clone()));
        read
    }
}

/// The Namespace and the owners of an object. An error says why one is unknown.
fn above(world: &World, snapshot: &Snapshot, node: Node<'_>) -> Result<Vec<Above>, String> {
    let graph = &world.graph;
    let mut above = Vec::new();
    if !node.namespace().is_empty() {
        let kind = graph.kinds.find("", "Namespace").ok_or("Namespaces are not served")?;
        let text = format!("its Namespace {}", node.namespace());
        let place = (kind, String::new(), node.namespace().to_owned());
        above.push(Above { place, uid: None, text });
    }
    if node.has_too_many_owners() {
        return Err("it has too many owner references".to_owned());
    }
    for owner in node.owners() {
        let OwnerEdge { to, uid, .. } = owner;
        let (kind, namespace, name) = graph.coordinates(*to);
        let info = graph.kinds.info(kind);
        let text = format!("its owner {} {name}", info.kind);
        if graph.is_resolvable(node, owner) {
            let place = (kind, namespace.to_owned(), name.to_owned());
            above.push(Above { place, uid: Some(*uid), text });
        } else if snapshot.stale.contains(&info.group) {
            let why = "the API server of its group does not answer";
            return Err(format!("{text} may be, which cannot be read: {why}"));
        }
    }
    Ok(above)
}
