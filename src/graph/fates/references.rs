//! R1 to R3, R6 and R7: the states of owner references, and how the garbage collector
//! deletes objects.

use super::mode::{DeletionMode, OwnerReferenceState};
use super::walk::DeletionWalk;
use crate::graph::{NamedOwner, Node, OwnerEdge};

impl DeletionWalk<'_> {
    /// R6 and R7: the mode in which the garbage collector deletes an object.
    ///
    /// `owner_waits` is whether an owner is in a foreground deletion, and
    /// `owner_waits_for_node` whether this object keeps it waiting.
    pub(super) fn garbage_collection_mode(
        &self,
        node: Node<'_>,
        owner_waits: bool,
        owner_waits_for_node: bool,
    ) -> DeletionMode {
        // R7: the garbage collector ignores the default of the kind.
        let by_finalizers = if node.has_orphan_finalizer() {
            DeletionMode::Orphan
        } else if node.has_foreground_finalizer() {
            DeletionMode::Foreground
        } else {
            DeletionMode::Background
        };
        let has_dependents = self.graph.dependents(node).next().is_some();
        if !owner_waits || !has_dependents {
            return by_finalizers;
        }
        // R6 applies if the owner still waits when the garbage collector checks this object.
        // This is certain if the owner waits for this object.
        match by_finalizers {
            _ if owner_waits_for_node => DeletionMode::Foreground,
            DeletionMode::Orphan => DeletionMode::OrphanOrNot,
            _ => DeletionMode::ForegroundOrBackground,
        }
    }

    /// R1 to R3: the state of a reference in this walk.
    pub(super) fn resolve(&self, item: Node<'_>, reference: &OwnerEdge) -> OwnerReferenceState {
        let owner = match self.graph.named_owner(item, reference) {
            NamedOwner::Exists(owner) => owner,
            NamedOwner::Replaced => return OwnerReferenceState::Absent,
            NamedOwner::Missing if self.graph.proves_node_absence(reference.to) => {
                return OwnerReferenceState::Absent;
            }
            NamedOwner::Unresolvable | NamedOwner::Missing => {
                return OwnerReferenceState::Unresolved;
            }
        };
        if self.is_certain() && self.unresolvable.contains(&reference.to) {
            return OwnerReferenceState::Unresolved;
        }
        match self.mode(reference.to) {
            // The garbage collector removes the reference before the API server removes the
            // owner.
            Some(DeletionMode::Orphan) => return OwnerReferenceState::Orphaning,
            Some(DeletionMode::OrphanOrNot) if self.is_certain() => {
                return OwnerReferenceState::Orphaning;
            }
            _ if self.removed.contains(&reference.to) => return OwnerReferenceState::Absent,
            _ => {}
        }
        // An owner with another finalizer counts as solid again after its wait (R9). So the
        // state Waiting is certain only for a dependent that keeps the owner waiting.
        let may_be_solid_again = self.is_certain() && self.has_finalizer(reference.to);
        match self.mode(reference.to) {
            Some(DeletionMode::Background) => OwnerReferenceState::Solid,
            Some(DeletionMode::Foreground)
                if may_be_solid_again
                    && (!reference.blocking || self.references_may_stop_blocking(item)) =>
            {
                OwnerReferenceState::Solid
            }
            Some(DeletionMode::Foreground) => OwnerReferenceState::Waiting,
            Some(DeletionMode::ForegroundOrBackground) if may_be_solid_again => {
                OwnerReferenceState::Solid
            }
            Some(DeletionMode::ForegroundOrBackground) => OwnerReferenceState::Waiting,
            // `Orphan` returned above.
            Some(DeletionMode::Orphan | DeletionMode::OrphanOrNot) => OwnerReferenceState::Waiting,
            // R3: the owner may be Terminating because of an earlier deletion.
            None if !owner.is_terminating() => OwnerReferenceState::Solid,
            None if owner.waits_in_foreground() => {
                if may_be_solid_again {
                    OwnerReferenceState::Solid
                } else {
                    OwnerReferenceState::Waiting
                }
            }
            None if self.is_certain() => OwnerReferenceState::Solid,
            None if owner.has_orphan_finalizer() => OwnerReferenceState::Orphaning,
            None => OwnerReferenceState::Absent,
        }
    }
}
