//! `kubectl belay delete`: what it leaves, and in which order it deletes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::broken::plane as without_belay;
use crate::harness::audit::{audited, text};
use crate::harness::manifest::{
    Manifest as _, claim, config_map, documents, object, pod, secret, workload,
};
use crate::harness::random::Random;
use crate::harness::rbac::{self, rule};
use crate::harness::{ControlPlane, eventually};
use crate::lost_answer::{self, is_change};
use crate::{LIMIT, belay, json, kubectl, policy, spawn, world};

/// A Pod that uses Secret password, ConfigMap settings and claim data.
fn user(name: &str) -> Value {
    let from = json!([{"secretRef": {"name": "password"}}, {"configMapRef": {"name": "settings"}}]);
    let container = json!({"name": "c", "image": "none", "envFrom": from});
    let pod = pod(name).with_claim("data").without_grace_period();
    pod.with(json!({"spec": {"containers": [container]}}))
}

/// A Deployment with a Secret, a ConfigMap and a claim, and objects beside it.
pub fn shop(plane: &ControlPlane, ns: &str) {
    let all = [
        secret("password"),
        config_map("settings"),
        claim("data"),
        workload("Deployment", "web", &user("web")),
        config_map("other"),
    ];
    plane.apply_to(&["apply", "-n", ns, "-f", "-"], &documents(&all)).unwrap().success().unwrap();
    eventually("the Pod", LIMIT, || match plane.api().list("pods", ns, "")?.len() {
        1 => Ok(()),
        count => Err(format!("{count} Pods").into()),
    })
    .unwrap();
}

/// Custom resources and their controller.
fn operator(plane: &ControlPlane, ns: &str, group: &str) {
    plane.define_kind(group, "Gizmo", "gizmos").unwrap();
    let version = format!("{group}/v1");
    for name in ["one", "two"] {
        plane.apply(&object(&version, "Gizmo", name).with_namespace(ns)).unwrap();
    }
    let controller = workload("Deployment", "operator", &pod("operator").without_grace_period());
    plane.apply(&controller.with_namespace(ns)).unwrap();
}

/// The uids of the objects of a namespace that people care about, as `kind/name`.
pub fn left(plane: &ControlPlane, ns: &str) -> BTreeSet<String> {
    let kinds = ["deployments", "replicasets", "pods", "secrets", "configmaps", "pvc", "services"];
    let all = kinds.iter().flat_map(|kind| {
        let objects = plane.api().list(kind, ns, "").unwrap();
        let name = |object: &Value| format!("{kind}/{}", text(&object["metadata"]["name"]));
        objects.iter().map(name).collect::<Vec<_>>()
    });
    all.collect()
}

/// The DELETEs of controllers in a namespace that belay has refused. The command itself stops
/// after a refusal, and its dry runs don't count.
fn refused(plane: &ControlPlane, ns: &str) -> Vec<String> {
    let is_refused = |event: &Value| {
        event["verb"] == "delete"
            && event["responseStatus"]["code"] == 403
            && text(&event["user"]["username"]).starts_with("system:")
            && event["objectRef"]["namespace"] == ns
            && event["stage"] == "ResponseComplete"
    };
    let events = audited(plane).into_iter().filter(is_refused);
    events.map(|event| format!("{} {}", event["objectRef"], event["responseStatus"])).collect()
}

/// Writes a plan.
pub fn plan(plane: &ControlPlane, path: &Path, targets: &[&str]) -> Value {
    let path = path.display().to_string();
    let args = [&["impact"], targets, &["--out", &path]].concat();
    let output = belay(plane, &args);
    assert!(output.code <= 1, "{output:?}");
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

/// The wave of each object of a plan, by `typed`.
fn wave(plan: &Value, typed: &str) -> usize {
    let waves = plan["waves"].as_array().unwrap();
    let has = |wave: &Value| {
        wave["objects"].as_array().unwrap().iter().any(|one| one["object"]["typed"] == typed)
    };
    waves.iter().position(has).unwrap_or_else(|| panic!("{typed} is not in {plan:#}"))
}

#[test]
fn named_objects_are_deleted_after_their_users_and_the_rest_stays() {
    let plane = &world().plane;
    let ns = plane.namespace("delete-named").unwrap();
    let spec = json!({"targets": [policy::target("", "secrets, configmaps", &ns)],
        "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    shop(plane, &ns);
    let before = left(plane, &ns);
    let targets = ["secret/password", "pvc/data", "deploy/web", "cm/settings", "-n", &ns];
    let impact = belay(plane, &[&["impact"], &targets[..], &["-o", "json"]].concat());
    let told = json(&impact);
    let deleted =
        told["objects"].as_array().unwrap().iter().filter(|one| one["outcome"] == "Deleted");
    let deleted: BTreeSet<String> = deleted
        .map(|one| {
            let resource =
                text(&one["object"]["resource"]).replace("persistentvolumeclaims", "pvc");
            format!("{resource}/{}", text(&one["object"]["name"]))
        })
        .collect();
    assert!(deleted.contains("secrets/password") && deleted.len() >= 6, "{deleted:?}");

    let dry =
        belay(plane, &[&["delete"], &targets[..], &["--dry-run=server", "-o", "json"]].concat());
    assert_eq!((dry.code, &json(&dry)["result"]), (0, &"WouldDelete".into()), "{dry:?}");
    for (format, begin) in [("html", "<!DOCTYPE"), ("dot", "digraph"), ("mermaid", "flowchart")] {
        let args = [&["delete"], &targets[..], &["--dry-run=server", "-o", format]].concat();
        let picture = belay(plane, &args);
        let is_drawn = picture.stdout.starts_with(begin) && picture.stdout.contains("password");
        assert!(picture.code == 0 && is_drawn, "{picture:?}");
    }
    assert_eq!(left(plane, &ns), before);

    let done = belay(plane, &[&["delete"], &targets[..], &["--yes", "-o", "json"]].concat());
    assert_eq!((done.code, &json(&done)["result"]), (0, &"Deleted".into()), "{done:?}");
    assert_eq!(left(plane, &ns), &before - &deleted);
    assert_eq!(refused(plane, &ns), [""; 0]);
    assert!(done.stderr.contains("wave 1 of 2: deleting deployments.apps/web"), "{}", done.stderr);
}

#[test]
fn a_namespace_is_deleted_with_custom_resources_before_their_controller() {
    let plane = &world().plane;
    let ns = plane.namespace("delete-ns").unwrap();
    let spec = json!({"targets": [policy::target("", "secrets, configmaps", &ns)],
        "protect": {"whileUsed": {}}});
    policy::apply(plane, &ns, spec);
    shop(plane, &ns);
    // Other tests look for controllers of finalizers in the domain example.test.
    let group = "teardown.test";
    operator(plane, &ns, group);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let (namespace, crd) = (format!("ns/{ns}"), format!("crd/gizmos.{group}"));
    let planned = plan(plane, &path, &[&namespace, &crd]);
    let place = |typed: &str| wave(&planned, &format!("{typed} -n {ns}"));
    let gizmos = place(&format!("gizmos.{group}/one"));
    assert_eq!(gizmos, 0, "{planned:#}");
    assert!(gizmos < place("deployments.apps/operator"), "{planned:#}");
    assert!(place("deployments.apps/web") < place("persistentvolumeclaims/data"), "{planned:#}");
    assert!(place("deployments.apps/web") < place("secrets/password"), "{planned:#}");
    let last = wave(&planned, &format!("namespaces/{ns}"));
    assert!(place("deployments.apps/operator") < last, "{planned:#}");
    for wave in planned["waves"].as_array().unwrap() {
        for one in wave["objects"].as_array().unwrap() {
            assert!(
                one["object"]["uid"].is_string() && one["resourceVersion"].is_string(),
                "{one}"
            );
        }
    }
    let done = belay(plane, &["delete", "--plan", &path.display().to_string(), "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("objects were deleted"), "{done:?}");
    assert_eq!(plane.api().get(&namespace, "").unwrap(), None);
    assert_eq!(plane.api().get(&crd, "").unwrap(), None);
    assert_eq!(refused(plane, &ns), [""; 0]);
    // The same command again.
    let again = belay(plane, &["delete", "--plan", &path.display().to_string(), "--yes"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stdout.contains("nothing is left to delete"), "{again:?}");
}

#[test]
fn dependents_that_stay_do_not_stop_the_deletion() {
    let plane = without_belay();
    let ns = plane.namespace("delete-orphan").unwrap();
    shop(plane, &ns);
    let targets = ["deploy/web", "cm/settings", "-n", &ns, "--cascade", "orphan"];
    let told = json(&belay(plane, &[&["impact"], &targets[..], &["-o", "json"]].concat()));
    let mut all = told["objects"].as_array().unwrap().iter();
    let broken = all.find(|one| one["outcome"] == "Broken").unwrap();
    assert_eq!(broken["object"]["kind"], "ReplicaSet", "{told}");
    let mut expected = left(plane, &ns);
    expected.retain(|name| name != "deployments/web" && name != "configmaps/settings");
    let done = belay(plane, &[&["delete"], &targets[..], &["--yes", "-o", "json"]].concat());
    assert_eq!((done.code, &json(&done)["result"]), (0, &"Deleted".into()), "{done:?}");
    assert_eq!(left(plane, &ns), expected);
}

/// Two claims that use each other.
fn claims_in_a_cycle(plane: &ControlPlane, ns: &str) {
    for (name, other) in [("one", "two"), ("two", "one")] {
        let source = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": other}});
        plane.apply(&claim(name).with(json!({"spec": source})).with_namespace(ns)).unwrap();
    }
}

/// A new namespace with two claims that use each other. belay denies the DELETE of each.
fn protected_cycle(prefix: &str) -> String {
    let plane = &world().plane;
    let ns = plane.namespace(prefix).unwrap();
    let target = policy::target("", "persistentvolumeclaims", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    claims_in_a_cycle(plane, &ns);
    for name in ["one", "two"] {
        eventually("the denial", LIMIT, || {
            plane.api().delete(&["pvc", name, "--dry-run=server"], &ns)?.failure()
        })
        .unwrap();
    }
    ns
}

#[test]
fn objects_that_use_each_other_are_reported_and_deleted() {
    let plane = without_belay();
    let ns = plane.namespace("delete-cycle").unwrap();
    claims_in_a_cycle(plane, &ns);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let out = path.display().to_string();
    let impact = belay(plane, &["impact", "pvc/one", "pvc/two", "-n", &ns, "--out", &out]);
    assert!(
        impact.stdout.contains("use each other, and are deleted in this order: "),
        "{impact:?}"
    );
    let planned: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(planned["cycles"][0]["objects"].as_array().map(Vec::len), Some(2), "{planned:#}");
    assert_eq!(planned["waves"].as_array().map(Vec::len), Some(1), "{planned:#}");
    let done = belay(plane, &["delete", "--plan", &out, "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2 objects were deleted"), "{done:?}");
}

/// belay denies the first DELETE of a cycle, so the plan has its approval.
#[test]
fn of_objects_that_use_each_other_one_needs_an_approval() {
    let plane = &world().plane;
    let ns = protected_cycle("delete-cycle");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let planned = plan(plane, &path, &["pvc/one", "pvc/two", "-n", &ns]);
    let approvals = planned["approvals"].as_array().unwrap();
    let [approval] = approvals.as_slice() else { panic!("{planned:#}") };
    let command = text(&approval["command"]);
    assert!(command.contains("approve persistentvolumeclaims/one "), "{planned:#}");

    let out = path.display().to_string();
    let refused = belay(plane, &["delete", "--plan", &out, "--yes"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stdout.contains("   DENIED   "), "{refused:?}");
    assert!(refused.stdout.contains(&format!("{command}\n")), "{refused:?}");
    let approve = ["approve", "pvc/one", "-n", &ns, "--reason", "both go"];
    assert_eq!(belay(plane, &approve).code, 0);
    let done = belay(plane, &["delete", "--plan", &out, "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2 objects were deleted"), "{done:?}");
}

/// A replica may refuse a DELETE because it has not yet heard that the last user is deleted. Here a
/// Pod is that user; it exists only while the first DELETE of "two" is answered.
#[test]
fn a_refusal_after_a_deletion_is_asked_again() {
    let plane = &world().plane;
    let ns = protected_cycle("delete-refused-once");
    let dry_run = ["pvc", "two", "--dry-run=server"];
    let approve = ["approve", "pvc/one", "-n", &ns, "--reason", "both go"];
    assert_eq!(belay(plane, &approve).code, 0);

    let is_delete = |request: &[u8]| {
        let text = String::from_utf8_lossy(request);
        text.starts_with("DELETE ") && text.contains("claims/two") && is_change(request)
    };
    let (namespace, refusals) = (ns.clone(), Arc::new(AtomicUsize::new(0)));
    let use_it = move || {
        let pod = pod("late").with_claim("two").with_namespace(&namespace);
        plane.apply(&pod).unwrap();
        let refusal = || plane.api().delete(&dry_run, &namespace)?.failure();
        eventually("the new user", LIMIT, || {
            let said = refusal()?;
            if said.contains("Pod") { Ok(()) } else { Err(said.into()) }
        })
        .unwrap();
    };
    let (namespace, count) = (ns.clone(), refusals.clone());
    let end_use = move |code: &str| {
        if code == "403" && count.fetch_add(1, Ordering::SeqCst) == 0 {
            plane
                .api()
                .delete(&["pod", "late", "--grace-period=0", "--force"], &namespace)
                .unwrap();
            eventually("its end", LIMIT, || plane.api().delete(&dry_run, &namespace)?.success())
                .unwrap();
        }
    };
    let args = ["delete", "pvc/one", "pvc/two", "-n", &ns, "--yes"];
    let done = lost_answer::with_answers(plane, &args, is_delete, use_it, end_use);
    assert_eq!((done.code, refusals.load(Ordering::SeqCst)), (0, 1), "{done:?}");
    assert!(done.stdout.contains("2 objects were deleted"), "{done:?}");
}

/// A hold on the first waits for the deletion of the second.
#[test]
fn held_objects_that_use_each_other_need_no_approval() {
    let plane = &world().plane;
    let ns = plane.namespace("delete-cycle-held").unwrap();
    let target = policy::target("", "persistentvolumeclaims", &ns);
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": protect, "settleSeconds": 2}));
    claims_in_a_cycle(plane, &ns);
    let args = ["delete", "pvc/one", "pvc/two", "-n", &ns, "--yes"];
    let done = eventually("a deletion with effective holds", 3 * LIMIT, || {
        let done = belay(plane, &args);
        if done.stdout.contains("retry in") { Err(done.stdout.into()) } else { Ok(done) }
    });
    let done = done.unwrap();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2 objects were deleted"), "{done:?}");
}

#[test]
fn the_same_deletion_again_waits_for_terminating_users() {
    let plane = without_belay();
    let ns = plane.namespace("delete-again").unwrap();
    let web = workload("Deployment", "web", &user("web"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    std::fs::write(&file, documents(&[config_map("settings"), web])).unwrap();
    let file = file.display().to_string();
    kubectl(plane, &["apply", "-n", &ns, "-f", &file]);
    // Not a Pod: without a node, the Pod garbage collector soon marks it as failed.
    let kept = "replicasets.apps";
    let name = eventually("the ReplicaSet", LIMIT, || {
        Ok(plane.api().fields(kept, &ns, "", ".metadata.name")?.pop().ok_or("none")?)
    });
    let kept = format!("{kept}/{}", name.unwrap());
    plane.patch(&kept, &ns, &json!({"metadata": {"finalizers": ["again.test/kept"]}}));
    kubectl(plane, &["delete", "deployment", "web", "-n", &ns]);
    let is_terminating = |time: &str| !time.is_empty();
    plane
        .api()
        .wait_field((&kept, &ns), LIMIT, ".metadata.deletionTimestamp", is_terminating)
        .unwrap();

    let args = ["delete", "deploy/web", "cm/settings", "-n", &ns, "--yes"];
    let late = belay(plane, &[&args[..], &["--timeout", "3s"]].concat());
    assert!(
        late.code == 1 && late.stdout.contains("still exist: replicasets.apps/web-"),
        "{late:?}"
    );
    assert!(late.stdout.contains("nothing was deleted: "), "{late:?}");
    assert!(left(plane, &ns).contains("configmaps/settings"));
    plane.patch(&kept, &ns, &json!({"metadata": {"finalizers": null}}));
    let done = belay(plane, &args);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!left(plane, &ns).contains("configmaps/settings"));

    let named = belay(plane, &args);
    assert_eq!(named.code, 1, "{named:?}");
    assert!(named.stderr.contains("unless it was deleted before"), "{named:?}");
    let listed = belay(plane, &["delete", "-f", &file, "-n", &ns, "--yes"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.stdout.starts_with("nothing is left to delete: "), "{listed:?}");
    let selected = belay(plane, &["delete", "deploy", "-l", "a=b", "-n", &ns, "--dry-run=server"]);
    assert_eq!((selected.code, selected.stdout.as_str()), (0, "no objects match\n"));
}

#[test]
fn the_deletion_by_a_user_who_may_not_watch_waits_for_each_object() {
    let plane = without_belay();
    let ns = plane.namespace("delete-polled").unwrap();
    let source = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "data"}});
    let kept = json!({"metadata": {"finalizers": ["polled.test/kept"]}});
    for claim in [claim("data").with(kept), claim("copy").with(json!({"spec": source}))] {
        plane.apply(&claim.with_namespace(&ns)).unwrap();
    }
    let rights = [rule("*", "*", "get, list, delete")];
    plane.grant("polled", None, &rights, &[rbac::user("polled")]).unwrap();
    let args = ["delete", "pvc/data", "pvc/copy", "-n", &ns, "--as", "polled", "--yes"];
    let output = belay(plane, &[&args[..], &["--timeout", "5s"]].concat());
    let progress = &output.stderr;
    assert!(progress.contains("wave 2 of 2: deleting persistentvolumeclaims/data"), "{output:?}");
    assert!(!progress.contains("deleted persistentvolumeclaims/data"), "{output:?}");
    assert_eq!(output.code, 1, "{output:?}");
}

/// Runs a deletion, and kills it after some lines of progress. Returns whether it was killed. No
/// DELETE may be refused.
pub fn is_killed(plane: &ControlPlane, args: &[&str], lines: usize) -> bool {
    let mut child = spawn(plane.kubeconfig(), args);
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    for _ in 0..lines {
        if progress.next().is_none() {
            break;
        }
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(!report.contains("was refused"), "{args:?}: {report}");
    !output.status.success()
}

#[test]
fn an_interrupted_deletion_continues_without_belay() {
    let plane = without_belay();
    let ns = plane.namespace("delete-killed").unwrap();
    shop(plane, &ns);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let targets = ["deploy/web", "secret/password", "cm/settings", "pvc/data", "-n", &ns];
    let planned = plan(plane, &path, &targets);
    assert_eq!(planned["verdict"], "NoPolicies", "{planned:#}");
    let path = path.display().to_string();
    let args = ["delete", "--plan", &path, "--yes"];
    let mut kills = 0;
    while is_killed(plane, &args, kills) {
        kills += 1;
        assert!(kills < 30, "it never ends");
    }
    assert!(kills > 2, "{kills}");
    let remaining: Vec<String> = left(plane, &ns).into_iter().collect();
    assert_eq!(remaining, ["configmaps/kube-root-ca.crt", "configmaps/other"]);
}

/// Creates a random graph in a namespace. Returns the names of its objects.
fn random_graph(plane: &ControlPlane, ns: &str, random: &mut Random) -> Vec<String> {
    let mut names: Vec<(&str, String)> = Vec::new();
    for number in 0..4 + random.below(5) {
        let name = format!("o{number}");
        let (kind, made) = match random.below(3) {
            0 => ("configmap", config_map(&name)),
            1 => ("secret", secret(&name)),
            _ => {
                let sources = names.iter().filter(|(kind, _)| *kind != "pod");
                let chosen: Vec<Value> = sources
                    .filter(|_| random.one_in(2))
                    .map(|(kind, name)| match *kind {
                        "secret" => json!({"secretRef": {"name": name}}),
                        _ => json!({"configMapRef": {"name": name}}),
                    })
                    .collect();
                let container = json!({"name": "c", "image": "none", "envFrom": chosen});
                let pod = pod(&name).without_grace_period();
                ("pod", pod.with(json!({"spec": {"containers": [container]}})))
            }
        };
        let mut owners = Vec::new();
        for (kind, name) in &names {
            if random.one_in(4) {
                let uid =
                    plane.api().field(&format!("{kind}/{name}"), ns, ".metadata.uid").unwrap();
                let kinds = ["Pod", "Secret", "ConfigMap"];
                let kind = kinds.into_iter().find(|one| one.to_lowercase() == *kind);
                owners.push(json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}));
            }
        }
        let owned = json!({"metadata": {"ownerReferences": owners}});
        plane.api().create(&made.with_namespace(ns).with(owned), ns).unwrap().success().unwrap();
        names.push((kind, name));
    }
    names.into_iter().map(|(kind, name)| format!("{kind}/{name}")).collect()
}

/// `BELAY_DELETE_GRAPHS=200` tests so many graphs.
#[test]
fn of_random_graphs_what_impact_says_stays() {
    let plane = &world().plane;
    let labels = json!({"matchLabels": {"random": "delete"}});
    let target = json!({"apiGroups": [""], "resources": ["secrets", "configmaps"],
        "namespaceSelector": labels});
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, "random-delete", spec);
    let count = std::env::var("BELAY_DELETE_GRAPHS").ok().and_then(|count| count.parse().ok());
    let (count, mut random) = (count.unwrap_or(12), Random::new(0x5eed, 0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let (mut denied, mut deleted) = (0, 0);
    for number in 0..count {
        let ns = format!("random-delete-{number}");
        let namespace = object("v1", "Namespace", &ns).with_labels(json!({"random": "delete"}));
        plane.apply(&namespace).unwrap();
        // A controller creates it when it has time.
        let root = ("cm/kube-root-ca.crt", &*ns);
        plane.api().wait_field(root, LIMIT, ".metadata.uid", |uid| !uid.is_empty()).unwrap();
        let objects = random_graph(plane, &ns, &mut random);
        let targets: Vec<&str> = match number % 4 {
            0 => vec![],
            _ => objects.iter().filter(|_| random.one_in(2)).map(String::as_str).collect(),
        };
        let namespace = format!("ns/{ns}");
        let targets = match targets.is_empty() {
            true => vec![namespace.as_str()],
            false => [&targets[..], &["-n", &ns]].concat(),
        };
        let before = left(plane, &ns);
        let told = json(&belay(plane, &[&["impact"], &targets[..], &["-o", "json"]].concat()));
        plan(plane, &path, &targets);
        let outcome = |outcome: &str, certain: bool| -> BTreeSet<String> {
            let all = told["objects"].as_array().unwrap().iter();
            let all = all.filter(|one| one["outcome"] == outcome && one["certain"] == certain);
            all.map(|one| {
                format!("{}/{}", text(&one["object"]["resource"]), text(&one["object"]["name"]))
            })
            .collect()
        };
        let plan_path = path.display().to_string();
        let args = ["delete", "--plan", &plan_path, "--yes"];
        // After a random line of progress, and then once more.
        let is_denied = told["verdict"] == "Deny";
        if !is_denied {
            is_killed(plane, &args, random.below(7));
        }
        let output = belay(plane, &args);
        let after = left(plane, &ns);
        let context = || format!("graph {number} {targets:?}: {told:#}\n{output:?}");
        if is_denied {
            denied += 1;
            assert_eq!((output.code, &after), (1, &before), "{}", context());
            continue;
        }
        deleted += 1;
        assert_eq!(output.code, 0, "{}", context());
        let uncertain = &outcome("Deleted", false) | &outcome("Held", false);
        let expected = &(&before - &outcome("Deleted", true)) - &uncertain;
        assert_eq!(&after - &uncertain, expected, "{}", context());
    }
    assert!(deleted > count / 4 && (denied > 0 || count < 12), "{deleted} {denied}");
}
