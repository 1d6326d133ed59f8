//! Users that do not count, although they need the target. Without these
//! exceptions there are pairs that wait for each other for ever.

use super::chain::{OwnerReader, OwnersAbove};
use crate::graph::{
    Certainty, DeletionRequest, Fates, Node, NodeId, Outcome, Propagation, RefusesDelete, fates,
};
use crate::objects::{NumberSet, is_hold};

/// Why a user does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Excuse {
    /// It goes with the target: a dependent that names its owner. No policy refuses
    /// its DELETE.
    Closure,
    /// It is Terminating and owns the target: a StatefulSet deleted in the
    /// foreground waits for the claims that it needs.
    Ancestor,
    /// It was made after the target had been deleted and settle had passed, by
    /// nobody older: it can wait until the target is made again, and would keep
    /// it for ever.
    Newcomer,
    /// It is Terminating, nothing but our hold keeps it, and it waits for the
    /// target itself: two that name each other.
    Cycle,
}

impl Excuse {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Closure, Self::Ancestor, Self::Newcomer, Self::Cycle];
}

/// So much may the clocks of API servers differ.
const CLOCKS_SECONDS: i64 = 5;

/// Objects whose holds are removed together: the target, and what waits in a
/// cycle with it.
pub(super) struct ReleaseGroup {
    members: NumberSet<NodeId>,
    /// What becomes of the others once the holds are removed.
    fates: Fates,
}

impl ReleaseGroup {
    /// What follows from the release of these, except for objects that refuse.
    pub(super) fn new(
        chain: OwnerReader<'_>,
        members: &[NodeId],
        refusing: &NumberSet<NodeId>,
    ) -> Self {
        let graph = chain.graph();
        let nodes = members.iter().filter_map(|id| graph.get(*id));
        let propagation = |node: Node<'_>| {
            chain.charge(node.finalizers().size());
            Propagation::under_way(node.finalizers().iter())
        };
        let targets: Vec<_> = nodes.map(|node| (node.id(), propagation(node))).collect();
        let work = chain.situation.work;
        let refuses: RefusesDelete<'_> = &|node| refusing.contains(&node.id());
        let request =
            DeletionRequest { released: members, work, refuses, ..DeletionRequest::new(&targets) };
        let fates = fates(graph, &request);
        Self { members: members.iter().copied().collect(), fates }
    }

    pub(super) fn contains(&self, id: NodeId) -> bool {
        self.members.contains(&id)
    }

    /// The others that may be deleted with these, in a steady order.
    pub(super) fn may_take(&self) -> Vec<NodeId> {
        let all = self.fates.iter().map(|(id, _)| id);
        let mut taken: Vec<_> =
            all.filter(|id| self.fates.may_be_lost(*id) && !self.contains(*id)).collect();
        taken.sort_unstable();
        taken
    }

    /// Whether a user certainly receives its DELETE because these objects are
    /// deleted. That it may then wait for a finalizer is its own matter: it
    /// cannot even begin before.
    pub(super) fn takes(&self, user: Node<'_>) -> bool {
        // The others that wait are no consequence: their users count, too.
        !self.contains(user.id())
            && self.fates.get(user.id()).is_some_and(|fate| {
                fate.certainty == Certainty::Certain
                    && matches!(fate.outcome, Outcome::Deleted | Outcome::Held)
            })
    }
}

/// One held object, of which users are asked.
pub(super) struct Held<'a> {
    pub(super) node: Node<'a>,
    pub(super) above: OwnersAbove,
    /// A create may have begun so long before it was given its time of
    /// creation: the API server sets that when other webhooks are through.
    pub(super) settle_seconds: i64,
}

impl Held<'_> {
    pub(super) fn is_owned_by(&self, user: Node<'_>) -> bool {
        user.is_terminating() && self.above.there.contains(&user.id())
    }

    /// Whether a user and everything `above` it are newcomers.
    pub(super) fn is_late(&self, above: &OwnersAbove) -> bool {
        let Some(deleted) = self.node.deleted() else { return false };
        let margin = CLOCKS_SECONDS.saturating_add(self.settle_seconds);
        !above.unknown && above.created > deleted.saturating_add(margin)
    }
}

/// Whether nothing but our hold keeps an object.
pub(super) fn is_only_held(node: Node<'_>) -> bool {
    let mut finalizers = node.finalizers().iter().peekable();
    node.is_terminating() && finalizers.peek().is_some() && finalizers.all(is_hold)
}
