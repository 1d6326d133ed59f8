//! Which objects wait under the hold, and when somebody they wait for went:
//! kept in step with every object that the feed takes in.

use serde_json::Value;

use crate::cluster::world::{self, Place, RELEASE_REQUESTED, Seen, World};
use crate::graph::{Graph, Node, NodeId};
use crate::hold::Sight;
use crate::objects::{HoldAge, KindId};

/// The waiting objects that this one uses, before it changes or goes. Most of
/// the time nothing waits, and then nothing is looked at.
pub fn used_by(world: &World, kind: KindId, json: &str) -> Result<Vec<NodeId>, serde_json::Error> {
    let graph = &world.graph;
    if world.waiting.seen.is_empty() {
        return Ok(Vec::new());
    }
    let node = world::find(graph, kind, json)?.and_then(|node| graph.get(node));
    let used = node.iter().flat_map(|node| node.uses()).map(|edge| edge.to);
    Ok(used.filter(|to| graph.get(*to).is_some_and(waits)).collect())
}

/// A list has been read to its end, and what was not in it is gone: whoever
/// used something, too.
pub fn relisted(world: &mut World, kind: KindId) -> bool {
    let World { graph, waiting, .. } = world;
    if waiting.seen.is_empty() {
        return false;
    }
    let is_there =
        |(of, namespace, name): &Place| *of != kind || graph.object(*of, namespace, name).is_some();
    let gone: Vec<Place> = waiting.seen.keys().filter(|place| !is_there(place)).cloned().collect();
    for place in gone {
        waiting.seen.remove(&place);
        waiting.news.insert(place);
    }
    let places: Vec<Place> = waiting.seen.keys().cloned().collect();
    for place in places {
        let node = graph.find(place.0, &place.1, &place.2);
        let unused = node.is_some_and(|node| is_unused(graph, node));
        if let Some(seen) = waiting.seen.get_mut(&place).filter(|seen| seen.unused != unused) {
            (seen.unused, seen.freed) = (unused, seen.freed + 1);
            waiting.news.insert(place);
        }
    }
    !waiting.news.is_empty()
}

/// An object was taken in, as this JSON says. Says whether there is news.
pub fn taken(world: &mut World, node: Option<NodeId>, json: &str) -> bool {
    let Some(node) = node else { return false };
    let Some(object) = world.graph.get(node) else { return false };
    let place = place(object);
    if !waits(object) {
        return world.waiting.seen.remove(&place).is_some() && world.waiting.news.insert(place);
    }
    // There are few of these, so their JSON may be looked at twice.
    let Ok(value) = serde_json::from_str::<Value>(json) else { return false };
    let Some(sight) = Sight::of(&value) else { return false };
    let annotations = value.pointer("/metadata/annotations");
    let requested = annotations.and_then(|map| map.get(RELEASE_REQUESTED)?.as_str());
    let seen = Seen {
        sight,
        requested: requested.map(str::to_owned),
        unused: is_unused(&world.graph, node),
        freed: world.waiting.seen.get(&place).map_or(0, |seen| seen.freed),
    };
    if world.waiting.seen.get(&place) == Some(&seen) {
        return false;
    }
    world.waiting.seen.insert(place.clone(), seen);
    world.waiting.news.insert(place);
    true
}

/// An object is gone. Says whether there is news.
pub fn gone(world: &mut World, kind: KindId, namespace: &str, name: &str) -> bool {
    let place = (kind, namespace.to_owned(), name.to_owned());
    world.waiting.seen.remove(&place).is_some() && world.waiting.news.insert(place)
}

/// Somebody who used these has changed or gone. Says whether there is news.
pub fn freed(world: &mut World, used: &[NodeId]) -> bool {
    let mut news = false;
    for node in used {
        let Some(object) = world.graph.get(*node) else { continue };
        let place = place(object);
        let unused = is_unused(&world.graph, *node);
        let Some(seen) = world.waiting.seen.get_mut(&place) else { continue };
        (seen.unused, seen.freed) = (unused, seen.freed + 1);
        news |= world.waiting.news.insert(place);
    }
    news
}

fn waits(node: Node<'_>) -> bool {
    node.is_terminating() && node.hold() != HoldAge::NotHeld
}

fn is_unused(graph: &Graph, node: NodeId) -> bool {
    !graph.users(node).any(|user| user.needs())
}

fn place(node: Node<'_>) -> Place {
    (node.kind(), node.namespace().to_owned(), node.name().to_owned())
}
