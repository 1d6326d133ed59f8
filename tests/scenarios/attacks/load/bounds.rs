//! Sizes: lists, objects and references far larger than any controller writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, object};
use crate::harness::{direct, eventually};
use crate::team::{SOON, Team};
use crate::{policy, world};

/// A merge patch that sets so many finalizers.
fn finalizers(count: usize) -> String {
    let all: Vec<String> = (0..count).map(|n| format!("a.b/{n}")).collect();
    json!({"metadata": {"finalizers": all}}).to_string()
}

#[test]
fn h06_thousands_of_finalizers_are_refused_and_others_are_answered_meanwhile() {
    let team = Team::new(&world().plane, "h06");
    team.apply(&config_map("large").with_protect_label("Always"));
    team.apply(&config_map("precious").with_protect_label("Always"));
    let patch = std::env::temp_dir().join(format!("{}-patch.json", team.ns));
    std::fs::write(&patch, finalizers(20_000)).unwrap();
    let patch_file = format!("--patch-file={}", patch.display());
    std::thread::scope(|scope| {
        let attacks: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    team.kubectl(&["patch", "configmap", "large", "--type=merge", &patch_file])
                })
            })
            .collect();
        let verdict = team.delete(&["configmap/precious"]);
        assert!(verdict.stderr.contains("is protected"), "{}", verdict.stderr);
        for attack in attacks {
            let stderr = attack.join().unwrap().stderr;
            assert!(stderr.contains("belay supports at most 1000"), "{stderr}");
        }
    });
    let _ = std::fs::remove_file(patch);
}

/// Far more than the API server accepts: a caller who knows the path posts it directly.
#[test]
fn h06_posted_reviews_of_any_length_are_answered_and_so_is_another() {
    let plane = &world().plane;
    let team = Team::new(plane, "h06");
    team.apply(&config_map("posted").with_protect_label("Always"));
    let uid = team.field("configmap/posted", ".metadata.uid");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "posted",
        "namespace": team.ns, "uid": uid, "labels": {"belay.dev/protect": "Always"}}});
    let with = |field: &str, list: Vec<Value>| {
        let mut object = object.clone();
        object["metadata"][field] = list.into();
        object
    };
    let finalizers = (0..60_000).map(|n| json!(format!("a.b/{n}")));
    // These keys once had the same hash.
    let owners = (0..9_000).map(|n| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{n}"),
            "uid": format!("d308a385-886a-3f24-8000-{n:012x}")})
    });
    let path = direct::registered_path(plane, "validatingwebhookconfiguration").unwrap();
    let client = direct::client(plane, world().belay.replicas[0].listen).unwrap();
    for (large, says) in [
        (with("finalizers", finalizers.collect()), "has 60000 finalizers"),
        (with("ownerReferences", owners.collect()), "has 9000 owner references"),
    ] {
        for (old, new) in [(&large, &object), (&object, &large)] {
            let update = direct::review(("", "configmaps"), "UPDATE", "mallory", &[], (old, new));
            let delete = direct::delete_review(("", "configmaps"), "jane", &[], &object);
            std::thread::scope(|scope| {
                let post = || client.post(&path, &update).body;
                let attacks: Vec<_> = (0..4).map(|_| scope.spawn(post)).collect();
                let verdict = client.post(&path, &delete).body;
                assert!(verdict.contains("is protected"), "{verdict}");
                for attack in attacks {
                    let answer = attack.join().unwrap();
                    assert!(answer.contains(says), "{answer}");
                }
            });
        }
    }
}

/// Deletes an object with a dependent in the foreground that has the maximum size in etcd.
/// In JSON `<` takes six bytes, and the review of an UPDATE has two such objects.
fn deletes_in_foreground(
    team: &Team<'_>,
    (path, resource, kind): (&str, &str, &str),
    large: Value,
) {
    let (plane, ns) = (team.plane, &team.ns);
    let group = path.strip_prefix("/apis/");
    let api_version = group.unwrap_or("v1");
    let full_name = match group.and_then(|group| group.split_once('/')) {
        Some((group, _)) => format!("{resource}.{group}"),
        None => resource.to_owned(),
    };
    let object = object(api_version, kind, "large").with(large);
    // kubectl would escape it on its way to the API server, which takes 3 MiB.
    let raw = format!("{path}/namespaces/{ns}/{resource}");
    let create = ["create", "--raw", &raw, "-f", "-"];
    plane.apply_to(&create, &object).unwrap().success().unwrap();
    let uid = crate::people::field(plane, ns, &format!("{full_name}/large"), ".metadata.uid");
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "large", "uid": uid});
    let child = config_map("child").with_owner(owner);
    plane.apply_to(&["create", "-n", ns, "-f", "-"], &child).unwrap().success().unwrap();
    let object = format!("{full_name}/large");
    let args = ["delete", &object, "-n", ns, "--cascade=foreground", "--wait=false"];
    plane.kubectl(&args).unwrap().success().unwrap();
    for object in ["configmap/child", &object] {
        team.wait_until_deleted(object);
    }
}

#[test]
fn h15_a_foreground_delete_of_the_largest_object_completes() {
    let plane = &world().plane;
    let team = Team::new(plane, "h15");
    let ns = &team.ns;
    let group = team.group();
    plane.define_kind(&group, "Gadget", "gadgets").unwrap();
    let crd = format!("crd/gadgets.{group}");
    for (name, api_group, resource) in
        [("sets", "apps", "replicasets"), ("gadgets", &*group, "gadgets")]
    {
        let target = policy::target(api_group, resource, ns);
        let spec = json!({"targets": [target], "protect": {"fromOrphaning": {}}});
        policy::apply(plane, &format!("{ns}-{name}"), spec);
    }

    // etcd takes 1.5 MiB. Kubernetes' own kinds are stored without escapes: a
    // review has 17 MiB.
    let labels = json!({"app": "large"});
    let container = json!({"name": "c", "image": "none", "args": ["<".repeat(1_400_000)]});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template":
        {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
    let sets = ("/apis/apps/v1", "replicasets", "ReplicaSet");
    deletes_in_foreground(&team, sets, json!({"spec": spec}));
    // Custom resources are stored as JSON, with escapes.
    let path = format!("/apis/{group}/v1");
    let data = "<".repeat(1_400_000 / 6);
    deletes_in_foreground(&team, (&path, "gadgets", "Gadget"), json!({"data": data}));

    for name in ["sets", "gadgets"] {
        let policy = format!("{ns}-{name}");
        plane.delete(&["deletionpolicy", &policy], "");
    }
    plane.kubectl(&["delete", &crd, "--wait=false"]).unwrap().success().unwrap();
}

/// Each DELETE of the ConfigMap checks every Pod that uses it, and all owners above each of
/// them.
#[test]
fn h40_reviews_that_take_much_work_delay_no_other_namespace_and_let_no_eviction_pass() {
    let (plane, large, quiet) = (&world().plane, "large", "quiet");
    let (team, other) = (Team::new(plane, "h40"), Team::new(plane, "h40-other"));
    other.apply(&config_map(quiet).with_protect_label("Always"));
    let owner = |kind: &str, name: &str, uid: &str| {
        json!({"apiVersion": if kind == "Nope" { "nope.example.com/v9" } else { "v1" },
        "kind": kind, "name": name, "uid": uid})
    };
    let mut above: Option<Value> = None;
    for level in 0..20 {
        let gone = (0..998).map(|n| owner("ConfigMap", &format!("a{n}"), &format!("{level}-{n}")));
        let mut owners: Vec<Value> = gone.chain(above.clone()).collect();
        // The garbage collector does not know this kind, so it keeps the object.
        owners.push(owner("Nope", "n", "n"));
        let name = format!("level{level}");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": owners}});
        team.send(&["create", "-f", "-"], &object).success().unwrap();
        let uid = team.field(&format!("configmap/{name}"), ".metadata.uid");
        above = Some(owner("ConfigMap", &name, &uid));
    }
    team.apply(&config_map(large).with_protect_label("WhileUsed"));
    let pod = |name: String, labels: Value, owners: Vec<&Value>, uses: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": {"schedulerName": "none", "containers": [{"name": "c", "image": "none",
                "envFrom": [{"configMapRef": {"name": uses}}]}]}})
    };
    let owners: Vec<&Value> = above.iter().collect();
    let mut pods: Vec<Value> =
        (0..400).map(|n| pod(format!("p{n}"), json!({}), owners.clone(), large)).collect();
    pods.push(pod("kept".into(), json!({"belay.dev/protect": "Always"}), Vec::new(), "none"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    team.send(&["create", "-f", "-"], &list).success().unwrap();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "kept", "namespace": team.ns}})
    .to_string();
    let evict = || {
        let path = format!("/api/v1/namespaces/{}/pods/kept/eviction", team.ns);
        team.send(&["create", "--raw", &path, "-f", "-"], &eviction)
    };
    let dry = |team: &Team<'_>, name: &str| {
        team.delete(&[&format!("configmap/{name}"), "--dry-run=server"])
    };
    eventually("the users are known", SOON, || {
        let said = dry(&team, large);
        // A refusal, or the warning that the hold keeps it.
        if said.stderr.is_empty() { Err(said.stdout.into()) } else { Ok(()) }
    })
    .unwrap();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                for _ in 0..3 {
                    dry(&team, large);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while answered.load(Ordering::Relaxed) < 72 {
            let said = dry(&other, quiet).failure().unwrap();
            assert!(said.contains("is protected"), "{said}");
            let said = evict();
            assert!(!said.ok(), "{}", said.stdout);
        }
    });
    team.assert_exists("pod/kept");
}
