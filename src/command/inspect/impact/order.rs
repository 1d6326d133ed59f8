//! The order of several DELETEs. kubectl sends them in the given order, and belay denies
//! the DELETE of an object while a later target still uses it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::target_effects::TargetEffects;
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::command::inspect::verdict::verdict;
use crate::decide::Decision;
use crate::graph::{Graph, NodeId, Propagation};
use crate::objects::ObjectRef;

/// An order in which the objects can be deleted. Empty if none is known.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionOrder {
    /// The objects whose DELETE is denied in the given order.
    pub denied: Vec<Object>,
    /// The objects in an order in which no DELETE is denied. Empty if none is known.
    pub targets: Vec<Object>,
    /// The commands that delete them in this order.
    pub commands: Vec<String>,
}

/// What the given order does, and an order that works, or none.
pub struct OrderSearch {
    /// Its targets are empty if no order that works is known.
    pub order: DeletionOrder,
    /// The targets that the given order deletes.
    pub accepted: Vec<NodeId>,
    /// The targets whose DELETE is denied in the given order.
    pub denied: Vec<NodeId>,
}

/// Searches an order of the targets, if the given order does not work. `server_predecessors`: the
/// targets whose DELETE the API server denies, each with the targets that must be deleted before
/// it.
pub async fn find(
    inspection: &Inspection,
    cascade: Propagation,
    server_predecessors: &RequiredOrder,
) -> Option<OrderSearch> {
    let targets = inspection.deletable_targets();
    if targets.len() < 2 {
        return None;
    }
    let mut predecessors = required_order(inspection, &targets, cascade);
    for (target, earlier) in server_predecessors {
        predecessors.entry(*target).or_default().extend(earlier);
    }
    let is_accepted = async |earlier: &[NodeId], target: NodeId| {
        let waits = |order: &RequiredOrder| waits(order, target, earlier);
        // The API server denies the DELETE until its `server_predecessors` are deleted. For other
        // predecessors, the verdict of the command decides.
        !waits(server_predecessors)
            && (!waits(&predecessors) || accepts(inspection, earlier, target, cascade).await)
    };
    let accepted = accepted(&targets, &is_accepted).await;
    let denied: Vec<NodeId> =
        targets.iter().copied().filter(|target| !accepted.contains(target)).collect();
    if denied.is_empty() || inspection.lacks_webhooks().await {
        return None;
    }
    let sorted = sort(&targets, &predecessors, &is_accepted).await.unwrap_or_default();
    let objects = |ids: &[NodeId]| -> Vec<Object> {
        ids.iter().map(|id| Object::at(&inspection.graph, *id)).collect()
    };
    let steps = steps(inspection, &sorted, &predecessors);
    let last = steps.len().saturating_sub(1);
    let command = |(index, step): (usize, &Vec<NodeId>)| {
        // The next step needs the dependents to be deleted. kubectl waits for them only with
        // foreground propagation.
        let cascade = match cascade {
            Propagation::Background if index < last => Propagation::Foreground,
            other => other,
        };
        command(&inspection.graph, step, cascade)
    };
    let order = DeletionOrder {
        denied: objects(&denied),
        commands: steps.iter().enumerate().map(command).collect(),
        targets: objects(&sorted),
    };
    Some(OrderSearch { order, accepted, denied })
}

/// For each target, the targets that must be deleted before it: they use it, they use an object
/// that is deleted with it, or they are content of it.
pub type RequiredOrder = BTreeMap<NodeId, BTreeSet<NodeId>>;

fn required_order(
    inspection: &Inspection,
    targets: &[NodeId],
    cascade: Propagation,
) -> RequiredOrder {
    let graph = &inspection.graph;
    let mut deleted_with: HashMap<NodeId, BTreeSet<NodeId>> = HashMap::new();
    let TargetEffects { mut alone, together } = TargetEffects::new(inspection, targets, cascade);
    for (target, lost) in &mut alone {
        let shared = together.iter().filter(|(_, owners)| owners.contains(target));
        lost.extend(shared.map(|(id, _)| *id));
        for id in lost {
            deleted_with.entry(*id).or_default().insert(*target);
        }
    }
    let mut predecessors = RequiredOrder::new();
    for (target, lost) in alone {
        let earlier = predecessors.entry(target).or_default();
        for id in lost {
            // An object without owners is deleted with the target only if it is content of the
            // target, a Namespace or a CRD.
            let is_content =
                graph.get(id).is_some_and(|node| id != target && node.owner_edges().is_empty());
            if is_content && targets.contains(&id) {
                earlier.insert(id);
            }
            for user in graph.users(id).filter(|user| user.needs()) {
                match deleted_with.get(&user.node.id()) {
                    Some(deleting) if !deleting.contains(&target) => earlier.extend(deleting),
                    _ => {}
                }
            }
        }
    }
    predecessors
}

/// The targets whose DELETE belay accepts in the given order. Denied targets stay.
pub async fn accepted_in_order(
    inspection: &Inspection,
    targets: &[NodeId],
    cascade: Propagation,
) -> Vec<NodeId> {
    let is_accepted = async |earlier: &[NodeId], target: NodeId| {
        accepts(inspection, earlier, target, cascade).await
    };
    accepted(targets, &is_accepted).await
}

/// Whether belay accepts the DELETE of a target after the DELETEs of `earlier`. belay has accepted
/// these DELETEs, so if it denies all DELETEs together, the reason is the target.
async fn accepts(
    inspection: &Inspection,
    earlier: &[NodeId],
    target: NodeId,
    cascade: Propagation,
) -> bool {
    let verdict = verdict(inspection, &[earlier, &[target]].concat(), cascade).await;
    verdict.is_none_or(|verdict| verdict.decision != Decision::Deny)
}

/// Whether the target waits for a predecessor that is not among `earlier`.
fn waits<T: Ord>(predecessors: &BTreeMap<T, BTreeSet<T>>, target: T, earlier: &[T]) -> bool {
    let mut all = predecessors.get(&target).into_iter().flatten();
    all.any(|id| *id != target && !earlier.contains(id))
}

/// The targets whose DELETE is accepted in the given order. `is_accepted`: whether the DELETE of a
/// target is accepted after the DELETEs of other targets.
async fn accepted<T: Copy>(targets: &[T], is_accepted: &impl AsyncFn(&[T], T) -> bool) -> Vec<T> {
    let mut accepted = Vec::new();
    for target in targets {
        if is_accepted(&accepted, *target).await {
            accepted.push(*target);
        }
    }
    accepted
}

/// Sorts predecessors before their targets. All other targets stay in the given order. If all
/// remaining targets wait for each other, the next one is a target whose DELETE is accepted.
/// `None` if there is no such target.
async fn sort<T: Copy + Ord>(
    targets: &[T],
    predecessors: &BTreeMap<T, BTreeSet<T>>,
    is_accepted: &impl AsyncFn(&[T], T) -> bool,
) -> Option<Vec<T>> {
    let mut remaining: Vec<T> = targets.to_vec();
    let mut sorted = Vec::with_capacity(remaining.len());
    while !remaining.is_empty() {
        let is_free = |target: &T| !waits(predecessors, *target, &sorted);
        let mut next = remaining.iter().position(is_free);
        for (index, target) in remaining.iter().enumerate() {
            if next.is_none() && is_accepted(&sorted, *target).await {
                next = Some(index);
            }
        }
        sorted.push(remaining.remove(next?));
    }
    Some(sorted)
}

/// The objects of each `kubectl delete`. One command deletes objects of one namespace. belay
/// denies the DELETE of an object without a hold until its users are deleted, so such an object
/// is in a later step than its users.
fn steps(
    inspection: &Inspection,
    order: &[NodeId],
    predecessors: &RequiredOrder,
) -> Vec<Vec<NodeId>> {
    let graph = &inspection.graph;
    let namespace = |id: NodeId| graph.coordinates(id).1;
    let mut steps: Vec<Vec<NodeId>> = Vec::new();
    for target in order {
        let is_held = graph.get(*target).is_some_and(|node| node.is_held());
        let waits = |id: &NodeId| {
            !is_held && predecessors.get(target).is_some_and(|earlier| earlier.contains(id))
        };
        match steps.last_mut() {
            Some(step)
                if step.iter().all(|id| namespace(*id) == namespace(*target) && !waits(id)) =>
            {
                step.push(*target);
            }
            _ => steps.push(vec![*target]),
        }
    }
    steps
}

/// The `kubectl delete` of these objects, which are in one namespace.
fn command(graph: &Graph, step: &[NodeId], cascade: Propagation) -> String {
    let option = match cascade {
        Propagation::Background => "",
        Propagation::Foreground => " --cascade=foreground",
        Propagation::Orphan => " --cascade=orphan",
    };
    let objects = step.iter().map(|id| {
        let (kind, namespace, name) = graph.coordinates(*id);
        ObjectRef::of_kind(graph.kinds.info(kind), namespace, name)
    });
    let objects: Vec<ObjectRef> = objects.collect();
    format!("kubectl delete {}{option}", ObjectRef::arguments_of(&objects))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn users_come_first_and_the_rest_stays_in_the_given_order() {
        let sorted = async |pairs: &[(usize, usize)], approved: &[usize]| {
            let mut predecessors: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
            for (first, then) in pairs {
                predecessors.entry(*then).or_default().insert(*first);
            }
            let is_accepted = async |earlier: &[usize], target: usize| {
                approved.contains(&target) || !waits(&predecessors, target, earlier)
            };
            let targets = [0, 1, 2, 3, 4];
            let accepted = accepted(&targets, &is_accepted).await;
            (accepted, sort(&targets, &predecessors, &is_accepted).await)
        };
        let all = || vec![0, 1, 2, 3, 4];
        assert_eq!(sorted(&[], &[]).await, (all(), Some(all())));
        assert_eq!(sorted(&[(3, 0)], &[]).await, (vec![1, 2, 3, 4], Some(vec![1, 2, 3, 0, 4])));
        let chain = [(3, 0), (4, 3)];
        assert_eq!(sorted(&chain, &[]).await, (vec![1, 2, 4], Some(vec![1, 2, 4, 3, 0])));
        // No object of a cycle is accepted, and no object that the cycle uses.
        let cycle = [(1, 0), (0, 1), (1, 2)];
        assert_eq!(sorted(&cycle, &[]).await, (vec![3, 4], None));
        assert_eq!(sorted(&cycle, &[1]).await, (vec![1, 2, 3, 4], Some(vec![3, 4, 1, 0, 2])));
    }
}
