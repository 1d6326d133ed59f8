//! The content of deleted Namespaces that waits for Pods. The namespace controller deletes the Pods
//! of a Namespace first, and the other content after the last Pod was removed.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::inspect::inspection::Inspection;
use crate::graph::{DeletionOutcome, Fate, Node, NodeId};

/// The content of deleted Namespaces that waits for a Pod, each with this Pod, which stays
/// Terminating. `fates`: the fates of all affected objects.
pub fn content_behind_pods(
    inspection: &Inspection,
    fates: &[(NodeId, Fate)],
) -> BTreeMap<NodeId, NodeId> {
    let affected: BTreeSet<NodeId> = fates.iter().map(|(id, _)| *id).collect();
    let Inspection { graph, targets, .. } = inspection;
    let Some(pods) = graph.kinds.find("", "Pod") else { return BTreeMap::new() };
    let mut waits_for: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let (mut content, mut deleted) = (Vec::new(), BTreeSet::new());
    for &(id, fate) in fates {
        let Some(node) = graph.get(id) else { continue };
        let namespace = node.namespace_node().filter(|id| affected.contains(id));
        match (fate.outcome, namespace) {
            (DeletionOutcome::Terminating, Some(namespace)) if node.kind() == pods => {
                waits_for.entry(namespace).or_insert(id);
            }
            (DeletionOutcome::Deleted, Some(namespace))
                if node.kind() != pods && !node.is_terminating() && !targets.contains(&id) =>
            {
                content.push((node, namespace));
            }
            (DeletionOutcome::Deleted, _) => drop(deleted.insert(id)),
            _ => {}
        }
    }
    // Content with a deleted owner does not wait: the garbage collector deletes it.
    loop {
        let (earlier, rest): (Vec<_>, Vec<_>) =
            content.into_iter().partition(|(node, _): &(Node<'_>, _)| {
                node.existing_owners().any(|owner| deleted.contains(&owner.id()))
            });
        content = rest;
        if earlier.is_empty() {
            break;
        }
        deleted.extend(earlier.into_iter().map(|(node, _)| node.id()));
    }
    let waiting = content.into_iter();
    waiting.filter_map(|(node, namespace)| Some((node.id(), *waits_for.get(&namespace)?))).collect()
}
