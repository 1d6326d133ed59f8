//! `belay approvals`.

use crate::{belay, configmaps, json, kubectl, policy, world};

#[test]
fn an_approval_is_listed_with_who_gave_it_and_for_how_long() {
    let plane = &world().plane;
    let ns = plane.namespace("approvals").unwrap();
    policy(plane, &ns, &(configmaps(&ns) + "  protect: {always: {}}\n"));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let none = belay(plane, &["approvals", "-n", &ns]);
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (0, "approvals: none is in force; --all has expired ones\n")
    );
    let given = ["approve", "cm/settings", "-n", &ns, "--reason", "it was agreed", "--for=10m"];
    assert_eq!(belay(plane, &given).code, 0);
    let said = json(&belay(plane, &["approvals", "-n", &ns, "-o", "json"]));
    assert_eq!(said["kind"], "ApprovalList");
    assert_eq!(said["items"].as_array().map(Vec::len), Some(1), "{said}");
    let item = &said["items"][0];
    assert_eq!(item["object"]["typed"], format!("configmaps/settings -n {ns}"));
    assert_eq!((&item["inForce"], &item["reason"]), (&true.into(), &"it was agreed".into()));
    let table = belay(plane, &["approvals", "-n", &ns]).stdout;
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains("m left   object   it was agreed") || row.contains("s left"), "{table}");
    // kubectl's option for everything is what is done without -n.
    let all = json(&belay(plane, &["approvals", "-A", "-o", "json"]));
    let all = all["items"].as_array().unwrap();
    assert!(all.iter().any(|one| one["object"] == item["object"]), "{all:?}");
    // Elsewhere it is not listed.
    let other = json(&belay(plane, &["approvals", "-n", "default", "-o", "json"]));
    assert_eq!(other["items"].as_array().map(Vec::len), Some(0), "{other}");
}
