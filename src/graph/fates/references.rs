//! R1 to R3, R6 and R7: the states of owner references, and how the garbage collector
//! deletes objects.

use super::mode::{Mode, Reference};
use super::walk::DeletionWalk;
use crate::graph::{Node, OwnerEdge};

impl DeletionWalk<'_> {
    /// R6 and R7: the mode in which the garbage collector deletes an object.
    pub(super) fn collectors_mode(&self, node: Node<'_>, waits: bool, waits_for_it: bool) -> Mode {
        // R7: a kind's own default does not count inside a cascade.
        let plain = if node.orphans_dependents() {
            Mode::Orphan
        } else if node.deletes_in_foreground() {
            Mode::Foreground
        } else {
            Mode::Background
        };
        let has_dependents = self.graph.dependents(node).next().is_some();
        if !waits || !has_dependents {
            return plain;
        }
        // R6, if the owner still waits when the garbage collector checks this object. It
        // does if it waits for this object.
        match plain {
            _ if waits_for_it => Mode::Foreground,
            Mode::Orphan => Mode::Unclear,
            _ => Mode::Either,
        }
    }

    /// R1 to R3: the state of a reference in this walk.
    pub(super) fn resolve(&self, item: Node<'_>, reference: &OwnerEdge) -> Reference {
        if !self.graph.is_resolvable(item, reference) {
            return Reference::Error;
        }
        let (kind, namespace, name) = self.graph.coordinates(reference.to);
        let owner = match self.graph.get(reference.to) {
            Some(owner) if owner.uid() == reference.uid => owner,
            // Another object has this name.
            Some(_) => return Reference::Dangling,
            None if self.graph.proves_absence(kind, namespace, name) => return Reference::Dangling,
            // It is not in the graph, but may exist in the cluster.
            None => return Reference::Error,
        };
        if self.is_certain() && self.unresolvable.contains(&reference.to) {
            return Reference::Error;
        }
        match self.mode(reference.to) {
            // The garbage collector first removes the reference, also if the owner is
            // removed.
            Some(Mode::Orphan) => return Reference::Orphaning,
            Some(Mode::Unclear) if self.is_certain() => return Reference::Orphaning,
            _ if self.removed.contains(&reference.to) => return Reference::Dangling,
            _ => {}
        }
        // An owner with another finalizer is solid again after it has stopped waiting
        // (R9), so this is certain only for a dependent that keeps it waiting.
        let again_solid = self.is_certain() && self.has_finalizer(reference.to);
        match self.mode(reference.to) {
            Some(Mode::Background) => Reference::Solid,
            Some(Mode::Foreground)
                if again_solid && (!reference.blocking || self.may_be_unblocked(item)) =>
            {
                Reference::Solid
            }
            Some(Mode::Foreground) => Reference::Waiting,
            Some(Mode::Either) if again_solid => Reference::Solid,
            Some(Mode::Either) => Reference::Waiting,
            Some(Mode::Orphan | Mode::Unclear) => Reference::Waiting,
            // R3: an owner that is Terminating because of another deletion.
            None if !owner.is_terminating() => Reference::Solid,
            None if owner.waits_in_foreground() => {
                if again_solid {
                    Reference::Solid
                } else {
                    Reference::Waiting
                }
            }
            None if self.is_certain() => Reference::Solid,
            None if owner.orphans_dependents() => Reference::Orphaning,
            None => Reference::Dangling,
        }
    }
}
