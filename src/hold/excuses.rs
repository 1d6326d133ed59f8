//! Users that do not count, although they need the target. Without these
//! exceptions there are pairs that wait for each other for ever.

use super::chain::{Above, Chain};
use crate::graph::{Certainty, Fates, Node, NodeId, Outcome, Propagation, Request, fates};
use crate::objects::is_hold;

/// Why a user does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Excuse {
    /// It goes with the target: a dependent that names its owner.
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

/// One held object, of which users are asked.
pub(super) struct Held<'a> {
    pub(super) node: Node<'a>,
    above: Above<'a>,
    /// Those whose holds go together, this one among them.
    together: Vec<NodeId>,
    /// What becomes of the others once they are off.
    fates: Fates,
    /// A create may have begun so long before it was given its time of
    /// creation: the API server sets that when other webhooks are through.
    settle_seconds: i64,
}

impl<'a> Held<'a> {
    /// One of these, which all wait for each other and whose holds go together.
    pub(super) fn new(
        chain: Chain<'a>,
        node: Node<'a>,
        members: &[NodeId],
        settle_seconds: i64,
    ) -> Self {
        let graph = chain.graph();
        let members = members.iter().filter_map(|id| graph.get(*id));
        let targets: Vec<_> = members
            .map(|node| (node.id(), Propagation::under_way(node.finalizers().iter())))
            .collect();
        let released: Vec<_> = targets.iter().map(|(id, _)| *id).collect();
        let fates = fates(graph, &Request { released: &released, ..Request::of(&targets) });
        Self { node, above: chain.above(node), fates, together: released, settle_seconds }
    }

    /// What has to be read before it is known whether a Terminating user owns
    /// the object.
    pub(super) fn unread(&self) -> &Above<'a> {
        &self.above
    }

    /// Whether a user certainly receives its DELETE because these objects go.
    /// That it may then wait for a finalizer is its own matter: it cannot even
    /// begin before.
    pub(super) fn takes(&self, user: Node<'_>) -> bool {
        // The others that wait are no consequence: their users count, too.
        !self.together.contains(&user.id())
            && self.fates.get(user.id()).is_some_and(|fate| {
                fate.certainty == Certainty::Certain
                    && matches!(fate.outcome, Outcome::Deleted | Outcome::Held)
            })
    }

    pub(super) fn is_owned_by(&self, user: Node<'_>) -> bool {
        user.is_terminating() && self.above.there.iter().any(|owner| owner.id() == user.id())
    }

    pub(super) fn is_newcomer(&self, user: Node<'_>, above: &Above<'_>) -> bool {
        let Some(deleted) = self.node.deleted() else { return false };
        let margin = CLOCKS_SECONDS.saturating_add(self.settle_seconds);
        let late = |node: Node<'_>| node.created() > deleted.saturating_add(margin);
        late(user) && !above.unknown && above.there.iter().all(|owner| late(*owner))
    }
}

/// Whether nothing but our hold keeps an object.
pub(super) fn is_only_held(node: Node<'_>) -> bool {
    let mut finalizers = node.finalizers().iter().peekable();
    node.is_terminating() && finalizers.peek().is_some() && finalizers.all(is_hold)
}
