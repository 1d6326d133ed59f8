//! Approvals by more than one person.

use std::time::Duration;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map};
use crate::team::{Approver, SOON, Team};
use crate::{policy, world};

fn hour() -> Duration {
    Duration::from_secs(3600)
}

#[test]
fn s24_two_people_approve_one_object_under_one_uid() {
    let team = Team::new(&world().plane, "s24");
    let ns = &team.ns;
    let target = policy::target("", "configmaps", ns);
    let two = json!({"required": 2});
    let spec = json!({"targets": [target], "protect": {"always": {}}, "approval": two});
    policy::apply(team.plane, ns, spec);
    team.apply(&config_map("settings"));
    let refused = team.refused(&["configmap/settings"]);
    let way = format!(
        "kubectl belay approve configmaps/settings -n {ns} --reason \"…\" (2 people must approve)"
    );
    assert!(refused.contains(&way), "{refused}");

    // Several approvals of one person count once, and no person can approve in another's
    // name.
    let of = team.of("configmaps", "settings");
    team.approve(Approver::Carol, of, "Object");
    team.approve(Approver::Carol, of, "Object");
    let dave = team.name_of(Approver::Dave);
    let forged = (of, &*team.uid(of));
    let forged = team.try_approve(Approver::Carol, &dave, forged, "Object", hour()).unwrap();
    let forged = forged.failure().unwrap();
    assert!(forged.contains(&format!("spec.approver is {dave}, but you are ")), "{forged}");
    let uid = team.uid(of);
    team.refused(&["configmap/settings"]);

    team.approve(Approver::Dave, of, "Object");
    eventually("a DELETE that passes", SOON, || team.delete(&["configmap/settings"]).success())
        .unwrap();
    team.wait_until_deleted("configmap/settings");

    // A re-created object is another object.
    team.apply(&config_map("settings"));
    assert_ne!(team.uid(of), uid);
    team.refused(&["configmap/settings"]);
    team.assert_exists("configmap/settings");
}

#[test]
fn s24_an_approval_expires_and_a_cascade_that_began_in_time_ends() {
    let team = Team::new(&world().plane, "s24-time");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "configmaps", json!({"always": {}}));
    team.apply(&config_map("parent").with_finalizers(&["example.com/slow"]));
    team.apply(&config_map("child").with_owner(team.owner("ConfigMap", "parent")));
    team.apply(&config_map("other"));

    let life = Duration::from_secs(15);
    team.approve_for(Approver::Carol, team.of("configmaps", "parent"), "Content", life);
    let dry = ["configmap/other", "--dry-run=server"];
    team.approve_for(Approver::Carol, team.of("configmaps", "other"), "Object", life);
    eventually("an approval in force", SOON, || team.delete(&dry).success()).unwrap();
    eventually("a DELETE that passes", SOON, || team.delete(&["configmap/parent"]).success())
        .unwrap();
    // The parent waits for its child. Meanwhile the approval expires.
    eventually("an approval that has expired", SOON, || team.delete(&dry).failure()).unwrap();
    let refused = team.refused(&["configmap/other"]);
    assert!(refused.contains("is protected; policy "), "{refused}");
    team.assert_exists("configmap/child");

    // The hold stays where it is.
    let first = "/metadata/finalizers/0";
    let finish = json!([{"op": "test", "path": first, "value": "example.com/slow"},
                        {"op": "remove", "path": first}]);
    let finish = ["patch", "configmap/parent", "--type=json", "-p", &finish.to_string()];
    team.kubectl(&finish).success().unwrap();
    team.wait_until_deleted("configmap/parent");
    team.wait_until_deleted("configmap/child");
    team.assert_exists("configmap/other");
}
