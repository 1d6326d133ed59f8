//! The pairs that would wait for each other for ever.

use serde_json::{Value, json};
use stateright::Model as _;

use super::super::story::{check, reaches, timeline};
use super::{Action, DeadlockModel, ModelObject, State};
use crate::decide::Cause;
use crate::graph::Propagation;
use crate::hold::WaitReason;
use crate::hold::exceptions::UserException;

/// Every way ends with everything gone; with the exception taken out one does not.
fn terminates(name: &str, model: &DeadlockModel) {
    assert!(check(name, model.clone()).is_none(), "{name}");
}

fn needs(name: &str, model: &DeadlockModel, exception: UserException) {
    let without = model.without(exception);
    let title = format!("{name}, without {exception:?}");
    let path = check(&title, without.clone()).unwrap_or_else(|| panic!("{title}: nothing found"));
    let last = path.last_state().clone();
    let steps = path.into_vec();
    assert!(timeline(&without, &steps).lines().count() == steps.len() - 1);
    for (i, stand) in last.iter().enumerate() {
        let Some(stand) = stand.filter(|stand| stand.terminating) else { continue };
        let why = match without.pass(&last, i).1 {
            _ if !stand.held => "its dependents".to_owned(),
            Some(WaitReason::InUse(causes)) => {
                causes.iter().map(cause_text).collect::<Vec<_>>().join(", ")
            }
            other => format!("{other:?}"),
        };
        println!("         and {} waits for ever for {why}", without.name(i));
    }
}

fn cause_text(cause: &Cause) -> String {
    match cause {
        Cause::User { root, through: None, path } => format!("{root} ({path})"),
        Cause::User { through: Some(through), path, .. } => format!("{through} ({path})"),
        other => format!("{other:?}"),
    }
}

fn thing(
    kind: &'static str,
    resource: &'static str,
    api_version: &'static str,
    name: &'static str,
) -> ModelObject {
    let (spec, labels) = (json!({}), json!({}));
    ModelObject {
        kind,
        resource,
        api_version,
        name,
        owners: Vec::new(),
        held: false,
        newcomer: false,
        spec,
        labels,
    }
}

/// These things, some of them deleted, in the foreground or not.
fn model(things: Vec<ModelObject>, deleted: &[(usize, bool)]) -> DeadlockModel {
    let how = |foreground| match foreground {
        true => Propagation::Foreground,
        false => Propagation::Background,
    };
    let deleted = deleted.iter().map(|(i, foreground)| (*i, how(*foreground))).collect();
    DeadlockModel {
        objects: things,
        deleted,
        container: "",
        exceptions: UserException::ALL.to_vec(),
    }
}

fn pod(name: &'static str, volume: Value) -> ModelObject {
    ModelObject { spec: json!({"volumes": [volume]}), ..thing("Pod", "pods", "v1", name) }
}

fn secret() -> ModelObject {
    ModelObject { held: true, ..thing("Secret", "secrets", "v1", "s") }
}

fn claim(name: &'static str) -> ModelObject {
    let claim = thing("PersistentVolumeClaim", "persistentvolumeclaims", "v1", name);
    ModelObject { held: true, ..claim }
}

fn part(name: &'static str, names: &str) -> ModelObject {
    let part = thing("Part", "parts", "example.com/v1", name);
    ModelObject { held: true, spec: json!({"names": names}), ..part }
}

fn mounts(claim: &str) -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}})
}

fn shows(secret: &str) -> Value {
    json!({"name": "v", "secret": {"secretName": secret}})
}

#[test]
fn an_endpointslice_is_deleted_with_the_service_that_it_names() {
    let service = ModelObject { held: true, ..thing("Service", "services", "v1", "web") };
    let slice = ModelObject {
        owners: vec![0],
        labels: json!({"kubernetes.io/service-name": "web"}),
        ..thing("EndpointSlice", "endpointslices", "discovery.k8s.io/v1", "web-1")
    };
    for foreground in [false, true] {
        let model = model(vec![service.clone(), slice.clone()], &[(0, foreground)]);
        terminates("EndpointSlice and Service", &model);
    }
}

#[test]
fn a_dependent_is_released_with_the_owner_that_it_names() {
    let child = ModelObject { owners: vec![0], held: false, ..part("child", "parent") };
    let model = model(vec![part("parent", ""), child], &[(0, false)]);
    terminates("dependent and owner", &model);
    needs("dependent and owner", &model, UserException::DeletedTogether);
}

#[test]
fn a_held_dependent_does_not_keep_the_owner_that_it_names() {
    let child = ModelObject { owners: vec![0], ..part("child", "parent") };
    let model = model(vec![part("parent", ""), child], &[(0, false)]);
    terminates("held dependent and owner", &model);
    needs("held dependent and owner", &model, UserException::DeletedTogether);
}

#[test]
fn a_statefulset_deleted_in_the_foreground_gets_rid_of_its_claims() {
    let set = ModelObject {
        spec: json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}),
        ..thing("StatefulSet", "statefulsets", "apps/v1", "db")
    };
    let claim = ModelObject { owners: vec![0], ..claim("data-db-0") };
    let pod = ModelObject { owners: vec![0], ..pod("db-0", mounts("data-db-0")) };
    for foreground in [false, true] {
        let things = vec![set.clone(), claim.clone(), pod.clone()];
        let model = model(things, &[(0, foreground)]);
        terminates("StatefulSet and claims", &model);
        if foreground {
            needs("StatefulSet and claims", &model, UserException::TerminatingOwner);
        }
    }
}

#[test]
fn a_volume_and_its_claim_both_go() {
    let volume = ModelObject {
        held: true,
        spec: json!({"claimRef": {"namespace": "a", "name": "c", "uid": "c"}}),
        ..thing("PersistentVolume", "persistentvolumes", "v1", "v")
    };
    let claim = ModelObject { spec: json!({"volumeName": "v"}), ..claim("c") };
    let model = model(vec![volume, claim], &[(0, false), (1, false)]);
    terminates("volume and claim", &model);
}

#[test]
fn held_objects_that_name_each_other_are_released_together() {
    let model = model(vec![part("x", "y"), part("y", "x")], &[(0, false), (1, false)]);
    terminates("two that name each other", &model);
    needs("two that name each other", &model, UserException::Cycle);
    let ring = [part("x", "y"), part("y", "z"), part("z", "x")];
    let model = self::model(ring.to_vec(), &[(0, false), (1, false), (2, false)]);
    terminates("three in a ring", &model);
}

#[test]
fn an_operators_resource_gets_rid_of_the_secret_that_it_names_and_owns() {
    let database = ModelObject {
        spec: json!({"names": "s"}),
        ..thing("Database", "databases", "example.com/v1", "main")
    };
    let secret = ModelObject { owners: vec![0], ..secret() };
    let model = model(vec![database, secret], &[(0, true)]);
    terminates("operator and Secret", &model);
    needs("operator and Secret", &model, UserException::TerminatingOwner);
}

/// What one of a cycle owns goes when the cycle does, and keeps none of it.
#[test]
fn a_cycle_is_released_with_the_dependents_of_its_members() {
    let (x, y) = (part("x", "y"), part("y", "x"));
    let child = |owner, names| ModelObject { owners: vec![owner], held: false, ..part("z", names) };
    for (owner, names) in [(1, "x"), (1, "y"), (0, "y")] {
        let things = vec![x.clone(), y.clone(), child(owner, names)];
        let model = model(things, &[(0, false), (1, false)]);
        terminates("a cycle and a child", &model);
    }
    let things = vec![x, y, child(0, "x"), ModelObject { name: "w", ..child(1, "y") }];
    terminates("a cycle and a child of each", &model(things, &[(0, false), (1, false)]));
}

/// R5: a dependent with another owner stays and needs what it needs, so its
/// use is no exception; once that owner goes, too, all go.
#[test]
fn a_dependent_of_two_owners_is_released_with_both() {
    let child = ModelObject { owners: vec![0, 1], held: false, ..part("child", "first") };
    let things = vec![part("first", ""), part("second", ""), child];
    terminates("two owners", &model(things.clone(), &[(0, false), (1, false)]));
    terminates("two owners", &model(things.clone(), &[(0, true), (1, false)]));
    let one = model(things, &[(0, false)]);
    assert!(matches!(one.pass(&one.init_states()[0], 0), (None, Some(WaitReason::InUse(_)))));
}

/// What an owner orphans stays, and keeps what it needs.
#[test]
fn an_orphaned_dependent_keeps_the_owner_that_it_names() {
    let child = ModelObject { owners: vec![0], held: false, ..part("child", "parent") };
    let things = vec![part("parent", ""), child];
    let orphans = DeadlockModel { deleted: vec![(0, Propagation::Orphan)], ..model(things, &[]) };
    let mut state = orphans.init_states().remove(0);
    let waits =
        |state: &State| matches!(orphans.pass(state, 0), (None, Some(WaitReason::InUse(_))));
    assert!(waits(&state), "before the collector has been there");
    state = orphans.next_state(&state, Action::Orphan(0)).unwrap();
    assert!(waits(&state), "and after it");
}

/// R13: what refuses its DELETE stays with what is below it, and both need the
/// owner.
#[test]
fn h20_a_dependent_that_refuses_its_delete_keeps_the_owner_that_it_names() {
    let labels = json!({"belay.dev/protect": "Always"});
    let child = ModelObject { owners: vec![0], labels, held: false, ..part("child", "parent") };
    let below = ModelObject { owners: vec![1], held: false, ..part("below", "parent") };
    let other = ModelObject { held: false, ..part("other", "parent") };
    let things = vec![part("parent", ""), child, below, ModelObject { owners: vec![0], ..other }];
    for foreground in [false, true] {
        let model = model(things.clone(), &[(0, foreground)]);
        for user in [1, 2] {
            assert!(!reaches(&model, |state: &State| state[0].is_none() && state[user].is_some()));
        }
    }
}

/// R14: instances that are held back each other's CRD go with it.
#[test]
fn a_crd_is_released_with_instances_that_name_each_other() {
    let held = vec![part("x", "y"), part("y", "x")];
    let model = DeadlockModel { container: "parts", ..model(held, &[]) };
    terminates("a CRD", &model);
    needs("a CRD", &model, UserException::Cycle);
}

#[test]
fn newcomers_made_for_ever_keep_nothing() {
    let newcomer = ModelObject { newcomer: true, ..pod("again", shows("s")) };
    let model = model(vec![secret(), newcomer], &[(0, false)]);
    terminates("newcomers", &model);
    needs("newcomers", &model, UserException::Newcomer);
}

#[test]
fn a_namespace_is_released_with_all_held_objects_in_it() {
    let things = vec![
        secret(),
        claim("c"),
        pod("p", shows("s")),
        pod("q", mounts("c")),
        part("x", "y"),
        part("y", "x"),
    ];
    let model = DeadlockModel { container: "*", ..model(things, &[]) };
    terminates("a Namespace", &model);
    needs("a Namespace", &model, UserException::Cycle);
}

/// An object that waits for a user that is not being deleted keeps waiting: an exception never
/// releases what a remaining user needs.
#[test]
fn a_living_user_keeps_what_it_needs_whatever_is_excused() {
    let model =
        model(vec![part("x", "y"), part("y", "x"), part("z", "x")], &[(0, false), (1, false)]);
    let state = &model.init_states()[0];
    for i in [0, 1] {
        assert!(matches!(model.pass(state, i), (None, Some(WaitReason::InUse(_)))), "{i}");
    }
}
