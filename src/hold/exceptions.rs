//! Users that do not count although they use the target. Without these exceptions some
//! pairs of objects would wait for each other forever.

use super::owners::{OwnerReader, OwnersAbove};
use crate::decide::is_waiting_finalizer;
use crate::graph::{
    Certainty, DeletionOutcome, DeletionRequest, Fates, Node, NodeId, Propagation, RefusesDelete,
    fates,
};
use crate::objects::{NumberSet, is_hold};

/// Why a user does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UserException {
    /// The user is deleted with the target, and no policy denies its DELETE.
    DeletedTogether,
    /// The user is Terminating and owns the target: a StatefulSet in a foreground
    /// deletion waits for its claims. An editor of the target may have added the owner
    /// reference. So the user counts while it has a finalizer that does more than wait,
    /// unless it has owned the target since the creation of the target.
    TerminatingOwner,
    /// The user and its owners were created after the deletion of the target and
    /// `settle`. It can wait until the target is re-created. If it counted, new users
    /// could keep the target forever.
    Newcomer,
    /// The user is Terminating, only its hold keeps it, and it waits for the target: two
    /// objects that use each other.
    Cycle,
}

impl UserException {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::DeletedTogether, Self::TerminatingOwner, Self::Newcomer, Self::Cycle];
}

/// How much the clocks of API servers may differ.
const CLOCKS_SECONDS: i64 = 5;

/// Objects whose holds are removed together: the target, and the objects that wait in a
/// cycle with it.
pub(super) struct ReleaseGroup {
    members: NumberSet<NodeId>,
    /// The fates of other objects after the holds are removed.
    fates: Fates,
}

impl ReleaseGroup {
    /// The effects of the release of these objects, except for objects whose DELETE belay
    /// denies.
    pub(super) fn new(
        owner_reader: OwnerReader<'_>,
        members: &[NodeId],
        refusing: &NumberSet<NodeId>,
    ) -> Self {
        let graph = owner_reader.graph();
        let nodes = members.iter().filter_map(|id| graph.get(*id));
        let propagation = |node: Node<'_>| {
            owner_reader.charge(node.finalizers().size());
            Propagation::under_way(node.finalizers().iter())
        };
        let targets: Vec<_> = nodes.map(|node| (node.id(), propagation(node))).collect();
        let work = owner_reader.situation.work;
        let refuses: RefusesDelete<'_> = &|node| refusing.contains(&node.id());
        let request =
            DeletionRequest { released: members, work, refuses, ..DeletionRequest::new(&targets) };
        let fates = fates(graph, &request);
        Self { members: members.iter().copied().collect(), fates }
    }

    pub(super) fn contains(&self, id: NodeId) -> bool {
        self.members.contains(&id)
    }

    /// The other objects that may be deleted with these, in a stable order.
    pub(super) fn may_delete(&self) -> Vec<NodeId> {
        let all = self.fates.iter().map(|(id, _)| id);
        let mut taken: Vec<_> =
            all.filter(|id| self.fates.may_be_lost(*id) && !self.contains(*id)).collect();
        taken.sort_unstable();
        taken
    }

    /// Whether a user certainly receives its DELETE because these objects are deleted. It
    /// may then wait for a finalizer, but it can't be deleted before.
    pub(super) fn certainly_deletes(&self, user: Node<'_>) -> bool {
        // Other members are no effect of the release: their users count as well.
        !self.contains(user.id())
            && self.fates.get(user.id()).is_some_and(|fate| {
                fate.certainty == Certainty::Certain
                    && matches!(fate.outcome, DeletionOutcome::Deleted | DeletionOutcome::Held)
            })
    }
}

/// A held object whose users are counted.
pub(super) struct HeldTarget<'a> {
    pub(super) node: Node<'a>,
    pub(super) above: OwnersAbove,
    /// How long before its creationTimestamp a create may have begun: the API server sets
    /// the timestamp after other webhooks.
    pub(super) settle_seconds: i64,
}

impl<'a> HeldTarget<'a> {
    /// Whether a user that owns the object is Terminating and does not need it any more.
    pub(super) fn is_owned_by(&self, owner_reader: OwnerReader<'a>, user: Node<'_>) -> bool {
        user.is_terminating()
            && self.above.there.contains(&user.id())
            && (only_waits(user) || owner_reader.is_original_owner(self.node, user))
    }

    /// Whether a user and everything `above` it are newcomers.
    pub(super) fn is_newcomer(&self, above: &OwnersAbove) -> bool {
        let Some(deleted) = self.node.deletion_time() else { return false };
        let margin = CLOCKS_SECONDS.saturating_add(self.settle_seconds);
        !above.unknown && above.created > deleted.saturating_add(margin)
    }
}

/// Whether only finalizers whose controllers wait for other objects keep an object.
fn only_waits(node: Node<'_>) -> bool {
    let mut finalizers = node.finalizers().iter().peekable();
    finalizers.peek().is_some() && finalizers.all(is_waiting_finalizer)
}

/// Whether only the hold keeps a Terminating object.
pub(super) fn is_only_held(node: Node<'_>) -> bool {
    let mut finalizers = node.finalizers().iter().peekable();
    node.is_terminating() && finalizers.peek().is_some() && finalizers.all(is_hold)
}
