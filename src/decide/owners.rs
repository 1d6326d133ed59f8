//! The state of owners, and which objects are certain to be deleted.

use std::ops::ControlFlow;

use super::item::JudgedObject;
use super::{LiveRead, Situation};
use crate::graph::{MAX_OWNER_LEVELS, Node, OwnerRef, SEARCH_STEPS, search_owners};
use crate::objects::{KeyedMap, KindId, Uid};
use crate::policy::ObjectFacts;

/// The state of the owner that an owner reference names (R1 to R3).
#[derive(Clone, Copy)]
pub(super) enum OwnerState<'a> {
    /// The reference can't be resolved. It counts as an existing owner, because belay
    /// allows nothing on unknown state.
    Unresolved,
    /// The owner does not exist.
    Absent,
    /// The owner waits for its dependents in a foreground deletion.
    Waiting(Node<'a>),
    /// The owner exists and does not wait for its dependents. It may be Terminating.
    Solid(Node<'a>),
}

/// The state of the owner of this reference. Live reads are newer than the graph, which
/// lags by 20 to 50 ms when several deletes follow each other.
pub(super) fn owner_state<'a>(
    situation: &Situation<'a>,
    item_namespace: &str,
    owner_ref: &OwnerRef<'_>,
) -> OwnerState<'a> {
    let graph = situation.graph;
    let in_namespace = !item_namespace.is_empty();
    let coordinates = (owner_ref.version, owner_ref.name);
    let is_resolvable = |kind: &KindId| graph.can_own(*kind, coordinates, in_namespace);
    let Some(kind) = owner_ref.kind.filter(is_resolvable) else { return OwnerState::Unresolved };
    let node = match situation.live_object(kind, owner_ref.namespace, owner_ref.name) {
        Some(live) => live,
        None => {
            let cached = graph.object(kind, owner_ref.namespace, owner_ref.name);
            if cached.is_none() && !graph.proves_absence(kind, owner_ref.namespace, owner_ref.name)
            {
                return OwnerState::Unresolved;
            }
            cached
        }
    };
    match node.filter(|node| node.uid() == owner_ref.uid) {
        None => OwnerState::Absent,
        Some(node) if node.waits_in_foreground() => OwnerState::Waiting(node),
        Some(node) => OwnerState::Solid(node),
    }
}

/// Whether the DELETE of this object follows from another deletion. This depends on the
/// state and not on the user: the object has owners and none is solid (R3), or its
/// Namespace is Terminating. The object itself may be Terminating too.
pub(super) fn follows_owner_or_namespace(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
) -> bool {
    situation.is_namespace_terminating(item.facts.namespace)
        || has_owners_and_none_is_solid(situation, item)
}

fn has_owners_and_none_is_solid(situation: &Situation<'_>, item: &JudgedObject<'_>) -> bool {
    let owners = item.owners(situation);
    let keeps = |owner_ref: &OwnerRef<'_>| {
        let state = owner_state(situation, item.facts.namespace, owner_ref);
        matches!(state, OwnerState::Solid(_) | OwnerState::Unresolved)
    };
    !owners.is_empty() && !owners.iter().any(keeps)
}

/// The owners of the users of a verdict. Users often share owners, so belay checks each
/// owner once. Editors write owner references, so the search is limited in depth and, for
/// each user, in number. A user counts unless the search finds, within these limits, that the user
/// is doomed.
pub(super) struct UserOwners<'a> {
    situation: Situation<'a>,
    /// Whether an object is doomed, by uid. `false` also marks an object whose owners belay still
    /// searches. So a cycle of owners counts as not doomed: the garbage collector never deletes
    /// one (R10).
    doomed: KeyedMap<Uid, bool>,
    /// The number of objects that were checked for this user.
    checked: usize,
    /// The missing live reads of owners that are not in the graph, while their watch is not
    /// connected.
    pub(super) unread: Vec<LiveRead>,
    /// The topmost owner of an owner, by uid.
    topmost_owners: KeyedMap<Uid, Node<'a>>,
}

/// The limit of checked owners of an object. Real objects have fewer.
pub(super) const MAX_OWNERS: usize = 1_000;

/// The limit of live reads for the owners of one object.
pub(super) const MAX_OWNERS_READ: usize = 16;

impl<'a> UserOwners<'a> {
    pub(super) fn new(situation: &Situation<'a>) -> Self {
        let (doomed, topmost_owners) = Default::default();
        Self { situation: *situation, doomed, checked: 0, unread: Vec::new(), topmost_owners }
    }

    /// Whether a user is doomed (docs/THEORY.md): certain to be deleted and not re-created, so that
    /// waiting for it is enough. A Terminating user is not doomed if one of its owners stays: the
    /// owner re-creates it, and the new object needs the same objects.
    pub(super) fn is_doomed(&mut self, user: Node<'_>) -> bool {
        self.checked = 0;
        self.is_doomed_at(user, 0)
    }

    /// The topmost owner of a user.
    pub(super) fn topmost_owner(&mut self, user: Node<'a>) -> Node<'a> {
        let work = self.situation.work;
        let Some(owner) = user.managing_owner(work) else { return user };
        let topmost = *self
            .topmost_owners
            .entry(owner.uid())
            .or_insert_with(|| owner.topmost_owner_limited(work));
        // A cycle has no topmost owner.
        if topmost.id() == user.id() { owner } else { topmost }
    }

    fn is_doomed_at(&mut self, node: Node<'_>, depth: usize) -> bool {
        if let Some(known) = self.doomed.get(&node.uid()) {
            return *known;
        }
        if depth > MAX_OWNER_LEVELS || self.checked > MAX_OWNERS {
            return false;
        }
        self.checked += 1;
        self.doomed.insert(node.uid(), false);
        let doomed = self.is_doomed_by_owners(node, depth);
        self.doomed.insert(node.uid(), doomed);
        doomed
    }

    fn is_doomed_by_owners(&mut self, node: Node<'_>, depth: usize) -> bool {
        if node.has_too_many_owners()
            || !self.situation.work.charge(SEARCH_STEPS + node.owner_edges().len())
        {
            return false;
        }
        let facts = ObjectFacts::of_node(node);
        let always = |facts| {
            self.situation.policies_of(facts).iter().any(|applied| applied.policy.modes.always)
        };
        if node.has_orphan_finalizer() || always(facts) {
            return false;
        }
        let mut owner_refs = node.owner_refs().peekable();
        if owner_refs.peek().is_none() {
            let live = self.situation.live_object(node.kind(), node.namespace(), node.name());
            // An object with another uid means that this one is gone.
            return live.map_or(node.is_terminating(), |object| {
                object.is_none_or(|object| object.uid() != node.uid() || object.is_terminating())
            });
        }
        owner_refs.all(|owner_ref| {
            match owner_state(&self.situation, node.namespace(), &owner_ref) {
                OwnerState::Unresolved => {
                    self.require_stale_owner(&owner_ref);
                    false
                }
                OwnerState::Absent => true,
                OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                    let will_be_removed = owner.is_terminating() && !owner.has_orphan_finalizer();
                    will_be_removed || self.is_doomed_at(owner, depth + 1)
                }
            }
        })
    }

    /// Requires a live read of an owner that is not in the graph because its watch is
    /// disconnected.
    fn require_stale_owner(&mut self, owner_ref: &OwnerRef<'_>) {
        let graph = self.situation.graph;
        let is_stale = |kind: KindId| graph.is_complete(kind) && !graph.is_current(kind);
        if owner_ref.kind.is_some_and(is_stale) {
            require_read(&self.situation, owner_ref, &mut self.unread);
        }
    }
}

/// The result of a search for an owner.
pub(super) enum OwnerSearch<'a> {
    /// The owner that was found.
    Found(Node<'a>),
    /// An owner is unknown, or there are more owners than belay checks.
    Unknown,
    /// No owner matches.
    Absent,
}

/// Searches all direct and indirect owners of an object. Editors write owner references,
/// so the search is limited in depth and number. `may_be_sought` decides about references
/// to unknown owners. Live reads contain only some owners, so the search continues in the
/// graph.
pub(super) fn find_owner<'a>(
    situation: &Situation<'a>,
    object: Node<'a>,
    is_sought: impl Fn(Node<'a>) -> bool,
    may_be_sought: impl Fn(&OwnerRef<'_>) -> bool,
) -> OwnerSearch<'a> {
    let mut unknown = false;
    let found = search_owners(object, situation.work, |node| {
        let mut owners = Vec::new();
        for owner_ref in node.owner_refs() {
            match owner_state(situation, node.namespace(), &owner_ref) {
                OwnerState::Unresolved => unknown |= may_be_sought(&owner_ref),
                OwnerState::Absent => {}
                OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                    if is_sought(owner) {
                        return ControlFlow::Break(owner);
                    }
                    owners.push(owner);
                }
            }
        }
        ControlFlow::Continue(owners)
    });
    match found {
        ControlFlow::Break(owner) => OwnerSearch::Found(owner),
        ControlFlow::Continue(true) if !unknown => OwnerSearch::Absent,
        ControlFlow::Continue(_) => OwnerSearch::Unknown,
    }
}

/// The search for a direct or indirect owner that is being deleted.
pub(super) struct DeletionSearch<'s, 'a> {
    situation: &'s Situation<'a>,
    /// The results by uid. `false` also marks an object whose owners belay still searches. So a
    /// cycle of owners counts as not deleted: the garbage collector never deletes one (R10).
    results: KeyedMap<Uid, bool>,
    /// The missing live reads of the owners: the graph may lag behind their deletion.
    pub(super) unread: Vec<LiveRead>,
}

impl<'s, 'a> DeletionSearch<'s, 'a> {
    pub(super) fn new(situation: &'s Situation<'a>) -> Self {
        Self { situation, results: KeyedMap::default(), unread: Vec::new() }
    }

    /// Whether an object is Terminating, or the garbage collector may delete it: it has
    /// owners, and each is absent, Terminating or deleted in the same way. Unlike
    /// [`UserOwners::is_doomed`] this ignores finalizers and policies that keep an object,
    /// because they may be removed later.
    pub(super) fn may_be_being_deleted(&mut self, node: Node<'a>) -> bool {
        self.may_be_being_deleted_limited(node, MAX_OWNER_LEVELS)
    }

    fn may_be_being_deleted_limited(&mut self, node: Node<'a>, levels: usize) -> bool {
        if node.is_terminating() {
            return true;
        }
        if let Some(known) = self.results.get(&node.uid()) {
            return *known;
        }
        let owners = node.owner_edges().len();
        let within_limits =
            levels > 0 && self.results.len() <= MAX_OWNERS && !node.has_too_many_owners();
        // The owners beyond the limit are unknown. belay denies more if the object is being
        // deleted, so assume that.
        if !within_limits || !self.situation.work.charge(SEARCH_STEPS + owners) {
            return true;
        }
        self.results.insert(node.uid(), false);
        let keeps = |owner_ref: OwnerRef<'a>| {
            require_read(self.situation, &owner_ref, &mut self.unread);
            match owner_state(self.situation, node.namespace(), &owner_ref) {
                OwnerState::Unresolved => true,
                OwnerState::Absent => false,
                OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                    !self.may_be_being_deleted_limited(owner, levels - 1)
                }
            }
        };
        // Every owner is checked, so that all missing reads are collected.
        let is_kept = node.owner_refs().map(keeps).fold(false, |any, keeps| any | keeps);
        let is_deleted = owners > 0 && !is_kept;
        self.results.insert(node.uid(), is_deleted);
        is_deleted
    }
}

/// The live read of an owner, if the verdict still needs it.
pub(super) fn unread_owner(
    situation: &Situation<'_>,
    owner_ref: &OwnerRef<'_>,
) -> Option<LiveRead> {
    let read = situation.read_of_object(owner_ref.kind?, owner_ref.namespace, owner_ref.name);
    situation.is_unread(&read).then_some(read)
}

/// Adds the live read of an owner to the missing ones, up to the limit.
pub(super) fn require_read(
    situation: &Situation<'_>,
    owner_ref: &OwnerRef<'_>,
    unread: &mut Vec<LiveRead>,
) {
    if unread.len() >= MAX_OWNERS_READ {
        return;
    }
    let read = unread_owner(situation, owner_ref).filter(|read| !unread.contains(read));
    unread.extend(read);
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::decide::ObjectSource;
    use crate::graph::{Edges, Graph, ObjectPhase, StepBudget, StepCounter};
    use crate::objects::Object;
    use crate::policy::PolicySet;

    /// Searches the owners of an object with this many levels of two owners, each owned by both
    /// objects of the next level. Returns whether no owner matched, and the number of steps.
    fn search(pairs: usize, budget: usize) -> (bool, usize) {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let owner = |level: usize, side: &str| {
            let name = format!("{side}{level}");
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name})
        };
        for level in 0..=pairs {
            for side in ["a", "b"] {
                let name = format!("{side}{level}");
                let owners = match level {
                    0 => json!([]),
                    _ => json!([owner(level - 1, "a"), owner(level - 1, "b")]),
                };
                let object = json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": owners}});
                let object = Object::deserialize(&object).unwrap();
                graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            }
        }
        graph.set_complete(kind, true);
        let (policies, budget) = (PolicySet::default(), StepBudget::new(budget));
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let situation = Situation { work: StepCounter::new(&budget), ..situation };
        let object = graph.object(kind, "shop", &format!("a{pairs}")).unwrap();
        let found = find_owner(&situation, object, |_| false, |_| false);
        (matches!(found, OwnerSearch::Absent), budget.steps())
    }

    #[test]
    fn the_work_of_a_search_grows_with_the_owners_and_not_with_the_paths_to_them() {
        let (absent, steps) = search(20, usize::MAX);
        assert!(absent && steps < 200, "{absent} {steps}");
    }

    #[test]
    fn a_search_beyond_its_limits_has_an_unknown_result() {
        assert!(search(MAX_OWNER_LEVELS - 1, usize::MAX).0);
        assert!(!search(MAX_OWNER_LEVELS, usize::MAX).0);
        assert!(!search(20, 10).0);
    }
}
