//! Orphaned objects, and objects with another owner.

use super::*;

#[test]
fn a_child_was_orphaned() {
    let family = json!({"fromOrphaning": {}});
    let child = json!({"name": "child", "uid": "child", "finalizers": [],
        "ownerReferences": [{"uid": "settings"}]});
    let orphan = json!({"name": "child", "uid": "child", "finalizers": []});
    let mut log = Log::with(family.clone());
    log.config("create", "alice", json!({"finalizers": []}));
    log.config("create", "alice", child.clone());
    log.wait(10);
    log.config(
        "delete",
        "alice",
        json!({"deletionTimestamp": stamp(log.second),
        "finalizers": ["orphan"]}),
    );
    log.config("patch", GC, orphan.clone());
    assert_eq!(log.found(&["settings", "child"]), ["orphaned"]);

    // The owner was deleted, so the reference is dangling.
    let mut log = Log::with(family);
    log.config("create", "alice", json!({"finalizers": []}));
    log.config("create", "alice", child);
    log.wait(10);
    log.remove("alice", "", "configmaps", "settings");
    log.config("patch", GC, orphan);
    assert_eq!(log.found(&["child"]), [""; 0]);
}

/// Only the control plane may leave an object to another owner that stays.
#[test]
fn a_child_was_given_another_owner() {
    let family = json!({"fromOrphaning": {}});
    let child = |owner: &str| {
        json!({"name": "child", "uid": "child", "finalizers": [],
            "ownerReferences": [{"uid": owner}]})
    };
    for (by, found) in [("alice", &["orphaned"][..]), (GC, &[])] {
        let mut log = Log::with(family.clone());
        log.config("create", "alice", json!({"finalizers": []}));
        log.config("create", "alice", json!({"name": "mine", "uid": "mine", "finalizers": []}));
        log.config("create", "alice", child("settings"));
        log.wait(10);
        log.config("patch", by, child("mine"));
        assert_eq!(log.found(&["settings", "mine", "child"]), found, "{by}");
    }
}
