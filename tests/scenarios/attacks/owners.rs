//! Attempts to delete or orphan an object by changing related objects.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::kubectl::Output;
use crate::harness::manifest::{
    self, Manifest as _, config_map, object, pod, reader, relation, secret,
};
use crate::people::Person;
use crate::team::{Approver, SOON, Team};
use crate::{policy, world};

/// A namespace with a policy about the ConfigMaps of this name.
fn team(prefix: &str, name: &str, protect: Value) -> Team<'static> {
    let team = Team::new(&world().plane, prefix);
    apply_policy(&team, name, protect, json!({}));
    team
}

fn apply_policy(team: &Team<'_>, name: &str, protect: Value, more: Value) {
    let target = policy::target("", "configmaps", &team.ns).with(json!({"names": [name]}));
    let spec = json!({"targets": [target], "protect": protect});
    policy::apply(team.plane, &team.ns, spec.with(more));
}

fn patch(team: &Team<'_>, object: &str, patch: &Value, more: &[&str]) -> Output {
    let patch = patch.to_string();
    team.kubectl(&[&["patch", object, "--type=merge", "-p", &patch], more].concat())
}

/// jane tries to make a ConfigMap the only owner of an object, until belay refuses.
fn is_not_owned(team: &Team<'_>, object: &str, owner: &str) {
    let owners = json!({"metadata": {"ownerReferences": [team.owner("ConfigMap", owner)]}});
    eventually("a question about the owner", SOON, || {
        patch(team, object, &owners, &["--dry-run=server"]).failure()
    })
    .unwrap();
    let refused = patch(team, object, &owners, &[]).failure().unwrap();
    assert!(refused.contains("configmap \"precious\""), "{refused}");
}

#[test]
fn h69_an_editor_keeps_no_object_of_another_namespace_and_no_node() {
    let [here, there] = ["h69", "h69-other"].map(|name| Team::new(&world().plane, name));
    there.apply(&config_map("data"));
    here.apply(&config_map("own"));
    let api = here.plane.api();
    for (name, kind, owner, team) in [
        ("of-data", "ConfigMap", "data", &there),
        // A token of a Pod has the uid of its Node.
        ("of-node", "Node", "node-0", &there),
        ("of-own", "ConfigMap", "own", &here),
    ] {
        let owner = team.owner(kind, owner);
        here.apply(&config_map(name).with_protect_label("Always").with_owner(owner));
    }
    // belay has seen them, and requests about Nodes are sent to it.
    here.refused(&["configmap/own"]);
    eventually("a webhook about Nodes", SOON, || {
        let webhooks = api.get("validatingwebhookconfiguration/belay", "")?;
        if webhooks.is_some_and(|all| all.to_string().contains("\"nodes\"")) {
            return Ok(());
        }
        Err("no rule names them".into())
    })
    .unwrap();
    there.deleted(&["configmap/data"]);
    there.wait_until_deleted("configmap/data");
    let dry_run = ["node/node-0", "--dry-run=server"];
    assert_eq!(api.delete(&dry_run, "").unwrap().stderr, "");
    for name in ["of-data", "of-node"] {
        here.assert_exists(&format!("configmap/{name}"));
    }
}

#[test]
fn h72_an_editor_keeps_no_cluster_scoped_object() {
    let [here, there] = ["h72", "h72-other"].map(|name| Team::new(&world().plane, name));
    let (plane, api) = (here.plane, here.plane.api());
    let volume = format!("{}-volume", here.ns);
    plane.apply(&manifest::volume(&volume)).unwrap();
    for (name, kind, owner) in
        [("of-namespace", "Namespace", &there.ns), ("of-volume", "PersistentVolume", &volume)]
    {
        let owner = here.owner(kind, owner);
        here.apply(&config_map(name).with_protect_label("Always").with_owner(owner));
    }
    // A refusal of its own Namespace shows that belay has seen them.
    eventually("a refusal", SOON, || {
        api.delete(&[&format!("namespace/{}", here.ns), "--dry-run=server"], "")?.failure()
    })
    .unwrap();
    for object in [format!("namespace/{}", there.ns), format!("persistentvolume/{volume}")] {
        for cascade in ["--cascade=background", "--cascade=foreground"] {
            let output = api.delete(&[&object, cascade, "--dry-run=server"], "").unwrap();
            assert_eq!(output.stderr, "", "{object} {cascade}");
        }
    }
    plane.delete(&[&format!("persistentvolume/{volume}")], "");
    here.collector_asks("/of-volume");
    here.assert_exists("configmap/of-volume");
}

#[test]
fn h39_an_owner_of_a_protected_object_gets_no_terminating_owner() {
    for field in ["exemptSubjects", "subjects"] {
        let jane = Team::new(&world().plane, "h39");
        let whom = match field {
            "subjects" => json!({"kind": "User", "name": jane.name}),
            _ => json!({"kind": "Group", "name": "system:serviceaccounts:kube-system"}),
        };
        apply_policy(&jane, "precious", json!({"always": {}}), json!({field: [whom]}));
        jane.apply(&secret("app"));
        jane.apply(&config_map("precious").with_owner(jane.owner("Secret", "app")));
        jane.apply(&config_map("top").with_finalizers(&["example.com/slow"]));
        jane.refused(&["secret/app"]);
        jane.deleted(&["configmap/top"]);
        is_not_owned(&jane, "secret/app", "top");
        jane.assert_exists("configmap/precious");
    }
}

#[test]
fn h39_an_exempt_subject_deletes_nothing_below_an_object_that_an_editor_attached() {
    let team = Team::new(&world().plane, "h39-bot");
    let bot = json!({"kind": "User", "name": format!("bot-{}", team.ns)});
    let exempt = json!({"exemptSubjects": [bot]});
    apply_policy(&team, "precious", json!({"always": {}}), exempt);
    team.apply(&secret("app"));
    team.apply(&config_map("precious").with_owner(team.owner("Secret", "app")));
    team.apply(&config_map("pruned"));
    team.refused(&["secret/app"]);
    is_not_owned(&team, "secret/app", "pruned");
    team.assert_exists("configmap/precious");
    // An object with nothing protected below it gets any owner.
    team.apply(&secret("other"));
    let owners = json!({"metadata": {"ownerReferences": [team.owner("ConfigMap", "pruned")]}});
    patch(&team, "secret/other", &owners, &[]).success().unwrap();
}

#[test]
fn h44_references_to_an_owner_that_is_terminating_are_not_removed() {
    let team = team("h44", "child", json!({"fromOrphaning": {}}));
    team.apply(&config_map("real").with_finalizers(&["example.com/slow"]));
    team.apply(&config_map("child").with_owner(team.owner("ConfigMap", "real")));
    team.deleted(&["configmap/real"]);
    let none = json!({"metadata": {"ownerReferences": null}});
    let refused = patch(&team, "configmap/child", &none, &[]).failure().unwrap();
    assert!(refused.contains("would lose its owner ConfigMap"), "{refused}");
    // The child is deleted with its owner.
    team.finish("configmap/real");
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h58_references_to_a_deleted_owner_are_not_removed() {
    let team = team("h58", "child", json!({"fromOrphaning": {}}));
    for name in ["real", "mine"] {
        team.apply(&config_map(name));
    }
    team.apply(&config_map("child").with_owner(team.owner("ConfigMap", "real")));
    // The collector deletes the child later.
    let binding = team.keep_collector_from("configmap/child");
    team.deleted(&["configmap/real"]);
    team.wait_until_deleted("configmap/real");
    for owners in [Value::Null, json!([team.owner("ConfigMap", "mine")])] {
        let owners = json!({"metadata": {"ownerReferences": owners}});
        let refused = patch(&team, "configmap/child", &owners, &[]).failure().unwrap();
        assert!(refused.contains("would lose its owner ConfigMap"), "{refused}");
    }
    team.remove_binding(&binding);
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h121_an_added_reference_with_the_uid_of_an_owner_removes_no_owner() {
    let team = team("h121", "child", json!({"fromOrphaning": {}}));
    for name in ["real", "mine"] {
        team.apply(&config_map(name));
    }
    let [real, mine] = ["real", "mine"].map(|name| team.owner("ConfigMap", name));
    team.apply(&config_map("child").with_owner(real.clone()));
    // The garbage collector removes references by uid: this one, and that of the owner.
    let nothing = real.clone().with(json!({"name": "nothing"}));
    let none = json!({"metadata": {"ownerReferences": null}});
    eventually("a denial", SOON, || {
        patch(&team, "configmap/child", &none, &["--dry-run=server"]).failure()
    })
    .unwrap();
    let owners = json!({"metadata": {"ownerReferences": [real, mine, nothing]}});
    let refused = patch(&team, "configmap/child", &owners, &[]).failure().unwrap();
    assert!(
        refused.contains("the request adds a second owner reference with the same uid"),
        "{refused}"
    );
    // An own owner alone takes nothing away.
    let owners = json!({"metadata": {"ownerReferences": [real, mine]}});
    patch(&team, "configmap/child", &owners, &[]).success().unwrap();
}

/// A policy, and a ConfigMap in use whose owners are the real one and one of jane's.
/// carol has approved the deletion of the latter with its content.
fn owned_twice(name: &str, protect: Value) -> Team<'static> {
    let team = team(name, "child", protect);
    for name in ["real", "mine"] {
        team.apply(&config_map(name));
    }
    let [real, mine] = ["real", "mine"].map(|name| team.owner("ConfigMap", name));
    team.apply(&config_map("child").with_owner(real.clone()));
    team.apply(&reader("user", "configMapRef", "child"));
    let owners = json!({"metadata": {"ownerReferences": [real, mine]}});
    patch(&team, "configmap/child", &owners, &[]).success().unwrap();
    team
}

/// Deletes the real owner, and the garbage collector removes the reference to it.
fn lose_real_owner(team: &Team<'_>) {
    team.deleted(&["configmap/real"]);
    team.wait_until_deleted("configmap/real");
    let names = ".metadata.ownerReferences[*].name";
    let child = ("configmap/child", &*team.ns);
    team.plane.api().wait_field(child, SOON, names, |now| now == "mine").unwrap();
}

#[test]
fn h178_an_added_owner_does_not_replace_one_that_the_collector_orphans() {
    let team = owned_twice("h178", json!({"fromOrphaning": {}}));
    let owners = json!({"metadata": {"ownerReferences": [team.owner("ConfigMap", "mine")]}});
    let collector = "--as=system:serviceaccount:kube-system:generic-garbage-collector";
    let orphan = ["patch", "configmap/child", "-n", &team.ns, "--type=merge", "-p"];
    let as_collector = [&owners.to_string(), collector, "--as-group=system:masters"];
    let refused = team.plane.kubectl(&[&orphan[..], &as_collector].concat()).unwrap();
    let refused = refused.failure().unwrap();
    assert!(refused.contains("would lose its owner ConfigMap"), "{refused}");
    // A deletion in the background orphans nothing.
    lose_real_owner(&team);
}

#[test]
fn h80_an_approval_of_one_owner_does_not_cover_what_another_one_keeps() {
    let team = owned_twice("h80", json!({"whileUsed": {}}));
    team.approve(Approver::Carol, team.of("configmaps", "mine"), "Content");
    lose_real_owner(&team);
    for object in ["child", "mine"] {
        let refused = team.refused(&[&format!("configmap/{object}")]);
        assert!(refused.contains("was given before an owner reference changed"), "{refused}");
    }
    // Now the approver sees it.
    team.approve(Approver::Carol, team.of("configmaps", "mine"), "Content");
    eventually("the approval in force", SOON, || team.delete(&["configmap/mine"]).success())
        .unwrap();
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h83_an_approval_of_one_owner_does_not_release_what_another_one_kept() {
    let team = owned_twice("h83", json!({"whileUsed": {"onDelete": "Hold"}}));
    team.deleted(&["configmap/child"]);
    team.was_kept("configmap/child");
    team.approve(Approver::Carol, team.of("configmaps", "mine"), "Content");
    // The garbage collector changes no object that is Terminating.
    team.deleted(&["configmap/real"]);
    team.wait_until_deleted("configmap/real");
    team.deleted(&["configmap/mine"]);
    team.wait_until_deleted("configmap/mine");
    team.is_kept_again("configmap/child");
    team.deleted(&["pod/user"]);
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h87_approvals_of_different_owners_are_not_added_up() {
    let team = Team::new(&world().plane, "h87");
    apply_policy(&team, "child", json!({"always": {}}), json!({"approval": {"required": 2}}));
    let owners = ["real", "mine"].map(|name| {
        team.apply(&config_map(name));
        team.owner("ConfigMap", name)
    });
    team.apply(&config_map("child").with(json!({"metadata": {"ownerReferences": owners}})));
    team.refused(&["configmap/child"]);
    team.approve(Approver::Dave, team.of("configmaps", "real"), "Content");
    team.approve(Approver::Carol, team.of("configmaps", "mine"), "Content");
    team.approvals_are_known();
    team.refused(&["configmap/child"]);
    // Now each owner has enough.
    team.approve(Approver::Carol, team.of("configmaps", "real"), "Content");
    team.approve(Approver::Dave, team.of("configmaps", "mine"), "Content");
    eventually("the approvals in force", SOON, || team.delete(&["configmap/child"]).success())
        .unwrap();
}

#[test]
fn h81_under_deny_nothing_in_use_becomes_terminating_with_its_owner() {
    let team = team("h81", "child", json!({"whileUsed": {}}));
    team.apply(&config_map("parent").with_finalizers(&["example.com/last"]));
    team.apply(&config_map("child").with_owner(team.owner("ConfigMap", "parent")));
    team.deleted(&["configmap/parent"]);
    // Nothing has used the child until now.
    team.apply(&reader("user", "configMapRef", "child"));
    team.refused(&["configmap/child"]);
    team.finish("configmap/parent");
    team.collector_asks("/child");
    team.assert_exists("configmap/child");
    team.deleted(&["pod/user"]);
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h59_the_finalizer_orphan_is_not_removed_to_delete_the_dependents() {
    let team = team("h59", "child", json!({"whileUsed": {}}));
    let editor = Person::editor(team.plane, &team.ns);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]});
    let spec = json!({"replicas": 0, "selector": {"a": "b"}, "template": template});
    let (kind, owner) = ("ReplicationController", "replicationcontroller/owner");
    team.apply(&object("v1", kind, "owner").with(json!({"spec": spec})));
    team.apply(&config_map("child").with_owner(team.owner(kind, "owner")));
    team.apply(&reader("user", "configMapRef", "child"));
    team.refused(&[owner]);
    // The collector orphans the child later.
    let binding = team.keep_collector_from("configmap/child");
    team.delete(&[owner, "--cascade=orphan"]).success().unwrap();
    let patch = ["patch", owner, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
    for way in [&[][..], &["--subresource=status"]] {
        let refused = editor.kubectl(&[&patch, way].concat()).failure().unwrap();
        assert!(refused.contains("is in use by Pod"), "{way:?}: {refused}");
    }
    team.remove_binding(&binding);
    team.wait_until_deleted(owner);
    team.assert_exists("configmap/child");
    assert_eq!(team.field("configmap/child", ".metadata.ownerReferences"), "");
}

#[test]
fn h46_an_eviction_orphans_no_protected_object() {
    let team = team("h46", "child", json!({"fromOrphaning": {}}));
    team.apply(&reader("real", "configMapRef", "x"));
    team.apply(&config_map("child").with_owner(team.owner("Pod", "real")));
    let evict = |options: Value| {
        let path = format!("/api/v1/namespaces/{}/pods/real/eviction", team.ns);
        let metadata = json!({"name": "real", "namespace": team.ns});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
            "deleteOptions": options});
        team.send(&["create", "--raw", &path, "-f", "-"], &eviction)
    };
    eventually("a refusal", SOON, || {
        evict(json!({"propagationPolicy": "Orphan", "dryRun": ["All"]})).failure()
    })
    .unwrap();
    for orphan in [json!({"propagationPolicy": "Orphan"}), json!({"orphanDependents": true})] {
        let refused = evict(orphan).failure().unwrap();
        assert!(refused.contains("would lose its owner Pod"), "{refused}");
    }
    team.assert_exists("pod/real");
    evict(json!({})).success().unwrap();
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h47_the_labels_by_which_an_object_is_used_are_not_changed_while_it_is_in_use() {
    let team = team("h47", "used", json!({"whileUsed": {}}));
    let spec = json!({"from": {"group": "policy", "resource": "poddisruptionbudgets"},
        "to": {"resource": "configmaps"}, "selectorFieldPath": "spec.selector"});
    team.plane.apply(&relation(&team.ns, spec)).unwrap();
    team.apply(&config_map("used").with_labels(json!({"app": "x"})));
    team.apply(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: user}\nspec: \
         {minAvailable: 1, selector: {matchLabels: {app: x}}}\n",
    );
    team.refused(&["configmap/used"]);
    let other = json!({"metadata": {"labels": {"app": "y"}}});
    let refused = patch(&team, "configmap/used", &other, &[]).failure().unwrap();
    assert!(refused.contains("weakens its protection"), "{refused}");
    let more = json!({"metadata": {"labels": {"more": "y"}}});
    patch(&team, "configmap/used", &more, &[]).success().unwrap();
    team.plane.delete(&["relation", &team.ns], "");
}

#[test]
fn h194_an_owner_whose_name_is_a_path_does_not_end_a_use() {
    let team = Team::new(&world().plane, "h194");
    apply_policy(&team, "used", json!({"whileUsed": {}}), json!({"hold": "Never"}));
    team.apply(&secret("keep"));
    let gone = manifest::owner("Secret", "gone", "00000000-0000-4000-8000-000000000000");
    // The request of the garbage collector would be longer than the API server reads.
    let long = "ü".repeat(350_000);
    for (number, name) in ["keep/", "../secrets/keep", ".", &long].into_iter().enumerate() {
        team.apply(&config_map("used"));
        let [user, kept, marker] =
            ["user", "kept", "marker"].map(|name| format!("{name}-{number}"));
        let owner = team.owner("Secret", "keep").with(json!({"name": name}));
        // The garbage collector reads the Secret by such a name, or its request fails.
        team.apply(&pod(&kept).with_owner(owner.clone()));
        team.apply(&config_map(&marker).with_owner(gone.clone()));
        team.wait_until_deleted(&format!("configmap/{marker}"));
        team.assert_exists(&format!("pod/{kept}"));

        let owners = json!([team.owner("ConfigMap", "used"), owner]);
        let owners = json!({"metadata": {"ownerReferences": owners}});
        let user = format!("pod/{user}");
        team.apply(&pod(&user["pod/".len()..]).with_env_from("configMapRef", "used").with(owners));
        team.refused(&["configmap/used"]);
        team.assert_exists("configmap/used");
        team.plane.delete(&[&user, "--grace-period=0", "--force"], &team.ns);
        team.wait_until_deleted(&user);
    }
}

#[test]
fn h195_a_labelled_object_with_many_owners_does_not_stop_an_orphaning_deletion() {
    let [here, there] = ["h195", "h195-other"].map(|name| Team::new(&world().plane, name));
    there.apply(&config_map("owner"));
    let absent = (0..1_001).map(|number| {
        manifest::owner("Secret", "absent", &format!("00000000-0000-4000-8000-{number:012}"))
    });
    let owners: Vec<Value> =
        [there.owner("ConfigMap", "owner")].into_iter().chain(absent).collect();
    let owners = json!({"metadata": {"ownerReferences": owners}});
    here.apply(&secret("dependent").with_protect_label("Always").with(owners));
    here.refused(&["secret/dependent"]);
    there.deleted(&["configmap/owner", "--cascade=orphan"]);
    there.wait_until_deleted("configmap/owner");
    here.assert_exists("secret/dependent");
}
