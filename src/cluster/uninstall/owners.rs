//! Finds out whether an object that is not Terminating is about to be deleted with its owner or its
//! Namespace. Without its hold it would be deleted even if it is in use.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::Snapshot;
use crate::cluster::pace::within;
use crate::cluster::world::{ObjectKey, World};
use crate::graph::{Node, OwnerEdge};
use crate::objects::{ApiError, KindId, ObjectRef, Uid, is_namespace, quote_if_ambiguous};

/// Live reads of owners and Namespaces, because no list contains every kind of owner.
pub struct OwnerReads {
    /// How long an answer is reused, because many objects have the same owner.
    fresh: Duration,
    answers: Mutex<HashMap<ObjectKey, OwnerAnswer>>,
}

/// The time at which an owner was read, and its uid if it is Terminating.
type OwnerAnswer = (Instant, Result<Option<Uid>, ApiError>);

/// An owner or the Namespace of an object.
struct Parent {
    key: ObjectKey,
    /// The uid that the owner reference names.
    uid: Option<Uid>,
    /// The parent as a part of a sentence.
    text: String,
}

impl OwnerReads {
    pub fn new(fresh: Duration) -> Self {
        Self { fresh, answers: Mutex::default() }
    }

    /// Why the object is about to be deleted, or may be. `None`: neither its owners nor its
    /// Namespace are Terminating. An owner that does not exist deletes nothing.
    pub async fn why_owner_terminating(
        &self,
        snapshot: &Snapshot,
        kind: KindId,
        object: &Value,
    ) -> Option<String> {
        let id = snapshot.insert(kind, object);
        let parents = {
            let mut world = snapshot.context.world.write();
            let node = id.and_then(|id| world.graph.get(id));
            let key = |node: Node<'_>| (kind, node.namespace().to_owned(), node.name().to_owned());
            let (key, parents) = (node.map(key), node.map(|node| parents(&world, snapshot, node)));
            if let Some(key) = key {
                remove_node(&mut world, &key);
            }
            parents
        };
        let parents = match parents {
            Some(Ok(parents)) => parents,
            Some(Err(why)) => return Some(why),
            None => return Some("its owner references cannot be read".to_owned()),
        };
        for Parent { key, uid, text } in parents {
            match self.read(snapshot, &key).await {
                Ok(Some(terminating)) if uid.is_none_or(|uid| uid == terminating) => {
                    let world = snapshot.context.world.read();
                    let info = world.graph.kinds.info(key.0);
                    let parent = ObjectRef::of_kind(info, &key.1, &key.2).arguments();
                    return Some(format!(
                        "{text} is Terminating; next: kubectl belay why {parent}"
                    ));
                }
                Ok(_) => {}
                Err(why) => {
                    return Some(format!("it is unknown whether {text} is Terminating: {why}"));
                }
            }
        }
        None
    }

    /// Reads an owner or a Namespace. Returns its uid if it is Terminating.
    async fn read(&self, snapshot: &Snapshot, key: &ObjectKey) -> Result<Option<Uid>, ApiError> {
        if let Some((at, answer)) = self.answers.lock().get(key)
            && at.elapsed() < self.fresh
        {
            return answer.clone();
        }
        let sent = Instant::now();
        let read = within(snapshot.look_up(key.0, &key.1, &key.2)).await;
        let answer = read.map(|_| {
            let mut world = snapshot.context.world.write();
            let node = world.graph.object(key.0, &key.1, &key.2);
            let terminating = node.filter(|node| node.is_terminating()).map(Node::uid);
            remove_node(&mut world, key);
            terminating
        });
        self.answers.lock().insert(key.clone(), (sent, answer.clone()));
        answer
    }
}

/// Removes an object that was read only for one check. Otherwise counts of other objects would use
/// its outdated state. Namespaces stay, because policies select by their labels. Objects whose
/// release runs stay too.
pub fn remove_node(World { graph, waiting, .. }: &mut World, key: &ObjectKey) {
    let (kind, namespace, name) = key;
    let info = graph.kinds.info(*kind);
    if !is_namespace(&info.group, &info.resource) && !waiting.objects.contains_key(key) {
        graph.delete(*kind, namespace, name, None);
    }
}

/// The Namespace and the owners of an object. The error is the reason why they are not all known.
fn parents(world: &World, snapshot: &Snapshot, node: Node<'_>) -> Result<Vec<Parent>, String> {
    let graph = &world.graph;
    let mut parents = Vec::new();
    if !node.namespace().is_empty() {
        let kind = graph.kinds.namespace().ok_or("Namespaces are not served")?;
        let text = format!("its Namespace {}", node.namespace());
        let key = (kind, String::new(), node.namespace().to_owned());
        parents.push(Parent { key, uid: None, text });
    }
    if node.has_too_many_owners() {
        return Err("it has too many owner references".to_owned());
    }
    for owner in node.owner_edges() {
        let OwnerEdge { to, uid, .. } = owner;
        let (kind, namespace, name) = graph.coordinates(*to);
        let info = graph.kinds.info(kind);
        let text = format!("its owner {} {}", info.kind, quote_if_ambiguous(name));
        if graph.is_resolvable(node, owner) {
            let key = (kind, namespace.to_owned(), name.to_owned());
            parents.push(Parent { key, uid: Some(*uid), text });
        } else if snapshot.stale.contains(&info.group) {
            let why = "the API server of its group does not answer";
            return Err(format!("it is unknown whether {text} is Terminating: {why}"));
        }
    }
    Ok(parents)
}
