//! What an owner reference amounts to right now, and who is doomed.

use super::item::Item;
use super::{LiveRead, Situation};
use crate::graph::{MOST_OWNER_LEVELS, Node, OwnerClaim};
use crate::objects::{KeyedMap, KeyedSet, Uid};
use crate::policy::ObjectFacts;

/// What an owner reference amounts to (R1 to R3).
#[derive(Clone, Copy)]
pub(super) enum OwnerState<'a> {
    /// It cannot be resolved, which counts as a living owner: nothing is
    /// allowed because of what is not known.
    Unresolved,
    /// The owner is gone, or was never there.
    Absent,
    /// The owner waits for its dependents.
    Waiting(Node<'a>),
    /// The owner is there, Terminating or not.
    Solid(Node<'a>),
}

/// What this reference amounts to. What has been read live is newer than the
/// graph, which lags by 20 to 50 ms just when several deletes follow another.
pub(super) fn owner_state<'a>(
    situation: &Situation<'a>,
    item_namespace: &str,
    claim: &OwnerClaim<'_>,
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

/// Whether the DELETE of this object follows from another one, told by the
/// state of things and not by who asks: it has owners and none of them is
/// solid, or its Namespace is Terminating.
pub(super) fn is_cascade(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    is_in_dying_namespace(situation, item) || has_owners_and_none_is_solid(situation, item)
}

fn has_owners_and_none_is_solid(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    let owners = item.owners(situation);
    let stays = |claim: &OwnerClaim<'_>| {
        let standing = owner_state(situation, item.facts.namespace, claim);
        matches!(standing, OwnerState::Solid(_) | OwnerState::Unresolved)
    };
    !owners.is_empty() && !owners.iter().any(stays)
}

pub(super) fn is_in_dying_namespace(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    let graph = situation.graph;
    let kind = graph.kinds.find("", "Namespace");
    let namespace = kind.and_then(|kind| match item.facts.namespace {
        "" => None,
        name => graph.object(kind, "", name),
    });
    namespace.is_some_and(Node::is_terminating)
}

/// The owners above the users of a verdict. Users often have the same owners, so
/// each owner is looked at once. Editors write owner references, so every way up is
/// bounded in depth and, for each user, in number: what is not found doomed within
/// the bounds counts.
pub(super) struct UserOwners<'a> {
    situation: Situation<'a>,
    /// Whether an object is doomed, by uid; while an answer is looked for it is "no",
    /// so that a cycle of owners, which never collects itself (R10), is not doomed.
    doomed: KeyedMap<Uid, bool>,
    /// How many objects were looked at for this user.
    looked_at: usize,
    /// The owner at the top of an owner, by uid.
    roots: KeyedMap<Uid, Node<'a>>,
}

/// Nothing real is owned by this many.
pub(super) const MOST_OWNERS: usize = 1_000;

/// So many owners of one object are read live.
pub(super) const MOST_OWNERS_READ: usize = 16;

impl<'a> UserOwners<'a> {
    pub(super) fn new(situation: &Situation<'a>) -> Self {
        let (doomed, roots) = Default::default();
        Self { situation: *situation, doomed, looked_at: 0, roots }
    }

    /// Whether a user goes by itself, so that waiting for it is enough: nothing
    /// keeps it, and nothing will make it again. A Terminating user with a living
    /// owner is being *replaced*: its successor needs what it used.
    pub(super) fn is_doomed(&mut self, user: Node<'_>) -> bool {
        self.looked_at = 0;
        self.is_doomed_at(user, 0)
    }

    /// The owner at the top of a user.
    pub(super) fn root(&mut self, user: Node<'a>) -> Node<'a> {
        let work = self.situation.work;
        let Some(owner) = user.first_owner_within(work) else { return user };
        let root = *self.roots.entry(owner.uid()).or_insert_with(|| owner.root_owner_within(work));
        // In a cycle there is none.
        if root.id() == user.id() { owner } else { root }
    }

    fn is_doomed_at(&mut self, node: Node<'_>, depth: usize) -> bool {
        if let Some(known) = self.doomed.get(&node.uid()) {
            return *known;
        }
        if depth > MOST_OWNER_LEVELS || self.looked_at > MOST_OWNERS {
            return false;
        }
        self.looked_at += 1;
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
        if node.orphans_dependents() || always(facts) {
            return false;
        }
        let mut claims = node.claims().peekable();
        if claims.peek().is_none() {
            return node.is_terminating();
        }
        claims.all(|claim| match owner_state(&self.situation, node.namespace(), &claim) {
            OwnerState::Unresolved => false,
            OwnerState::Absent => true,
            OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                let goes = owner.is_terminating() && !owner.orphans_dependents();
                goes || self.is_doomed_at(owner, depth + 1)
            }
        })
    }
}

/// What a search for an owner came to.
pub(super) enum OwnerSearch<'a> {
    /// This one was found.
    Found(Node<'a>),
    /// There may be one: an owner is not known, or there is more than is looked at.
    Unknown,
    /// There is none.
    Absent,
}

/// Searches everything above an object, on each way up. Editors write owner
/// references, so the search is bounded in depth and number. `may_be_sought` is
/// asked about references to owners that are not known. What was read live has
/// only those owners beside it that were read, too, so the way goes on in the
/// graph.
pub(super) fn find_owner<'a>(
    situation: &Situation<'a>,
    object: Node<'a>,
    is_sought: impl Fn(Node<'a>) -> bool,
    may_be_sought: impl Fn(&OwnerClaim<'_>) -> bool,
) -> OwnerSearch<'a> {
    let mut seen = KeyedSet::from_iter([object.uid()]);
    let (mut level, mut unknown) = (vec![object], false);
    for _ in 0..MOST_OWNER_LEVELS {
        let mut next = Vec::new();
        for node in level {
            let steps = 1 + node.owners().len();
            if node.has_too_many_owners()
                || seen.len() > MOST_OWNERS
                || !situation.work.charge(steps)
            {
                return OwnerSearch::Unknown;
            }
            for claim in node.claims() {
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

/// The search up from owners for one that is being deleted.
pub(super) struct DeletionSearch<'s, 'a> {
    situation: &'s Situation<'a>,
    /// By uid; "no" while an answer is looked for, because the collector deletes no
    /// cycle of owners (R10).
    answers: KeyedMap<Uid, bool>,
    /// The reads of the owners above, which the graph may not have seen go.
    pub(super) unread: Vec<LiveRead>,
}

impl<'s, 'a> DeletionSearch<'s, 'a> {
    pub(super) fn new(situation: &'s Situation<'a>) -> Self {
        Self { situation, answers: KeyedMap::default(), unread: Vec::new() }
    }

    /// Whether an object is Terminating, or the collector deletes it as things are:
    /// it has owners, and each is gone, Terminating or deleted in the same way.
    /// Unlike [`UserOwners::is_doomed`] this finds what may be deleted: finalizers and policies
    /// that keep an object now may be gone by then.
    pub(super) fn is_being_deleted(&mut self, node: Node<'a>) -> bool {
        self.is_being_deleted_within(node, MOST_OWNER_LEVELS)
    }

    fn is_being_deleted_within(&mut self, node: Node<'a>, levels: usize) -> bool {
        if node.is_terminating() {
            return true;
        }
        if let Some(known) = self.answers.get(&node.uid()) {
            return *known;
        }
        let owners = node.owners().len();
        let bounded =
            levels > 0 && self.answers.len() <= MOST_OWNERS && !node.has_too_many_owners();
        // There may be anything above.
        if !bounded || !self.situation.work.charge(8 + owners) {
            return true;
        }
        self.answers.insert(node.uid(), false);
        let keeps = |claim: OwnerClaim<'a>| {
            self.read(&claim);
            match owner_state(self.situation, node.namespace(), &claim) {
                OwnerState::Unresolved => true,
                OwnerState::Absent => false,
                OwnerState::Waiting(owner) | OwnerState::Solid(owner) => {
                    !self.is_being_deleted_within(owner, levels - 1)
                }
            }
        };
        let kept = node.claims().map(keeps).fold(false, |any, keeps| any | keeps);
        let going = owners > 0 && !kept;
        self.answers.insert(node.uid(), going);
        going
    }

    fn read(&mut self, claim: &OwnerClaim<'_>) {
        let Some(kind) = claim.kind.filter(|_| self.unread.len() < MOST_OWNERS_READ) else {
            return;
        };
        let read = self.situation.object_read(kind, claim.namespace, claim.name);
        if self.situation.is_unread(&read) {
            self.unread.push(read);
        }
    }
}

/// The live read that says whether the owner at the top is still there;
/// `None` for a user without owners: nobody's absence could excuse it.
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
    use crate::decide::Live;
    use crate::graph::{Edges, Graph, Progress, StepBudget, StepLimit};
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
                graph.apply(kind, &object, Progress::Ordinary, Edges::default());
            }
        }
        graph.set_complete(kind, true);
        let (policies, budget) = (PolicySet::default(), StepBudget::new(most));
        let situation = Situation::new(&graph, &policies, Live::Graph, 0);
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
        assert!(search(MOST_OWNER_LEVELS - 1, usize::MAX).0);
        assert!(!search(MOST_OWNER_LEVELS, usize::MAX).0);
        assert!(!search(20, 10).0);
    }
}
