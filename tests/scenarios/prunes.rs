//! Tools: prunes, forced replacement, drains, controllers that clean up, and tools that
//! move objects.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::crd::crd;
use crate::harness::eventually;
use crate::harness::manifest::{
    Manifest as _, config_map, documents, object, reader, secret, workload,
};
use crate::harness::rbac::rule;
use crate::team::{Approver, SOON, Team};
use crate::{policy, world};

/// A Deployment that reads a ConfigMap, and rolls out so slowly that old and new Pods exist
/// together for seconds.
fn reading(map: &str) -> Value {
    let strategy = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    let spec = json!({"replicas": 2, "minReadySeconds": 3, "strategy": strategy});
    let deployment = workload("Deployment", "web", &reader("web", "configMapRef", map));
    deployment.with(json!({"spec": spec}))
}

/// Applies a ConfigMap and the Deployment that reads it, in one manifest.
fn apply_reading(team: &Team<'_>, map: &str) {
    team.kubectl_apply(&documents(&[config_map(map), reading(map)]));
}

/// A Deployment that has rolled out, under a policy that holds.
fn rolled_out(prefix: &str) -> Team<'static> {
    let team = Team::new(&world().plane, prefix);
    policy::protect(team.plane, &team.ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    apply_reading(&team, "app-aaaa");
    rollout(&team);
    team
}

fn rollout(team: &Team<'_>) {
    team.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]).success().unwrap();
}

#[test]
fn s36_a_prune_before_the_apply_waits_for_the_rollout() {
    let team = rolled_out("s36");
    let warning = team.deleted(&["configmap/app-aaaa"]);
    let words = format!(
        "Warning: configmap \"app-aaaa\" stays Terminating until Deployment {}/web no longer uses \
        it; ",
        team.ns
    );
    assert!(warning.contains(&words), "{warning}");
    team.was_kept("configmap/app-aaaa");
    apply_reading(&team, "app-bbbb");
    rollout(&team);
    team.wait_until_deleted("configmap/app-aaaa");
    team.assert_exists("configmap/app-bbbb");
    // The old ReplicaSet, which a rollback would use, still exists, and keeps nothing.
    assert_eq!(team.plane.api().list("rs", &team.ns, "").unwrap().len(), 2);
}

#[test]
fn s37_a_prune_after_the_apply_waits_for_the_old_pods() {
    let team = rolled_out("s37");
    apply_reading(&team, "app-bbbb");
    let warning = team.deleted(&["configmap/app-aaaa"]);
    assert!(warning.contains("stays Terminating until "), "{warning}");
    team.was_kept("configmap/app-aaaa");
    rollout(&team);
    team.wait_until_deleted("configmap/app-aaaa");
    team.assert_exists("configmap/app-bbbb");
}

#[test]
fn s20_forced_replacement_and_prunes_are_denied_clearly_and_can_be_retried() {
    let team = Team::new(&world().plane, "s20");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "configmaps", json!({"whileUsed": {}}));
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, labels: {app: s20}}\n";
    let other =
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, labels: {app: s20}}\n";
    team.kubectl_apply(&format!("{manifest}{other}"));
    team.kubectl_apply(&reader("reader", "configMapRef", "settings"));
    let uid = team.field("configmap/settings", ".metadata.uid");
    let says_no = |refused: &str| {
        let words = format!(
            "configmap \"settings\" is in use by Pod {ns}/reader \
             (spec.containers[0].envFrom[0].configMapRef.name); policy {ns}. To delete it, first \
             delete Pod {ns}/reader. To override: kubectl belay approve configmaps/settings -n {ns} \
             --reason \"…\". "
        );
        assert!(refused.contains(&words), "{refused}");
        assert_eq!(team.field("configmap/settings", ".metadata.uid"), uid);
        team.assert_exists("configmap/settings");
    };

    let replace = ["replace", "--force", "-f", "-"];
    eventually("belay knows of the Pod", SOON, || {
        team.delete(&["configmap/settings", "--dry-run=server"]).failure()
    })
    .unwrap();
    says_no(&team.send(&replace, manifest).failure().unwrap());
    let prune =
        ["apply", "--prune", "-l", "app=s20", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    says_no(&team.send(&prune, other.trim_start_matches("---\n")).failure().unwrap());

    // Without the user both pass unchanged.
    team.deleted(&["pod/reader"]);
    team.wait_until_deleted("pod/reader");
    eventually("replace --force", SOON, || team.send(&replace, manifest).success()).unwrap();
    assert_ne!(team.field("configmap/settings", ".metadata.uid"), uid);
    // A prune deletes only applied objects.
    team.kubectl_apply(manifest);
    eventually("apply --prune", SOON, || {
        team.send(&prune, other.trim_start_matches("---\n")).success()
    })
    .unwrap();
    team.wait_until_deleted("configmap/settings");
    team.assert_exists("configmap/other");
}

#[test]
fn s20_helm_upgrades_by_force_keep_the_hold_and_what_they_prune_is_denied() {
    let team = Team::new(&world().plane, "s20-helm");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "configmaps", json!({"whileUsed": {}}));
    let template = "{{ if .Values.settings }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \
                    settings}\ndata: {color: {{ .Values.color }}}\n{{ end }}\n";
    let chart = chart(&team, &[("settings", template)]);
    let upgrade = |more: &[&str]| {
        team.helm(
            &[&["upgrade", "--install", "app", &chart, "--set", "color=red"][..], more].concat(),
        )
    };
    upgrade(&["--set", "settings=true"]).success().unwrap();
    team.kubectl_apply(&reader("reader", "configMapRef", "settings"));
    let held = || team.field("configmap/settings", ".metadata.finalizers");
    assert_eq!(held(), r#"["belay.dev/hold"]"#);

    let force = ["--force-replace", "--server-side=false", "--set", "settings=true,color=blue"];
    upgrade(&force).success().unwrap();
    assert_eq!(team.field("configmap/settings", ".data.color"), "blue");
    assert_eq!(held(), r#"["belay.dev/hold"]"#);

    // A revision without the ConfigMap deletes it.
    let refused =
        eventually("a refusal", SOON, || upgrade(&["--set", "settings="]).failure()).unwrap();
    assert!(
        refused.contains(&format!("configmap \"settings\" is in use by Pod {ns}/reader")),
        "{refused}"
    );
    team.assert_exists("configmap/settings");
    team.deleted(&["pod/reader"]);
    team.wait_until_deleted("pod/reader");
    eventually("a retry", SOON, || upgrade(&["--set", "settings="]).success()).unwrap();
    team.wait_until_deleted("configmap/settings");
}

/// A chart of these templates. Returns its folder.
fn chart(team: &Team<'_>, templates: &[(&str, &str)]) -> String {
    let chart = team.plane.folder().join(format!("chart-{}", team.ns));
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: app\nversion: 0.1.0\n")
        .unwrap();
    for (name, template) in templates {
        std::fs::write(chart.join(format!("templates/{name}.yaml")), template).unwrap();
    }
    chart.display().to_string()
}

/// Helm deletes the CRD before its resources, in the same run. So the first run deletes the
/// resources, and the second one the CRD.
#[test]
fn s40_helm_uninstalls_a_crd_with_its_resources_in_two_runs() {
    let team = Team::new(&world().plane, "s40");
    let crds = rule("apiextensions.k8s.io", "customresourcedefinitions", "*");
    team.may(&[crds, rule("s40.example.com", "*", "*")]);
    let name = "gadgets.s40.example.com";
    let target = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "names": [name]});
    let protect = json!({"whileNotEmpty": {"counting": "Any"}});
    policy::apply(team.plane, &team.ns, json!({"targets": [target], "protect": protect}));
    let crd = crd("s40.example.com", "Gadget", "gadgets", &["v1"], "v1").to_string();
    let gadget = "{{ if .Values.gadget }}\napiVersion: s40.example.com/v1\nkind: Gadget\n\
                  metadata: {name: one}\n{{ end }}\n";
    let chart = chart(&team, &[("crd", &crd), ("gadget", gadget)]);
    let install = ["upgrade", "--install", "app", &chart];
    team.helm(&install).success().unwrap();
    let with_gadget = [&install[..], &["--set", "gadget=true"]].concat();
    eventually("a served kind", SOON, || team.helm(&with_gadget).success()).unwrap();

    let refused = team.helm(&["uninstall", "app"]).failure().unwrap();
    assert!(refused.contains("failed to delete release: app"), "{refused}");
    team.wait_until_deleted(&format!("{name}/one"));
    let crd = format!("crd/{name}");
    assert!(team.plane.api().get(&crd, "").unwrap().is_some());
    eventually("a second run", SOON, || team.helm(&["uninstall", "app"]).success()).unwrap();
    team.plane.api().wait_gone((&crd, ""), SOON).unwrap();
}

#[test]
fn s21_a_drain_continues_and_controllers_remove_their_finalizers() {
    let team = Team::new(&world().plane, "s21");
    let ns = &team.ns;
    // A node only for this test, because a drain also cordons it.
    let taint = json!({"key": "only", "value": ns, "effect": "NoSchedule"});
    let node = object("v1", "Node", ns).with(json!({"spec": {"taints": [taint]}}));
    team.plane.apply(&node).unwrap();
    team.may(&[rule("", "nodes", "get, list, patch"), rule("", "pods", "get, list")]);
    let selected = json!({"objectSelector": {"matchLabels": {"pinned": "yes-it-is"}}});
    let target = policy::target("", "pods", ns).with(selected);
    let always = json!({"targets": [target], "protect": {"always": {}}});
    policy::apply(team.plane, &format!("{ns}-pinned"), always);
    let modes = json!({"whileUsed": {"onDelete": "Hold"}, "fromStripping": {}});
    policy::protect(team.plane, ns, "pods, secrets", modes);

    team.kubectl_apply(&secret("key"));
    for (name, labels) in
        [("free", json!({"team": "it"})), ("pinned", json!({"team": "it", "pinned": "yes-it-is"}))]
    {
        team.kubectl_apply(&reader(name, "secretRef", "key").with_labels(labels).with_node(ns));
    }
    let ready = ["wait", "pod/free", "pod/pinned", "--for=condition=Ready", "--timeout=60s"];
    team.kubectl(&ready).success().unwrap();
    team.deleted(&["secret/key"]);
    team.was_kept("secret/key");

    // The drain evicts the allowed Pods, retries the others, and ends after their approval.
    let drain = ["drain", ns, "--force", "--pod-selector=team=it", "--timeout=120s"];
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            eventually("the rights", SOON, || {
                let output = team.kubectl(&drain);
                if output.stderr.contains("(Forbidden)") || output.stderr.contains("is forbidden") {
                    return Err(output.stderr.into());
                }
                Ok(output)
            })
        });
        team.wait_until_deleted("pod/free");
        team.assert_exists("pod/pinned");
        team.is_held("secret/key");
        let refused =
            |line: &str| line.contains("pods/pinned/eviction") && line.contains("\"code\":429");
        eventually("an eviction that is refused", SOON, || {
            let log = team.plane.audit_log()?;
            if log.lines().any(|line| line.contains(ns.as_str()) && refused(line)) {
                Ok(())
            } else {
                Err("none".into())
            }
        })
        .unwrap();
        team.approve(Approver::Carol, team.of("pods", "pinned"), "Object");
        running.join().unwrap().unwrap()
    });
    assert!(output.stderr.contains("will retry after"), "{}", output.stderr);
    assert!(output.ok(), "{}", output.stderr);
    team.wait_until_deleted("pod/pinned");
    team.wait_until_deleted("secret/key");

    // The Job controller removes its finalizer from each Pod that has ended, and the Pod
    // garbage collector deletes Pods on nodes that don't exist.
    team.kubectl_apply(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec: {template: {spec: \
         {restartPolicy: Never, containers: [{name: main, image: x}]}}}\n",
    );
    team.kubectl_apply(&reader("lost", "secretRef", "absent").with_node(&format!("{ns}-gone")));
    let complete = ["wait", "job/once", "--for=condition=Complete", "--timeout=120s"];
    team.kubectl(&complete).success().unwrap();
    let left = team.plane.api().fields("pods", ns, "job-name=once", ".metadata.finalizers");
    assert_eq!(left.unwrap().concat(), "");
    team.plane.kubectl(&["delete", "node", ns]).unwrap().success().unwrap();
    team.wait_until_deleted_within("pod/lost", Duration::from_secs(240));
}

#[test]
fn s32_a_tool_that_moves_objects_works_under_an_approval_with_content() {
    let team = Team::new(&world().plane, "s32");
    let ns = &team.ns;
    let modes = json!({"always": {}, "fromStripping": {}});
    policy::protect(team.plane, ns, "configmaps, secrets", modes);
    team.kubectl_apply(&config_map("cluster").with_finalizers(&["example.com/cluster"]));
    let owner = team.owner("ConfigMap", "cluster");
    for name in ["machine-0", "machine-1"] {
        let machine = secret(name).with_finalizers(&["example.com/machine"]);
        team.kubectl_apply(&machine.with_owner(owner.clone()));
    }
    let objects = ["secret/machine-0", "secret/machine-1", "configmap/cluster"];
    // Such a tool removes the finalizers before it deletes, so that no controller begins to
    // clean up.
    let strip = json!({"metadata": {"finalizers": null}}).to_string();
    let strip = |object: &str| team.kubectl(&["patch", object, "--type=merge", "-p", &strip]);
    for object in objects {
        let refused = strip(object).failure().unwrap();
        assert!(refused.contains("To make this change anyway"), "{refused}");
        let refused = team.refused(&[object]);
        assert!(refused.contains(" is protected; policy "), "{refused}");
        team.assert_exists(object);
    }
    let (resource, name) = ("configmaps", "cluster");
    team.approve(Approver::Carol, team.of(resource, name), "Content");
    for object in objects {
        eventually("a strip that passes", SOON, || strip(object).success()).unwrap();
        let left = team.field(object, ".metadata.finalizers");
        assert!(!left.contains("example.com"), "{left}");
        eventually("a DELETE that passes", SOON, || team.delete(&[object]).success()).unwrap();
        team.wait_until_deleted(object);
    }
}
