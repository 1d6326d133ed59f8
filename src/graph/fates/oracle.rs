//! The garbage collector, played through in every order.
//!
//! This knows nothing of the graph and its walks. It is the collector's own
//! code, as far as it decides, over a handful of objects: events put objects
//! on a list of work, and which piece of work comes next is tried in every
//! way. What all ends have in common is certain, what any end shows may be.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Propagation;

/// An owner reference: which place it points at, and which uid it names.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref {
    pub place: usize,
    pub uid: usize,
    pub blocking: bool,
    /// Its kind is unknown.
    pub error: bool,
}

/// An object at a place. Its uid is the number of its place.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Obj {
    pub refs: Vec<Ref>,
    /// F, O, and any other.
    pub foreground: bool,
    pub orphan: bool,
    pub other: bool,
    pub terminating: bool,
    /// Lost an owner by orphaning.
    pub orphaned: bool,
    /// Refuses its DELETE (R13).
    pub refuses: bool,
}

/// `FO+x Terminating of 0! 1?`: a counterexample should fit on a screen.
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

/// `0!` blocks, `0/2` names another uid, `0?` cannot be resolved.
impl std::fmt::Debug for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, uid, blocking, error } = self;
        write!(f, "{place}")?;
        if uid != place {
            write!(f, "/{uid}")?;
        }
        write!(f, "{}{}", if *blocking { "!" } else { "" }, if *error { "?" } else { "" })
    }
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    pub objects: BTreeMap<usize, Obj>,
    /// What the collector is going to look at.
    pub pending: BTreeSet<usize>,
    /// Owners whose dependents it is going to orphan.
    pub orphaning: BTreeSet<usize>,
    /// What was Terminating before: who takes its finalizers off is another
    /// story.
    pub before: BTreeSet<usize>,
    /// DELETEs by people that have not arrived yet.
    pub requests: Vec<(usize, Propagation)>,
}

/// What is left open in a play.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Another controller may remove other finalizers from Terminating objects.
    pub strip: bool,
    /// A reference that cannot be resolved was once seen absent (R2).
    pub errors_dangle: bool,
}

impl State {
    /// Everything is new to the collector.
    pub fn new(objects: Vec<Obj>) -> Self {
        let objects: BTreeMap<_, _> = objects.into_iter().enumerate().collect();
        let pending = objects.keys().copied().collect();
        Self { objects, pending, ..Self::default() }
    }

    /// Plays one order to its end: the lowest piece of work first.
    pub fn settle(mut self, rules: Rules) -> Self {
        while let Some(next) = self.next(rules).into_iter().next() {
            self = next;
        }
        self
    }

    /// Every end there is, or none if there are too many ways.
    pub fn ends(self, rules: Rules, most: usize) -> Option<Vec<Self>> {
        let mut seen = HashSet::new();
        let mut stack = vec![self];
        let mut ends = Vec::new();
        while let Some(state) = stack.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            if seen.len() > most {
                return None;
            }
            let next = state.next(rules);
            let only_strips =
                state.requests.is_empty() && state.pending.is_empty() && state.orphaning.is_empty();
            if only_strips {
                ends.push(state);
            }
            stack.extend(next);
        }
        Some(ends)
    }

    /// Every state that one piece of work leads to.
    fn next(&self, rules: Rules) -> Vec<Self> {
        let mut next = Vec::new();
        for at in 0..self.requests.len() {
            let mut state = self.clone();
            let (place, propagation) = state.requests.remove(at);
            state.delete(place, propagation);
            next.push(state);
        }
        for place in &self.pending {
            let mut state = self.clone();
            state.pending.remove(place);
            state.attempt(*place, rules);
            next.push(state);
        }
        for place in &self.orphaning {
            let mut state = self.clone();
            state.orphaning.remove(place);
            state.orphan_dependents(*place);
            next.push(state);
        }
        if rules.strip && self.requests.is_empty() {
            for (place, object) in &self.objects {
                if object.terminating && object.other && !self.before.contains(place) {
                    let mut state = self.clone();
                    state.change(*place, |object| object.other = false);
                    next.push(state);
                }
            }
        }
        next
    }

    /// The API server's part of a DELETE.
    fn delete(&mut self, place: usize, propagation: Propagation) {
        let Some(object) = self.objects.get(&place) else { return };
        if object.refuses {
            return;
        }
        let before = object.clone();
        self.change(place, |object| {
            object.terminating = true;
            object.foreground = propagation == Propagation::Foreground;
            object.orphan = propagation == Propagation::Orphan;
        });
        let started = |now: bool, then: bool| now && !(then && before.terminating);
        if let Some(object) = self.objects.get(&place).cloned() {
            if started(object.foreground, before.foreground) {
                self.pending.extend(self.dependents(place));
                self.pending.insert(place);
            }
            if started(object.orphan, before.orphan) {
                self.orphaning.insert(place);
            }
        }
    }

    /// Changes an object; one that is Terminating with no finalizer goes, and
    /// the collector hears of it.
    fn change(&mut self, place: usize, how: impl FnOnce(&mut Obj)) {
        let Some(object) = self.objects.get_mut(&place) else { return };
        how(object);
        let held = object.foreground || object.orphan || object.other;
        if object.terminating && !held {
            let owners: Vec<_> = object.refs.iter().map(|r| r.uid).collect();
            self.objects.remove(&place);
            self.pending.extend(self.dependents(place));
            self.wake(owners);
        }
    }

    /// Changes an object's references; owners that waited for it look again.
    fn change_refs(&mut self, place: usize, how: impl FnOnce(&mut Vec<Ref>)) {
        let Some(object) = self.objects.get_mut(&place) else { return };
        let before = object.refs.clone();
        how(&mut object.refs);
        let owners: Vec<_> = before.iter().map(|r| r.uid).collect();
        self.wake(owners);
    }

    /// Owners that wait look again.
    fn wake(&mut self, owners: Vec<usize>) {
        let waiting: Vec<_> = owners.into_iter().filter(|o| self.waits(*o)).collect();
        self.pending.extend(waiting);
    }

    fn waits(&self, place: usize) -> bool {
        self.objects.get(&place).is_some_and(|o| o.terminating && o.foreground)
    }

    /// The collector knows dependents by uid.
    fn dependents(&self, uid: usize) -> Vec<usize> {
        let of = |object: &Obj| object.refs.iter().any(|r| r.uid == uid);
        self.objects.iter().filter(|(_, object)| of(object)).map(|(place, _)| *place).collect()
    }

    /// The collector's attemptToDeleteItem.
    fn attempt(&mut self, place: usize, rules: Rules) {
        let Some(item) = self.objects.get(&place).cloned() else { return };
        if item.terminating {
            if item.foreground {
                self.process_deleting_dependents(place);
            }
            return;
        }
        let (mut solid, mut dangling, mut waiting) = (vec![], vec![], vec![]);
        for reference in &item.refs {
            if reference.error && !rules.errors_dangle {
                return;
            }
            let owner = self.objects.get(&reference.place).filter(|_| !reference.error);
            match owner {
                Some(_) if reference.place != reference.uid => dangling.push(reference.clone()),
                None => dangling.push(reference.clone()),
                Some(owner) if owner.terminating && owner.foreground => {
                    waiting.push(reference.clone());
                }
                Some(_) => solid.push(reference.clone()),
            }
        }
        let dependents = self.dependents(place);
        if !solid.is_empty() {
            if solid.len() < item.refs.len() {
                self.change_refs(place, |refs| *refs = solid);
            }
        } else if !waiting.is_empty() && !dependents.is_empty() {
            let guarded = dependents.iter().any(|d| self.waits(*d));
            if guarded && item.refs.iter().any(|r| r.blocking) {
                // The patch changes the object's version, so the DELETE that
                // follows conflicts and the item is looked at again.
                self.change_refs(place, |refs| refs.iter_mut().for_each(|r| r.blocking = false));
                self.pending.insert(place);
            } else {
                self.delete(place, Propagation::Foreground);
            }
        } else if !waiting.is_empty() || !dangling.is_empty() {
            self.delete(
                place,
                match (item.orphan, item.foreground) {
                    (true, _) => Propagation::Orphan,
                    (_, true) => Propagation::Foreground,
                    _ => Propagation::Background,
                },
            );
        }
    }

    fn process_deleting_dependents(&mut self, place: usize) {
        let blocks = |object: &Obj| object.refs.iter().any(|r| r.uid == place && r.blocking);
        let blockers: Vec<_> =
            self.objects.iter().filter(|(_, o)| blocks(o)).map(|(p, _)| *p).collect();
        if blockers.is_empty() {
            self.change(place, |object| object.foreground = false);
        } else {
            // Only those that do not wait themselves; those that are
            // Terminating are looked at, and left alone.
            let again: Vec<_> = blockers
                .into_iter()
                .filter(|b| !self.objects.get(b).is_some_and(|o| o.terminating || o.refuses))
                .collect();
            // Looking at one that does nothing would go on for ever here.
            let changes = |state: &Self, place: usize| {
                let mut after = state.clone();
                after.attempt(place, Rules { strip: false, errors_dangle: false });
                after != *state
            };
            let again: Vec<_> = again.into_iter().filter(|b| changes(self, *b)).collect();
            self.pending.extend(again);
        }
    }

    fn orphan_dependents(&mut self, place: usize) {
        if !self.objects.get(&place).is_some_and(|o| o.terminating && o.orphan) {
            return;
        }
        for dependent in self.dependents(place) {
            self.change_refs(dependent, |refs| refs.retain(|r| r.uid != place));
            if let Some(object) = self.objects.get_mut(&dependent) {
                object.orphaned = true;
            }
        }
        self.change(place, |object| object.orphan = false);
    }
}
