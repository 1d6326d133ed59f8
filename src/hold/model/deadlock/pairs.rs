//! Pairs of objects that would wait for each other forever without an exception.

use serde_json::{Value, json};
use stateright::Model as _;

use super::super::checker::{check, reaches, timeline};
use super::{Action, DeadlockModel, ModelObject, State};
use crate::decide::Cause;
use crate::graph::Propagation;
use crate::hold::WaitReason;
use crate::hold::exceptions::UserException;

/// Asserts that all deleted objects are removed, in any order of actions.
fn assert_all_removed(name: &str, model: &DeadlockModel) {
    assert!(check(name, model.clone()).is_none(), "{name}");
}

/// Asserts that an object can wait forever without this exception.
fn assert_needs_exception(name: &str, model: &DeadlockModel, exception: UserException) {
    let without = model.without(exception);
    let title = format!("{name}, without {exception:?}");
    let path = check(&title, without.clone()).unwrap_or_else(|| panic!("{title}: no deadlock"));
    let last = path.last_state().clone();
    let steps = path.into_vec();
    assert!(timeline(&without, &steps).lines().count() == steps.len() - 1);
    for (i, object_state) in last.iter().enumerate() {
        let Some(object_state) = object_state.filter(|s| s.terminating) else { continue };
        let cause = match without.run_pass(&last, i).1 {
            _ if !object_state.held => "its dependents".to_owned(),
            Some(WaitReason::InUse(causes)) => {
                causes.iter().map(cause_text).collect::<Vec<_>>().join(", ")
            }
            other => format!("{other:?}"),
        };
        println!("         and {} waits forever for {cause}", without.name(i));
    }
}

fn cause_text(cause: &Cause) -> String {
    match cause {
        Cause::User { owner, user: None, path } => format!("{owner} ({path})"),
        Cause::User { user: Some(user), path, .. } => format!("{user} ({path})"),
        other => format!("{other:?}"),
    }
}

fn object(
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

/// A model of these objects. `deleted` has the index of each object that is deleted, and whether
/// in the foreground.
fn model(objects: Vec<ModelObject>, deleted: &[(usize, bool)]) -> DeadlockModel {
    let propagation = |foreground| match foreground {
        true => Propagation::Foreground,
        false => Propagation::Background,
    };
    let deleted = deleted.iter().map(|(i, foreground)| (*i, propagation(*foreground))).collect();
    DeadlockModel { objects, deleted, container: "", exceptions: UserException::ALL.to_vec() }
}

fn pod(name: &'static str, volume: Value) -> ModelObject {
    ModelObject { spec: json!({"volumes": [volume]}), ..object("Pod", "pods", "v1", name) }
}

fn secret() -> ModelObject {
    ModelObject { held: true, ..object("Secret", "secrets", "v1", "s") }
}

fn claim(name: &'static str) -> ModelObject {
    let claim = object("PersistentVolumeClaim", "persistentvolumeclaims", "v1", name);
    ModelObject { held: true, ..claim }
}

fn part(name: &'static str, names: &str) -> ModelObject {
    let part = object("Part", "parts", "example.com/v1", name);
    ModelObject { held: true, spec: json!({"names": names}), ..part }
}

fn mounts_claim(claim: &str) -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}})
}

fn mounts_secret(secret: &str) -> Value {
    json!({"name": "v", "secret": {"secretName": secret}})
}

#[test]
fn an_endpointslice_is_deleted_with_the_service_that_it_names() {
    let service = ModelObject { held: true, ..object("Service", "services", "v1", "web") };
    let slice = ModelObject {
        owners: vec![0],
        labels: json!({"kubernetes.io/service-name": "web"}),
        ..object("EndpointSlice", "endpointslices", "discovery.k8s.io/v1", "web-1")
    };
    for foreground in [false, true] {
        let model = model(vec![service.clone(), slice.clone()], &[(0, foreground)]);
        assert_all_removed("EndpointSlice and Service", &model);
    }
}

#[test]
fn a_dependent_is_released_with_the_owner_that_it_names() {
    let child = ModelObject { owners: vec![0], held: false, ..part("child", "parent") };
    let model = model(vec![part("parent", ""), child], &[(0, false)]);
    assert_all_removed("dependent and owner", &model);
    assert_needs_exception("dependent and owner", &model, UserException::DeletedTogether);
}

#[test]
fn a_held_dependent_does_not_keep_the_owner_that_it_names() {
    let child = ModelObject { owners: vec![0], ..part("child", "parent") };
    let model = model(vec![part("parent", ""), child], &[(0, false)]);
    assert_all_removed("held dependent and owner", &model);
    assert_needs_exception("held dependent and owner", &model, UserException::DeletedTogether);
}

#[test]
fn a_statefulset_deleted_in_the_foreground_is_removed_with_its_claims() {
    let set = ModelObject {
        spec: json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}),
        ..object("StatefulSet", "statefulsets", "apps/v1", "db")
    };
    let claim = ModelObject { owners: vec![0], ..claim("data-db-0") };
    let pod = ModelObject { owners: vec![0], ..pod("db-0", mounts_claim("data-db-0")) };
    for foreground in [false, true] {
        let objects = vec![set.clone(), claim.clone(), pod.clone()];
        let model = model(objects, &[(0, foreground)]);
        assert_all_removed("StatefulSet and claims", &model);
        if foreground {
            assert_needs_exception(
                "StatefulSet and claims",
                &model,
                UserException::TerminatingOwner,
            );
        }
    }
}

#[test]
fn a_deleted_volume_and_its_claim_are_both_removed() {
    let volume = ModelObject {
        held: true,
        spec: json!({"claimRef": {"namespace": "a", "name": "c", "uid": "c"}}),
        ..object("PersistentVolume", "persistentvolumes", "v1", "v")
    };
    let claim = ModelObject { spec: json!({"volumeName": "v"}), ..claim("c") };
    let model = model(vec![volume, claim], &[(0, false), (1, false)]);
    assert_all_removed("volume and claim", &model);
}

#[test]
fn held_objects_that_use_each_other_are_released_together() {
    let model = model(vec![part("x", "y"), part("y", "x")], &[(0, false), (1, false)]);
    assert_all_removed("two that name each other", &model);
    assert_needs_exception("two that name each other", &model, UserException::Cycle);
    let ring = [part("x", "y"), part("y", "z"), part("z", "x")];
    let model = self::model(ring.to_vec(), &[(0, false), (1, false), (2, false)]);
    assert_all_removed("three in a ring", &model);
}

#[test]
fn a_custom_resource_is_removed_with_the_secret_that_it_uses_and_owns() {
    let database = ModelObject {
        spec: json!({"names": "s"}),
        ..object("Database", "databases", "example.com/v1", "main")
    };
    let secret = ModelObject { owners: vec![0], ..secret() };
    let model = model(vec![database, secret], &[(0, true)]);
    assert_all_removed("operator and Secret", &model);
    assert_needs_exception("operator and Secret", &model, UserException::TerminatingOwner);
}

#[test]
fn a_cycle_is_released_with_the_dependents_of_its_members() {
    let (x, y) = (part("x", "y"), part("y", "x"));
    let child = |owner, names| ModelObject { owners: vec![owner], held: false, ..part("z", names) };
    for (owner, names) in [(1, "x"), (1, "y"), (0, "y")] {
        let objects = vec![x.clone(), y.clone(), child(owner, names)];
        let model = model(objects, &[(0, false), (1, false)]);
        assert_all_removed("a cycle and a child", &model);
    }
    let objects = vec![x, y, child(0, "x"), ModelObject { name: "w", ..child(1, "y") }];
    assert_all_removed("a cycle and a child of each", &model(objects, &[(0, false), (1, false)]));
}

/// R5: a dependent with another owner remains, so it counts as a user. After the deletion of
/// that owner, all are removed.
#[test]
fn a_dependent_of_two_owners_is_released_with_both() {
    let child = ModelObject { owners: vec![0, 1], held: false, ..part("child", "first") };
    let objects = vec![part("first", ""), part("second", ""), child];
    assert_all_removed("two owners", &model(objects.clone(), &[(0, false), (1, false)]));
    assert_all_removed("two owners", &model(objects.clone(), &[(0, true), (1, false)]));
    let one_deleted = model(objects, &[(0, false)]);
    let state = &one_deleted.init_states()[0];
    assert!(matches!(one_deleted.run_pass(state, 0), (None, Some(WaitReason::InUse(_)))));
}

/// An orphaned dependent remains, so it counts as a user.
#[test]
fn an_orphaned_dependent_keeps_the_owner_that_it_names() {
    let child = ModelObject { owners: vec![0], held: false, ..part("child", "parent") };
    let objects = vec![part("parent", ""), child];
    let model = DeadlockModel { deleted: vec![(0, Propagation::Orphan)], ..model(objects, &[]) };
    let mut state = model.init_states().remove(0);
    let waits =
        |state: &State| matches!(model.run_pass(state, 0), (None, Some(WaitReason::InUse(_))));
    assert!(waits(&state), "before the garbage collector orphans the dependent");
    state = model.next_state(&state, Action::OrphanDependents(0)).unwrap();
    assert!(waits(&state), "after that");
}

/// R13: if belay denies the DELETE of a dependent, the dependent and its own dependents remain
/// and use the owner.
#[test]
fn h20_a_dependent_whose_delete_is_denied_keeps_the_owner_that_it_names() {
    let labels = json!({"belay.dev/protect": "Always"});
    let child = ModelObject { owners: vec![0], labels, held: false, ..part("child", "parent") };
    let below = ModelObject { owners: vec![1], held: false, ..part("below", "parent") };
    let other = ModelObject { held: false, ..part("other", "parent") };
    let objects = vec![part("parent", ""), child, below, ModelObject { owners: vec![0], ..other }];
    for foreground in [false, true] {
        let model = model(objects.clone(), &[(0, foreground)]);
        for user in [1, 2] {
            assert!(!reaches(&model, |state: &State| state[0].is_none() && state[user].is_some()));
        }
    }
}

/// R14: two held instances of the CRD use each other.
#[test]
fn a_crd_is_released_with_instances_that_use_each_other() {
    let held = vec![part("x", "y"), part("y", "x")];
    let model = DeadlockModel { container: "parts", ..model(held, &[]) };
    assert_all_removed("a CRD", &model);
    assert_needs_exception("a CRD", &model, UserException::Cycle);
}

#[test]
fn newcomers_keep_nothing() {
    let newcomer = ModelObject { newcomer: true, ..pod("again", mounts_secret("s")) };
    let model = model(vec![secret(), newcomer], &[(0, false)]);
    assert_all_removed("newcomers", &model);
    assert_needs_exception("newcomers", &model, UserException::CreatedAfterDeletion);
}

#[test]
fn a_namespace_is_released_with_all_held_objects_in_it() {
    let objects = vec![
        secret(),
        claim("c"),
        pod("p", mounts_secret("s")),
        pod("q", mounts_claim("c")),
        part("x", "y"),
        part("y", "x"),
    ];
    let model = DeadlockModel { container: "*", ..model(objects, &[]) };
    assert_all_removed("a Namespace", &model);
    assert_needs_exception("a Namespace", &model, UserException::Cycle);
}

/// No exception applies to a user that is not being deleted.
#[test]
fn a_remaining_user_keeps_a_cycle() {
    let model =
        model(vec![part("x", "y"), part("y", "x"), part("z", "x")], &[(0, false), (1, false)]);
    let state = &model.init_states()[0];
    for i in [0, 1] {
        assert!(matches!(model.run_pass(state, i), (None, Some(WaitReason::InUse(_)))), "{i}");
    }
}
