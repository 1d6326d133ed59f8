//! Chains of owner references over objects that wait under a hold.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map, reader};
use crate::team::{SOON, Team};
use crate::{policy, world};

/// A policy about the ConfigMaps of these names.
fn protect(team: &Team<'_>, policy: &str, names: &[&str], modes: Value) {
    let target = policy::target("", "configmaps", &team.ns).with(json!({"names": names}));
    let spec = json!({"targets": [target], "protect": modes, "settleSeconds": 2});
    policy::apply(team.plane, &format!("{}-{policy}", team.ns), spec);
}

fn patch(team: &Team<'_>, object: &str, patch: &Value) -> Result<String, String> {
    let said = team.kubectl(&["patch", object, "--type=merge", "-p", &patch.to_string()]);
    if said.ok() { Ok(said.stdout) } else { Err(said.stderr) }
}

/// jane makes ConfigMaps the owners of an object.
fn own(team: &Team<'_>, object: &str, owners: &[&str]) -> Result<String, String> {
    let owners: Vec<_> = owners.iter().map(|name| team.owner("ConfigMap", name)).collect();
    patch(team, object, &json!({"metadata": {"ownerReferences": owners}}))
}

const PROTECTED: &str = r#"{"metadata":{"labels":{"belay.dev/protect":"Always"}}}"#;

#[test]
fn h20_a_hold_stays_for_a_user_that_the_collector_may_not_delete() {
    let team = Team::new(&world().plane, "h20");
    protect(&team, "t", &["t"], json!({"whileUsed": {"onDelete": "Hold"}}));
    team.apply(&config_map("t"));
    for user in ["user", "other"] {
        team.apply(&reader(user, "configMapRef", "t"));
    }
    team.deleted(&["configmap/t"]);
    team.was_kept("configmap/t");
    // The user becomes a dependent of the used object, which is then protected.
    own(&team, "pod/user", &["t"]).unwrap();
    team.kubectl(&["patch", "pod/user", "--type=merge", "-p", PROTECTED]).success().unwrap();
    eventually("the label in force", SOON, || {
        team.delete(&["pod/user", "--dry-run=server"]).failure()
    })
    .unwrap();
    team.deleted(&["pod/other"]);
    team.wait_until_deleted("pod/other");
    team.is_kept_again("configmap/t");
    team.assert_exists("pod/user");
}

#[test]
fn h21_a_cascade_over_a_held_object_is_judged_with_what_follows() {
    let team = Team::new(&world().plane, "h21");
    protect(&team, "held", &["held", "used"], json!({"whileUsed": {}}));
    protect(&team, "kept", &["kept"], json!({"fromOrphaning": {}}));
    for name in ["held", "used", "mine", "kept"] {
        team.apply(&config_map(name));
    }
    for name in ["top", "second"] {
        team.apply(&config_map(name).with_finalizers(&["example.com/slow"]));
    }

    // A dependent below it comes into use while the owner at the top is Terminating.
    own(&team, "configmap/used", &["held"]).unwrap();
    own(&team, "configmap/held", &["top"]).unwrap();
    team.deleted(&["configmap/top"]);
    team.apply(&reader("user", "configMapRef", "used"));
    team.refused(&["configmap/held"]);
    team.finish("configmap/top");
    team.collector_asks("/held");
    team.assert_exists("configmap/held");
    team.assert_exists("configmap/used");
    let refused = team.refused(&["configmap/held"]);
    let why = format!("also deletes configmap \"used\", which is in use by Pod {}/user", team.ns);
    assert!(refused.contains(&why), "{refused}");

    // The owner of an object in use is not Terminating, and its owner is.
    team.apply(&config_map("top").with_finalizers(&["example.com/slow"]));
    team.deleted(&["configmap/top"]);
    let owners = json!({"metadata": {"ownerReferences": [team.owner("ConfigMap", "top")]}});
    team.apply(&config_map("between").with(owners));
    let refused = own(&team, "configmap/used", &["held", "between"]).unwrap_err();
    assert!(refused.contains(&format!("is in use by Pod {}/user", team.ns)), "{refused}");

    // It leaves its dependents behind.
    team.apply(&config_map("orphaning").with_protect_label("WhileUsed"));
    own(&team, "configmap/kept", &["orphaning", "mine"]).unwrap();
    own(&team, "configmap/orphaning", &["second"]).unwrap();
    team.deleted(&["configmap/second"]);
    let both = json!({"metadata": {"finalizers": ["belay.dev/hold", "orphan"]}});
    patch(&team, "configmap/orphaning", &both).unwrap();
    team.finish("configmap/second");
    team.collector_asks("/orphaning");
    team.assert_exists("configmap/orphaning");
    let owners = team.field("configmap/kept", ".metadata.ownerReferences[*].name");
    assert_eq!(owners, "orphaning mine");
}
