//! Objects that wait for each other. The garbage collector and the namespace controller follow
//! the rules of docs/THEORY.md. Each pass of a leader is one action, because `race` checks the
//! order of its steps.
//!
//! Each action makes an object Terminating, or removes an object, an owner reference or a
//! finalizer. No action reverses this, so the model has no cycles. A Terminating object that still
//! exists when no action is possible waits forever.

mod pairs;

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use stateright::{Model, Property};

use super::checker::Describe;
use super::manifests::{self, time};
use crate::decide::LiveRead;
use crate::graph::Propagation;
use crate::hold::exceptions::UserException;
use crate::hold::{
    Input, Output, Release, ReleaseEnd, ReleaseTiming, RequestResult, TargetState, WaitReason,
};
use crate::objects::{FOREGROUND, HOLD, ORPHAN, PROTECT_LABEL};

#[derive(Debug, Clone)]
struct ModelObject {
    kind: &'static str,
    resource: &'static str,
    api_version: &'static str,
    name: &'static str,
    owners: Vec<usize>,
    /// Whether the object has a hold.
    held: bool,
    /// Whether the object was created after the deletion of the target. It always exists,
    /// because its controller re-creates it.
    newcomer: bool,
    spec: Value,
    /// `metadata.labels`.
    labels: Value,
}

#[derive(Debug, Clone)]
struct DeadlockModel {
    objects: Vec<ModelObject>,
    /// The objects that are deleted at the start, each with its propagation.
    deleted: Vec<(usize, Propagation)>,
    /// The container that is deleted with its content (R14): none (empty), the Namespace
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
    /// The remaining owner references, as bits by their index in [`ModelObject::owners`].
    references: u8,
}

type State = Vec<Option<ObjectState>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// R5: the garbage collector removes the references of an object to deleted owners.
    RemoveReferences(usize),
    /// R6, R7 and R9: the garbage collector deletes an object without a solid owner.
    CollectGarbage(usize),
    /// R9: the garbage collector removes the references of the dependents to this object.
    OrphanDependents(usize),
    /// R9: the garbage collector ends a foreground deletion.
    EndForeground(usize),
    /// R14: a controller deletes an object in a container.
    DeleteContent(usize),
    /// The leader removes the hold.
    Release(usize),
}

impl DeadlockModel {
    fn without(&self, exception: UserException) -> Self {
        let mut other = self.clone();
        other.exceptions.retain(|e| *e != exception);
        other
    }

    fn manifest(&self, state: &State, i: usize) -> Option<Value> {
        let (object, object_state) = (&self.objects[i], state[i]?);
        let mut metadata = json!({
            "name": object.name,
            "uid": object.name,
            "resourceVersion": "1",
            "creationTimestamp": time(if object.newcomer { 60 } else { -3_600 }),
            "labels": object.labels,
        });
        if object.kind != "PersistentVolume" {
            metadata["namespace"] = json!("a");
        }
        if object_state.terminating {
            metadata["deletionTimestamp"] = json!(time(0));
        }
        let finalizers = [
            (object_state.held, HOLD),
            (object_state.foreground, FOREGROUND),
            (object_state.orphan, ORPHAN),
        ];
        metadata["finalizers"] =
            finalizers.iter().filter(|(has, _)| *has).map(|(_, f)| json!(f)).collect();
        let references = self.references(i, object_state).map(|owner| {
            let owner = &self.objects[owner];
            json!({
                "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name,
                "uid": owner.name, "blockOwnerDeletion": true,
            })
        });
        metadata["ownerReferences"] = references.collect();
        Some(json!({
            "apiVersion": object.api_version, "kind": object.kind,
            "metadata": metadata, "spec": object.spec,
        }))
    }

    /// The owners in the remaining references of an object.
    fn references(&self, i: usize, object_state: ObjectState) -> impl Iterator<Item = usize> {
        let owners = self.objects[i].owners.iter().copied().enumerate();
        owners
            .filter(move |(bit, _)| object_state.references & (1 << bit) != 0)
            .map(|(_, owner)| owner)
    }

    /// Removes the references to owners that don't meet the condition.
    fn retain_references(&self, state: &mut State, i: usize, condition: impl Fn(usize) -> bool) {
        let owners = self.objects[i].owners.iter().enumerate();
        let removed = owners.filter(|(_, owner)| !condition(**owner)).map(|(bit, _)| 1_u8 << bit);
        if let Some(object_state) = &mut state[i] {
            object_state.references &= !removed.sum::<u8>();
        }
    }

    /// Deletes an object (R7, R8). It is removed at once if it has no finalizer.
    fn delete(state: &mut State, i: usize, propagation: Propagation) {
        if let Some(object_state) = &mut state[i] {
            object_state.terminating = true;
            object_state.foreground |= propagation == Propagation::Foreground;
            object_state.orphan |= propagation == Propagation::Orphan;
        }
        Self::remove_without_finalizers(state, i);
    }

    fn remove_without_finalizers(state: &mut State, i: usize) {
        let has_finalizer = |s: ObjectState| s.held || s.foreground || s.orphan;
        if state[i].is_some_and(|s| s.terminating && !has_finalizer(s)) {
            state[i] = None;
        }
    }

    fn dependents(&self, state: &State, i: usize) -> Vec<usize> {
        let refers =
            |j: &usize| state[*j].is_some_and(|s| self.references(*j, s).any(|owner| owner == i));
        (0..self.objects.len()).filter(refers).collect()
    }

    /// R3: whether an owner exists and does not wait for its dependents.
    fn is_solid(state: &State, owner: usize) -> bool {
        state[owner].is_some_and(|owner| !(owner.terminating && owner.foreground))
    }

    /// Runs a whole pass of the release of the program, without other actors.
    fn run_pass(&self, state: &State, i: usize) -> (Option<ReleaseEnd>, Option<WaitReason>) {
        let Some(mut stored) = self.manifest(state, i) else { return (None, None) };
        let limits = ReleaseTiming { settle: Duration::ZERO, ..ReleaseTiming::default() };
        let uid = self.objects[i].name;
        let mut release = Release::new(uid.into(), "A".into(), limits);
        let (mut objects, mut reads_done) = (Vec::new(), HashSet::<LiveRead>::new());
        let mut wait_reason = None;
        let mut inputs =
            vec![Input::StartPass, Input::Observed(TargetState::read(&stored).unwrap())];
        while let Some(input) = inputs.pop() {
            for output in release.step(Duration::ZERO, input) {
                match output {
                    Output::WriteToken(write) => {
                        json_patch::patch(&mut stored, &write.patch()).unwrap();
                        let observed = TargetState::read(&stored).unwrap();
                        inputs.push(Input::TokenWritten(RequestResult::Object(observed)));
                    }
                    Output::Remove(removal) => {
                        json_patch::patch(&mut stored, &removal.patch()).unwrap();
                        let observed = TargetState::read(&stored).unwrap();
                        inputs.push(Input::Removed(RequestResult::Object(observed)));
                    }
                    Output::Read(reads) => {
                        objects.extend(reads.iter().flat_map(|read| self.read(state, read)));
                        reads_done.extend(reads);
                        inputs.push(Input::ReadSucceeded { requested_at: None });
                    }
                    Output::CheckUse => {
                        let exceptions = &self.exceptions;
                        let check =
                            manifests::check_use(&stored, &objects, &reads_done, exceptions);
                        inputs.push(Input::UseChecked(check));
                    }
                    Output::ReportWait(reason) => wait_reason = Some(reason),
                    _ => {}
                }
            }
        }
        (release.ended(), wait_reason)
    }

    fn read(&self, state: &State, read: &LiveRead) -> Vec<Value> {
        let resource = manifests::resource(read);
        let named = |name: &str| match read {
            LiveRead::Object(object) => object.name == *name,
            LiveRead::List { .. } => true,
        };
        let matching = (0..self.objects.len())
            .filter(|i| self.objects[*i].resource == resource && named(self.objects[*i].name));
        matching.filter_map(|i| self.manifest(state, i)).collect()
    }

    fn name(&self, i: usize) -> String {
        format!("{} {}", self.objects[i].kind, self.objects[i].name)
    }
}

impl Model for DeadlockModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let initial = |object: &ModelObject| {
            Some(ObjectState {
                terminating: false,
                held: object.held,
                foreground: false,
                orphan: false,
                references: (1 << object.owners.len()) - 1,
            })
        };
        let mut state: State = self.objects.iter().map(initial).collect();
        for (i, propagation) in &self.deleted {
            Self::delete(&mut state, *i, *propagation);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (i, object) in self.objects.iter().enumerate() {
            let Some(object_state) = state[i] else { continue };
            if object.newcomer {
                continue;
            }
            let owners: Vec<_> = self.references(i, object_state).collect();
            let solid = owners.iter().filter(|owner| Self::is_solid(state, **owner)).count();
            // R4: the garbage collector ignores Terminating objects.
            if !object_state.terminating && solid < owners.len() {
                if solid > 0 {
                    actions.push(Action::RemoveReferences(i));
                // R13: belay denies the DELETE of an object that is always protected.
                } else if object.labels[PROTECT_LABEL] != "Always" {
                    actions.push(Action::CollectGarbage(i));
                }
            }
            if object_state.terminating && object_state.orphan {
                actions.push(Action::OrphanDependents(i));
            }
            if object_state.terminating
                && object_state.foreground
                && self.dependents(state, i).is_empty()
            {
                actions.push(Action::EndForeground(i));
            }
            let is_content = self.container == "*" || self.container == object.resource;
            if is_content && !object_state.terminating {
                actions.push(Action::DeleteContent(i));
            }
            if object_state.terminating
                && object_state.held
                && matches!(self.run_pass(state, i).0, Some(ReleaseEnd::Released(_)))
            {
                actions.push(Action::Release(i));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::RemoveReferences(i) => {
                self.retain_references(&mut next, i, |owner| Self::is_solid(state, owner));
            }
            Action::CollectGarbage(i) => {
                // R6: in the foreground if an owner waits and the object has dependents. No owner
                // is solid here, so each existing owner waits.
                let owner_waits = self.references(i, state[i]?).any(|owner| state[owner].is_some());
                let foreground = owner_waits && !self.dependents(state, i).is_empty();
                let propagation =
                    if foreground { Propagation::Foreground } else { Propagation::Background };
                Self::delete(&mut next, i, propagation);
            }
            Action::OrphanDependents(i) => {
                for dependent in self.dependents(state, i) {
                    self.retain_references(&mut next, dependent, |owner| owner != i);
                }
                next[i].as_mut()?.orphan = false;
                Self::remove_without_finalizers(&mut next, i);
            }
            Action::DeleteContent(i) => Self::delete(&mut next, i, Propagation::Background),
            Action::EndForeground(i) => {
                next[i].as_mut()?.foreground = false;
                Self::remove_without_finalizers(&mut next, i);
            }
            Action::Release(i) => {
                next[i].as_mut()?.held = false;
                Self::remove_without_finalizers(&mut next, i);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(
            "all deleted objects are removed in the end",
            |model, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.iter().flatten().all(|object| !object.terminating)
            },
        )]
    }
}

impl Describe for DeadlockModel {
    fn describe(&self, _: &State, action: &Action, after: &State) -> (String, String, String) {
        let (actor, i, what) = match *action {
            Action::RemoveReferences(i) => ("collector", i, "removes references"),
            Action::CollectGarbage(i) => ("collector", i, "deletes"),
            Action::OrphanDependents(i) => ("collector", i, "orphans the dependents of"),
            Action::EndForeground(i) => ("collector", i, "ends the foreground deletion of"),
            Action::DeleteContent(i) => ("controller", i, "of the container deletes"),
            Action::Release(i) => ("leader", i, "releases"),
        };
        let result = match after[i] {
            None => ": it is removed",
            Some(object) if object.terminating => ": it is Terminating",
            Some(_) => "",
        };
        (String::new(), actor.to_owned(), format!("{what} {}{result}", self.name(i)))
    }
}
