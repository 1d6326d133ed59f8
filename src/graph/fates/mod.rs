//! The effects of a deletion on other objects.
//!
//! docs/THEORY.md has the rules R1 to R14, which follow the real garbage collector.
//! Comments name the rule of each branch. The outcome may depend on timing, or on the
//! removal of a finalizer, so there are two walks (see [`DeletionWalk`]):
//!
//! * The walk of **possible** deletions assumes the worst for every object: controllers
//!   remove their finalizers, and an owner that can't be resolved counts as absent.
//! * The walk of **certain** deletions keeps every object that something could keep.
//!
//! Verdicts and releases use both. A check of which objects may be lost uses the possible
//! deletions. A check that ignores users because they are deleted as well uses the certain ones.

mod mode;
mod references;
mod waiting;
mod walk;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use super::{Graph, Node, NodeId, ObjectUser, StepCounter};
use crate::objects::{DefaultPropagation, FOREGROUND, NumberMap, NumberSet, ORPHAN, text_enum};
use walk::DeletionWalk;

text_enum! {
    /// What a DELETE does with dependents.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Propagation {
        /// The garbage collector deletes the dependents after the owner.
        Background = "Background",
        /// The owner waits until its dependents are deleted.
        Foreground = "Foreground",
        /// The dependents lose their reference to the owner.
        Orphan = "Orphan",
    }

    /// The value of `propagationPolicy`.
    pub fn as_str;
}

impl Propagation {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Background, Self::Foreground, Self::Orphan];

    /// The propagation of a DELETE of this object: `requested`, else the propagation of an existing
    /// finalizer, else the default of the kind (R8).
    pub fn of_node_delete(node: Node<'_>, requested: Option<Self>) -> Self {
        let default = node.info().default_propagation;
        Self::of_delete(default, node.finalizers().iter(), requested, None)
    }

    /// The propagation of a deletion in progress, by the finalizers of the object.
    pub fn of_terminating<'f>(finalizers: impl Iterator<Item = &'f str>) -> Self {
        Self::by_finalizer(finalizers).unwrap_or(Self::Background)
    }

    /// The API server obeys the first of these finalizers.
    fn by_finalizer<'f>(mut finalizers: impl Iterator<Item = &'f str>) -> Option<Self> {
        finalizers.find_map(|finalizer| match finalizer {
            ORPHAN => Some(Self::Orphan),
            FOREGROUND => Some(Self::Foreground),
            _ => None,
        })
    }

    /// R8: the effective propagation of a DELETE: from its options, else an existing
    /// finalizer, else the default of the kind.
    pub fn of_delete<'f>(
        default: DefaultPropagation,
        finalizers: impl Iterator<Item = &'f str>,
        requested: Option<Self>,
        orphan_dependents: Option<bool>,
    ) -> Self {
        if default == DefaultPropagation::None {
            return Self::Background;
        }
        match (orphan_dependents, requested) {
            (Some(true), _) => return Self::Orphan,
            (Some(false), _) => return Self::Background,
            (None, Some(requested)) => return requested,
            (None, None) => {}
        }
        Self::by_finalizer(finalizers).unwrap_or(match default {
            DefaultPropagation::Orphan => Self::Orphan,
            DefaultPropagation::Background | DefaultPropagation::None => Self::Background,
        })
    }
}

/// Returns whether the DELETE of a node would be denied (R13).
pub type RefusesDelete<'r> = &'r dyn Fn(Node<'_>) -> bool;

/// A deletion whose effects [`fates`] computes.
pub struct DeletionRequest<'r> {
    /// The deleted objects, with the propagation by R8.
    pub targets: &'r [(NodeId, Propagation)],
    /// Whether the DELETE of an object would be denied. For a verdict this is always false,
    /// because the verdict itself decides about each object that the deletion reaches. For a
    /// release or `impact`, it is whether a policy protects the object.
    pub refuses: RefusesDelete<'r>,
    /// The limit of followed objects. Beyond it, the result is incomplete.
    pub limit: usize,
    /// Objects whose hold belay removes.
    pub released: &'r [NodeId],
    /// Finalizers that their controllers remove soon. Verdicts and releases pass none,
    /// because an object still waits for them. `impact` shows the final state.
    pub short_lived_finalizers: &'r [&'r str],
    /// Whether to ignore the namespaced dependents of cluster-scoped objects. Any user of a
    /// namespace can attach objects to a cluster-scoped owner. Verdicts ignore such
    /// objects, because belay decides about each one when the garbage collector deletes the object.
    pub only_dependents_in_same_scope: bool,
    /// The limit of work. Beyond it, the result is incomplete.
    pub work: StepCounter<'r>,
}

impl<'r> DeletionRequest<'r> {
    /// A deletion of these targets without denials or limits.
    pub fn new(targets: &'r [(NodeId, Propagation)]) -> Self {
        let work = StepCounter::default();
        Self {
            targets,
            refuses: &|_| false,
            limit: usize::MAX,
            released: &[],
            short_lived_finalizers: &[],
            only_dependents_in_same_scope: false,
            work,
        }
    }
}

/// The outcome for an object that a deletion reaches. [`Fates::broken_by`] finds the
/// users that break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeletionOutcome {
    /// It is deleted.
    Deleted,
    /// It is Terminating and waits for a finalizer or a dependent.
    Terminating,
    /// It stays and loses an owner.
    Orphaned,
}

/// Whether the outcome is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Certainty {
    /// Certain for any timing.
    Certain,
    /// It depends on timing or other clients.
    Possible,
}

/// The fate of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fate {
    /// The outcome.
    pub outcome: DeletionOutcome,
    /// Whether the outcome is certain.
    pub certainty: Certainty,
}

/// The fates of all objects that a deletion reaches. Other objects stay as they are,
/// except for users that break, which [`Fates::broken_by`] finds on demand.
#[derive(Debug, Default)]
pub struct Fates {
    fates: NumberMap<NodeId, Fate>,
    may_be_orphaned: NumberSet<NodeId>,
    complete: bool,
}

/// Follows a deletion through the graph.
pub fn fates(graph: &Graph, request: &DeletionRequest<'_>) -> Fates {
    let possible = DeletionWalk::possible(graph, request);
    let certain = DeletionWalk::certain(graph, request, &possible);
    let mut fates = NumberMap::with_capacity_and_hasher(possible.size(), Default::default());
    for id in possible.deleting() {
        let is_deletion_certain = certain.is_deleting(id);
        let outcome = if certain.is_removed(id) {
            DeletionOutcome::Deleted
        } else if certain.is_stuck(id) || possible.is_stuck(id) {
            DeletionOutcome::Terminating
        } else {
            // It may be deleted: depending on timing, or after an object that it waits for is
            // deleted.
            fates.insert(
                id,
                Fate { outcome: DeletionOutcome::Deleted, certainty: Certainty::Possible },
            );
            continue;
        };
        let certainty = if is_deletion_certain { Certainty::Certain } else { Certainty::Possible };
        fates.insert(id, Fate { outcome, certainty });
    }
    let mut may_be_orphaned = NumberSet::default();
    for id in possible.orphaned() {
        if !certain.is_removed(id) {
            may_be_orphaned.insert(id);
        }
        // A Terminating object also loses its owner, and may be deleted for other reasons.
        let stays = graph.get(id).is_some_and(|node| !node.is_terminating());
        fates.entry(id).or_insert_with(|| Fate {
            outcome: DeletionOutcome::Orphaned,
            certainty: match certain.is_orphaned(id) && stays {
                true => Certainty::Certain,
                false => Certainty::Possible,
            },
        });
    }
    Fates {
        fates,
        may_be_orphaned,
        complete: possible.is_complete() && certain.is_complete() && !request.work.is_used_up(),
    }
}

impl Fates {
    /// The fate of an object; `None` if it stays as it is.
    pub fn get(&self, id: NodeId) -> Option<Fate> {
        self.fates.get(&id).copied()
    }

    /// Every object with a fate, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Fate)> + '_ {
        self.fates.iter().map(|(id, fate)| (*id, *fate))
    }

    /// Whether an object is certainly deleted, so that it does not count as a remaining user.
    pub fn is_certainly_deleted(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|fate| {
            fate.outcome == DeletionOutcome::Deleted && fate.certainty == Certainty::Certain
        })
    }

    /// Whether an object may be lost: deleted now, or after the removal of a finalizer.
    pub fn may_be_lost(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|fate| {
            matches!(fate.outcome, DeletionOutcome::Deleted | DeletionOutcome::Terminating)
        })
    }

    /// The objects that may lose an owner without being deleted.
    pub fn may_be_orphaned(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.may_be_orphaned.iter().copied()
    }

    /// Whether the walk followed all objects and reached no limit.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The users of an object that would break: users that are not certainly deleted with
    /// it. A break is certain if the object is certainly deleted and the user certainly
    /// stays.
    pub fn broken_by<'g>(
        &'g self,
        graph: &'g Graph,
        id: NodeId,
    ) -> impl Iterator<Item = (ObjectUser<'g>, Certainty)> {
        let certain = self.is_certainly_deleted(id);
        let lost = self.may_be_lost(id).then_some(id);
        let users = lost.into_iter().flat_map(|id| graph.users(id)).filter(|user| user.needs());
        users.filter_map(move |user| match (self.may_be_lost(user.node.id()), certain) {
            (true, _) if self.is_certainly_deleted(user.node.id()) => None,
            (false, true) => Some((user, Certainty::Certain)),
            _ => Some((user, Certainty::Possible)),
        })
    }
}
