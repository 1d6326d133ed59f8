//! Tracks which objects wait for the release of their hold, and when one of their users
//! was deleted. Updated with every watch event.

#[cfg(test)]
mod tests;

use crate::cluster::world::{self, ObjectKey, RELEASE_REQUESTED, WaitingObject, World};
use crate::graph::{
    EdgeQualifier, Graph, Node, NodeId, ObjectPhase, OwnerEdge, SelectorEdge, StepBudget,
    StepLimit, Strength,
};
use crate::hold::TargetState;
use crate::objects::{HoldAge, KindId, Object, PackedList, PackedMap, Uid, read_shallow};

/// The maximum number of steps for one event, because verdicts wait for the lock of the
/// world meanwhile. A release that misses an event checks again after two minutes at the
/// latest.
const STEPS: usize = 100_000;

/// The state of an object before an event: which objects it keeps waiting, and why.
#[derive(Default)]
pub struct StateBeforeEvent {
    uses: Vec<NodeId>,
    was: Option<(NodeId, UserState)>,
}

/// The fields that decide whether a user counts. Other changes, such as of the status or
/// of the token of its own release, don't matter to the objects that it uses.
#[derive(PartialEq)]
struct UserState {
    uid: Uid,
    terminating: bool,
    progress: ObjectPhase,
    finalizers: PackedList,
    labels: PackedMap,
    owners: Vec<OwnerEdge>,
    has_too_many_owners: bool,
    uses: Vec<(NodeId, Strength, EdgeQualifier, Option<Uid>)>,
    open: Vec<SelectorEdge>,
}

impl UserState {
    fn of(node: Node<'_>) -> Self {
        let uses = node.uses().iter();
        Self {
            uid: node.uid(),
            terminating: node.is_terminating(),
            progress: node.phase(),
            finalizers: node.finalizers().clone(),
            labels: node.labels().clone(),
            owners: node.owners().to_vec(),
            has_too_many_owners: node.has_too_many_owners(),
            uses: uses
                .map(|edge| (edge.to, edge.strength, edge.qualifier, edge.uid.as_deref().copied()))
                .collect(),
            open: node.selector_edges().to_vec(),
        }
    }
}

/// The waiting objects that this one uses, before an event. Usually no object waits, and
/// nothing is searched.
pub fn used_by(world: &World, kind: KindId, object: &Object<'_>) -> StateBeforeEvent {
    used_by_within(world, kind, object, StepLimit::new(&StepBudget::new(STEPS)))
}

fn used_by_within(
    world: &World,
    kind: KindId,
    object: &Object<'_>,
    work: StepLimit<'_>,
) -> StateBeforeEvent {
    let graph = &world.graph;
    if world.waiting.seen.is_empty() {
        return StateBeforeEvent::default();
    }
    let Some(node) = world::find(graph, kind, object).and_then(|node| graph.get(node)) else {
        return StateBeforeEvent::default();
    };
    let named = node.uses().iter().take_while(|_| work.charge(1)).map(|edge| edge.to);
    let mut uses: Vec<NodeId> = named.filter(|to| graph.get(*to).is_some_and(waits)).collect();
    for edge in node.selector_edges().iter().filter(|edge| edge.strength == Strength::Needs) {
        let places = world.waiting.seen.keys().take_while(|_| work.charge(1));
        let places = places.filter(|(kind, namespace, _)| {
            *kind == edge.kind && (edge.namespace.is_empty() || edge.namespace == *namespace)
        });
        let found = places.filter_map(|(kind, namespace, name)| {
            let target = graph.object(*kind, namespace, name)?;
            let steps = edge.selector.size().saturating_mul(target.labels().size());
            let matches = || edge.selector.matches(name, |key| target.labels().get(key));
            (work.charge(steps) && matches()).then_some(target.id())
        });
        uses.extend(found);
    }
    uses.sort_unstable();
    uses.dedup();
    let was = (!uses.is_empty()).then(|| (node.id(), UserState::of(node)));
    StateBeforeEvent { uses, was }
}

/// Objects that were not in a complete list are deleted, including users.
pub fn relisted(world: &mut World, kind: KindId) -> bool {
    let World { graph, waiting, left, .. } = world;
    if waiting.seen.is_empty() {
        return false;
    }
    let is_there = |(of, namespace, name): &ObjectKey| {
        *of != kind || graph.object(*of, namespace, name).is_some()
    };
    // What no watch shows is in no list, and in no graph either.
    let watched = waiting.seen.iter().filter(|(_, seen)| !seen.unwatched).map(|(place, _)| place);
    let (places, gone): (Vec<ObjectKey>, Vec<ObjectKey>) = watched.cloned().partition(is_there);
    for place in gone {
        waiting.seen.remove(&place);
        if !graph.is_complete(kind) {
            // It may only have lost its label while no watch was connected.
            left.insert(place.clone());
        }
        waiting.changed.insert(place);
    }
    let budget = StepBudget::new(10 * STEPS);
    for place in places {
        let node = graph.find(place.0, &place.1, &place.2);
        let unused = node.is_some_and(|node| is_unused(graph, node, StepLimit::new(&budget)));
        if let Some(seen) = waiting.seen.get_mut(&place).filter(|seen| seen.unused != unused) {
            seen.unused = unused;
            seen.changes += 1;
            waiting.changed.insert(place);
        }
    }
    !waiting.changed.is_empty()
}

/// The fields that a release needs, and the value of the annotation that requests a
/// check.
pub type WaitingState = (TargetState, Option<String>);

/// The same of this JSON, if the object waits. There are few of these, so their
/// JSON may be parsed twice.
pub fn waiting_state(object: &Object<'_>, json: &str) -> Option<WaitingState> {
    let waits = object.is_terminating() && object.is_held();
    let value = waits.then(|| read_shallow(json).ok()).flatten()?;
    let annotations = value.pointer("/metadata/annotations");
    let requested = annotations.and_then(|map| map.get(RELEASE_REQUESTED)?.as_str());
    Some((TargetState::read(&value)?, requested.map(str::to_owned)))
}

/// Called after an object was stored. Returns whether a release must check.
pub fn taken(world: &mut World, node: Option<NodeId>, state: Option<WaitingState>) -> bool {
    let Some(node) = node else { return false };
    let Some(object) = world.graph.get(node) else { return false };
    let place = place(object);
    if !waits(object) {
        return world.waiting.seen.remove(&place).is_some() && world.waiting.changed.insert(place);
    }
    let Some((observed, requested)) = state else { return false };
    let seen = WaitingObject {
        observed,
        requested,
        unused: is_unused(&world.graph, node, StepLimit::new(&StepBudget::new(STEPS))),
        changes: world.waiting.seen.get(&place).map_or(0, |seen| seen.changes),
        unwatched: false,
    };
    if world.waiting.seen.get(&place) == Some(&seen) {
        return false;
    }
    world.waiting.seen.insert(place.clone(), seen);
    world.waiting.changed.insert(place);
    true
}

/// Called after an object was deleted. Returns whether a release must check.
pub fn gone(world: &mut World, kind: KindId, namespace: &str, name: &str) -> bool {
    let place = (kind, namespace.to_owned(), name.to_owned());
    world.waiting.seen.remove(&place).is_some() && world.waiting.changed.insert(place)
}

/// Called after a user of these objects was changed or deleted. Returns whether a release
/// must check.
pub fn freed(world: &mut World, before: &StateBeforeEvent) -> bool {
    let World { graph, waiting, .. } = world;
    let Some((user, was)) = &before.was else { return false };
    if graph.get(*user).map(UserState::of).as_ref() == Some(was) {
        return false;
    }
    let mut changed = false;
    let budget = StepBudget::new(STEPS);
    for node in &before.uses {
        let Some(object) = graph.get(*node) else { continue };
        let place = place(object);
        let unused = is_unused(graph, *node, StepLimit::new(&budget));
        let Some(seen) = waiting.seen.get_mut(&place) else { continue };
        seen.unused = unused;
        seen.changes += 1;
        changed |= waiting.changed.insert(place);
    }
    changed
}

fn waits(node: Node<'_>) -> bool {
    node.is_terminating() && node.hold() != HoldAge::NotHeld
}

/// Whether nothing needs an object, as far as the graph knows. Beyond the budget
/// something may.
fn is_unused(graph: &Graph, node: NodeId, work: StepLimit<'_>) -> bool {
    !graph.users_limited(node, work).any(|user| user.needs()) && !work.is_used_up()
}

fn place(node: Node<'_>) -> ObjectKey {
    (node.kind(), node.namespace().to_owned(), node.name().to_owned())
}
