//! The owners of users, and users that own the target.

use super::*;

#[test]
fn a_newcomer_does_not_count_unless_it_has_an_older_owner() {
    let late = json!({"metadata": {"creationTimestamp": time(30)}});
    let newcomer = pod("p", late.clone());
    assert_eq!(World::while_used().with_listed(std::slice::from_ref(&newcomer)).count(), UNUSED);
    // The clocks of API servers may differ a little.
    let early = pod("p", json!({"metadata": {"creationTimestamp": time(5)}}));
    assert_eq!(World::while_used().with_listed(&[early]).causes(), ["Pod a/p"]);
    // No list contains the kind of its owner, so the count reads the owner.
    let mut owned_newcomer = newcomer;
    json_patch::merge(&mut owned_newcomer, &owned("Database", "d"));
    let mut world = World::while_used().with_listed(&[owned_newcomer]);
    let read = world.needed_reads();
    assert!(matches!(&read[..], [LiveRead::Object(read)] if read.resource == "databases"));
    world.read(read.clone());
    assert_eq!(world.count(), UNUSED, "the owner does not exist");
    world.reads.results.insert(read[0].clone(), Err(ApiError::Other("500".into())));
    assert_eq!(world.causes(), ["Pod a/p"], "the owner is unknown");
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", json!({})));
    assert_eq!(world.causes(), ["Database a/d Pod a/p"]);
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", late));
    assert_eq!(world.count(), UNUSED, "the owner is a newcomer");
}

#[test]
fn a_policy_can_select_the_owner_of_a_user() {
    let by = json!([{"apiGroups": ["example.com"], "resources": ["databases"]}]);
    let mut world = World::new(json!([{"protect": {"whileUsed": {"by": by}}}]));
    world = world.with_listed(&[pod("other", json!({})), {
        let mut pod = pod("p", json!({}));
        json_patch::merge(&mut pod, &owned("Database", "d"));
        pod
    }]);
    world.read(world.needed_reads());
    assert_eq!(world.count(), UNUSED);
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", json!({})));
    assert_eq!(world.causes(), ["Database a/d Pod a/p"]);
}

#[test]
fn a_policy_can_select_any_indirect_owner_of_a_user() {
    let by = json!([{"apiGroups": ["example.com"], "resources": ["databases"]}]);
    let owners = |owners: [(&str, &str); 2]| {
        let owners =
            owners.map(|(kind, name)| owned(kind, name)["metadata"]["ownerReferences"][0].clone());
        json!({"metadata": {"ownerReferences": owners}})
    };
    let user = pod("p", owners([("ConfigMap", "front"), ("ConfigMap", "middle")]));
    let middle = owners([("ConfigMap", "front"), ("Database", "d")]);
    let mut world = World::new(json!([{"protect": {"whileUsed": {"by": by}}}])).with_listed(&[
        user,
        object("ConfigMap", "middle", middle),
        object("ConfigMap", "front", json!({})),
    ]);
    world.read(world.needed_reads());
    assert_eq!(world.count(), UNUSED);
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", json!({})));
    assert_eq!(world.causes(), ["Pod a/p"]);
}

/// A ReplicaSet and its Pod may be created between the list of ReplicaSets and the list of Pods.
#[test]
fn an_owner_that_is_not_in_the_list_is_read() {
    let mut owned_newcomer = pod("p", json!({"metadata": {"creationTimestamp": time(60)}}));
    json_patch::merge(&mut owned_newcomer, &owned("ReplicaSet", "r"));
    let world = World::while_used().with_listed(&[owned_newcomer]);
    let read = world.needed_reads();
    assert!(matches!(&read[..], [LiveRead::Object(read)] if read.name == "r"), "{read:?}");
}

/// The count for a Secret with a user that is Terminating and has a finalizer. The user owns the
/// Secret directly, or through a ConfigMap if `between`. `added` is whether the watch saw the
/// owner reference added later; `None` without a watch.
fn owned_by_its_user(finalizer: &str, (added, between): (Option<bool>, bool)) -> UseCheck {
    let mut world = World::while_used();
    let secrets = world.watched.kinds.find("", "Secret").unwrap();
    let maps = world.watched.kinds.find("", "ConfigMap").unwrap();
    assert!(world.watched.delete(secrets, "a", "s", None));
    if added.is_some() {
        world.watched.track_owner_versions();
        for kind in [secrets, maps] {
            world.watched.set_complete(kind, true);
        }
    }
    let between = between.then(|| object("ConfigMap", "between", owned("Pod", "p")));
    let terminating = json!({"metadata": {"deletionTimestamp": time(0), "finalizers": [HOLD]}});
    let target = object("Secret", "s", terminating);
    let mut owned_target = target.clone();
    let owner = if between.is_some() { ("ConfigMap", "between") } else { ("Pod", "p") };
    json_patch::merge(&mut owned_target, &owned(owner.0, owner.1));
    if added == Some(true) {
        feed(&world.catalogue, &mut world.watched, &target);
    }
    for object in between.iter().chain([&owned_target]) {
        feed(&world.catalogue, &mut world.watched, object);
    }
    feed(&world.catalogue, &mut world.reads.graph, &without_hold(&owned_target));
    let user = json!({"metadata": {"deletionTimestamp": time(0), "finalizers": [finalizer]}});
    let listed: Vec<_> = between.into_iter().chain([pod("p", user)]).collect();
    world.with_listed(&listed).count()
}

#[test]
fn h115_an_added_owner_with_a_foreign_finalizer_counts() {
    let is_kept = |count: UseCheck| matches!(count, UseCheck::InUse(_));
    for between in [false, true] {
        let count = |finalizer: &str, added| owned_by_its_user(finalizer, (added, between));
        assert!(is_kept(count("example.com/cleanup", Some(true))), "an added reference");
        assert!(is_kept(count("example.com/cleanup", None)), "a reference of unknown age");
        assert_eq!(count("example.com/cleanup", Some(false)), UNUSED);
        for added in [Some(true), None, Some(false)] {
            assert_eq!(count("foregroundDeletion", added), UNUSED, "{added:?}");
        }
    }
}
