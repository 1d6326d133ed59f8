//! Who waits for whom: the collector and the namespace controller by the rules
//! of docs/THEORY.md, and a leader whose passes are one step each (that they
//! are not is the matter of `race`).
//!
//! Every step takes something away, so nothing goes round in circles: what is
//! not gone when nothing can happen any more waits for ever.

mod pairs;

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use stateright::{Model, Property};

use super::manifests::{self, time};
use super::story::Narrate;
use crate::decide::LiveRead;
use crate::graph::Propagation;
use crate::hold::exceptions::UserException;
use crate::hold::{
    Input, Output, Release, ReleaseEnd, ReleaseTiming, RequestResult, TargetState, WaitReason,
};
use crate::objects::{FOREGROUND, HOLD, ORPHAN, PROTECT_LABEL};

/// One object.
#[derive(Debug, Clone)]
struct ModelObject {
    kind: &'static str,
    resource: &'static str,
    api_version: &'static str,
    name: &'static str,
    owners: Vec<usize>,
    /// Whether belay holds it.
    held: bool,
    /// Whether it is made after the target was deleted, and again whenever it
    /// goes.
    newcomer: bool,
    /// `spec` and `metadata.labels`.
    spec: Value,
    labels: Value,
}

#[derive(Debug, Clone)]
struct DeadlockModel {
    objects: Vec<ModelObject>,
    /// Who is deleted at the start, and how.
    deleted: Vec<(usize, Propagation)>,
    /// What is deleted with everything in it (R14): nothing, the Namespace
    /// (`*`), or the CRD of this resource.
    container: &'static str,
    exceptions: Vec<UserException>,
}

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ObjectState {
    terminating: bool,
    held: bool,
    foreground: bool,
    orphan: bool,
    /// Which of its owner references are still there, as bits.
    references: u8,
}

type State = Vec<Option<ObjectState>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// R5: the object stays, and references that do not keep it are removed.
    Patch(usize),
    /// R6, R7 and R9: nothing keeps it.
    Collect(usize),
    /// R9: its dependents lose their references to it.
    Orphan(usize),
    /// R9: nothing that blocks is left.
    Unblock(usize),
    /// R14: what is in a container is deleted.
    Empty(usize),
    /// A pass that releases.
    Release(usize),
}

impl DeadlockModel {
    fn without(&self, exception: UserException) -> Self {
        let mut other = self.clone();
        other.exceptions.retain(|e| *e != exception);
        other
    }

    fn manifest(&self, state: &State, i: usize) -> Option<Value> {
        let (thing, stand) = (&self.objects[i], state[i]?);
        let mut metadata = json!({
            "name": thing.name,
            "uid": thing.name,
            "resourceVersion": "1",
            "creationTimestamp": time(if thing.newcomer { 60 } else { -3_600 }),
            "labels": thing.labels,
        });
        if thing.kind != "PersistentVolume" {
            metadata["namespace"] = json!("a");
        }
        if stand.terminating {
            metadata["deletionTimestamp"] = json!(time(0));
        }
        let finalizers =
            [(stand.held, HOLD), (stand.foreground, FOREGROUND), (stand.orphan, ORPHAN)];
        metadata["finalizers"] =
            finalizers.iter().filter(|(has, _)| *has).map(|(_, f)| json!(f)).collect();
        let references = self.references(i, stand).map(|owner| {
            let owner = &self.objects[owner];
            json!({
                "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name,
                "uid": owner.name, "blockOwnerDeletion": true,
            })
        });
        metadata["ownerReferences"] = references.collect();
        Some(json!({
            "apiVersion": thing.api_version, "kind": thing.kind,
            "metadata": metadata, "spec": thing.spec,
        }))
    }

    /// The owners that an object still refers to.
    fn references(&self, i: usize, stand: ObjectState) -> impl Iterator<Item = usize> {
        let owners = self.objects[i].owners.iter().copied().enumerate();
        owners.filter(move |(bit, _)| stand.references & (1 << bit) != 0).map(|(_, owner)| owner)
    }

    /// Takes the references off that do not pass.
    fn keep(&self, state: &mut State, i: usize, passes: impl Fn(usize) -> bool) {
        let owners = self.objects[i].owners.iter().enumerate();
        let gone = owners.filter(|(_, owner)| !passes(**owner)).map(|(bit, _)| 1_u8 << bit);
        if let Some(stand) = &mut state[i] {
            stand.references &= !gone.sum::<u8>();
        }
    }

    /// Deletes an object (R7, R8): it goes at once if nothing holds it.
    fn delete(state: &mut State, i: usize, propagation: Propagation) {
        if let Some(stand) = &mut state[i] {
            stand.terminating = true;
            stand.foreground |= propagation == Propagation::Foreground;
            stand.orphan |= propagation == Propagation::Orphan;
        }
        Self::settle(state, i);
    }

    fn settle(state: &mut State, i: usize) {
        let kept = |s: ObjectState| s.held || s.foreground || s.orphan;
        if state[i].is_some_and(|stand| stand.terminating && !kept(stand)) {
            state[i] = None;
        }
    }

    fn dependents(&self, state: &State, i: usize) -> Vec<usize> {
        let refers = |j: &usize| {
            state[*j].is_some_and(|stand| self.references(*j, stand).any(|owner| owner == i))
        };
        (0..self.objects.len()).filter(refers).collect()
    }

    /// R3: an owner that is there and does not wait for its dependents.
    fn is_solid(state: &State, owner: usize) -> bool {
        state[owner].is_some_and(|owner| !(owner.terminating && owner.foreground))
    }

    /// The whole pass of the real state machine, without other actors.
    fn pass(&self, state: &State, i: usize) -> (Option<ReleaseEnd>, Option<WaitReason>) {
        let Some(mut stored) = self.manifest(state, i) else { return (None, None) };
        let limits = ReleaseTiming { settle: Duration::ZERO, ..ReleaseTiming::default() };
        let uid = self.objects[i].name;
        let mut release = Release::new(uid.into(), "A".into(), limits);
        let (mut found, mut done) = (Vec::new(), HashSet::<LiveRead>::new());
        let mut waits = None;
        let mut inputs =
            vec![Input::StartPass, Input::Observed(TargetState::read(&stored).unwrap())];
        while let Some(input) = inputs.pop() {
            for output in release.step(Duration::ZERO, input) {
                match output {
                    Output::WriteToken(mark) => {
                        json_patch::patch(&mut stored, &mark.patch()).unwrap();
                        let observed = TargetState::read(&stored).unwrap();
                        inputs.push(Input::TokenWritten(RequestResult::Object(observed)));
                    }
                    Output::Remove(removal) => {
                        json_patch::patch(&mut stored, &removal.patch()).unwrap();
                        let observed = TargetState::read(&stored).unwrap();
                        inputs.push(Input::Removed(RequestResult::Object(observed)));
                    }
                    Output::Read(read) => {
                        found.extend(self.read(state, &read));
                        done.insert(read);
                        inputs.push(Input::Read { asked: None });
                    }
                    Output::CheckUse => {
                        let count = manifests::count(&stored, &found, &done, &self.exceptions);
                        inputs.push(Input::UseChecked(count));
                    }
                    Output::Waits(waiting) => waits = Some(waiting),
                    _ => {}
                }
            }
        }
        (release.ended(), waits)
    }

    fn read(&self, state: &State, read: &LiveRead) -> Vec<Value> {
        let resource = manifests::resource(read);
        let named = |name: &str| match read {
            LiveRead::Object(wanted) => wanted.name == *name,
            LiveRead::List { .. } => true,
        };
        let things = (0..self.objects.len())
            .filter(|i| self.objects[*i].resource == resource && named(self.objects[*i].name));
        things.filter_map(|i| self.manifest(state, i)).collect()
    }

    fn name(&self, i: usize) -> String {
        format!("{} {}", self.objects[i].kind, self.objects[i].name)
    }
}

impl Model for DeadlockModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let stand = |thing: &ModelObject| {
            Some(ObjectState {
                terminating: false,
                held: thing.held,
                foreground: false,
                orphan: false,
                references: (1 << thing.owners.len()) - 1,
            })
        };
        let mut state: State = self.objects.iter().map(stand).collect();
        for (i, propagation) in &self.deleted {
            Self::delete(&mut state, *i, *propagation);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (i, thing) in self.objects.iter().enumerate() {
            let Some(stand) = state[i] else { continue };
            if thing.newcomer {
                continue;
            }
            let owners: Vec<_> = self.references(i, stand).collect();
            let solid = owners.iter().filter(|owner| Self::is_solid(state, **owner)).count();
            // R4: what is Terminating is left alone.
            if !stand.terminating && solid < owners.len() {
                // R13: belay refuses the DELETE of what is always protected.
                if solid > 0 {
                    actions.push(Action::Patch(i));
                } else if thing.labels[PROTECT_LABEL] != "Always" {
                    actions.push(Action::Collect(i));
                }
            }
            if stand.terminating && stand.orphan {
                actions.push(Action::Orphan(i));
            }
            if stand.terminating && stand.foreground && self.dependents(state, i).is_empty() {
                actions.push(Action::Unblock(i));
            }
            let emptied = self.container == "*" || self.container == thing.resource;
            if emptied && !stand.terminating {
                actions.push(Action::Empty(i));
            }
            if stand.terminating
                && stand.held
                && matches!(self.pass(state, i).0, Some(ReleaseEnd::Released(_)))
            {
                actions.push(Action::Release(i));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Patch(i) => self.keep(&mut next, i, |owner| Self::is_solid(state, owner)),
            Action::Collect(i) => {
                // R6: in the foreground where an owner waits and there are
                // dependents.
                let waits = self.references(i, state[i]?).any(|owner| state[owner].is_some());
                let foreground = waits && !self.dependents(state, i).is_empty();
                let how =
                    if foreground { Propagation::Foreground } else { Propagation::Background };
                Self::delete(&mut next, i, how);
            }
            Action::Orphan(i) => {
                for dependent in self.dependents(state, i) {
                    self.keep(&mut next, dependent, |owner| owner != i);
                }
                next[i].as_mut()?.orphan = false;
                Self::settle(&mut next, i);
            }
            Action::Empty(i) => Self::delete(&mut next, i, Propagation::Background),
            Action::Unblock(i) => {
                next[i].as_mut()?.foreground = false;
                Self::settle(&mut next, i);
            }
            Action::Release(i) => {
                next[i].as_mut()?.held = false;
                Self::settle(&mut next, i);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("what is deleted goes in the end", |model, state: &State| {
            let mut actions = Vec::new();
            model.actions(state, &mut actions);
            !actions.is_empty() || state.iter().flatten().all(|stand| !stand.terminating)
        })]
    }
}

impl Narrate for DeadlockModel {
    fn tell(&self, _: &State, action: &Action, after: &State) -> (String, String, String) {
        let (who, i, what) = match *action {
            Action::Patch(i) => ("collector", i, "removes references"),
            Action::Collect(i) => ("collector", i, "deletes"),
            Action::Orphan(i) => ("collector", i, "orphans the dependents of"),
            Action::Unblock(i) => ("collector", i, "has nothing left that blocks"),
            Action::Empty(i) => ("controller", i, "of the container deletes"),
            Action::Release(i) => ("leader", i, "releases"),
        };
        let then = match after[i] {
            None => ": it is gone",
            Some(stand) if stand.terminating => ": it is Terminating",
            Some(_) => "",
        };
        (String::new(), who.to_owned(), format!("{what} {}{then}", self.name(i)))
    }
}
