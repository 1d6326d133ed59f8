//! `kubectl belay impact --removed`, on folders.

use super::{assert_snapshot, belay, fed};

/// Folders before and after, in `../change`.
fn removed(old: &str, new: &str, more: &str) -> String {
    format!("impact --removed ../change/{old} ../change/{new} -n shop {more}")
}

#[test]
fn remaining_objects_count_after_the_change_and_removed_ones_before_it() {
    // settings-a1 was used before the change, and db-creds is used after it. Objects in
    // several folders, also policies, count once.
    assert_snapshot("removed.txt", 1, &removed("old", "new", "--from ../change/new"));
    assert_snapshot("removed.md", 1, &removed("old", "new", "--from ../change/new -o markdown"));
    let sound = belay(&removed("old", "sound", "--from ../change/sound"));
    assert_eq!(sound.code, 0, "{sound:?}");
    assert!(sound.stdout.starts_with("DELETE 5 objects ("), "{sound:?}");
}

#[test]
fn objects_that_are_removed_together_do_not_block_each_other() {
    let said = belay(&removed("old", "sound", "--from ../change/sound -o json"));
    let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let names: Vec<&str> =
        said["targets"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    // The Secret of a CronJob that is removed as well. A policy is an object, too.
    assert_eq!(names, ["reports", "db-creds", "settings-a1", "report", "mail"], "{said}");
    assert_eq!(said["summary"]["broken"]["total"], 0, "{said}");
}

#[test]
fn a_dump_of_a_cluster_has_precedence_over_manifests() {
    let live = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: \
        {template: {spec: {containers: [{name: main, envFrom: [{configMapRef: {name: \
        settings-a1}}]}]}}}\n";
    let said = fed(&removed("old", "sound", "--from -"), live);
    assert_eq!(said.code, 1, "{said:?}");
    let says = "configmap \"settings-a1\" is in use by Deployment shop/web";
    assert!(said.stdout.contains(says), "{said:?}");
}

#[test]
fn that_nothing_is_removed_is_one_sentence_and_takes_no_cluster() {
    let said = belay(&removed("old", "old", ""));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.stdout, "no objects are removed: NEW contains all 8 objects of OLD\n");
    let markdown = belay(&removed("old", "old", "-o markdown"));
    assert_eq!(markdown.stdout, "### no objects are removed: NEW contains all 8 objects of OLD\n");
    let json = belay(&removed("old", "old", "-o json"));
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["verdict"], "Allow");
    assert_eq!(json["targets"], serde_json::json!([]));
    // The same change in another form: -n names the namespace that one manifest contains.
    let old = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n";
    let other = fed("impact --removed - ../change/new -n shop --from ../change/new", old);
    assert_eq!((other.code, other.stdout.as_str()), (0, "no objects are removed\n"), "{other:?}");
    let elsewhere = fed("impact --removed - ../change/new -n test --from ../change/new", old);
    assert!(elsewhere.stdout.starts_with("DELETE deployment/web -n shop   "), "{elsewhere:?}");
}

#[test]
fn without_files_it_is_the_cluster_that_is_asked() {
    let said = belay(&removed("old", "new", ""));
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stderr.contains("cannot find a cluster: "), "{said:?}");
}

#[test]
fn a_namespace_in_markdown() {
    assert_snapshot("namespace.md", 1, "impact ns/shop --from . -o markdown");
    let all = belay("impact ns/shop --from . -o markdown --all");
    assert!(!all.stdout.contains("more"), "{all:?}");
}
