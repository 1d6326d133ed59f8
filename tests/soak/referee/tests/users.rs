//! Releases while something used the object.

use super::*;

#[test]
fn an_object_was_released_while_a_pod_used_it() {
    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.pod("create", json!({}));
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), ["lost"]);
    let [Finding::Lost { why, .. }] = &log.judge(&[]).findings[..] else { panic!() };
    assert!(why.contains("pods room-0/user"), "{why}");
}

#[test]
fn a_user_counts_unless_it_is_finished_or_deleted_or_deleted_as_well() {
    // It was created after the DELETE and before the check of belay.
    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.wait(10);
    let now = stamp(log.second + 1);
    log.config("delete", "alice", json!({"deletionTimestamp": now}));
    log.pod("create", json!({}));
    log.config("patch", BELAY, json!({"deletionTimestamp": now}));
    log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": []}));
    assert_eq!(log.found(&[]), ["lost"]);

    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.pod("create", json!({"status": {"phase": "Succeeded"}}));
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), [""; 0]);

    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.pod("create", json!({}));
    log.pod(
        "delete",
        json!({"metadata": {"name": "user", "namespace": "room-0",
        "deletionTimestamp": stamp(40)}}),
    );
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), [""; 0]);

    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.pod(
        "create",
        json!({"metadata": {"name": "user", "namespace": "room-0",
        "ownerReferences": [{"uid": "settings"}]}}),
    );
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), [""; 0], "by the oracle, the Pod is deleted with its owner");
    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.write(
        "create",
        "alice",
        "",
        "secrets",
        json!({"metadata": {"name": "other", "namespace": "room-0"}}),
    );
    log.pod(
        "create",
        json!({"metadata": {"name": "user", "namespace": "room-0",
        "ownerReferences": [{"uid": "settings"}, {"uid": "other"}]}}),
    );
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), ["lost"], "another owner keeps it");
}

/// Another finalizer keeps the object after belay's check, whose end the log shows then.
#[test]
fn a_user_that_came_during_the_check_is_not_seen_by_it() {
    for (is_before, expected) in [(true, &["lost"][..]), (false, &[])] {
        let mut log = Log::with(used());
        let both = json!(["belay.dev/hold", "soak.dev/guard"]);
        log.config("create", "alice", json!({"finalizers": both}));
        log.wait(10);
        let now = stamp(log.second + 1);
        log.config("delete", "alice", json!({"deletionTimestamp": now, "finalizers": both}));
        if is_before {
            log.pod("create", json!({}));
        }
        log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": both}));
        if !is_before {
            log.pod("create", json!({}));
        }
        let one = json!(["soak.dev/guard"]);
        log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": one}));
        let operator = "system:serviceaccount:soak:operator";
        log.config("patch", operator, json!({"deletionTimestamp": now, "finalizers": []}));
        assert_eq!(log.found(&[]), expected);
    }
}

#[test]
fn a_newcomer_is_one_after_a_deletecollection_too() {
    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.wait(10);
    let now = stamp(log.second + 1);
    // The response lists the objects as they were before.
    let taken = json!({"items": [{"metadata": {"uid": "settings"}}]});
    log.line("deletecollection", "alice", "", "configmaps", 200, &taken);
    log.wait(10);
    log.pod("create", json!({}));
    log.config("patch", BELAY, json!({"deletionTimestamp": now}));
    log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": []}));
    assert_eq!(log.found(&[]), [""; 0]);
}

#[test]
fn a_newcomer_is_one_when_the_log_has_only_a_later_delete() {
    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.wait(10);
    let now = stamp(log.second + 1);
    log.line("deletecollection", "alice", "", "configmaps", 504, &json!({}));
    log.wait(10);
    log.pod("create", json!({}));
    log.wait(10);
    log.config("delete", "alice", json!({"deletionTimestamp": now}));
    log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": []}));
    assert_eq!(log.found(&[]), [""; 0]);
}

#[test]
fn an_object_of_a_deleted_collection_exists_while_it_has_a_finalizer() {
    let mut log = Log::with(used());
    log.config("create", "alice", json!({"finalizers": []}));
    log.wait(10);
    let now = stamp(log.second + 1);
    let taken = json!({"items": [{"metadata": {"uid": "settings"}}]});
    log.line("deletecollection", "alice", "", "configmaps", 200, &taken);
    log.pod("create", json!({}));
    assert_eq!(log.found(&["settings", "user"]), [""; 0], "it may have been given the hold");
    log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": []}));
    assert_eq!(log.found(&["user"]), [""; 0]);
}

#[test]
fn of_two_writes_that_end_an_object_one_finds_none() {
    for (code, found) in [(409, "disagree"), (404, ""), (504, "")] {
        let mut log = Log::with(used());
        let shut = json!(["foregroundDeletion"]);
        log.config("create", "alice", json!({"finalizers": []}));
        let now = stamp(log.second + 1);
        log.config("delete", "alice", json!({"deletionTimestamp": now, "finalizers": shut}));
        let none = json!({"metadata": {"namespace": "room-0", "name": "settings"}});
        log.line("patch", GC, "", "configmaps", code, &none);
        assert_eq!(log.found(&[]).concat(), found, "{code}");
    }
}

#[test]
fn a_relation_makes_users_while_it_is_there() {
    let log = |removed: bool| {
        let mut log = Log::with(used());
        let ends = json!({"from": {"group": "soak.dev", "resource": "widgets"},
            "to": {"group": "", "resource": "configmaps"}, "nameFieldPath": "spec.settings"});
        let relation = json!({"metadata": {"name": "widgets-settings"}, "spec": ends});
        log.write("create", "admin", "belay.dev", "relations", relation);
        log.wait(20);
        log.config("create", "alice", json!({}));
        let widget = json!({"metadata": {"name": "w", "namespace": "room-0"},
            "spec": {"settings": "settings"}});
        log.write("create", "alice", "soak.dev", "widgets", widget);
        log.wait(10);
        let now = stamp(log.second + 1);
        log.config("delete", "alice", json!({"deletionTimestamp": now}));
        if removed {
            log.remove("admin", "belay.dev", "relations", "widgets-settings");
        }
        log.config("patch", BELAY, json!({"deletionTimestamp": now}));
        log.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": []}));
        log
    };
    assert_eq!(log(false).found(&[]), ["lost"]);
    assert_eq!(log(true).found(&[]), [""; 0]);
}
