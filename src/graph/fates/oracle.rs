//! A model of the garbage collector that tries every order of events.
//!
//! It shares no code with the graph and its walks. It follows the decisions of the garbage
//! collector's own code for a few objects: events add objects to a list of work, and the
//! model tries every order of this work. A fate is certain if all final states agree, and
//! possible if one final state has it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Propagation;

/// An owner reference: the number of the owner, and the uid in the reference.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref {
    pub number: usize,
    pub uid: usize,
    pub blocking: bool,
    /// Its kind is unknown.
    pub error: bool,
}

/// An object. Its name and its uid are its number.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Obj {
    pub refs: Vec<Ref>,
    /// The finalizers foregroundDeletion and orphan, and any other finalizer.
    pub foreground: bool,
    pub orphan: bool,
    pub other: bool,
    pub terminating: bool,
    /// Lost an owner by orphaning.
    pub orphaned: bool,
    /// Its DELETE is denied (R13).
    pub refuses: bool,
}

/// A short format such as `F x Terminating of [0!, 1?]`, so that a counterexample fits on a
/// screen.
impl std::fmt::Debug for Obj {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = [
            (self.foreground, "F"),
            (self.orphan, "O"),
            (self.other, "x"),
            (self.terminating, "Terminating"),
            (self.orphaned, "orphaned"),
            (self.refuses, "refuses"),
        ];
        let words: Vec<_> = words.iter().filter_map(|(is, word)| is.then_some(*word)).collect();
        write!(f, "{} of {:?}", words.join(" "), self.refs)
    }
}

/// `0!` blocks, `0/2` has another uid, and `0?` can't be resolved.
impl std::fmt::Debug for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, uid, blocking, error } = self;
        write!(f, "{number}")?;
        if uid != number {
            write!(f, "/{uid}")?;
        }
        write!(f, "{}{}", if *blocking { "!" } else { "" }, if *error { "?" } else { "" })
    }
}

/// The state of all objects and of the garbage collector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    pub objects: BTreeMap<usize, Obj>,
    /// The objects that the garbage collector will check.
    pub pending: BTreeSet<usize>,
    /// The owners whose dependents the garbage collector will orphan.
    pub orphaning: BTreeSet<usize>,
    /// The objects that were Terminating at the start. The model does not remove their finalizers.
    pub terminating_at_start: BTreeSet<usize>,
    /// The DELETEs of users that the API server has not handled yet.
    pub requests: Vec<(usize, Propagation)>,
}

/// Variants of the model.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Another controller may remove other finalizers from Terminating objects.
    pub strip: bool,
    /// The garbage collector remembers the owner of an unresolvable reference as absent
    /// (R2).
    pub errors_dangle: bool,
}

impl State {
    /// A state in which the garbage collector has not checked any object.
    pub fn new(objects: Vec<Obj>) -> Self {
        let objects: BTreeMap<_, _> = objects.into_iter().enumerate().collect();
        let pending = objects.keys().copied().collect();
        Self { objects, pending, ..Self::default() }
    }

    /// Runs one order to its final state: always the first piece of work.
    pub fn settle(mut self, rules: Rules) -> Self {
        while let Some(next) = self.next(rules).into_iter().next() {
            self = next;
        }
        self
    }

    /// Every final state; `None` if there are more than `limit` states on the way.
    pub fn ends(self, rules: Rules, limit: usize) -> Option<Vec<Self>> {
        let mut seen = HashSet::new();
        let mut stack = vec![self];
        let mut ends = Vec::new();
        while let Some(state) = stack.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            if seen.len() > limit {
                return None;
            }
            let next = state.next(rules);
            let is_final =
                state.requests.is_empty() && state.pending.is_empty() && state.orphaning.is_empty();
            if is_final {
                ends.push(state);
            }
            stack.extend(next);
        }
        Some(ends)
    }

    /// The states after each possible next piece of work.
    fn next(&self, rules: Rules) -> Vec<Self> {
        let mut next = Vec::new();
        for index in 0..self.requests.len() {
            let mut state = self.clone();
            let (number, propagation) = state.requests.remove(index);
            state.delete(number, propagation);
            next.push(state);
        }
        for number in &self.pending {
            let mut state = self.clone();
            state.pending.remove(number);
            state.attempt(*number, rules);
            next.push(state);
        }
        for number in &self.orphaning {
            let mut state = self.clone();
            state.orphaning.remove(number);
            state.orphan_dependents(*number);
            next.push(state);
        }
        if rules.strip && self.requests.is_empty() {
            for (number, object) in &self.objects {
                if object.terminating && object.other && !self.terminating_at_start.contains(number)
                {
                    let mut state = self.clone();
                    state.change(*number, |object| object.other = false);
                    next.push(state);
                }
            }
        }
        next
    }

    /// The API server's part of a DELETE.
    fn delete(&mut self, number: usize, propagation: Propagation) {
        let Some(object) = self.objects.get(&number) else { return };
        if object.refuses {
            return;
        }
        let before = object.clone();
        self.change(number, |object| {
            object.terminating = true;
            object.foreground = propagation == Propagation::Foreground;
            object.orphan = propagation == Propagation::Orphan;
        });
        let started = |now: bool, then: bool| now && !(then && before.terminating);
        if let Some(object) = self.objects.get(&number).cloned() {
            if started(object.foreground, before.foreground) {
                self.pending.extend(self.dependents(number));
                self.pending.insert(number);
            }
            if started(object.orphan, before.orphan) {
                self.orphaning.insert(number);
            }
        }
    }

    /// Changes an object. Removes a Terminating object without finalizers, and then the
    /// garbage collector checks its owners and dependents.
    fn change(&mut self, number: usize, how: impl FnOnce(&mut Obj)) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        how(object);
        let held = object.foreground || object.orphan || object.other;
        if object.terminating && !held {
            let owners: Vec<_> = object.refs.iter().map(|r| r.uid).collect();
            self.objects.remove(&number);
            self.pending.extend(self.dependents(number));
            self.wake(owners);
        }
    }

    /// Changes the references of an object. Then the garbage collector checks the owners that wait
    /// for the object again.
    fn change_refs(&mut self, number: usize, how: impl FnOnce(&mut Vec<Ref>)) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        let before = object.refs.clone();
        how(&mut object.refs);
        let owners: Vec<_> = before.iter().map(|r| r.uid).collect();
        self.wake(owners);
    }

    /// The garbage collector checks these owners again if they wait.
    fn wake(&mut self, owners: Vec<usize>) {
        let waiting: Vec<_> = owners.into_iter().filter(|o| self.waits(*o)).collect();
        self.pending.extend(waiting);
    }

    fn waits(&self, number: usize) -> bool {
        self.objects.get(&number).is_some_and(|o| o.terminating && o.foreground)
    }

    /// The objects with a reference to this uid.
    fn dependents(&self, uid: usize) -> Vec<usize> {
        let depends = |object: &Obj| object.refs.iter().any(|r| r.uid == uid);
        self.objects.iter().filter(|(_, object)| depends(object)).map(|(id, _)| *id).collect()
    }

    /// `attemptToDeleteItem` of the garbage collector.
    fn attempt(&mut self, number: usize, rules: Rules) {
        let Some(item) = self.objects.get(&number).cloned() else { return };
        if item.terminating {
            if item.foreground {
                self.process_deleting_dependents(number);
            }
            return;
        }
        let (mut solid, mut dangling, mut waiting) = (vec![], vec![], vec![]);
        for reference in &item.refs {
            if reference.error && !rules.errors_dangle {
                return;
            }
            let owner = self.objects.get(&reference.number).filter(|_| !reference.error);
            match owner {
                Some(_) if reference.number != reference.uid => dangling.push(reference.clone()),
                None => dangling.push(reference.clone()),
                Some(owner) if owner.terminating && owner.foreground => {
                    waiting.push(reference.clone());
                }
                Some(_) => solid.push(reference.clone()),
            }
        }
        let dependents = self.dependents(number);
        if !solid.is_empty() {
            if solid.len() < item.refs.len() {
                self.change_refs(number, |refs| *refs = solid);
            }
        } else if !waiting.is_empty() && !dependents.is_empty() {
            let guarded = dependents.iter().any(|d| self.waits(*d));
            if guarded && item.refs.iter().any(|r| r.blocking) {
                // The patch changes the resourceVersion, so the next DELETE conflicts, and
                // the garbage collector checks the item again.
                self.change_refs(number, |refs| refs.iter_mut().for_each(|r| r.blocking = false));
                self.pending.insert(number);
            } else {
                self.delete(number, Propagation::Foreground);
            }
        } else if !waiting.is_empty() || !dangling.is_empty() {
            self.delete(
                number,
                match (item.orphan, item.foreground) {
                    (true, _) => Propagation::Orphan,
                    (_, true) => Propagation::Foreground,
                    _ => Propagation::Background,
                },
            );
        }
    }

    fn process_deleting_dependents(&mut self, number: usize) {
        let blocks = |object: &Obj| object.refs.iter().any(|r| r.uid == number && r.blocking);
        let blockers: Vec<_> =
            self.objects.iter().filter(|(_, o)| blocks(o)).map(|(p, _)| *p).collect();
        if blockers.is_empty() {
            self.change(number, |object| object.foreground = false);
        } else {
            // The garbage collector ignores blockers that are Terminating.
            let again: Vec<_> = blockers
                .into_iter()
                .filter(|b| !self.objects.get(b).is_some_and(|o| o.terminating || o.refuses))
                .collect();
            // Without this filter, the model would check unchanged objects forever.
            let changes = |state: &Self, number: usize| {
                let mut after = state.clone();
                after.attempt(number, Rules { strip: false, errors_dangle: false });
                after != *state
            };
            let again: Vec<_> = again.into_iter().filter(|b| changes(self, *b)).collect();
            self.pending.extend(again);
        }
    }

    fn orphan_dependents(&mut self, number: usize) {
        if !self.objects.get(&number).is_some_and(|o| o.terminating && o.orphan) {
            return;
        }
        for dependent in self.dependents(number) {
            self.change_refs(dependent, |refs| refs.retain(|r| r.uid != number));
            if let Some(object) = self.objects.get_mut(&dependent) {
                object.orphaned = true;
            }
        }
        self.change(number, |object| object.orphan = false);
    }
}
