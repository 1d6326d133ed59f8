//! Foreground deletions of objects that their dependents use.

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, reader};
use crate::harness::policy;
use crate::team::{SOON, Team};
use crate::world;

/// A namespace with a ConfigMap `top` that a policy keeps while it is used, with these dependents
/// and these other users. The ConfigMap is in a foreground deletion, but the garbage collector may not delete
/// the dependents. Returns the binding that denies this.
fn waiting_for(name: &str, dependents: &[Value], users: &[Value]) -> (Team<'static>, String) {
    let team = Team::new(&world().plane, name);
    let target = policy::target("", "configmaps", &team.ns).with(json!({"names": ["top"]}));
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(team.plane, &team.ns, json!({"targets": [target], "protect": protect}));
    team.apply(&config_map("top"));
    let owner = team.owner("ConfigMap", "top");
    for dependent in dependents {
        team.apply(&dependent.clone().with_owner(owner.clone()));
    }
    users.iter().for_each(|user| team.apply(user));
    let kind = dependents[0]["kind"].as_str().unwrap();
    let binding = team.keep_collector_from(&format!("{kind}/below"));
    team.deleted(&["configmap/top", "--cascade=foreground"]);
    (team, binding)
}

#[test]
fn h151_an_object_in_a_foreground_deletion_does_not_keep_its_dependents() {
    // belay is asked about the DELETE of labelled Pods.
    let names = ["below", "below-too"];
    let users =
        names.map(|name| reader(name, "configMapRef", "top").with_protect_label("WhileUsed"));
    let (team, binding) = waiting_for("h151", &users, &[]);
    let (top, path) = (("configmap/top", &*team.ns), ".metadata.finalizers");
    let waits = r#"["foregroundDeletion"]"#;
    team.plane.api().wait_field(top, SOON, path, |now| now == waits).unwrap();
    team.deleted(&["pod/below", "--dry-run=server"]);
    team.remove_binding(&binding);
    for object in ["pod/below", "pod/below-too", "configmap/top"] {
        team.wait_until_deleted(object);
    }
}

#[test]
fn h151_the_deletion_of_a_dependent_removes_no_hold() {
    let user = reader("other", "configMapRef", "top");
    let (team, _) = waiting_for("h151-held", &[config_map("below")], &[user]);
    team.deleted(&["configmap/below"]);
    team.wait_until_deleted("configmap/below");
    team.was_kept("configmap/top");
    team.is_kept_again("configmap/top");
    team.deleted(&["pod/other"]);
    team.wait_until_deleted("configmap/top");
}
