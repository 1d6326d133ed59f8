//! The state of owners, and which objects are certain to be deleted.

use super::item::JudgedObject;
use super::{LiveRead, Situation};
use crate::graph::{MAX_OWNER_LEVELS, Node, OwnerRef};
use crate::objects::{KeyedMap, KeyedSet, Uid};
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
    /// The owner exists, Terminating or not.
    Solid(Node<'a>),
}

/// The state of the owner of this reference. Live reads are newer than the graph, which
/// lags by 20 to 50 ms when several deletes follow each other.
pub(super) fn owner_state<'a>(
    situation: &Situation<'a>,
    item_namespace: &str,
    claim: &OwnerRef<'_>,
) -> OwnerState<'a> {
    let graph = situation.graph;
    let Some(kind) = claim.kind else { return OwnerState::Unresolved };
    let crosses = item_namespace.is_empty() && graph.kinds.info(kind).namespaced;
    let is_unserved = |version| !graph.kinds.serves(kind, version);
    if claim.version.is_some_and(is_unserved) || crosses {
        return OwnerState::Unresolved;
    }
    let node = match situation.read_object(kind, claim.namespace, claim.name) {
        Some(live) => live,
        None => {
            let cached = graph.object(kind, claim.namespace, claim.name);
            if cached.is_none() && !graph.proves_absence(kind, claim.namespace, claim.name) {
                return OwnerState::Unresolved;
            }
            cached
        }
    };
    match node.filter(|node| node.uid() == claim.uid) {
        None => OwnerState::Absent,
        Some(node) if node.waits_in_foreground() => OwnerState::Waiting(node),
        Some(node) => OwnerState::Solid(node),
    }
}

/// Whether the DELETE of this object follows from another deletion. This depends on the
/// state and not on the user: the object has owners and none is solid (R3), or its
/// Namespace is Terminating.
pub(super) fn is_cascade(situation: &Situation<'_>, item: &JudgedObject<'_>) -> bool {
    situation.is_namespace_terminating(item.facts.namespace)
        || has_owners_and_none_is_solid(situation, item)
}

fn has_owners_and_none_is_solid(situation: &Situation<'_>, item: &JudgedObject<'_>) -> bool {
    let owners = item.owners(situation);
    let stays = |claim: &OwnerRef<'_>| {
        let standing = owner_state(situation, item.facts.namespace, claim);
        matches!(standing, OwnerState::Solid(_) | OwnerState::Unresolved)
    };
    !owners.is_empty() && !owners.iter().any(stays)
}

/// The owners of the users of a verdict. Users often share owners, so belay checks each
/// owner once. Editors write owner references, so the search is limited in depth and, for
/// each user, in number. A user that is not found doomed within the limits counts.
pub(super) struct UserOwners<'a> {
    situation: Situation<'a>,
    /// Whether an object is doomed, by uid. During the search it is `false`, because the
    /// garbage collector never deletes a cycle of owners (R10).
    doomed: KeyedMap<Uid, bool>,
    /// How many objects were checked for this user.
    checked: usize,
    /// The topmost owner of an owner, by uid.
    topmost_owners: KeyedMap<Uid, Node<'a>>,
}

/// Real objects have fewer owners.
pub(super) const MAX_OWNERS: usize = 1_000;

/// The limit of live reads for the owners of one object.
pub(super) const MAX_OWNERS_READ: usize = 16;

impl<'a> UserOwners<'a> {
    pub(super) fn new(situation: &Situation<'a>) -> Self {
        let (doomed, roots) = Default::default();
        Self { situation: *situation, doomed, checked: 0, topmost_owners: roots }
    }

    /// Whether a user is certain to be deleted and not re-created, so that waiting for it
    /// is enough. A Terminating user with an existing owner does not count as doomed: the
    /// owner re-creates it, and the new object needs the same objects.
    pub(super) fn is_doomed(&mut self, user: Node<'_>) -> bool {
        self.checked = 0;
        self.is_doomed_at(user, 0)
    }

    /// The topmost owner of a user.
    pub(super) fn topmost_owner(&mut self, user: Node<'a>) -> Node<'a> {
        let work = self.situation.work;
        let Some(owner) = user.first_owner(work) else { return user };
        let root = *self
            .topmost_owners
            .entry(owner.uid())
            .or_insert_with(|| owner.root_owner_limited(work));
        // A cycle has no topmost owner.
        if root.id() == user.id() { owner } else { root }
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
        let doomed = self.will_be_deleted(node, depth);
        self.doomed.insert(node.uid(), doomed);
        doomed
    }

    fn will_be_deleted(&mut self, node: Node<'_>, depth: usize) -> bool {
        if node.has_too_many_owners() || !self.situation.work.charge(8 + node.owners().len()) {
            return false;
        }
        let facts = ObjectFacts::of_node(node);
        let always = |facts| {
            self.situation.policies_of(facts).iter().any(|applied| applied.policy.modes.always)
        };
        if node.has_orphan_finalizer() || always(facts) {
            return false;
        }
        let mut claims = node.owner_refs().peekable();
        if claims.peek().is_none() {
            return node.is_terminating();
        }
        claims.all(|claim| match owner_state(&self.situation, node.namespace(), &claim) {
            OwnerState::Unresolved => false,
            OwnerState::Absent => true,
            OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                let goes = owner.is_terminating() && !owner.has_orphan_finalizer();
                goes || self.is_doomed_at(owner, depth + 1)
            }
        })
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
    let mut seen = KeyedSet::from_iter([object.uid()]);
    let (mut level, mut unknown) = (vec![object], false);
    for _ in 0..MAX_OWNER_LEVELS {
        let mut next = Vec::new();
        for node in level {
            let steps = 1 + node.owners().len();
            if node.has_too_many_owners()
                || seen.len() > MAX_OWNERS
                || !situation.work.charge(steps)
            {
                return OwnerSearch::Unknown;
            }
            for claim in node.owner_refs() {
                match owner_state(situation, node.namespace(), &claim) {
                    OwnerState::Unresolved => unknown |= may_be_sought(&claim),
                    OwnerState::Absent => {}
                    OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                        if is_sought(owner) {
                            return OwnerSearch::Found(owner);
                        }
                        if seen.insert(owner.uid()) {
                            next.push(owner);
                        }
                    }
                }
            }
        }
        level = next;
        if level.is_empty() {
            return if unknown { OwnerSearch::Unknown } else { OwnerSearch::Absent };
        }
    }
    OwnerSearch::Unknown
}

/// The search for a direct or indirect owner that is being deleted.
pub(super) struct DeletionSearch<'s, 'a> {
    situation: &'s Situation<'a>,
    /// Results by uid; `false` during the search, because the garbage collector deletes
    /// no cycle of owners (R10).
    answers: KeyedMap<Uid, bool>,
    /// The live reads of the owners, because the graph may lag behind their deletion.
    pub(super) unread: Vec<LiveRead>,
}

impl<'s, 'a> DeletionSearch<'s, 'a> {
    pub(super) fn new(situation: &'s Situation<'a>) -> Self {
        Self { situation, answers: KeyedMap::default(), unread: Vec::new() }
    }

    /// Whether an object is Terminating, or the garbage collector deletes it: it has
    /// owners, and each is absent, Terminating or deleted in the same way. Unlike
    /// [`UserOwners::is_doomed`] this finds what may be deleted: finalizers and policies
    /// that keep an object may be removed later.
    pub(super) fn is_being_deleted(&mut self, node: Node<'a>) -> bool {
        self.is_being_deleted_within(node, MAX_OWNER_LEVELS)
    }

    fn is_being_deleted_within(&mut self, node: Node<'a>, levels: usize) -> bool {
        if node.is_terminating() {
            return true;
        }
        if let Some(known) = self.answers.get(&node.uid()) {
            return *known;
        }
        let owners = node.owners().len();
        let bounded = levels > 0 && self.answers.len() <= MAX_OWNERS && !node.has_too_many_owners();
        // The owners beyond the limit are unknown.
        if !bounded || !self.situation.work.charge(8 + owners) {
            return true;
        }
        self.answers.insert(node.uid(), false);
        let keeps = |claim: OwnerRef<'a>| {
            self.read(&claim);
            match owner_state(self.situation, node.namespace(), &claim) {
                OwnerState::Unresolved => true,
                OwnerState::Absent => false,
                OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                    !self.is_being_deleted_within(owner, levels - 1)
                }
            }
        };
        let kept = node.owner_refs().map(keeps).fold(false, |any, keeps| any | keeps);
        let going = owners > 0 && !kept;
        self.answers.insert(node.uid(), going);
        going
    }

    fn read(&mut self, claim: &OwnerRef<'_>) {
        let Some(kind) = claim.kind.filter(|_| self.unread.len() < MAX_OWNERS_READ) else {
            return;
        };
        let read = self.situation.object_read(kind, claim.namespace, claim.name);
        if self.situation.is_unread(&read) {
            self.unread.push(read);
        }
    }
}

/// The live read that shows whether the topmost owner exists; `None` for a user without
/// owners.
pub(super) fn root_read(
    situation: &Situation<'_>,
    user: Node<'_>,
    root: Node<'_>,
) -> Option<LiveRead> {
    (root.id() != user.id())
        .then(|| situation.object_read(root.kind(), root.namespace(), root.name()))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::decide::ObjectSource;
    use crate::graph::{Edges, Graph, ObjectPhase, StepBudget, StepLimit};
    use crate::objects::Object;
    use crate::policy::PolicySet;

    /// An object below so many pairs of owners, each below both of the next pair.
    /// Whether the search finds none, and its steps.
    fn search(pairs: usize, most: usize) -> (bool, usize) {
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
        let (policies, budget) = (PolicySet::default(), StepBudget::new(most));
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let situation = Situation { work: StepLimit::new(&budget), ..situation };
        let object = graph.object(kind, "shop", &format!("a{pairs}")).unwrap();
        let found = find_owner(&situation, object, |_| false, |_| false);
        (matches!(found, OwnerSearch::Absent), budget.steps())
    }

    #[test]
    fn the_work_of_a_search_grows_with_the_owners_and_not_with_the_ways_to_them() {
        let (absent, steps) = search(20, usize::MAX);
        assert!(absent && steps < 200, "{absent} {steps}");
    }

    #[test]
    fn what_is_beyond_the_bounds_of_a_search_may_be_sought() {
        assert!(search(MAX_OWNER_LEVELS - 1, usize::MAX).0);
        assert!(!search(MAX_OWNER_LEVELS, usize::MAX).0);
        assert!(!search(20, 10).0);
    }
}
