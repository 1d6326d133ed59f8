//! The objects that a deletion affects.

use super::content::Container;
use super::item::JudgedObject;
use super::owners::{OwnerState, owner_state};
use super::{LostVolume, Situation};
use crate::graph::{DeletionRequest, Fates, Graph, Node, NodeId, Propagation, fates};
use crate::objects::{HoldAge, KeyedSet, ObjectRef};

/// The limit of objects that belay follows a deletion through.
pub(super) const MAX_FOLLOWED: usize = 200_000;

/// An object that a request deletes directly or through other changes.
#[derive(Clone, Copy)]
pub(super) struct DeletionTarget<'a> {
    pub(super) item: JudgedObject<'a>,
    pub(super) propagation: Propagation,
    /// Whether the release checks the users of the object, so that questions 4 to 6 of
    /// docs/THEORY.md do not apply to the object itself.
    pub(super) deferred_to_release: bool,
}

impl<'a> DeletionTarget<'a> {
    /// A target to which all questions of docs/THEORY.md apply.
    pub(super) fn new(item: JudgedObject<'a>, propagation: Propagation) -> Self {
        Self { item, propagation, deferred_to_release: false }
    }
}

pub(super) struct AffectedObjects {
    pub(super) fates: Fates,
    /// The objects that may be lost, in a stable order.
    lost: Vec<NodeId>,
    complete: bool,
}

impl AffectedObjects {
    pub(super) fn find(situation: &Situation<'_>, targets: &[DeletionTarget<'_>]) -> Self {
        let roots_of =
            |target: &DeletionTarget<'_>| walk_roots(situation, &target.item, target.propagation);
        let roots: Vec<_> = targets.iter().flat_map(roots_of).collect();
        // A deferred object cascades when belay removes its hold.
        let waiting = targets.iter().filter(|target| target.deferred_to_release);
        let released: Vec<_> =
            waiting.filter_map(|target| target.item.node).map(Node::id).collect();
        let request = DeletionRequest {
            limit: MAX_FOLLOWED,
            work: situation.work,
            released: &released,
            only_dependents_in_same_scope: true,
            ..DeletionRequest::new(&roots)
        };
        let fates = fates(situation.graph, &request);
        let mut lost: Vec<_> = fates.iter().map(|(id, _)| id).collect();
        lost.retain(|id| {
            let node = situation.graph.get(*id);
            fates.may_be_lost(*id) && !node.is_some_and(waits_without_hold)
        });
        lost.sort_unstable();
        Self { complete: fates.is_complete(), fates, lost }
    }

    /// Like [`Self::find`], with all dependents of the object, including dependents with other
    /// owners: a user who changes the owners of the object can also change those of a
    /// dependent.
    pub(super) fn with_dependents(situation: &Situation<'_>, target: &DeletionTarget<'_>) -> Self {
        let mut affected = Self::find(situation, &[*target]);
        let mut seen = KeyedSet::from_iter([target.item.uid()]);
        let mut next = vec![(target.item.uid(), target.item.facts.namespace)];
        while let Some((uid, namespace)) = next.pop() {
            for node in situation.graph.possible_dependents(uid, namespace) {
                if !situation.work.charge(1) || seen.len() > MAX_FOLLOWED {
                    affected.complete = false;
                    break;
                }
                // belay decided about a Terminating object when it was deleted.
                if !node.is_terminating() && seen.insert(node.uid()) {
                    affected.lost.push(node.id());
                    next.push((node.uid(), node.namespace()));
                }
            }
        }
        affected.lost.sort_unstable();
        affected.lost.dedup();
        affected
    }

    /// The objects that may be lost.
    pub(super) fn lost<'g>(&self, graph: &'g Graph) -> impl Iterator<Item = Node<'g>> {
        self.lost.iter().filter_map(|id| graph.get(*id))
    }

    /// Whether the search stayed within its limits.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }
}

/// Whether the DELETE of this object has passed, and belay can't keep the object any more: the
/// object waits for its dependents without a hold, and the API server accepts no new finalizer on a
/// Terminating object. belay does not judge such an object again. Otherwise, dependents that use
/// each other would never be deleted (H151).
fn waits_without_hold(node: Node<'_>) -> bool {
    node.waits_in_foreground() && node.hold() == HoldAge::NotHeld
}

/// A volume or claim that the deletion of an object deletes as well.
pub(super) fn lost_volume<'a>(
    situation: &Situation<'a>,
    deleted: &JudgedObject<'a>,
    propagation: Propagation,
) -> Option<LostVolume> {
    let affected = AffectedObjects::find(situation, &[DeletionTarget::new(*deleted, propagation)]);
    let lost = affected.lost(situation.graph).filter(|node| node.uid() != deleted.uid());
    let volumes = lost.map(Node::object_ref).filter(ObjectRef::is_volume);
    let volume = volumes.min_by(|a, b| a.name.cmp(&b.name))?;
    Some(LostVolume { deleted: deleted.object_ref(), volume })
}

/// The objects from which [`fates`] follows the deletion of a target: the target itself. If the
/// graph doesn't have the target yet, its known dependents and content.
fn walk_roots(
    situation: &Situation<'_>,
    target: &JudgedObject<'_>,
    propagation: Propagation,
) -> Vec<(NodeId, Propagation)> {
    let graph = situation.graph;
    if let Some(node) = target.node {
        return vec![(node.id(), propagation)];
    }
    if propagation == Propagation::Orphan {
        return Vec::new();
    }
    // Dependents with another solid owner remain.
    let is_deleted = |node: &Node<'_>| {
        situation.work.charge(node.owner_edges().len());
        node.owner_refs().all(|owner_ref| {
            let state = owner_state(situation, node.namespace(), &owner_ref);
            owner_ref.uid == target.uid() || !matches!(state, OwnerState::Solid(_))
        })
    };
    let dependents = graph.dependents_in_same_scope(target.uid(), target.facts.namespace);
    let dependents = dependents.filter(is_deleted).map(Node::id);
    let container = Container::from_item(target).into_iter();
    let content = container.flat_map(|container| container.objects(graph)).map(Node::id);
    dependents.chain(content).map(|id| (id, Propagation::Background)).collect()
}
