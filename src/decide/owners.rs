//! What an owner reference amounts to right now, and who is doomed.

use super::item::{Claim, Item, claims};
use super::{LiveRead, Situation};
use crate::graph::{Node, NodeId};
use crate::objects::ORPHAN;

/// What an owner reference amounts to (R1 to R3).
#[derive(Clone, Copy)]
pub(super) enum Standing<'a> {
    /// It cannot be resolved, which counts as a living owner: nothing is
    /// allowed because of what is not known.
    Unresolved,
    /// The owner is gone, or was never there.
    Absent,
    /// The owner waits for its dependents.
    Waiting(Node<'a>),
    /// The owner is there, Terminating or not.
    Solid(Node<'a>),
}

/// What this reference amounts to. What has been read live is newer than the
/// graph, which lags by 20 to 50 ms just when several deletes follow another.
pub(super) fn standing<'a>(
    situation: &Situation<'a>,
    item_namespace: &str,
    claim: &Claim<'_>,
) -> Standing<'a> {
    let graph = situation.graph;
    let Some(kind) = claim.kind else { return Standing::Unresolved };
    let crosses = item_namespace.is_empty() && graph.kinds.info(kind).namespaced;
    if !graph.kinds.serves(kind, claim.version) || crosses {
        return Standing::Unresolved;
    }
    let node = match situation.read_object(kind, claim.namespace, claim.name) {
        Some(live) => live,
        None => {
            let cached = graph.find(kind, claim.namespace, claim.name);
            let cached = cached.and_then(|id| graph.get(id));
            if cached.is_none() && !graph.is_complete(kind) {
                return Standing::Unresolved;
            }
            cached
        }
    };
    match node.filter(|node| node.uid() == claim.uid) {
        None => Standing::Absent,
        Some(node) if node.waits_in_foreground() => Standing::Waiting(node),
        Some(node) => Standing::Solid(node),
    }
}

/// Whether the DELETE of this object follows from another one, told by the
/// state of things and not by who asks: it has owners and none of them is
/// solid, or its Namespace is Terminating.
pub(super) fn is_cascade(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    is_in_dying_namespace(situation, item) || has_owners_and_none_is_solid(situation, item)
}

fn has_owners_and_none_is_solid(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    let owners = item.owners(situation);
    let stays = |claim: &Claim<'_>| {
        let standing = standing(situation, item.facts.namespace, claim);
        matches!(standing, Standing::Solid(_) | Standing::Unresolved)
    };
    !owners.is_empty() && !owners.iter().any(stays)
}

fn is_in_dying_namespace(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    let graph = situation.graph;
    let kind = graph.kinds.find("", "Namespace");
    let namespace = kind.and_then(|kind| match item.facts.namespace {
        "" => None,
        name => graph.get(graph.find(kind, "", name)?),
    });
    namespace.is_some_and(Node::is_terminating)
}

/// Whether a user goes by itself, so that waiting for it is enough: nothing
/// keeps it, and nothing will make it again. A Terminating user with a living
/// owner is being *replaced*: its successor needs what it used.
pub(super) fn is_doomed(situation: &Situation<'_>, node: Node<'_>) -> bool {
    doomed(situation, node, &mut Vec::new())
}

fn doomed(situation: &Situation<'_>, node: Node<'_>, above: &mut Vec<NodeId>) -> bool {
    // A cycle of owners never collects itself (R10).
    if above.contains(&node.id()) || node.finalizers().contains(ORPHAN) {
        return false;
    }
    let item = Item::of_node(situation, node);
    if situation.applied(item.facts).iter().any(|applied| applied.policy.modes.always) {
        return false;
    }
    let owners = claims(situation, node);
    if owners.is_empty() {
        return node.is_terminating();
    }
    above.push(node.id());
    let all = owners.iter().all(|claim| match standing(situation, node.namespace(), claim) {
        Standing::Unresolved => false,
        Standing::Absent => true,
        Standing::Waiting(owner) | Standing::Solid(owner) => {
            let goes = owner.is_terminating() && !owner.finalizers().contains(ORPHAN);
            // An owner that was read live stands in another graph.
            goes || in_graph(situation, owner).is_some_and(|o| doomed(situation, o, above))
        }
    });
    above.pop();
    all
}

/// The same object in the situation's graph.
fn in_graph<'a>(situation: &Situation<'a>, node: Node<'_>) -> Option<Node<'a>> {
    let graph = situation.graph;
    let found = graph.get(graph.find(node.kind(), node.namespace(), node.name())?)?;
    (found.uid() == node.uid()).then_some(found)
}

/// The live read that says whether the owner at the top is still there;
/// `None` for a user without owners: nobody's absence could excuse it.
pub(super) fn root_read(situation: &Situation<'_>, user: Node<'_>) -> Option<LiveRead> {
    let root = situation.graph.root_owner(user);
    (root.id() != user.id())
        .then(|| situation.object_read(root.kind(), root.namespace(), root.name()))
}
