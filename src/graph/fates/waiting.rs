//! R5, R9 and R13: objects that wait for other objects.

use super::mode::{DeletionMode, OwnerReferenceState};
use super::walk::DeletionWalk;
use crate::graph::{Node, NodeId, OwnerEdge};

impl<'g> DeletionWalk<'g> {
    /// R9: the number of dependents that block the foreground deletion of `id` and are not
    /// certainly deleted or detached.
    pub(super) fn count_blocking_dependents(&self, id: NodeId) -> usize {
        let blocks = |d: &Node<'_>| !self.removed.contains(&d.id()) && !self.is_detached(*d, id);
        self.blocking_dependents(id).filter(blocks).count()
    }

    /// The dependents with a blocking reference to the uid of this owner.
    pub(super) fn blocking_dependents(
        &self,
        id: NodeId,
    ) -> impl Iterator<Item = Node<'g>> + use<'g> {
        let (graph, work) = (self.graph, self.request.work);
        let owner = graph.get(id).into_iter();
        owner.flat_map(move |owner| {
            let blocks = move |d: &Node<'g>| {
                // The graph has no edges for too many references. Assume a blocking one.
                d.has_too_many_owners()
                    || work.charge(1 + d.owner_edges().len())
                        && d.owner_edges().iter().any(|o| o.blocking && o.uid == owner.uid())
            };
            graph.dependents(owner).filter(blocks)
        })
    }

    /// R5: whether another owner certainly exists. Then the garbage collector removes the
    /// reference to `from`.
    pub(super) fn is_detached(&self, dependent: Node<'_>, from: NodeId) -> bool {
        if dependent.has_too_many_owners() || !self.charge(2 * dependent.owner_edges().len()) {
            return false;
        }
        // R2 and R4: the garbage collector ignores objects with an unresolvable reference,
        // Terminating objects, and objects that are being deleted.
        let ignored = dependent.is_terminating()
            || self.possible.unwrap_or(self).is_deleting(dependent.id())
            || dependent
                .owner_edges()
                .iter()
                .any(|o| self.resolve(dependent, o) == OwnerReferenceState::Unresolved);
        let is_solid_owner = |o: &OwnerEdge| {
            let not_deleting = self.possible.unwrap_or(self).mode(o.to).is_none();
            let terminating = self.graph.get(o.to).is_some_and(Node::is_terminating);
            o.to != from
                && not_deleting
                && !terminating
                && self.resolve(dependent, o) == OwnerReferenceState::Solid
        };
        !ignored && dependent.owner_edges().iter().any(is_solid_owner)
    }

    /// R13, in the walk of possible deletions: an owner in a foreground deletion waits
    /// forever for a dependent whose DELETE is denied. The owner stays, and so do the objects
    /// that wait for the owner.
    pub(super) fn keep_blocked_forever(&mut self) {
        if !self.any_denied {
            return;
        }
        loop {
            let blocks = |d: Node<'_>, id: NodeId| {
                let is_denied = (self.request.refuses)(d);
                let remains = self.is_deleting(d.id()) && !self.removed.contains(&d.id());
                (is_denied || remains) && self.blocks_owner_forever(d) && !self.is_detached(d, id)
            };
            let waits = |id: NodeId| {
                self.mode(id) == Some(DeletionMode::Foreground)
                    && self.blocking_dependents(id).any(|d| blocks(d, id))
            };
            let waiting: Vec<_> = self.removed.iter().copied().filter(|id| waits(*id)).collect();
            if waiting.is_empty() {
                return;
            }
            for id in waiting {
                self.removed.remove(&id);
                for container in self.containers_of.get(&id).into_iter().flatten() {
                    self.removed.remove(container);
                }
            }
        }
    }

    /// Finds the objects that certainly wait: for a finalizer of their own or of a blocking
    /// dependent, or for a dependent whose DELETE is denied. This uses a list instead of
    /// recursion, because a chain of owners may have any length.
    pub(super) fn find_stuck(&mut self) {
        let (request, graph) = (self.request, self.graph);
        let mut next: Vec<_> =
            self.deleting.keys().copied().filter(|id| self.has_finalizer(*id)).collect();
        // Owners that wait for dependents outside this deletion.
        for id in self.deleting.keys() {
            if self.mode(*id) != Some(DeletionMode::Foreground) {
                continue;
            }
            let waits_forever = self.blocking_dependents(*id).any(|d| {
                let is_denied = (request.refuses)(d);
                let keeps_finalizer = is_ignored(d) && self.has_finalizer(d.id());
                (is_denied && self.blocks_owner_forever(d)) || keeps_finalizer
            });
            if waits_forever {
                next.push(*id);
            }
        }
        if self.any_denied {
            next.extend(self.remaining_content.keys().copied().filter(|c| {
                let mut content = self.containers_of.iter().filter(|(_, all)| all.contains(c));
                content.any(|(member, _)| graph.get(*member).is_some_and(|m| (request.refuses)(m)))
            }));
        }
        while let Some(id) = next.pop() {
            if !self.charge(1) {
                return;
            }
            if !self.stuck.insert(id) {
                continue;
            }
            next.extend(self.containers_of.get(&id).into_iter().flatten().copied());
            let Some(node) = graph.get(id) else { continue };
            if self.blocks_owner_forever(node) {
                let keeps = |o: &&OwnerEdge| {
                    o.blocking
                        && node.existing_owner(o).is_some()
                        && self.mode(o.to) == Some(DeletionMode::Foreground)
                };
                next.extend(node.owner_edges().iter().filter(keeps).map(|o| o.to));
            }
        }
    }

    /// Whether the garbage collector can't unblock the owner of this dependent. It ignores
    /// some dependents (R4). For others, it removes the reference if another owner is solid,
    /// even briefly (R5), and makes the reference non-blocking if the cycle guard applies
    /// (R6).
    pub(super) fn blocks_owner_forever(&self, dependent: Node<'_>) -> bool {
        if dependent.has_too_many_owners() {
            return is_ignored(dependent);
        }
        if !self.charge(dependent.owner_edges().len()) {
            return true;
        }
        let mut owners = dependent.owner_edges().iter().map(|o| o.to);
        let first = owners.next();
        is_ignored(dependent)
            || owners.all(|o| Some(o) == first) && !self.references_may_stop_blocking(dependent)
    }

    /// Whether the owner references of the item may become non-blocking.
    /// R6, the cycle guard: if a dependent of an item is itself in a foreground deletion,
    /// the garbage collector first makes the item's references non-blocking. Because of this
    /// write, the DELETE of the item conflicts. The garbage collector retries it later, and
    /// the owner need not wait for the item.
    pub(super) fn references_may_stop_blocking(&self, item: Node<'_>) -> bool {
        let possible = self.possible.unwrap_or(self);
        let mut dependents = self.graph.dependents(item).take_while(|_| self.charge(1));
        dependents.any(|d| match possible.mode(d.id()) {
            None => d.waits_in_foreground(),
            Some(mode) => !matches!(mode, DeletionMode::Background | DeletionMode::Orphan),
        })
    }
}

/// R4: whether the garbage collector ignores the object, because it is Terminating and not
/// in a foreground deletion.
fn is_ignored(node: Node<'_>) -> bool {
    node.is_terminating() && !node.waits_in_foreground()
}
