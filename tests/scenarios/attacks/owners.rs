//! Ways to delete or orphan an object by changing what is around it.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::kubectl::Output;
use crate::team::{SOON, Team, owned_by};
use crate::{policy, world};

/// A policy about the ConfigMaps of this name; `rest` is YAML.
fn protect(team: &Team<'_>, name: &str, rest: &str) {
    let target = policy::target("", "configmaps", &team.ns)
        .replace("namespaceSelector", &format!("names: [{name}], namespaceSelector"));
    policy::apply(team.plane, &team.ns, &format!("{target}{rest}"));
}

/// An object without content.
fn object(kind: &str, name: &str, metadata: &str) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}, {metadata}}}\n")
}

/// An object below another one.
fn below(team: &Team<'_>, kind: &str, name: &str, (owner_kind, owner): (&str, &str)) -> String {
    let uid = team.field(&format!("{owner_kind}/{owner}"), ".metadata.uid");
    object(kind, name, &owned_by(owner_kind, owner, &uid))
}

fn patch(team: &Team<'_>, object: &str, patch: &Value, more: &[&str]) -> Output {
    let patch = patch.to_string();
    team.kubectl(&[&["patch", object, "--type=merge", "-p", &patch], more].concat())
}

/// jane tries to make a ConfigMap the only owner of an object, until belay
/// whom that.
fn is_not_owned(team: &Team<'_>, object: &str, owner: &str) {
    let uid = team.field(&format!("configmap/{owner}"), ".metadata.uid");
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid});
    let owners = json!({"metadata": {"ownerReferences": [owner]}});
    eventually("a question about the owner", SOON, || {
        patch(team, object, &owners, &["--dry-run=server"]).failure()
    })
    .unwrap();
    let refused = patch(team, object, &owners, &[]).failure().unwrap();
    assert!(refused.contains("configmaps \"precious\""), "{refused}");
}

#[test]
fn h39_what_owns_a_protected_object_gets_no_owner_that_is_being_deleted() {
    for whom in [
        "exemptSubjects: [{kind: Group, name: 'system:serviceaccounts:kube-system'}]",
        "subjects: [{kind: User, name: jane}]",
    ] {
        let jane = Team::new(&world().plane, "h39");
        let whom = whom.replace("jane", &format!("jane-{}", jane.ns));
        let always = "  protect: {always: {}}\n";
        protect(&jane, "precious", &format!("{always}  {whom}\n"));
        jane.apply(&object("Secret", "app", ""));
        jane.apply(&below(&jane, "ConfigMap", "precious", ("Secret", "app")));
        jane.apply(&object("ConfigMap", "top", "finalizers: [example.com/slow]"));
        jane.refused(&["secret/app"]);
        jane.deleted(&["configmap/top"]);
        is_not_owned(&jane, "secret/app", "top");
        jane.stands("configmap/precious");
    }
}

#[test]
fn h39_an_exempt_subject_takes_along_nothing_below_what_an_editor_attached() {
    let team = Team::new(&world().plane, "h39-bot");
    let exempt = format!("  exemptSubjects: [{{kind: User, name: bot-{}}}]\n", team.ns);
    protect(&team, "precious", &format!("  protect: {{always: {{}}}}\n{exempt}"));
    team.apply(&object("Secret", "app", ""));
    team.apply(&below(&team, "ConfigMap", "precious", ("Secret", "app")));
    team.apply(&object("ConfigMap", "pruned", ""));
    team.refused(&["secret/app"]);
    is_not_owned(&team, "secret/app", "pruned");
    team.stands("configmap/precious");
    // An object with nothing protected below it gets any owner.
    team.apply(&object("Secret", "other", ""));
    let uid = team.field("configmap/pruned", ".metadata.uid");
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "pruned", "uid": uid});
    let owners = json!({"metadata": {"ownerReferences": [owner]}});
    patch(&team, "secret/other", &owners, &[]).success().unwrap();
}
