//! Tracks the objects that wait for the release of their hold, and which of them lost a user.
//! The feed updates this with every watch event.

#[cfg(test)]
mod tests;

use crate::cluster::world::{self, ObjectKey, RELEASE_REQUESTED, WaitingObject, World};
use crate::graph::{
    EdgeQualifier, Graph, Node, NodeId, ObjectPhase, OwnerEdge, SelectorEdge, StepBudget,
    StepCounter, Strength,
};
use crate::hold::TargetState;
use crate::objects::{KindId, Object, PackedList, PackedMap, Uid, Unreadable, read_tolerant};

/// The maximum number of steps for one event, because verdicts wait for the lock of the
/// world meanwhile. A release that misses an event checks again within two minutes.
const MAX_STEPS: usize = 100_000;

/// The waiting objects that an object used before an event.
#[derive(Default)]
pub struct UsedWaitingObjects {
    waiting: Vec<NodeId>,
    /// The object and its state before the event, if it used waiting objects.
    user: Option<(NodeId, UserState)>,
}

/// The fields that decide whether a user counts. Changes of other fields, such as the status
/// or the token of its own release, start no check of the objects that it uses.
#[derive(PartialEq)]
struct UserState {
    uid: Uid,
    terminating: bool,
    phase: ObjectPhase,
    finalizers: PackedList,
    labels: PackedMap,
    owners: Vec<OwnerEdge>,
    has_too_many_owners: bool,
    uses: Vec<(NodeId, Strength, EdgeQualifier, Option<Uid>)>,
    selector_edges: Vec<SelectorEdge>,
}

impl UserState {
    fn read(node: Node<'_>) -> Self {
        let uses = node.uses().iter();
        Self {
            uid: node.uid(),
            terminating: node.is_terminating(),
            phase: node.phase(),
            finalizers: node.finalizers().clone(),
            labels: node.labels().clone(),
            owners: node.owner_edges().to_vec(),
            has_too_many_owners: node.has_too_many_owners(),
            uses: uses
                .map(|edge| (edge.to, edge.strength, edge.qualifier, edge.uid.as_deref().copied()))
                .collect(),
            selector_edges: node.selector_edges().to_vec(),
        }
    }
}

/// Finds the waiting objects that this object uses, before an event changes it. Usually no object
/// waits, and the function returns at once.
pub fn find_used_waiting_objects(
    world: &World,
    kind: KindId,
    object: &Object<'_>,
) -> UsedWaitingObjects {
    find_used_waiting_objects_limited(
        world,
        kind,
        object,
        StepCounter::new(&StepBudget::new(MAX_STEPS)),
    )
}

fn find_used_waiting_objects_limited(
    world: &World,
    kind: KindId,
    object: &Object<'_>,
    limit: StepCounter<'_>,
) -> UsedWaitingObjects {
    let graph = &world.graph;
    if world.waiting.objects.is_empty() {
        return UsedWaitingObjects::default();
    }
    let Some(node) = world::find(graph, kind, object).and_then(|node| graph.get(node)) else {
        return UsedWaitingObjects::default();
    };
    let named = node.uses().iter().take_while(|_| limit.charge(1)).map(|edge| edge.to);
    let mut used: Vec<NodeId> = named.filter(|to| graph.get(*to).is_some_and(waits)).collect();
    for edge in node.selector_edges().iter().filter(|edge| edge.strength == Strength::Needs) {
        let keys = world.waiting.objects.keys().take_while(|_| limit.charge(1));
        let keys = keys.filter(|(kind, namespace, _)| {
            *kind == edge.kind && (edge.namespace.is_empty() || edge.namespace == *namespace)
        });
        let selected = keys.filter_map(|(kind, namespace, name)| {
            let target = graph.object(*kind, namespace, name)?;
            let steps = edge.selector.match_steps().saturating_mul(target.labels().search_steps());
            let matches = || edge.selector.matches(name, |key| target.labels().get(key));
            (limit.charge(steps) && matches()).then_some(target.id())
        });
        used.extend(selected);
    }
    used.sort_unstable();
    used.dedup();
    let user = (!used.is_empty()).then(|| (node.id(), UserState::read(node)));
    UsedWaitingObjects { waiting: used, user }
}

/// Called after a complete list deleted objects that it did not contain. They may be waiting
/// objects or users. Returns whether a release must check.
pub fn record_list_end(world: &mut World, kind: KindId) -> bool {
    let World { graph, waiting, left_watch, .. } = world;
    if waiting.objects.is_empty() {
        return false;
    }
    let exists = |(other, namespace, name): &ObjectKey| {
        *other != kind || graph.object(*other, namespace, name).is_some()
    };
    // Objects that no watch covers are in no list and not in the graph.
    let watched =
        waiting.objects.iter().filter(|(_, object)| !object.unwatched).map(|(key, _)| key);
    let (existing, deleted): (Vec<ObjectKey>, Vec<ObjectKey>) = watched.cloned().partition(exists);
    for key in deleted {
        waiting.objects.remove(&key);
        if !graph.is_complete(kind) {
            // The object may only have lost its label while the watch was disconnected.
            left_watch.insert(key.clone());
        }
        waiting.changed.insert(key);
    }
    let budget = StepBudget::new(10 * MAX_STEPS);
    for key in existing {
        let node = graph.find(key.0, &key.1, &key.2);
        let unused = node.is_some_and(|node| is_unused(graph, node, StepCounter::new(&budget)));
        if let Some(seen) = waiting.objects.get_mut(&key).filter(|seen| seen.unused != unused) {
            seen.unused = unused;
            seen.changes += 1;
            waiting.changed.insert(key);
        }
    }
    !waiting.changed.is_empty()
}

/// The fields that a release needs, and the value of the annotation that requests a
/// check.
pub type WaitingState = (TargetState, Option<String>);

/// Reads the state of a waiting object from its JSON; `None` if the object does not wait. Few
/// objects wait, so parsing their JSON a second time costs little. belay can never release an
/// object without this state. So an object whose state can't be read counts as unreadable, and
/// belay logs it.
pub fn waiting_state(object: &Object<'_>, json: &str) -> Result<Option<WaitingState>, Unreadable> {
    if !object.is_terminating() || !object.is_held() {
        return Ok(None);
    }
    let value = read_tolerant(json).map_err(|error| Unreadable::new(json, &error))?;
    let annotations = value.pointer("/metadata/annotations");
    let requested = annotations.and_then(|map| map.get(RELEASE_REQUESTED)?.as_str());
    Ok(TargetState::read(&value).map(|state| (state, requested.map(str::to_owned))))
}

/// Called after an object was stored. Returns whether a release must check.
pub fn record_stored(world: &mut World, node: Option<NodeId>, state: Option<WaitingState>) -> bool {
    let Some(node) = node else { return false };
    let Some(object) = world.graph.get(node) else { return false };
    let key = object_key(object);
    if !waits(object) {
        return world.waiting.objects.remove(&key).is_some() && world.waiting.changed.insert(key);
    }
    let Some((observed, requested)) = state else { return false };
    let seen = WaitingObject {
        observed,
        requested,
        unused: is_unused(&world.graph, node, StepCounter::new(&StepBudget::new(MAX_STEPS))),
        changes: world.waiting.objects.get(&key).map_or(0, |seen| seen.changes),
        unwatched: false,
    };
    if world.waiting.objects.get(&key) == Some(&seen) {
        return false;
    }
    world.waiting.objects.insert(key.clone(), seen);
    world.waiting.changed.insert(key);
    true
}

/// Called after an object was deleted. Returns whether a release must check.
pub fn record_deleted(world: &mut World, kind: KindId, namespace: &str, name: &str) -> bool {
    let key = (kind, namespace.to_owned(), name.to_owned());
    world.waiting.objects.remove(&key).is_some() && world.waiting.changed.insert(key)
}

/// Called after a user of these objects was changed or deleted. Returns whether a release
/// must check.
pub fn record_user_change(world: &mut World, before: &UsedWaitingObjects) -> bool {
    let World { graph, waiting, .. } = world;
    let Some((user, state)) = &before.user else { return false };
    if graph.get(*user).map(UserState::read).as_ref() == Some(state) {
        return false;
    }
    let mut changed = false;
    let budget = StepBudget::new(MAX_STEPS);
    for node in &before.waiting {
        let Some(object) = graph.get(*node) else { continue };
        let key = object_key(object);
        let unused = is_unused(graph, *node, StepCounter::new(&budget));
        let Some(seen) = waiting.objects.get_mut(&key) else { continue };
        seen.unused = unused;
        seen.changes += 1;
        changed |= waiting.changed.insert(key);
    }
    changed
}

fn waits(node: Node<'_>) -> bool {
    node.is_terminating() && node.is_held()
}

/// Whether the graph contains no user that needs the object. Returns false when the step
/// budget is used up.
fn is_unused(graph: &Graph, node: NodeId, limit: StepCounter<'_>) -> bool {
    !graph.users_limited(node, limit).any(|user| user.needs()) && !limit.is_used_up()
}

fn object_key(node: Node<'_>) -> ObjectKey {
    (node.kind(), node.namespace().to_owned(), node.name().to_owned())
}
