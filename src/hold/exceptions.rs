//! Users that do not count although they use the target. Without these exceptions some
//! pairs of objects would wait for each other forever.

use super::owners::{AllOwners, PassReads};
use crate::decide::only_wait;
use crate::graph::{
    Certainty, DeletionOutcome, DeletionRequest, Fates, Node, NodeId, Propagation, RefusesDelete,
    fates,
};
use crate::objects::{NumberSet, is_hold};
use crate::policy::MAX_CLOCK_DIFFERENCE_SECONDS;

/// Why a user does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UserException {
    /// The user is deleted with the target, and no policy denies its DELETE.
    DeletedTogether,
    /// The user is Terminating and owns the target: a StatefulSet in a foreground
    /// deletion waits for its PersistentVolumeClaims. An editor of the target may have added
    /// the owner reference. So this exception applies only if the user has owned the target
    /// since the creation of the target, or if it has finalizers and all of them belong to
    /// controllers that only wait.
    TerminatingOwner,
    /// A newcomer: the user and its owners were created after the deletion of the target, the
    /// settle time and the greatest difference of clocks. It can wait until the target is
    /// re-created. If it counted, new users could keep the target forever.
    CreatedAfterDeletion,
    /// The user is Terminating, its hold is its only finalizer, and the release of that hold
    /// waits for the target: the two objects use each other.
    Cycle,
}

impl UserException {
    pub const ALL: &'static [Self] =
        &[Self::DeletedTogether, Self::TerminatingOwner, Self::CreatedAfterDeletion, Self::Cycle];
}

/// The effects of a removal of the holds of all candidates together. The candidates are the target
/// and the objects that may be in a cycle with it.
pub(super) struct ReleaseEffects {
    cycle_candidates: NumberSet<NodeId>,
    /// What becomes of the candidates and of other objects.
    fates: Fates,
}

impl ReleaseEffects {
    /// Finds the effects of the release of these candidates. belay denies the DELETE of the
    /// objects in `denied`.
    pub(super) fn new(
        pass_reads: PassReads<'_>,
        candidates: &[NodeId],
        denied: &NumberSet<NodeId>,
    ) -> Self {
        let graph = pass_reads.live_graph();
        let nodes = candidates.iter().filter_map(|id| graph.get(*id));
        let propagation = |node: Node<'_>| {
            pass_reads.charge(node.finalizers().search_steps());
            Propagation::of_terminating(node.finalizers().iter())
        };
        let targets: Vec<_> = nodes.map(|node| (node.id(), propagation(node))).collect();
        let work = pass_reads.situation.work;
        let refuses: RefusesDelete<'_> = &|node| denied.contains(&node.id());
        let request = DeletionRequest {
            released: candidates,
            work,
            refuses,
            ..DeletionRequest::new(&targets)
        };
        let fates = fates(graph, &request);
        Self { cycle_candidates: candidates.iter().copied().collect(), fates }
    }

    pub(super) fn is_candidate(&self, id: NodeId) -> bool {
        self.cycle_candidates.contains(&id)
    }

    /// The other objects that may be deleted with the candidates, in a stable order.
    pub(super) fn possibly_deleted(&self) -> Vec<NodeId> {
        let all = self.fates.iter().map(|(id, _)| id);
        let mut deleted: Vec<_> =
            all.filter(|id| self.fates.may_be_lost(*id) && !self.is_candidate(*id)).collect();
        deleted.sort_unstable();
        deleted
    }

    /// Whether a user certainly receives a DELETE because the candidates are deleted. A finalizer
    /// may delay the removal of the user.
    pub(super) fn certainly_gets_delete(&self, user: Node<'_>) -> bool {
        // A candidate is already Terminating. Its release removes it without another DELETE.
        !self.is_candidate(user.id())
            && self.fates.get(user.id()).is_some_and(|fate| {
                fate.certainty == Certainty::Certain
                    && matches!(
                        fate.outcome,
                        DeletionOutcome::Deleted | DeletionOutcome::Terminating
                    )
            })
    }
}

/// A candidate whose users are counted: the target, or an object that may be in a cycle with it.
pub(super) struct HeldCandidate<'a> {
    pub(super) node: Node<'a>,
    pub(super) owners: AllOwners,
    /// The longest `settleSeconds` of its policies. A create that began before the DELETE may have
    /// a creationTimestamp up to this much later.
    pub(super) settle_seconds: i64,
}

impl<'a> HeldCandidate<'a> {
    /// Whether [`UserException::TerminatingOwner`] applies to this user.
    pub(super) fn is_owned_by_terminating(
        &self,
        pass_reads: PassReads<'a>,
        user: Node<'_>,
    ) -> bool {
        user.is_terminating()
            && self.owners.existing.contains(&user.id())
            && (has_only_waiting_finalizers(user) || pass_reads.is_original_owner(self.node, user))
    }

    /// Whether a user and all its `owners` are newcomers.
    pub(super) fn is_newcomer(&self, owners: &AllOwners) -> bool {
        let Some(deletion_time) = self.node.deletion_time() else { return false };
        let margin = MAX_CLOCK_DIFFERENCE_SECONDS.saturating_add(self.settle_seconds);
        !owners.has_unknown && owners.oldest_creation > deletion_time.saturating_add(margin)
    }
}

/// Whether all finalizers of an object (at least one) belong to controllers that only wait
/// for other objects.
fn has_only_waiting_finalizers(node: Node<'_>) -> bool {
    has_finalizers(node) && only_wait(node.finalizers().iter())
}

/// Whether an object is Terminating and its hold is its only finalizer.
pub(super) fn has_only_hold(node: Node<'_>) -> bool {
    node.is_terminating() && has_finalizers(node) && node.finalizers().iter().all(is_hold)
}

fn has_finalizers(node: Node<'_>) -> bool {
    node.finalizers().iter().next().is_some()
}
