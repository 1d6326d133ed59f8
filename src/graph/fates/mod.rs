//! What a deletion does to everything else.
//!
//! The rules R1 to R14 are those of docs/THEORY.md, which follow the real
//! garbage collector; each branch says which one it is. Where the outcome
//! depends on timing, or on somebody taking a finalizer off, there is no one
//! answer, so the walk is made twice (see [`DeletionWalk`]):
//!
//! * in the world of what **may** be, whatever can go wrong for an object
//!   does: finalizers are taken off, an owner that cannot be resolved counts
//!   as gone;
//! * in the world of what **must** be, nothing goes that something could save.
//!
//! Verdicts ask what may be lost, the release asks what is certain.

mod mode;
mod references;
mod waiting;
mod walk;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use super::{Graph, Node, NodeId, StepLimit, User};
use crate::objects::{DefaultPropagation, FOREGROUND, NumberMap, NumberSet, ORPHAN};
use walk::DeletionWalk;

/// What a DELETE does with dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// The collector looks at them once the owner is gone.
    Background,
    /// The owner waits for them.
    Foreground,
    /// They lose their reference to the owner.
    Orphan,
}

impl Propagation {
    /// R8 for an object of the graph.
    pub fn effective(
        graph: &Graph,
        node: Node<'_>,
        policy: Option<Self>,
        orphan_dependents: Option<bool>,
    ) -> Self {
        let default = graph.kinds.info(node.kind()).default_propagation;
        Self::of_delete(default, node.finalizers().iter(), policy, orphan_dependents)
    }

    /// How an object that is Terminating is being deleted.
    pub fn under_way<'f>(mut finalizers: impl Iterator<Item = &'f str>) -> Self {
        // The first of the two that is there is the one the server obeys.
        let by_finalizer = finalizers.find_map(|finalizer| match finalizer {
            ORPHAN => Some(Self::Orphan),
            FOREGROUND => Some(Self::Foreground),
            _ => None,
        });
        by_finalizer.unwrap_or(Self::Background)
    }

    /// R8: what a DELETE at the root really does: options, then a finalizer
    /// that is already there, then the default of the kind.
    pub fn of_delete<'f>(
        default: DefaultPropagation,
        mut finalizers: impl Iterator<Item = &'f str>,
        policy: Option<Self>,
        orphan_dependents: Option<bool>,
    ) -> Self {
        if default == DefaultPropagation::None {
            return Self::Background;
        }
        match (orphan_dependents, policy) {
            (Some(true), _) => return Self::Orphan,
            (Some(false), _) => return Self::Background,
            (None, Some(policy)) => return policy,
            (None, None) => {}
        }
        // The first of the two that is there is the one the server obeys.
        let by_finalizer = finalizers.find_map(|finalizer| match finalizer {
            ORPHAN => Some(Self::Orphan),
            FOREGROUND => Some(Self::Foreground),
            _ => None,
        });
        by_finalizer.unwrap_or(match default {
            DefaultPropagation::Orphan => Self::Orphan,
            DefaultPropagation::Background | DefaultPropagation::None => Self::Background,
        })
    }
}

/// Says which nodes would refuse their DELETE (R13).
pub type RefusesDelete<'r> = &'r dyn Fn(Node<'_>) -> bool;

/// A deletion to look into.
pub struct DeletionRequest<'r> {
    /// What is deleted, and how, by R8.
    pub targets: &'r [(NodeId, Propagation)],
    /// What would refuse. Verdicts cut nothing: they ask what the delete tries to
    /// take. Releases and the preview cut by policy: what really happens.
    pub refuses: RefusesDelete<'r>,
    /// How many objects are followed at the most. Beyond it the answer says
    /// that it is not whole.
    pub limit: usize,
    /// Objects from which belay's own hold is taken off.
    pub released: &'r [NodeId],
    /// Finalizers that their controllers take off by themselves before long.
    /// Verdicts and releases name none: what waits for one of these still
    /// waits. The preview says how it ends.
    pub short_lived_finalizers: &'r [&'r str],
    /// Whether dependents in namespaces that a cluster-scoped object takes along are left
    /// out. Any user of a namespace can attach objects to one. Verdicts leave them out,
    /// because the collector's DELETE of each is judged.
    pub same_scope: bool,
    /// What the walk may cost. Beyond it the answer says that it is not whole.
    pub work: StepLimit<'r>,
}

impl<'r> DeletionRequest<'r> {
    /// What a delete of these targets tries to take.
    pub fn new(targets: &'r [(NodeId, Propagation)]) -> Self {
        let work = StepLimit::default();
        Self {
            targets,
            refuses: &|_| false,
            limit: usize::MAX,
            released: &[],
            short_lived_finalizers: &[],
            same_scope: false,
            work,
        }
    }
}

/// What becomes of an object that a deletion reaches. That a user *breaks* is
/// told by [`Fates::broken_by`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// It goes.
    Deleted,
    /// It is Terminating and waits: for a finalizer, or for a dependent.
    Held,
    /// It stays and loses an owner.
    Orphaned,
}

/// How sure that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Certainty {
    /// However things are timed.
    Certain,
    /// It depends.
    Maybe,
}

/// What becomes of one object, and how sure that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fate {
    /// What.
    pub outcome: Outcome,
    /// How sure.
    pub certainty: Certainty,
}

/// The fates of everything that a deletion reaches. What is not in here stays
/// as it is, but for users that break: those are found when asked for, so that
/// whoever needs three of ten thousand looks at three.
#[derive(Debug, Default)]
pub struct Fates {
    fates: NumberMap<NodeId, Fate>,
    may_be_orphaned: NumberSet<NodeId>,
    whole: bool,
}

/// Follows a deletion through the graph.
pub fn fates(graph: &Graph, request: &DeletionRequest<'_>) -> Fates {
    let may = DeletionWalk::possible(graph, request);
    let must = DeletionWalk::certain(graph, request, &may);
    let mut fates = NumberMap::with_capacity_and_hasher(may.size(), Default::default());
    for id in may.deleting() {
        let certain = must.is_deleting(id);
        let outcome = if must.is_removed(id) {
            Outcome::Deleted
        } else if must.is_stuck(id) || may.is_stuck(id) {
            Outcome::Held
        } else {
            // It may go: by a timing that is not certain, or when somebody
            // whom it waits for may go.
            fates.insert(id, Fate { outcome: Outcome::Deleted, certainty: Certainty::Maybe });
            continue;
        };
        let certainty = if certain { Certainty::Certain } else { Certainty::Maybe };
        fates.insert(id, Fate { outcome, certainty });
    }
    let mut may_be_orphaned = NumberSet::default();
    for id in may.orphaned() {
        if !must.is_removed(id) {
            may_be_orphaned.insert(id);
        }
        // What is Terminating already loses its owner too, and may go for
        // reasons of its own.
        let stays = graph.get(id).is_some_and(|node| !node.is_terminating());
        fates.entry(id).or_insert_with(|| Fate {
            outcome: Outcome::Orphaned,
            certainty: match must.is_orphaned(id) && stays {
                true => Certainty::Certain,
                false => Certainty::Maybe,
            },
        });
    }
    Fates {
        fates,
        may_be_orphaned,
        whole: may.is_whole() && must.is_whole() && !request.work.is_used_up(),
    }
}

impl Fates {
    /// The fate of an object, `None` if it stays as it is.
    pub fn get(&self, id: NodeId) -> Option<Fate> {
        self.fates.get(&id).copied()
    }

    /// Every object with a fate, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Fate)> + '_ {
        self.fates.iter().map(|(id, fate)| (*id, *fate))
    }

    /// Whether an object is certainly deleted: it is in the closure, and no
    /// user that survives.
    pub fn is_certainly_deleted(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|fate| {
            fate.outcome == Outcome::Deleted && fate.certainty == Certainty::Certain
        })
    }

    /// Whether an object may be lost: deleted now, or once a finalizer that
    /// holds it is taken off.
    pub fn may_be_lost(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|fate| matches!(fate.outcome, Outcome::Deleted | Outcome::Held))
    }

    /// The objects that may lose an owner and stay, whatever else may become of them.
    pub fn may_be_orphaned(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.may_be_orphaned.iter().copied()
    }

    /// Whether everything was followed, or the limit reached first.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The users that an object would leave broken: those that need it and are
    /// not lost with it. Certain where the object certainly goes and the user
    /// certainly stays.
    pub fn broken_by<'g>(
        &'g self,
        graph: &'g Graph,
        id: NodeId,
    ) -> impl Iterator<Item = (User<'g>, Certainty)> {
        let certain = self.is_certainly_deleted(id);
        let lost = self.may_be_lost(id).then_some(id);
        let users = lost.into_iter().flat_map(|id| graph.users(id)).filter(|user| user.needs());
        users.filter_map(move |user| match (self.may_be_lost(user.node.id()), certain) {
            (true, _) if self.is_certainly_deleted(user.node.id()) => None,
            (false, true) => Some((user, Certainty::Certain)),
            _ => Some((user, Certainty::Maybe)),
        })
    }
}
