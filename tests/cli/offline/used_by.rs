//! `kubectl belay used-by`, on a folder.

use super::{belay, says};

#[test]
fn who_needs_a_secret_by_the_owners_at_the_top() {
    says("used-by.txt", 1, "used-by secret/db-creds -n shop --from .");
}

#[test]
fn weaker_ones_are_counted_and_told_when_asked_for() {
    says("used-by-weak.txt", 0, "used-by deploy/web -n shop --from .");
    says("used-by-weak-all.txt", 0, "used-by deploy/web -n shop --from . --all");
}

#[test]
fn the_way_goes_on_and_the_other_way_round() {
    says("used-by-deep.txt", 1, "used-by pv/pvc-1f2a --from . --depth 3");
    says("uses.txt", 0, "used-by sts/postgres -n shop --from . --reverse");
}

#[test]
fn programs_get_every_edge() {
    let json = belay("used-by secret/db-creds -n shop --from . -o json");
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(said["kind"], "UsedBy");
    let uses = said["uses"].as_array().unwrap();
    // Two workloads, the ReplicaSet between, and three Pods.
    assert_eq!(uses.len(), 6, "{json:?}");
    assert!(uses.iter().all(|one| one["means"] == "needs"), "{json:?}");
}
