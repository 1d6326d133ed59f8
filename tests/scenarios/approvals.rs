//! What more than one person has to approve.

use std::time::Duration;

use serde_json::json;

use crate::harness::eventually;
use crate::team::{Approver, SOON, Team, owned_by};
use crate::{policy, world};

fn hour() -> Duration {
    Duration::from_secs(3600)
}

#[test]
fn s24_two_people_approve_one_object_under_one_uid() {
    let team = Team::new(&world().plane, "s24");
    let ns = &team.ns;
    let target = policy::target("", "configmaps", ns);
    let spec = format!("{target}  protect: {{always: {{}}}}\n  approval: {{required: 2}}\n");
    policy::apply(team.plane, ns, &spec);
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n";
    team.apply(settings);
    let refused = team.refused(&["configmap/settings"]);
    let way =
        format!("kubectl belay approve configmaps/settings -n {ns} --reason \"…\" (2 people)");
    assert!(refused.contains(&way), "{refused}");

    // One person is one, however often; and nobody speaks for another.
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
    team.goes("configmap/settings");

    // Made again, it is another object.
    team.apply(settings);
    assert_ne!(team.uid(of), uid);
    team.refused(&["configmap/settings"]);
    team.stands("configmap/settings");
}

#[test]
fn s24_an_approval_expires_and_a_cascade_that_began_in_time_ends() {
    let team = Team::new(&world().plane, "s24-time");
    let ns = &team.ns;
    let target = policy::target("", "configmaps", ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{always: {{}}}}\n"));
    let parent = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parent, finalizers: \
    [example.com/slow]}\n";
    team.apply(parent);
    let owner = owned_by("ConfigMap", "parent", &team.field("configmap/parent", ".metadata.uid"));
    team.apply(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: child, {owner}}}\n"));
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n");

    let life = Duration::from_secs(15);
    team.approve_for(Approver::Carol, team.of("configmaps", "parent"), "Content", life);
    let dry = ["configmap/other", "--dry-run=server"];
    team.approve_for(Approver::Carol, team.of("configmaps", "other"), "Object", life);
    eventually("an approval in force", SOON, || team.delete(&dry).success()).unwrap();
    eventually("a DELETE that passes", SOON, || team.delete(&["configmap/parent"]).success())
        .unwrap();
    // The parent waits for somebody; meanwhile what was approved expires.
    eventually("an approval that has expired", SOON, || team.delete(&dry).failure()).unwrap();
    let refused = team.refused(&["configmap/other"]);
    assert!(refused.contains("is protected; policy "), "{refused}");
    team.stands("configmap/child");

    // The hold stays where it is.
    let first = "/metadata/finalizers/0";
    let finish = json!([{"op": "test", "path": first, "value": "example.com/slow"},
                        {"op": "remove", "path": first}]);
    let finish = ["patch", "configmap/parent", "--type=json", "-p", &finish.to_string()];
    team.kubectl(&finish).success().unwrap();
    team.goes("configmap/parent");
    team.goes("configmap/child");
    team.stands("configmap/other");
}
