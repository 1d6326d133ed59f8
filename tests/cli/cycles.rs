//! Objects that use each other, as targets of one deletion. Each test compares what `impact`
//! predicts with the API server.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Once;

use serde_json::{Value, json};

use crate::harness::kubectl::Output;
use crate::harness::manifest::{
    Manifest as _, config_map, documents, object, owner, pod, relation, secret, workload,
};
use crate::harness::random::Random;
use crate::harness::rbac::{rule, user};
use crate::harness::{Api, ControlPlane, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

const GROUP: &str = "cycles.example.com";

/// A custom resource that uses others of its kind, and perhaps a Secret.
fn link(name: &str, next: &[String], secret: Option<&str>) -> Value {
    let spec = json!({"next": next, "secretName": secret});
    object(&format!("{GROUP}/v1"), "Link", name).with(json!({"spec": spec}))
}

/// `links.cycles.example.com/a`.
fn typed(name: &str) -> String {
    format!("links.{GROUP}/{name}")
}

/// A namespace in which links and Secrets without holds are protected while they are used.
fn namespace(plane: &ControlPlane, prefix: &str) -> String {
    static DEFINED: Once = Once::new();
    DEFINED.call_once(|| {
        plane.define_kind(GROUP, "Link", "links").unwrap();
        let links = json!({"group": GROUP, "resource": "links"});
        let spec = json!({"from": links, "to": links, "nameFieldPath": "spec.next[*]"});
        plane.apply(&relation("cycles-links", spec)).unwrap();
        let secrets = json!({"resource": "secrets"});
        let spec = json!({"from": links, "to": secrets, "nameFieldPath": "spec.secretName"});
        plane.apply(&relation("cycles-secrets", spec)).unwrap();
    });
    let ns = plane.namespace(prefix).unwrap();
    let targets = [policy::target(GROUP, "links", &ns), policy::target("", "secrets", &ns)];
    let spec = json!({"targets": targets, "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    ns
}

/// Creates objects, and waits until belay denies the DELETE of those in use.
fn create(api: &Api, ns: &str, objects: &[Value], used: &[String]) {
    api.apply(&documents(objects), ns).unwrap().success().unwrap();
    for object in used {
        eventually("the denial", LIMIT, || {
            let refused = api.delete(&[object, "--dry-run=server"], ns)?.failure()?;
            if refused.contains("InUse") { Ok(()) } else { Err(refused.into()) }
        })
        .unwrap();
    }
}

/// The names in a list of objects.
fn names(objects: &Value) -> Vec<&str> {
    let objects = objects.as_array().into_iter().flatten();
    objects.map(|one| one["name"].as_str().unwrap()).collect()
}

fn run_printed(plane: &ControlPlane, command: &str) {
    let command = command.replace("\"…\"", "tested");
    let words: Vec<&str> = command.split(' ').collect();
    match words.as_slice() {
        ["kubectl", "belay", args @ ..] => {
            let output = belay(plane, args);
            assert_eq!(output.code, 0, "{command}: {output:?}");
        }
        ["kubectl", args @ ..] => drop(kubectl(plane, args)),
        _ => panic!("{command}"),
    }
}

/// Two links that use each other, a Secret that one of them uses, and a Secret that nothing uses.
struct Pair {
    ns: String,
    all: Vec<String>,
    manifests: Vec<Value>,
}

impl Pair {
    fn new(plane: &ControlPlane, prefix: &str) -> Self {
        let ns = namespace(plane, prefix);
        let [a, b] = ["a", "b"].map(str::to_owned);
        let manifests = vec![
            link("a", std::slice::from_ref(&b), None),
            link("b", std::slice::from_ref(&a), Some("key")),
            secret("key"),
            secret("free"),
        ];
        let all = vec![typed("a"), typed("b"), "secrets/key".to_owned(), "secrets/free".to_owned()];
        create(plane.api(), &ns, &manifests, &all[..3]);
        Self { ns, all, manifests }
    }

    fn exists(&self, plane: &ControlPlane) -> Vec<bool> {
        let exists = |object: &String| plane.api().get(object, &self.ns).unwrap().is_some();
        self.all.iter().map(exists).collect()
    }

    /// A command about objects of the pair.
    fn run(&self, plane: &ControlPlane, command: &str, objects: &[usize], more: &[&str]) -> Output {
        let objects: Vec<&str> = objects.iter().map(|index| self.all[*index].as_str()).collect();
        belay(plane, &[&[command], &objects[..], &["-n", &self.ns], more].concat())
    }
}

#[test]
fn of_targets_that_use_each_other_kubectl_deletes_none_without_an_approval() {
    let plane = &world().plane;
    let pair = Pair::new(plane, "cycle");
    let ns = &pair.ns;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    std::fs::write(&file, documents(&pair.manifests)).unwrap();
    let file = file.display().to_string();
    let command = format!("kubectl belay approve {} -n {ns} --reason \"…\"", typed("a"));

    let impact = belay(plane, &["impact", "-f", &file, "-n", ns, "-o", "json"]);
    let told = json(&impact);
    assert_eq!((impact.code, &told["verdict"]), (1, &"Deny".into()), "{told:#}");
    assert_eq!(told["approve"], json!([command]), "{told:#}");
    assert_eq!(names(&told["accepted"]["targets"]), ["free"], "{told:#}");
    assert_eq!(told.get("order"), None, "{told:#}");
    let text = belay(plane, &["impact", "-f", &file, "-n", ns]).stdout;
    assert!(text.contains("DENIED in part") && !text.contains("ALLOWED"), "{text}");
    assert!(text.contains(&format!("{command}\n")), "{text}");
    let accepted = "in part     kubectl sends a DELETE for each object, so it would still delete 1 \
                    of these 4 objects: secret/free\n";
    assert!(text.contains(accepted), "{text}");

    for objects in [&[0, 1][..], &[1, 0], &[0, 1, 2], &[2, 1, 0]] {
        let impact = pair.run(plane, "impact", objects, &["-o", "json"]);
        let told = json(&impact);
        assert_eq!((impact.code, &told["verdict"]), (1, &"Deny".into()), "{told:#}");
        assert_eq!(told["approve"], json!([command]), "{told:#}");
        assert_eq!(told.get("accepted"), None, "{told:#}");
    }
    let dry = belay(plane, &["delete", "-f", &file, "-n", ns, "--dry-run=server"]);
    assert_eq!(dry.code, 1, "{dry:?}");
    assert!(dry.stdout.contains("DENIED") && !dry.stdout.contains("ALLOWED"), "{dry:?}");
    assert!(dry.stdout.contains(&format!("{command}\n")), "{dry:?}");

    let refused = plane.kubectl(&["delete", "-f", &file, "-n", ns]).unwrap();
    assert_eq!(refused.failure().unwrap().matches("InUse").count(), 3);
    assert_eq!(pair.exists(plane), [true, true, true, false]);

    run_printed(plane, &command);
    let told = eventually("the approval", LIMIT, || {
        let told = json(&pair.run(plane, "impact", &[1, 0, 2], &["-o", "json"]));
        if told["verdict"] == "Allow" { Ok(told) } else { Err(told.to_string().into()) }
    })
    .unwrap();
    assert_eq!(names(&told["order"]["denied"]), ["b", "key"], "{told:#}");
    assert_eq!(names(&told["order"]["targets"]), ["a", "b", "key"], "{told:#}");
    assert_eq!(names(&told["accepted"]["targets"]), ["a"], "{told:#}");
    let done = pair.run(plane, "delete", &[1, 0, 2], &["--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(pair.exists(plane), [false; 4]);
}

/// The user may approve the one that kubectl names first.
#[test]
fn an_approval_of_any_of_them_is_enough() {
    let plane = &world().plane;
    let pair = Pair::new(plane, "cycle-any");
    run_printed(plane, &format!("kubectl belay approve {} -n {} --reason x", pair.all[1], pair.ns));
    eventually("the approval", LIMIT, || {
        let told = json(&pair.run(plane, "impact", &[0, 1], &["-o", "json"]));
        let order = names(&told["order"]["targets"]);
        if order == ["b", "a"] { Ok(()) } else { Err(told.to_string().into()) }
    })
    .unwrap();
    let done = pair.run(plane, "delete", &[0, 1, 2], &["--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(pair.exists(plane), [false, false, false, true]);
}

/// Only the answers of the API server contain the cycle.
#[test]
fn a_user_who_may_not_read_the_policies_gets_the_approval_as_well() {
    let plane = &world().plane;
    let pair = Pair::new(plane, "cycle-dev");
    let name = format!("dev-{}", pair.ns);
    let dev = plane.user(&name, None).unwrap();
    let rights = [rule(GROUP, "*", "*"), rule("", "secrets", "*")];
    plane.grant(&name, Some(&pair.ns), &rights, &[user(&name)]).unwrap();
    let run = |command: &str, more: &[&str]| {
        let objects: Vec<&str> = pair.all.iter().map(String::as_str).collect();
        belay_as(&dev, &[&[command], &objects[..], &["-n", &pair.ns], more].concat())
    };
    let told = eventually("the rights", LIMIT, || {
        let output = run("impact", &["-o", "json"]);
        if output.code == 1 { Ok(json(&output)) } else { Err(format!("{output:?}").into()) }
    })
    .unwrap();
    let command = format!("kubectl belay approve {} -n {} --reason \"…\"", typed("a"), pair.ns);
    assert_eq!(
        (&told["verdict"], &told["approve"]),
        (&"Deny".into(), &json!([command])),
        "{told:#}"
    );
    assert_eq!(names(&told["accepted"]["targets"]), ["free"], "{told:#}");
    let dry = run("delete", &["--dry-run=server"]);
    assert_eq!(dry.code, 1, "{dry:?}");
    assert!(dry.stdout.contains(&command) && !dry.stdout.contains("ALLOWED"), "{dry:?}");
}

/// The namespace controller can't delete them, so `delete` starts with one of them.
#[test]
fn the_plan_of_a_namespace_has_the_approval_of_its_cycle() {
    let plane = &world().plane;
    let pair = Pair::new(plane, "cycle-ns");
    let namespace = format!("ns/{}", pair.ns);
    let command = format!("kubectl belay approve {} -n {} --reason \"…\"", typed("a"), pair.ns);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json").display().to_string();
    let impact = belay(plane, &["impact", &namespace, "--out", &path]);
    assert_eq!(impact.code, 1, "{impact:?}");
    assert!(impact.stdout.contains(&format!("{command}\n")), "{impact:?}");
    let planned: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(planned["verdict"], "Deny", "{planned:#}");
    assert_eq!(planned["approvals"][0]["command"], command.as_str(), "{planned:#}");
    let dry = belay(plane, &["delete", "--plan", &path, "--dry-run=server"]);
    assert!(dry.code == 1 && dry.stdout.contains(&command), "{dry:?}");
    assert!(!dry.stdout.contains("ALLOWED"), "{dry:?}");
    run_printed(plane, &command);
    let done = eventually("the approval", LIMIT, || {
        let done = belay(plane, &["delete", "--plan", &path, "--yes"]);
        if done.code == 0 { Ok(done) } else { Err(format!("{done:?}").into()) }
    })
    .unwrap();
    assert!(done.stdout.contains("objects were deleted"), "{done:?}");
    assert_eq!(plane.api().get(&namespace, "").unwrap(), None);
}

/// The links that exist.
fn existing(plane: &ControlPlane, ns: &str) -> BTreeSet<String> {
    let names = plane.api().fields(&format!("links.{GROUP}"), ns, "", ".metadata.name").unwrap();
    names.into_iter().map(|name| typed(&name)).collect()
}

/// Writes the targets to a file, in this order.
fn write_targets(path: &Path, targets: &[(String, Value)]) {
    let manifests: Vec<Value> = targets.iter().map(|(_, manifest)| manifest.clone()).collect();
    std::fs::write(path, documents(&manifests)).unwrap();
}

/// `BELAY_CYCLES=200` tests so many graphs.
#[test]
fn of_random_cycles_kubectl_deletes_what_impact_says() {
    let plane = &world().plane;
    let count = std::env::var("BELAY_CYCLES").ok().and_then(|count| count.parse().ok());
    let (count, mut random) = (count.unwrap_or(8), Random::new(0x5eed, 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("targets.yaml");
    let file = path.display().to_string();
    let ns = namespace(plane, "cycle-random");
    let (mut in_part, mut denied) = (0, 0);
    for number in 0..count {
        let all: Vec<String> =
            (0..3 + random.below(4)).map(|index| format!("g{number}-{index}")).collect();
        let mut used = BTreeSet::new();
        let mut links = Vec::new();
        for name in &all {
            let next = all.iter().filter(|next| *next != name && random.one_in(all.len()));
            let next: Vec<String> = next.cloned().collect();
            used.extend(next.iter().map(|name| typed(name)));
            links.push((typed(name), link(name, &next, None)));
        }
        let manifests: Vec<Value> = links.iter().map(|(_, link)| link.clone()).collect();
        create(plane.api(), &ns, &manifests, &used.into_iter().collect::<Vec<_>>());
        // Most links, in a random order.
        let mut targets = Vec::new();
        while !links.is_empty() {
            let next = links.remove(random.below(links.len()));
            if !random.one_in(6) || targets.len() < 2 {
                targets.push(next);
            }
        }
        write_targets(&path, &targets);
        let arguments = ["-f", &file, "-n", &ns];
        let impact =
            || json(&belay(plane, &[&["impact"], &arguments[..], &["-o", "json"]].concat()));
        let told = impact();
        let is_allowed = told["verdict"] == "Allow" && told.get("order").is_none();
        let mut expected: BTreeSet<String> = targets.iter().map(|(name, _)| name.clone()).collect();
        if !is_allowed {
            let accepted = names(&told["accepted"]["targets"]);
            in_part += usize::from(!accepted.is_empty());
            denied += usize::from(told["verdict"] == "Deny");
            expected = accepted.into_iter().map(typed).collect();
        }
        let before = existing(plane, &ns);
        let output = plane.kubectl(&[&["delete"], &arguments[..]].concat()).unwrap();
        let given = targets.clone();
        let context = || format!("graph {number}: {told:#}\n{output:?}\n{given:#?}");
        assert_eq!(output.code == 0, is_allowed, "{}", context());
        let deleted: BTreeSet<String> = &before - &existing(plane, &ns);
        assert_eq!(deleted, expected, "{}", context());

        // The printed commands delete the others.
        targets.retain(|(name, _)| !deleted.contains(name));
        if targets.is_empty() {
            continue;
        }
        write_targets(&path, &targets);
        let told = impact();
        let commands = told["approve"].as_array().unwrap();
        commands.iter().for_each(|command| run_printed(plane, command.as_str().unwrap()));
        let told = eventually("the approvals", LIMIT, || {
            let told = impact();
            if told["verdict"] == "Allow" { Ok(told) } else { Err(told.to_string().into()) }
        })
        .unwrap();
        match told["order"]["commands"].as_array() {
            Some(commands) => {
                commands.iter().for_each(|command| run_printed(plane, command.as_str().unwrap()));
            }
            None => drop(kubectl(plane, &[&["delete"], &arguments[..]].concat())),
        }
        let remaining = existing(plane, &ns);
        assert!(targets.iter().all(|(name, _)| !remaining.contains(name)), "{}", context());
    }
    assert!(count < 8 || in_part > 0 && denied > 0, "{in_part} {denied}");
}

#[test]
fn the_reason_for_an_uncertain_deletion_of_owners_in_a_cycle_is_shown() {
    let plane = &world().plane;
    let ns = plane.namespace("cycle-owners").unwrap();
    for name in ["a", "b"] {
        plane.apply(&config_map(name).with_namespace(&ns)).unwrap();
    }
    for (name, other) in [("a", "b"), ("b", "a")] {
        let uid = plane.api().field(&format!("configmap/{other}"), &ns, ".metadata.uid").unwrap();
        let mut owner = owner("ConfigMap", other, &uid);
        owner["blockOwnerDeletion"] = true.into();
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        plane.patch(&format!("configmap/{name}"), &ns, &patch);
    }
    let impact =
        |cascade: &str| belay(plane, &["impact", "cm/a", "-n", &ns, "--cascade", cascade]).stdout;
    let text = impact("foreground");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("deleted?")).collect();
    let note = "it owns itself through its dependents, so the garbage collector may keep it";
    assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with(note)), "{text}");
    let text = impact("background");
    assert!(!text.contains("deleted?") && !text.contains(note), "{text}");
}

#[test]
fn the_controller_that_recreates_a_target_is_named() {
    let plane = &world().plane;
    let ns = plane.namespace("recreated").unwrap();
    let web = workload("Deployment", "web", &pod("web").without_grace_period());
    plane.apply(&web.with_namespace(&ns)).unwrap();
    let [set, web_pod] = ["replicasets.apps", "pods"].map(|kind| {
        let name = eventually(kind, LIMIT, || {
            Ok(plane.api().fields(kind, &ns, "", ".metadata.name")?.pop().ok_or("none")?)
        });
        name.unwrap()
    });
    let warnings = |targets: &[&str]| {
        let args = [&["impact"], targets, &["-n", &ns, "-o", "json"]].concat();
        json(&belay(plane, &args))["warnings"].clone()
    };
    let (set, web_pod) = (format!("rs/{set}"), format!("pod/{web_pod}"));
    let quoted = |object: &str| object.split_once('/').unwrap().1.to_owned();
    let of_set = format!(
        "deployment.apps \"web\" controls replicaset.apps \"{}\", and re-creates it",
        quoted(&set)
    );
    assert_eq!(warnings(&[&set]), json!([of_set]));
    let of_pod = format!(
        "replicaset.apps \"{}\" controls pod \"{}\", and re-creates it",
        quoted(&set),
        quoted(&web_pod)
    );
    assert_eq!(warnings(&[&web_pod]), json!([of_pod]));
    assert_eq!(warnings(&[&set, &web_pod]), json!([of_set]));
    assert_eq!(warnings(&["deploy/web", &set, &web_pod]), json!([]));
    assert_eq!(warnings(&["deploy/web"]), json!([]));

    let uid = plane.api().field(&set, &ns, ".metadata.uid").unwrap();
    kubectl(plane, &["delete", &set, "-n", &ns]);
    let again = |other: &str| !other.is_empty() && other != uid;
    plane.api().wait_field((&set, &ns), LIMIT, ".metadata.uid", again).unwrap();
}
