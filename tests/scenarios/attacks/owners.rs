//! Ways to delete or orphan an object by changing what is around it.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::kubectl::Output;
use crate::people::Person;
use crate::team::{SOON, Team, owned_by, pod};
use crate::{policy, world};

/// A namespace with a policy about the ConfigMaps of this name; `rest` is YAML.
fn team(prefix: &str, name: &str, rest: &str) -> Team<'static> {
    let team = Team::new(&world().plane, prefix);
    protect(&team, name, rest);
    team
}

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
/// refuses that.
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
fn h69_an_editor_keeps_no_object_of_another_namespace_and_no_node() {
    let [here, there] = ["h69", "h69-other"].map(|name| Team::new(&world().plane, name));
    there.apply(&object("ConfigMap", "data", ""));
    here.apply(&object("ConfigMap", "own", ""));
    let api = here.plane.api();
    let always = "labels: {belay.dev/protect: Always}";
    for (name, kind, owner, place) in [
        ("of-data", "ConfigMap", "data", &there.ns),
        // A token of a Pod has the uid of its Node.
        ("of-node", "Node", "node-0", &there.ns),
        ("of-own", "ConfigMap", "own", &here.ns),
    ] {
        let uid = api.field(&format!("{kind}/{owner}"), place, ".metadata.uid").unwrap();
        let owned = owned_by(kind, owner, &uid);
        here.apply(&object("ConfigMap", name, &format!("{always}, {owned}")));
    }
    // belay knows of them, and is asked about Nodes.
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
    there.goes("configmap/data");
    let dry_run = ["node/node-0", "--dry-run=server"];
    assert_eq!(api.delete(&dry_run, "").unwrap().stderr, "");
    for name in ["of-data", "of-node"] {
        here.stands(&format!("configmap/{name}"));
    }
}

#[test]
fn h72_an_editor_keeps_no_cluster_scoped_object() {
    let [here, there] = ["h72", "h72-other"].map(|name| Team::new(&world().plane, name));
    let (plane, api) = (here.plane, here.plane.api());
    let volume = format!("{}-volume", here.ns);
    let spec = "capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /none}";
    plane
        .apply(&format!(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {volume}}}\nspec: {{{spec}}}\n"
        ))
        .unwrap();
    let always = "labels: {belay.dev/protect: Always}";
    let attach = |name: &str, (kind, owner): (&str, &str)| {
        let uid = api.field(&format!("{kind}/{owner}"), "", ".metadata.uid").unwrap();
        let owned = owned_by(kind, owner, &uid);
        here.apply(&object("ConfigMap", name, &format!("{always}, {owned}")));
    };
    attach("of-namespace", ("Namespace", &there.ns));
    attach("of-volume", ("PersistentVolume", &volume));
    // Its own Namespace says when belay knows of them.
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
    here.stands("configmap/of-volume");
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

#[test]
fn h44_references_to_an_owner_that_is_terminating_are_not_removed() {
    let team = team("h44", "child", "  protect: {fromOrphaning: {}}\n");
    team.apply(&object("ConfigMap", "real", "finalizers: [example.com/slow]"));
    team.apply(&below(&team, "ConfigMap", "child", ("ConfigMap", "real")));
    team.deleted(&["configmap/real"]);
    let none = json!({"metadata": {"ownerReferences": null}});
    let refused = patch(&team, "configmap/child", &none, &[]).failure().unwrap();
    assert!(refused.contains("would lose its owner ConfigMap"), "{refused}");
    // The child is deleted with its owner.
    let none = json!({"metadata": {"finalizers": null}});
    patch(&team, "configmap/real", &none, &[]).success().unwrap();
    team.goes("configmap/child");
}

#[test]
fn h58_references_to_an_owner_that_is_gone_are_not_removed() {
    let team = team("h58", "child", "  protect: {fromOrphaning: {}}\n");
    for name in ["real", "mine"] {
        team.apply(&object("ConfigMap", name, ""));
    }
    team.apply(&below(&team, "ConfigMap", "child", ("ConfigMap", "real")));
    // The collector deletes the child later.
    let binding = team.keep_collector_from("configmap/child");
    team.deleted(&["configmap/real"]);
    team.goes("configmap/real");
    let uid = team.field("configmap/mine", ".metadata.uid");
    let mine = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": uid}]);
    for owners in [Value::Null, mine] {
        let owners = json!({"metadata": {"ownerReferences": owners}});
        let refused = patch(&team, "configmap/child", &owners, &[]).failure().unwrap();
        assert!(refused.contains("would lose its owner ConfigMap"), "{refused}");
    }
    team.remove_binding(&binding);
    team.goes("configmap/child");
}

#[test]
fn h59_the_finalizer_orphan_is_not_removed_to_delete_the_dependents() {
    let team = team("h59", "child", "  protect: {whileUsed: {}}\n");
    let editor = Person::editor(team.plane, &team.ns);
    let template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: x}]}}";
    let spec = format!("spec: {{replicas: 0, selector: {{a: b}}, template: {template}}}\n");
    let (kind, owner) = ("ReplicationController", "replicationcontroller/owner");
    team.apply(&(object(kind, "owner", "") + &spec));
    team.apply(&below(&team, "ConfigMap", "child", (kind, "owner")));
    team.apply(&pod("user", "configMapRef", "child"));
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
    team.goes(owner);
    team.stands("configmap/child");
    assert_eq!(team.field("configmap/child", ".metadata.ownerReferences"), "");
}

#[test]
fn h46_an_eviction_orphans_no_protected_object() {
    let team = team("h46", "child", "  protect: {fromOrphaning: {}}\n");
    team.apply(&pod("real", "configMapRef", "x"));
    team.apply(&below(&team, "ConfigMap", "child", ("Pod", "real")));
    let evict = |options: Value| {
        let path = format!("/api/v1/namespaces/{}/pods/real/eviction", team.ns);
        let metadata = json!({"name": "real", "namespace": team.ns});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
            "deleteOptions": options});
        team.send(&["create", "--raw", &path, "-f", "-"], &eviction.to_string())
    };
    eventually("a refusal", SOON, || {
        evict(json!({"propagationPolicy": "Orphan", "dryRun": ["All"]})).failure()
    })
    .unwrap();
    for orphan in [json!({"propagationPolicy": "Orphan"}), json!({"orphanDependents": true})] {
        let refused = evict(orphan).failure().unwrap();
        assert!(refused.contains("would lose its owner Pod"), "{refused}");
    }
    team.stands("pod/real");
    evict(json!({})).success().unwrap();
    team.goes("configmap/child");
}

#[test]
fn h47_the_labels_by_which_an_object_is_used_are_not_changed_while_it_is_in_use() {
    let team = team("h47", "used", "  protect: {whileUsed: {}}\n");
    let relation = |name: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1\nkind: Relation\nmetadata: {{name: {name}}}\nspec: \
             {{from: {{group: policy, resource: poddisruptionbudgets}}, to: {{resource: \
             configmaps}}, selectorFieldPath: spec.selector}}\n"
        )
    };
    team.plane.apply(&relation(&team.ns)).unwrap();
    team.apply(&object("ConfigMap", "used", "labels: {app: x}"));
    team.apply(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: user}\nspec: \
         {minAvailable: 1, selector: {matchLabels: {app: x}}}\n",
    );
    team.refused(&["configmap/used"]);
    let other = json!({"metadata": {"labels": {"app": "y"}}});
    let refused = patch(&team, "configmap/used", &other, &[]).failure().unwrap();
    assert!(refused.contains("would be protected less"), "{refused}");
    let more = json!({"metadata": {"labels": {"more": "y"}}});
    patch(&team, "configmap/used", &more, &[]).success().unwrap();
    team.plane.delete(&["relation", &team.ns], "");
}
